//! The error-bounded codec: rounds values to multiples of twice the bound and packs their differences.

mod block;
mod quantiser;
mod segment;
mod shape;

use crate::codec::Codec;
use crate::container;
use crate::element::Element;
use crate::error::{Error, Invalid, Result};
use crate::header::{CodecId, Header};

pub(crate) use quantiser::Quantiser;
pub(crate) use shape::{BLOCK_VALUES, GROUP, SEGMENT, SEGMENTS, most_block_bytes};

/// A codec for `f32` and `f64` fields. Decoding changes each value by at most a bound, if the difference is computed in
/// `f64`.
///
/// The encoder rounds each value to a multiple of twice the bound, and stores the differences between successive
/// multiples. Each group of 32 differences has as many bits as its largest one needs. The encoder checks the bound for
/// every value. If a value of a group does not keep the bound (a value that is not finite, or larger than 2^30 bounds), the
/// encoder stores all 32 values bit for bit. For [`Bound::PointwiseRelative`], the encoder rounds not the value, but the
/// value's place among all values of its type.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bounded {
    bound: Bound,
}

/// The largest difference between a value and its decoded form.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Bound {
    /// A difference in the units of the values.
    Absolute(f64),
    /// A share of the largest finite magnitude of the input; above 0, up to 1.
    Relative(f64),
    /// A share of the magnitude of each value; above 0, up to 1. The value keeps its sign and its order of magnitude. Values of
    /// [`Element::F64`] are stored shorter only with a share of 10⁻⁶ or more.
    PointwiseRelative(f64),
}

impl Bounded {
    /// Makes a codec with this bound.
    ///
    /// # Errors
    ///
    /// [`Invalid::Bound`] if the bound is no positive normal number, or a relative one above 1.
    pub fn new(bound: Bound) -> Result<Self> {
        let (value, most, takes) = match bound {
            Bound::Absolute(value) => (value, f64::MAX, "give a positive normal number"),
            Bound::Relative(value) => (value, 1.0, "give a share of the largest value, up to 1"),
            Bound::PointwiseRelative(value) => (value, 1.0, "give a share of each value, up to 1"),
        };
        if !(value.is_normal() && value > 0.0 && value <= most) {
            return Err(Invalid::Bound {
                bound: value,
                takes,
            }
            .into());
        }
        Ok(Self { bound })
    }

    /// Returns the bound.
    pub const fn bound(&self) -> Bound {
        self.bound
    }

    /// Decodes a container of any bound.
    pub(crate) fn decode_any(bytes: &[u8], out: &mut [u8]) -> Result<()> {
        let header = Header::parse_of(CodecId::Bounded, bytes)?;
        match header.element {
            Element::F32 => {
                let coder = block::BoundedCoder::<f32>::new(Quantiser::of::<f32>(&header));
                container::decode(&coder, &header, bytes, out)
            }
            Element::F64 => {
                let coder = block::BoundedCoder::<f64>::new(Quantiser::of::<f64>(&header));
                container::decode(&coder, &header, bytes, out)
            }
            _ => Err(Error::corrupt("the header's fields contradict each other")),
        }
    }

    /// Makes the header of a container before encoding. For a relative bound, the header's bound is still 0.
    ///
    /// # Errors
    ///
    /// [`Invalid::Element`] if the type is neither `F32` nor `F64`.
    pub(crate) fn header(&self, raw_bytes: u64, element: Element) -> Result<Header> {
        check(element)?;
        Ok(Header {
            codec: CodecId::Bounded,
            element,
            parameter: u8::from(matches!(self.bound, Bound::PointwiseRelative(_))),
            raw_bytes,
            stored_bytes: 0,
            bound: match self.bound {
                Bound::Absolute(bound) | Bound::PointwiseRelative(bound) => bound,
                Bound::Relative(_) => 0.0,
            },
        })
    }
}

fn check(element: Element) -> Result<()> {
    match element {
        Element::F32 | Element::F64 => Ok(()),
        _ => Err(Invalid::Element {
            codec: CodecId::Bounded.name(),
            element,
            takes: "it takes F32 and F64",
        }
        .into()),
    }
}

impl Codec for Bounded {
    fn id(&self) -> CodecId {
        CodecId::Bounded
    }

    fn max_encoded_len(&self, len: u64, element: Element) -> Result<u64> {
        check(element)?;
        container::most_bytes(CodecId::Bounded, element, len)
    }

    fn encode(&self, input: &[u8], element: Element, out: &mut [u8]) -> Result<usize> {
        let mut header = self.header(input.len() as u64, element)?;
        let mut peaked = None;
        if let Bound::Relative(share) = self.bound {
            let peak = match element {
                Element::F32 => quantiser::peak::<f32>(input),
                _ => quantiser::peak::<f64>(input),
            };
            let (quantiser, bound) = quantiser::of_share(share, peak);
            header.bound = bound;
            peaked = Some(quantiser);
        }
        match element {
            Element::F32 => {
                let quantiser = peaked.unwrap_or_else(|| Quantiser::of::<f32>(&header));
                let coder = block::BoundedCoder::<f32>::new(quantiser);
                container::encode(&coder, header, input, out)
            }
            _ => {
                let quantiser = peaked.unwrap_or_else(|| Quantiser::of::<f64>(&header));
                let coder = block::BoundedCoder::<f64>::new(quantiser);
                container::encode(&coder, header, input, out)
            }
        }
    }

    fn decode(&self, container: &[u8], out: &mut [u8]) -> Result<()> {
        Self::decode_any(container, out)
    }
}
