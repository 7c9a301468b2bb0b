//! The interface of all codecs.

use std::fmt::Debug;

use crate::element::Element;
use crate::error::{Invalid, Result};
use crate::header::CodecId;

/// Encodes inputs to containers, and decodes them.
///
/// What comes out is decided by the input, its type and the codec's parameters alone: never by the number
/// of threads, and not by whether a processor or a GPU encodes.
pub trait Codec: Debug + Send + Sync {
    /// The number that containers name it by.
    fn id(&self) -> CodecId;

    /// What metrics and messages call it.
    fn name(&self) -> &'static str {
        self.id().name()
    }

    /// Bytes of the longest container for `len` bytes: what is reserved, and given back once the length is
    /// known. There are inputs that reach it to within the padding.
    ///
    /// # Errors
    ///
    /// [`Invalid::TooLong`]; [`Invalid::Element`] if the codec does not work on these.
    fn max_encoded_len(&self, len: u64, element: Element) -> Result<u64>;

    /// Encodes `input` to the start of `out`, and returns the container's length. Uses all threads of the
    /// caller's rayon pool, and memory for a few hundred blocks. `input` needs no alignment, and may end
    /// within a value.
    ///
    /// # Errors
    ///
    /// [`Error::Full`](crate::Error::Full) if it does not fit, which does not happen with
    /// [`max_encoded_len`](Self::max_encoded_len) bytes; what that finds. `out` is unspecified then.
    fn encode(&self, input: &[u8], element: Element, out: &mut [u8]) -> Result<usize>;

    /// Decodes a container of this codec, which may be followed by other bytes, to `out`, which is as long
    /// as [`Header::raw_bytes`](crate::Header::raw_bytes) says. The codec's parameters are those of the container.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`](crate::Error::Corrupt) if the bytes are not what was written;
    /// [`Invalid::Length`], [`Invalid::OtherCodec`]. `out` is unspecified then.
    fn decode(&self, container: &[u8], out: &mut [u8]) -> Result<()>;

    /// Encodes to new memory.
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
