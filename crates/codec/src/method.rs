//! A codec of this crate, chosen at run time.

use crate::bounded::Bounded;
use crate::codec::Codec;
use crate::element::Element;
use crate::error::Result;
use crate::header::CodecId;
#[cfg(feature = "cuda")]
use crate::header::Header;
use crate::planes::Planes;

/// A codec with its parameters, for configurations and for the calls of [`gpu`](crate::gpu).
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Method {
    /// The lossless codec.
    Planes(Planes),
    /// The codec that keeps an error bound.
    Bounded(Bounded),
}

impl From<Planes> for Method {
    fn from(planes: Planes) -> Self {
        Self::Planes(planes)
    }
}

impl From<Bounded> for Method {
    fn from(bounded: Bounded) -> Self {
        Self::Bounded(bounded)
    }
}

impl Method {
    fn codec(&self) -> &dyn Codec {
        match self {
            Self::Planes(planes) => planes,
            Self::Bounded(bounded) => bounded,
        }
    }

    /// Makes the header of a container before encoding.
    #[cfg(feature = "cuda")]
    pub(crate) fn header(&self, raw_bytes: u64, element: Element) -> Result<Header> {
        match self {
            Self::Planes(planes) => planes
                .check(element)
                .map(|()| planes.header(raw_bytes, element)),
            Self::Bounded(bounded) => bounded.header(raw_bytes, element),
        }
    }
}

impl Codec for Method {
    fn id(&self) -> CodecId {
        self.codec().id()
    }

    fn max_encoded_len(&self, len: u64, element: Element) -> Result<u64> {
        self.codec().max_encoded_len(len, element)
    }

    fn encode(&self, input: &[u8], element: Element, out: &mut [u8]) -> Result<usize> {
        self.codec().encode(input, element, out)
    }

    fn decode(&self, container: &[u8], out: &mut [u8]) -> Result<()> {
        self.codec().decode(container, out)
    }
}
