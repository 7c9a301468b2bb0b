//! The header of a container. docs/src/codec.md describes it byte by byte.

use crate::element::Element;
use crate::error::{Error, Invalid, Result};

/// Bytes of a header.
pub const HEADER_BYTES: usize = 64;
/// Blocks start at multiples of this, in bytes.
pub(crate) const ALIGNMENT: usize = 16;

/// Offset of the bytes behind the last whole value, at most 7, in a header.
pub(crate) const TAIL_AT: usize = 40;

const MAGIC: [u8; 8] = *b"tfcodec\0";
/// The newest format. Format 2 has polynomials and pointwise bounds, and only containers with one of these have it.
const FORMAT: u8 = 2;

/// The codec of a container. Containers store the number of the codec, so no other codec ever gets the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[repr(u8)]
pub enum CodecId {
    /// [`Planes`](crate::Planes).
    Planes = 1,
    /// [`Bounded`](crate::Bounded).
    Bounded = 2,
    /// [`NvcompCodec::Lz4`](crate::NvcompCodec).
    NvcompLz4 = 3,
    /// [`NvcompCodec::Zstd`](crate::NvcompCodec).
    NvcompZstd = 4,
}

impl CodecId {
    /// All codecs.
    const ALL: [Self; 4] = [
        Self::Planes,
        Self::Bounded,
        Self::NvcompLz4,
        Self::NvcompZstd,
    ];

    /// Returns the name of the codec in metrics and messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Planes => "planes",
            Self::Bounded => "bounded",
            Self::NvcompLz4 => "nvcomp-lz4",
            Self::NvcompZstd => "nvcomp-zstd",
        }
    }
}

/// The header of a container.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Header {
    /// The codec of the container.
    pub codec: CodecId,
    /// The type of the input's values.
    pub element: Element,
    /// The codec's parameter: for [`Planes`](crate::Planes) the number of the predictor; for [`Bounded`](crate::Bounded) 1 if
    /// the bound is pointwise, otherwise 0; for other codecs 0.
    pub(crate) parameter: u8,
    /// Bytes of the input.
    pub raw_bytes: u64,
    /// Bytes of the container, this header included.
    pub stored_bytes: u64,
    /// The largest difference between a value and its decoded form; if [`is_pointwise`](Self::is_pointwise), as a share of the
    /// value. 0 if the codec is lossless.
    pub bound: f64,
}

impl Header {
    /// Returns true if these bytes start as a container of any format version does.
    pub fn is_one(bytes: &[u8]) -> bool {
        bytes.starts_with(&MAGIC)
    }

    /// Reads a header, and makes all checks that do not need the rest of the container.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] if no container of a known format starts with these bytes.
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        let bytes: &[u8; HEADER_BYTES] = bytes
            .first_chunk()
            .ok_or(Error::corrupt("it is shorter than a header"))?;
        let word = |at| word(bytes, at);
        if bytes[..8] != MAGIC {
            return Err(Error::corrupt("it does not start as a container does"));
        }
        if !(1..=FORMAT).contains(&bytes[8]) {
            return Err(Error::corrupt("its format is not known to this version"));
        }
        if word(56) != check(bytes) {
            return Err(Error::corrupt("the header's check does not fit"));
        }
        let codec = CodecId::ALL
            .into_iter()
            .find(|codec| *codec as u8 == bytes[9])
            .ok_or(Error::corrupt("its codec is not known to this version"))?;
        let element = Element::from_code(bytes[10])
            .ok_or(Error::corrupt("its type of elements is not known"))?;
        let header = Self {
            codec,
            element,
            parameter: bytes[11],
            raw_bytes: word(16),
            stored_bytes: word(24),
            bound: f64::from_bits(word(32)),
        };
        let sound = match codec {
            CodecId::Planes => {
                let takes = match header.parameter {
                    0 | 1 => true,
                    2 => matches!(element, Element::F32 | Element::F64),
                    _ => false,
                };
                takes && header.bound == 0.0
            }
            CodecId::Bounded => {
                let most = if header.is_pointwise() { 1.0 } else { f64::MAX };
                header.parameter <= 1
                    && matches!(element, Element::F32 | Element::F64)
                    && header.bound > 0.0
                    && header.bound <= most
            }
            CodecId::NvcompLz4 | CodecId::NvcompZstd => {
                header.parameter == 0 && header.bound == 0.0
            }
        };
        let blocks = u64::from(u32::from_le_bytes([
            bytes[12], bytes[13], bytes[14], bytes[15],
        ]));
        if !sound || bytes[8] != header.format() || word(48) != 0 || header.blocks() != blocks {
            return Err(Error::corrupt("the header's fields contradict each other"));
        }
        let most = crate::container::most_bytes(codec, element, header.raw_bytes);
        let least = crate::container::least_bytes(&header);
        if !most.is_ok_and(|most| (least..=most).contains(&header.stored_bytes)) {
            return Err(Error::corrupt("its length is not possible"));
        }
        Ok(header)
    }

    /// Makes the checks of [`parse`](Self::parse) on a header whose fields the caller may have changed.
    ///
    /// # Errors
    ///
    /// As for [`parse`](Self::parse).
    #[cfg(any(test, feature = "cuda"))]
    pub(crate) fn check(&self) -> Result<()> {
        Self::parse(&self.to_bytes(&[])).map(|_| ())
    }

    /// Reads the header of a container of this codec.
    ///
    /// # Errors
    ///
    /// As for [`parse`](Self::parse), and [`Invalid::OtherCodec`] if another codec wrote the container.
    pub(crate) fn parse_of(codec: CodecId, bytes: &[u8]) -> Result<Self> {
        let header = Self::parse(bytes)?;
        match header.codec == codec {
            true => Ok(header),
            false => Err(Invalid::OtherCodec {
                written: header.codec.name(),
                asked: codec.name(),
            }
            .into()),
        }
    }

    /// Returns the bytes of the container and of its input, for a caller that has `stored` bytes of containers and room for
    /// `raw` bytes of input.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] if either number is 0, or exceeds the caller's.
    pub fn within(&self, stored: usize, raw: usize) -> Result<(usize, usize)> {
        let within = |bytes: u64, most: usize| {
            let bytes = usize::try_from(bytes).ok();
            bytes.filter(|bytes| (1..=most).contains(bytes))
        };
        within(self.stored_bytes, stored)
            .zip(within(self.raw_bytes, raw))
            .ok_or(Error::corrupt("it is none of those that belong here"))
    }

    /// Returns the stored header, with the bytes behind the last whole value.
    pub(crate) fn to_bytes(self, tail: &[u8]) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&[
            self.format(),
            self.codec as u8,
            self.element as u8,
            self.parameter,
        ]);
        bytes[12..16].copy_from_slice(&(self.blocks() as u32).to_le_bytes());
        bytes[16..24].copy_from_slice(&self.raw_bytes.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.stored_bytes.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.bound.to_le_bytes());
        bytes[TAIL_AT..TAIL_AT + tail.len()].copy_from_slice(tail);
        let check = check(&bytes);
        bytes[56..].copy_from_slice(&check.to_le_bytes());
        bytes
    }

    const fn format(&self) -> u8 {
        match (self.codec, self.parameter) {
            (CodecId::Planes, 2) | (CodecId::Bounded, 1) => 2,
            _ => 1,
        }
    }

    /// Returns true if the bound is a share of each value.
    pub const fn is_pointwise(&self) -> bool {
        matches!(self.codec, CodecId::Bounded) && self.parameter == 1
    }

    /// Returns the bytes of the input divided by those of the container.
    pub fn ratio(&self) -> f64 {
        self.raw_bytes as f64 / self.stored_bytes as f64
    }

    /// Returns the number of blocks in the container.
    pub(crate) fn blocks(&self) -> u64 {
        blocks(self.codec, self.element, self.raw_bytes)
    }

    /// Returns the offset of the blocks in the container, in bytes.
    pub(crate) fn payload_at(&self) -> u64 {
        payload_at(self.blocks())
    }

    /// Returns the number of bytes of the input behind its last whole value.
    pub(crate) fn tail_bytes(&self) -> usize {
        (self.raw_bytes % self.element.bytes() as u64) as usize
    }
}

/// Returns the number of values in a block.
pub(crate) const fn block_values(codec: CodecId, element: Element) -> usize {
    match codec {
        CodecId::Planes => crate::planes::BLOCK_BYTES / element.bytes(),
        CodecId::Bounded => crate::bounded::BLOCK_VALUES,
        CodecId::NvcompLz4 | CodecId::NvcompZstd => crate::nvcomp::BLOCK_BYTES / element.bytes(),
    }
}

pub(crate) fn blocks(codec: CodecId, element: Element, raw_bytes: u64) -> u64 {
    (raw_bytes / element.bytes() as u64).div_ceil(block_values(codec, element) as u64)
}

/// Returns the offset of the blocks in a container of `blocks` blocks, in bytes.
pub(crate) fn payload_at(blocks: u64) -> u64 {
    HEADER_BYTES as u64 + (4 * blocks).next_multiple_of(ALIGNMENT as u64)
}

/// Returns the word at byte `at`.
pub(crate) fn word(bytes: &[u8; HEADER_BYTES], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}

/// Returns the checksum of the header's first seven words.
pub(crate) fn check(bytes: &[u8; HEADER_BYTES]) -> u64 {
    let (words, _) = bytes.as_chunks::<8>();
    words[..7].iter().fold(0, |sum, word| {
        let mut x = sum ^ u64::from_le_bytes(*word);
        x = x.wrapping_add(0x9E37_79B9_7F4A_7C15);
        x ^= x >> 33;
        x = x.wrapping_mul(0xC2B2_AE3D_27D4_EB4F);
        x ^ (x >> 29)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_that_no_container_has_does_not_pass() {
        let sound = Header {
            codec: CodecId::Bounded,
            element: Element::F64,
            parameter: 0,
            raw_bytes: 8 * 4096 + 3,
            stored_bytes: 64 + 16,
            bound: 0.5,
        };
        sound.check().unwrap();
        let changed: [fn(&mut Header); 7] = [
            |header| header.stored_bytes = 10,
            |header| header.stored_bytes = u64::MAX,
            |header| header.raw_bytes = u64::MAX,
            |header| header.raw_bytes *= 1_000,
            |header| header.codec = CodecId::NvcompLz4,
            |header| header.element = Element::I8,
            |header| header.bound = f64::NAN,
        ];
        for (n, change) in changed.into_iter().enumerate() {
            let mut header = sound;
            change(&mut header);
            assert!(header.check().is_err(), "{n}: {header:?}");
        }
    }
}
