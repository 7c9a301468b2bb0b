//! Conversion between values and planes. kernels/codec_planes.cuh does the same.

use super::{BLOCK_BYTES, GROUP, Predictor, SEGMENT, UNITS};
use crate::element::Element;

/// The bytes of a block, unit by unit: unit `plane * segments + segment` has the plane's byte of each value of the segment.
pub(super) type Units = [u8; BLOCK_BYTES];

/// The transformation of the values of a type.
#[derive(Clone, Copy, Debug)]
struct Bits {
    /// Bits of a value.
    width: u32,
    is_float: bool,
    predictor: Predictor,
}

impl Bits {
    const fn mask(self) -> u64 {
        u64::MAX >> (64 - self.width)
    }

    /// Returns the stored form of a value, small if the value is like the one before.
    const fn forward(self, value: u64, before: u64) -> u64 {
        match self.predictor {
            Predictor::Previous => {
                let difference = value.wrapping_sub(before) & self.mask();
                let sign = difference >> (self.width - 1);
                ((difference << 1) & self.mask()) ^ (self.mask() * sign)
            }
            Predictor::None if self.is_float => {
                // The sign moves to the lowest bit, so that the highest byte has the exponent alone.
                ((value << 1) & self.mask()) | (value >> (self.width - 1))
            }
            Predictor::None | Predictor::Polynomial => value,
        }
    }

    const fn backward(self, stored: u64, before: u64) -> u64 {
        match self.predictor {
            Predictor::Previous => {
                let difference = (stored >> 1) ^ (self.mask() * (stored & 1));
                before.wrapping_add(difference) & self.mask()
            }
            Predictor::None if self.is_float => (stored >> 1) | ((stored & 1) << (self.width - 1)),
            Predictor::None | Predictor::Polynomial => stored,
        }
    }
}

/// Splits values into units; missing values are zero. Returns a mask of each segment's groups that are not all zero.
pub(super) fn split(
    element: Element,
    predictor: Predictor,
    values: &[u8],
    units: &mut Units,
) -> [u32; UNITS] {
    match element.bytes() {
        1 => split_as::<1>(element, predictor, values, units),
        2 => split_as::<2>(element, predictor, values, units),
        4 => split_as::<4>(element, predictor, values, units),
        _ => split_as::<8>(element, predictor, values, units),
    }
}

/// Joins units to values.
pub(super) fn join(element: Element, predictor: Predictor, units: &Units, values: &mut [u8]) {
    match element.bytes() {
        1 => join_as::<1>(element, predictor, units, values),
        2 => join_as::<2>(element, predictor, units, values),
        4 => join_as::<4>(element, predictor, units, values),
        _ => join_as::<8>(element, predictor, units, values),
    }
}

fn bits<const W: usize>(element: Element, predictor: Predictor) -> Bits {
    Bits {
        width: 8 * W as u32,
        is_float: element.is_float(),
        predictor,
    }
}

fn split_as<const W: usize>(
    element: Element,
    predictor: Predictor,
    values: &[u8],
    units: &mut Units,
) -> [u32; UNITS] {
    let bits = bits::<W>(element, predictor);
    let mut masks = [0; UNITS];
    units.fill(0);
    let (values, _) = values.as_chunks::<W>();
    for (segment, values) in values.chunks(SEGMENT).enumerate() {
        let mut before = 0;
        let mut stored = [0; SEGMENT];
        for (value, stored) in values.iter().zip(&mut stored) {
            let value = widen(value);
            *stored = bits.forward(value, before);
            before = value;
        }
        for (group, stored) in stored.chunks_exact(GROUP).enumerate() {
            let all = stored.iter().fold(0, |all, stored| all | stored);
            masks[segment] |= u32::from(all != 0) << group;
        }
        for plane in 0..W {
            let unit = &mut units[(plane * (UNITS / W) + segment) * SEGMENT..][..SEGMENT];
            for (byte, stored) in unit.iter_mut().zip(&stored) {
                *byte = (stored >> (8 * plane)) as u8;
            }
        }
    }
    masks
}

fn join_as<const W: usize>(
    element: Element,
    predictor: Predictor,
    units: &Units,
    values: &mut [u8],
) {
    let bits = bits::<W>(element, predictor);
    let (values, _) = values.as_chunks_mut::<W>();
    for (segment, values) in values.chunks_mut(SEGMENT).enumerate() {
        let mut stored = [0; SEGMENT];
        for plane in 0..W {
            let unit = &units[(plane * (UNITS / W) + segment) * SEGMENT..][..SEGMENT];
            for (byte, stored) in unit.iter().zip(&mut stored) {
                *stored |= u64::from(*byte) << (8 * plane);
            }
        }
        let mut before = 0;
        for (value, stored) in values.iter_mut().zip(stored) {
            before = bits.backward(stored, before);
            value.copy_from_slice(&before.to_le_bytes()[..W]);
        }
    }
}

fn widen<const W: usize>(value: &[u8; W]) -> u64 {
    let mut wide = [0; 8];
    wide[..W].copy_from_slice(value);
    u64::from_le_bytes(wide)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_forward_comes_back() {
        for width in [8, 16, 32, 64] {
            for (is_float, predictor) in [
                (false, Predictor::None),
                (true, Predictor::None),
                (true, Predictor::Previous),
            ] {
                let bits = Bits {
                    width,
                    is_float,
                    predictor,
                };
                let samples = [0, 1, 2, 0x7F, 0x80, 0xFF, u64::MAX >> 1, 1 << 63, u64::MAX];
                let samples = samples.map(|sample| sample & bits.mask());
                for value in samples {
                    for before in samples {
                        let stored = bits.forward(value, before);
                        assert_eq!(stored & !bits.mask(), 0);
                        assert_eq!(bits.backward(stored, before), value, "{bits:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn neighbours_differ_by_little_either_way() {
        let bits = bits::<4>(Element::F32, Predictor::Previous);
        let [a, b] = [1.0_f32, 1.000_001].map(|value| u64::from(value.to_bits()));
        assert_eq!(bits.forward(b, a), 2 * (b - a));
        assert_eq!(bits.forward(a, b), 2 * (b - a) - 1);
    }
}
