//! A block: 4096 values, or fewer at the end. kernels/codec_bounded.cu and kernels/codec_bounded_decode.cu do the same.
//!
//! A block consists of the number of words of each segment (2 bytes each), the number of width words among them (1 byte
//! each), 4 zeros, then the segments.

use std::marker::PhantomData;

use super::quantiser::{Float, Quantiser};
use super::shape::HEADER_BYTES;
use super::{SEGMENT, SEGMENTS, segment};
use crate::container::{BlockDecoder, BlockEncoder};
use crate::header::ALIGNMENT;

/// Encodes and decodes blocks of `F` as multiples of a step.
#[derive(Clone, Copy, Debug)]
pub(super) struct BoundedCoder<F> {
    quantiser: Quantiser,
    values: PhantomData<F>,
}

impl<F> BoundedCoder<F> {
    pub(super) const fn new(quantiser: Quantiser) -> Self {
        Self {
            quantiser,
            values: PhantomData,
        }
    }
}

impl<F: Float> BlockEncoder for BoundedCoder<F> {
    fn encode(&self, values: &[u8], out: &mut Vec<u8>) {
        let start = out.len();
        out.resize(start + HEADER_BYTES, 0);
        for (n, values) in values.chunks(SEGMENT * F::BYTES).enumerate() {
            let at = out.len();
            let planes = segment::encode::<F>(&self.quantiser, values, out);
            let words = ((out.len() - at) / 4) as u16;
            out[start + 2 * n..][..2].copy_from_slice(&words.to_le_bytes());
            out[start + 2 * SEGMENTS + n] = planes;
        }
        if out.len() == start + HEADER_BYTES {
            // An empty block stands for zeros.
            out.truncate(start);
        }
        out.resize(start + (out.len() - start).next_multiple_of(ALIGNMENT), 0);
    }
}

impl<F: Float> BlockDecoder for BoundedCoder<F> {
    fn decode(&self, stored: &[u8], values: &mut [u8]) -> Result<(), &'static str> {
        let (header, mut rest) = stored
            .split_at_checked(HEADER_BYTES)
            .ok_or("a block is shorter than its header")?;
        let mut segments = values.chunks_mut(SEGMENT * F::BYTES);
        for n in 0..SEGMENTS {
            let bytes = 4 * usize::from(u16::from_le_bytes([header[2 * n], header[2 * n + 1]]));
            let (segment, others) = rest
                .split_at_checked(bytes)
                .ok_or("a block is shorter than its segments")?;
            rest = others;
            let planes = header[2 * SEGMENTS + n];
            match segments.next() {
                Some(values) => {
                    segment::decode::<F>(&self.quantiser, segment, planes, values)?;
                }
                None if bytes == 0 && planes == 0 => {}
                None => return Err("a block has more segments than values"),
            }
        }
        if rest.len() >= ALIGNMENT {
            return Err("a block is longer than its segments");
        }
        Ok(())
    }
}
