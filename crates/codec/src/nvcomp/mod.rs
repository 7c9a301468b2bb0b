//! Codecs of nvCOMP, a library of NVIDIA. The user's copy of the library encodes, on the GPU.
//!
//! The crate supports only nvCOMP's codecs of open formats, so that any machine can read a container. Of nvCOMP's
//! decoders, only that of LZ4 keeps within its buffers on damaged bytes; the processor decodes Zstandard.

#[cfg(feature = "nvcomp")]
mod open;

use std::fmt;

use crate::element::Element;
use crate::error::Result;
use crate::header::{CodecId, Header};

/// Bytes of values in a block: the chunk size that nvCOMP's documentation recommends.
pub(crate) const BLOCK_BYTES: usize = 64 << 10;

/// A lossless codec of nvCOMP. The type is no [`Codec`](crate::Codec), as nvCOMP chooses the encoded bytes and only
/// `gpu::NvcompCoder` encodes. With the feature `nvcomp`, [`decode`](crate::decode) decodes its containers on any machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum NvcompCodec {
    /// LZ4, in blocks of 64 KiB.
    Lz4,
    /// Zstandard, in frames of 64 KiB.
    Zstd,
}

impl NvcompCodec {
    /// All codecs of nvCOMP.
    pub const ALL: [Self; 2] = [Self::Lz4, Self::Zstd];

    /// Returns the number of the codec in containers.
    pub const fn id(self) -> CodecId {
        match self {
            Self::Lz4 => CodecId::NvcompLz4,
            Self::Zstd => CodecId::NvcompZstd,
        }
    }

    /// Returns the name of the codec in metrics and configurations.
    pub const fn name(self) -> &'static str {
        self.id().name()
    }

    /// Returns the codec of a container, if it is one of nvCOMP's.
    pub fn of(id: CodecId) -> Option<Self> {
        Self::ALL.into_iter().find(|codec| codec.id() == id)
    }

    /// Returns true if the device decodes this codec. The processor decodes all codecs.
    pub const fn is_decoded_on_device(self) -> bool {
        matches!(self, Self::Lz4)
    }

    /// Returns the bytes of the longest container for `len` bytes. Blocks that do not shrink are stored unencoded.
    ///
    /// # Errors
    ///
    /// [`Invalid::TooLong`](crate::Invalid::TooLong) if no container holds `len` bytes.
    pub fn max_encoded_len(self, len: u64, element: Element) -> Result<u64> {
        crate::container::most_bytes(self.id(), element, len)
    }

    /// Makes the header of a container before encoding.
    #[cfg(all(feature = "nvcomp", feature = "cuda"))]
    pub(crate) const fn header(self, raw_bytes: u64, element: Element) -> Header {
        Header {
            codec: self.id(),
            element,
            parameter: 0,
            raw_bytes,
            stored_bytes: 0,
            bound: 0.0,
        }
    }

    /// Decodes a container of this codec on all threads of the caller's pool.
    #[cfg(feature = "nvcomp")]
    pub(crate) fn decode(self, header: &Header, container: &[u8], out: &mut [u8]) -> Result<()> {
        crate::container::decode(&open::OpenDecoder(self), header, container, out)
    }

    /// Returns the error for a build without the feature `nvcomp`.
    #[cfg(not(feature = "nvcomp"))]
    pub(crate) fn decode(self, _: &Header, _: &[u8], _: &mut [u8]) -> Result<()> {
        Err(crate::Error::NotBuilt {
            codec: self.id().name(),
            feature: "nvcomp",
        })
    }
}

impl fmt::Display for NvcompCodec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
