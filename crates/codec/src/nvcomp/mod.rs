//! Codecs of nvCOMP, NVIDIA's library: encoded by the user's own copy of it, on the GPU.
//!
//! Only those are here whose formats are open, so that a container is read on any machine. Of nvCOMP's decoders, only the one of
//! LZ4 stays within its buffers whatever the bytes are; Zstandard is decoded by the processor.

#[cfg(feature = "nvcomp")]
mod open;

use std::fmt;

use crate::element::Element;
use crate::error::Result;
use crate::header::{CodecId, Header};

/// Bytes of values in a block: what nvCOMP's documentation recommends as the size of its chunks.
pub(crate) const BLOCK_BYTES: usize = 64 << 10;

/// A lossless codec of nvCOMP. Not a [`Codec`](crate::Codec): the bytes are nvCOMP's choice, and only
/// `gpu::NvcompCoder` encodes. With the feature `nvcomp`, [`decode`](crate::decode) decodes its containers anywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum NvcompCodec {
    /// LZ4, in blocks of 64 KiB.
    Lz4,
    /// Zstandard, in frames of 64 KiB.
    Zstd,
}

impl NvcompCodec {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Lz4, Self::Zstd];

    /// The number that containers name it by.
    pub const fn id(self) -> CodecId {
        match self {
            Self::Lz4 => CodecId::NvcompLz4,
            Self::Zstd => CodecId::NvcompZstd,
        }
    }

    /// What containers, metrics and configurations call it.
    pub const fn name(self) -> &'static str {
        self.id().name()
    }

    /// The codec of a container, if it is one of nvCOMP's.
    pub fn of(id: CodecId) -> Option<Self> {
        Self::ALL.into_iter().find(|codec| codec.id() == id)
    }

    /// Whether the device decodes it. The processor does in any case.
    pub const fn is_decoded_on_device(self) -> bool {
        matches!(self, Self::Lz4)
    }

    /// Bytes of the longest container for `len` bytes. Blocks that do not shrink are stored as they are.
    ///
    /// # Errors
    ///
    /// [`Invalid::TooLong`](crate::Invalid::TooLong)
    pub fn max_encoded_len(self, len: u64, element: Element) -> Result<u64> {
        crate::container::most_bytes(self.id(), element, len)
    }

    /// The header of a container that is not encoded yet.
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

    /// Decodes a container of it on all threads of the caller's pool.
    #[cfg(feature = "nvcomp")]
    pub(crate) fn decode(self, header: &Header, container: &[u8], out: &mut [u8]) -> Result<()> {
        crate::container::decode(&open::OpenDecoder(self), header, container, out)
    }

    /// Says what is missing.
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
