//! A block: 16 KiB of values, or less at the end. kernels/codec_planes.cu and kernels/codec_planes_decode.cu do the
//! same.
//!
//! A block consists of the size of each unit (2 bytes each), a mask of the stored groups of each segment (4 bytes each),
//! the code of each plane (16 bytes each), then the units.

use super::code::{CODE_BYTES, Code};
use super::polynomial::PolynomialCoder;
use super::shape::{SIZES_BYTES, header_bytes};
use super::values::{Units, join, split};
use super::{BLOCK_BYTES, GROUP, Predictor, SEGMENT, UNITS, unit};
use crate::container::{BlockDecoder, BlockEncoder};
use crate::element::Element;
use crate::header::ALIGNMENT;

/// Encodes and decodes blocks of values of a type, plane by plane.
#[derive(Clone, Copy, Debug)]
pub(super) struct PlanesCoder {
    pub(super) element: Element,
    pub(super) predictor: Predictor,
}

impl BlockEncoder for PlanesCoder {
    fn encode(&self, values: &[u8], out: &mut Vec<u8>) {
        match (self.predictor, self.element) {
            (Predictor::Polynomial, Element::F32) => {
                return PolynomialCoder::<f32>::new().encode(values, out);
            }
            (Predictor::Polynomial, _) => return PolynomialCoder::<f64>::new().encode(values, out),
            (Predictor::None | Predictor::Previous, _) => {}
        }
        let planes = self.element.bytes();
        let segments = UNITS / planes;
        let mut units = [0; BLOCK_BYTES];
        let masks = split(self.element, self.predictor, values, &mut units);
        if masks == [0; UNITS] {
            return;
        }
        let start = out.len();
        out.resize(start + SIZES_BYTES, 0);
        for mask in &masks[..segments] {
            out.extend_from_slice(&mask.to_le_bytes());
        }
        compact(planes, &masks, &mut units);
        let there = |segment: usize| GROUP * masks[segment].count_ones() as usize;
        let unit = |plane: usize, segment: usize| {
            let at = (plane * segments + segment) * SEGMENT;
            at..at + there(segment)
        };
        let codes: Vec<Code> = (0..planes)
            .map(|plane| {
                let mut histogram = [0; 256];
                for segment in 0..segments {
                    for byte in &units[unit(plane, segment)] {
                        histogram[usize::from(*byte)] += 1;
                    }
                }
                Code::shortest(&histogram)
            })
            .collect();
        for code in &codes {
            out.extend_from_slice(&code.to_bytes());
        }
        for (plane, code) in codes.iter().enumerate() {
            let ranks = code.ranks();
            for segment in 0..segments {
                let size = unit::encode(code, &ranks, &units[unit(plane, segment)], out);
                let at = start + 2 * (plane * segments + segment);
                out[at..at + 2].copy_from_slice(&size.to_le_bytes());
            }
        }
        out.resize(start + (out.len() - start).next_multiple_of(ALIGNMENT), 0);
    }
}

impl BlockDecoder for PlanesCoder {
    fn decode(&self, stored: &[u8], values: &mut [u8]) -> Result<(), &'static str> {
        match (self.predictor, self.element) {
            (Predictor::Polynomial, Element::F32) => {
                return PolynomialCoder::<f32>::new().decode(stored, values);
            }
            (Predictor::Polynomial, _) => {
                return PolynomialCoder::<f64>::new().decode(stored, values);
            }
            (Predictor::None | Predictor::Previous, _) => {}
        }
        let planes = self.element.bytes();
        let segments = UNITS / planes;
        let header = header_bytes(self.element);
        let (header, mut rest) = stored
            .split_at_checked(header)
            .ok_or("a block is shorter than its header")?;
        let (sizes, header) = header.split_at(SIZES_BYTES);
        let (masks, codes) = header.split_at(4 * segments);
        let (sizes, _) = sizes.as_chunks::<2>();
        let (masks, _) = masks.as_chunks::<4>();
        let (codes, _) = codes.as_chunks::<CODE_BYTES>();
        let mut units: Units = [0; BLOCK_BYTES];
        for (plane, code) in codes.iter().enumerate() {
            let code = Code::parse(code)?;
            for (segment, mask) in masks.iter().enumerate() {
                let n = plane * segments + segment;
                let size = u16::from_le_bytes(sizes[n]);
                let mask = u32::from_le_bytes(*mask);
                let count = GROUP * mask.count_ones() as usize;
                let (unit, others) = rest
                    .split_at_checked(unit::stored_bytes(size, count)?)
                    .ok_or("a block is shorter than its units")?;
                rest = others;
                let mut bytes = [0; SEGMENT];
                unit::decode(&code, size, unit, &mut bytes[..count])?;
                let places = units[n * SEGMENT..][..SEGMENT].chunks_exact_mut(GROUP);
                let there = places
                    .enumerate()
                    .filter(|(group, _)| mask >> group & 1 == 1);
                for ((_, place), group) in there.zip(bytes.chunks_exact(GROUP)) {
                    place.copy_from_slice(group);
                }
            }
        }
        if rest.len() >= ALIGNMENT {
            return Err("a block is longer than its units");
        }
        join(self.element, self.predictor, &units, values);
        Ok(())
    }
}

/// Moves the stored groups to the front of each unit.
fn compact(planes: usize, masks: &[u32; UNITS], units: &mut Units) {
    for (n, unit) in units.chunks_exact_mut(SEGMENT).enumerate() {
        let mask = masks[n % (UNITS / planes)];
        let there = (0..SEGMENT / GROUP).filter(|group| mask >> group & 1 == 1);
        for (to, from) in there.enumerate() {
            unit.copy_within(from * GROUP..(from + 1) * GROUP, to * GROUP);
        }
    }
}
