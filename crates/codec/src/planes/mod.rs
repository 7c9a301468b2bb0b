//! The lossless codec: groups bytes of equal weight into planes, and codes frequent bytes in few bits.

mod block;
mod code;
mod polynomial;
mod prefix;
mod shape;
mod unit;
mod values;

use crate::codec::Codec;
use crate::container;
use crate::element::Element;
use crate::error::{Invalid, Result};
use crate::header::{CodecId, Header};

pub(crate) use shape::{BLOCK_BYTES, GROUP, SEGMENT, UNITS, most_block_bytes};

/// A lossless codec for floating point and integers, which needs memory for a few blocks only.
///
/// The encoder splits values into planes: all first bytes, all second bytes, and so on. The exponent of a
/// floating-point value has its own plane. In each plane of a block of 16 KiB, the most frequent bytes have codes of
/// one to four bits, the next bytes longer codes, and so on. For exponents of weights, the length is within a few
/// hundredths of a bit of the plane's entropy. Groups of 32 zeros are omitted, and so are planes whose bytes are all the
/// same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Planes {
    predictor: Predictor,
}

/// The prediction of a value, and so the stored difference from it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Predictor {
    /// The value itself is stored. Best for data without order: weights, moments, degrees.
    #[default]
    None = 0,
    /// The difference between the value's bits, as an integer, and those of the value before is stored. Best for fields
    /// and sorted integers.
    Previous = 1,
    /// The difference from a polynomial through up to six values before is stored, as the number of values of the type that
    /// lie between. Best for smooth fields. For [`Element::F32`] and [`Element::F64`] only. Each block has the order of the
    /// polynomial that makes a sample of the block shortest.
    Polynomial = 2,
}

impl Predictor {
    /// Returns the predictor of a container of planes.
    pub(crate) const fn of(header: &Header) -> Self {
        match header.parameter {
            0 => Self::None,
            1 => Self::Previous,
            _ => Self::Polynomial,
        }
    }
}

impl Planes {
    /// Makes a codec that stores the values themselves.
    pub const fn new() -> Self {
        Self::with(Predictor::None)
    }

    /// Makes a codec that stores the differences from the values of `predictor`.
    pub const fn with(predictor: Predictor) -> Self {
        Self { predictor }
    }

    /// Returns the codec that makes a sample of the input smallest. The sample is up to 64 blocks, spread without a
    /// period, and is encoded with each predictor.
    pub fn chosen_for(input: &[u8], element: Element) -> Self {
        const PIECES: u64 = 64;
        let blocks: Vec<&[u8]> = input.chunks(BLOCK_BYTES).collect();
        // The places are multiples of the golden ratio: no period of the data matches all of them.
        let spread = |n: u64| {
            let share = n.wrapping_mul(0x9E37_79B9_7F4A_7C15);
            ((u128::from(share) * blocks.len() as u128) >> 64) as usize
        };
        let pieces: Vec<&[u8]> = (0..PIECES.min(blocks.len() as u64))
            .filter_map(|n| blocks.get(spread(n)))
            .map(|block| &block[..block.len() - block.len() % element.bytes()])
            .collect();
        let bytes = |codec: &Self| -> usize {
            let coder = codec.coder(element);
            let mut stored = Vec::new();
            for piece in &pieces {
                container::BlockEncoder::encode(&coder, piece, &mut stored);
            }
            stored.len()
        };
        Self::all(element).min_by_key(bytes).unwrap_or_default()
    }

    /// Returns a codec with each predictor that supports this type.
    pub fn all(element: Element) -> impl Iterator<Item = Self> {
        let all = [Predictor::None, Predictor::Previous, Predictor::Polynomial].map(Self::with);
        all.into_iter()
            .filter(move |codec| codec.check(element).is_ok())
    }

    /// Returns the predictor.
    pub const fn predictor(&self) -> Predictor {
        self.predictor
    }

    /// Returns an error if the predictor does not support this type.
    pub(crate) fn check(&self, element: Element) -> Result<()> {
        match (self.predictor, element) {
            (Predictor::None | Predictor::Previous, _) | (_, Element::F32 | Element::F64) => Ok(()),
            (Predictor::Polynomial, _) => Err(Invalid::Element {
                codec: "planes, polynomial",
                element,
                takes: "it takes F32 and F64",
            }
            .into()),
        }
    }

    const fn coder(&self, element: Element) -> block::PlanesCoder {
        block::PlanesCoder {
            element,
            predictor: self.predictor,
        }
    }
}

impl Codec for Planes {
    fn id(&self) -> CodecId {
        CodecId::Planes
    }

    fn max_encoded_len(&self, len: u64, element: Element) -> Result<u64> {
        self.check(element)?;
        container::most_bytes(CodecId::Planes, element, len)
    }

    fn encode(&self, input: &[u8], element: Element, out: &mut [u8]) -> Result<usize> {
        self.check(element)?;
        let header = self.header(input.len() as u64, element);
        container::encode(&self.coder(element), header, input, out)
    }

    fn decode(&self, container: &[u8], out: &mut [u8]) -> Result<()> {
        let header = Header::parse_of(CodecId::Planes, container)?;
        let predictor = Predictor::of(&header);
        container::decode(
            &Self::with(predictor).coder(header.element),
            &header,
            container,
            out,
        )
    }
}

impl Planes {
    /// Makes the header of a container before encoding.
    pub(crate) const fn header(&self, raw_bytes: u64, element: Element) -> Header {
        Header {
            codec: CodecId::Planes,
            element,
            parameter: self.predictor as u8,
            raw_bytes,
            stored_bytes: 0,
            bound: 0.0,
        }
    }
}
