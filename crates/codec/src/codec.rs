//! The interface of all codecs.

use std::fmt::Debug;

use crate::element::Element;
use crate::error::{Invalid, Result};
use crate::header::CodecId;

/// Encodes inputs to containers, and decodes them.
///
/// The input, its type and the codec's parameters alone decide the encoded bytes, never the number of threads, nor
/// whether a processor or a GPU encodes.
pub trait Codec: Debug + Send + Sync {
    /// The number of the codec in containers.
    fn id(&self) -> CodecId;

    /// The name of the codec in metrics and messages.
    fn name(&self) -> &'static str {
        self.id().name()
    }

    /// Bytes of the longest container for `len` bytes. A caller reserves them, and gives the rest back once it knows
    /// the length. Some inputs reach this length up to the padding.
    ///
    /// # Errors
    ///
    /// [`Invalid::TooLong`]; [`Invalid::Element`] if the codec does not support the type.
    fn max_encoded_len(&self, len: u64, element: Element) -> Result<u64>;

    /// Encodes `input` to the start of `out`, and returns the container's length in bytes. Uses all threads of the
    /// caller's rayon pool, and memory for a few hundred blocks. `input` needs no alignment, and may end within a
    /// value.
    ///
    /// # Errors
    ///
    /// [`Error::Full`](crate::Error::Full) if the container does not fit, which cannot happen with
    /// [`max_encoded_len`](Self::max_encoded_len) bytes; the errors of that method. After an error `out` is
    /// unspecified.
    fn encode(&self, input: &[u8], element: Element, out: &mut [u8]) -> Result<usize>;

    /// Decodes a container of this codec, with the container's parameters, to `out`, which is as long as
    /// [`Header::raw_bytes`](crate::Header::raw_bytes). Other bytes may follow the container.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`](crate::Error::Corrupt) if the bytes are damaged; [`Invalid::Length`],
    /// [`Invalid::OtherCodec`]. After an error `out` is unspecified.
    fn decode(&self, container: &[u8], out: &mut [u8]) -> Result<()>;

    /// Encodes to a new vector.
    ///
    /// # Errors
    ///
    /// As for [`max_encoded_len`](Self::max_encoded_len).
    fn encode_to_vec(&self, input: &[u8], element: Element) -> Result<Vec<u8>> {
        let most = self.max_encoded_len(input.len() as u64, element)?;
        let mut out = vec![0; usize::try_from(most).map_err(|_| Invalid::TooLong { len: most })?];
        let len = self.encode(input, element, &mut out)?;
        out.truncate(len);
        Ok(out)
    }
}
