//! The interface of all codecs.

use std::fmt::Debug;

use crate::element::Element;
use crate::error::{Invalid, Result};
use crate::header::CodecId;

/// A codec: encodes inputs to containers, and decodes containers.
///
/// The encoded bytes depend only on the input, its type and the codec's parameters. The number of threads does not change
/// them, and a GPU encodes to the same bytes as a processor.
pub trait Codec: Debug + Send + Sync {
    /// Returns the number of the codec in containers.
    fn id(&self) -> CodecId;

    /// Returns the name of the codec in metrics and messages.
    fn name(&self) -> &'static str {
        self.id().name()
    }

    /// Returns the bytes of the longest container for `len` bytes. A caller reserves them, and gives the rest back once it
    /// knows the container's length. Some inputs reach this length, except for padding.
    ///
    /// # Errors
    ///
    /// [`Invalid::TooLong`] if no container holds `len` bytes; [`Invalid::Element`] if the codec does not support the type.
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
    /// [`Error::Corrupt`](crate::Error::Corrupt) if the bytes are damaged; [`Invalid::Length`] if `out` has another length;
    /// [`Invalid::OtherCodec`] if another codec wrote the container. After an error `out` is unspecified.
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
