//! Compares arrays element by element, exactly or within a tolerance.

use crate::container::Element;
use crate::{Error, Result};
use std::cmp::Ordering;

/// The difference of two arrays of one type. Elements are counted in C order, from 0.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Difference {
    /// The index of the first element that differs.
    pub first: u64,
    /// The number of elements that differ.
    pub count: u64,
    /// The largest distance |a − b| of two elements, as a double; for complex numbers, of their real or imaginary parts. Infinite
    /// if one of the two is NaN. 0 if equal numbers have different bits, such as 0 and −0.
    pub largest: f64,
    /// The index of the first element with that distance.
    pub largest_at: u64,
}

impl Difference {
    /// Joins the differences of two parts of an array that have no common element.
    #[must_use]
    pub fn joined(self, other: Self) -> Self {
        let mut both = [self, other];
        both.sort_by_key(|part| part.first);
        let [before, after] = both;
        let is_earlier = after.largest_at < before.largest_at;
        let largest = match after.largest.total_cmp(&before.largest) {
            Ordering::Greater => after,
            Ordering::Equal if is_earlier => after,
            _ => before,
        };
        Self {
            first: before.first,
            count: before.count + after.count,
            ..largest
        }
    }
}

/// Compares two arrays of one type, which are passed in parts.
///
/// ```
/// use tierflow_store::{Comparison, container::Element};
///
/// let bytes = |values: [f32; 3]| values.map(f32::to_le_bytes).concat();
/// let mut comparison = Comparison::new(Element::F32, Some(1e-3))?;
/// comparison.add(0, &bytes([1.0, 2.0, f32::NAN]), &bytes([1.0001, 2.5, f32::NAN]));
/// let difference = comparison.difference().expect("2.0 and 2.5 are further apart than 0.001");
/// assert_eq!((difference.first, difference.count, difference.largest), (1, 1, 0.5));
/// # Ok::<(), tierflow_store::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Comparison {
    element: Element,
    within: Option<f64>,
    found: Option<Difference>,
    /// The element that was counted last. Thus a complex number is counted once even if both of its parts differ.
    last: Option<u64>,
}

/// Numbers that are compared as a block, before single numbers are compared.
const RUN: usize = 1024;

impl Comparison {
    /// Compares elements of this type.
    ///
    /// Without a tolerance, elements differ if their bits do. With a tolerance, numbers differ if |a − b|, computed in doubles,
    /// exceeds it: 0 and −0 are equal then, any two NaN are equal, and NaN differs from every number. Truth values are 0 and 1;
    /// bytes are integers.
    ///
    /// # Errors
    /// [`Error::Argument`] for a tolerance that is negative or NaN.
    pub fn new(element: Element, within: Option<f64>) -> Result<Self> {
        if let Some(within) = within
            && (within.is_nan() || within < 0.0)
        {
            return Err(Error::Argument(format!(
                "a tolerance of {within}: it is a number of 0 or more"
            )));
        }
        Ok(Self {
            element,
            within,
            found: None,
            last: None,
        })
    }

    /// Compares a part of both arrays that begins with the element of index `at`. Both parts have the same length and consist of
    /// whole elements. Parts are passed in ascending order, each at most once.
    pub fn add(&mut self, at: u64, a: &[u8], b: &[u8]) {
        let parts = match self.element {
            Element::C64 | Element::C128 => 2,
            _ => 1,
        };
        let part = Numbers { at, parts, a, b };
        match self.element {
            Element::F32 | Element::C64 => self.numbers(part, |a, b| {
                apart(f32::from_le_bytes(a).into(), f32::from_le_bytes(b).into())
            }),
            Element::F64 | Element::C128 => self.numbers(part, |a, b| {
                apart(f64::from_le_bytes(a), f64::from_le_bytes(b))
            }),
            Element::F16 => self.numbers(part, |a, b| apart(HALF.short(a), HALF.short(b))),
            Element::Bf16 => self.numbers(part, |a, b| apart(BRAIN.short(a), BRAIN.short(b))),
            Element::F8E4M3 => self.numbers(part, |a, b| apart(E4M3.byte(a), E4M3.byte(b))),
            Element::F8E5M2 => self.numbers(part, |a, b| apart(E5M2.byte(a), E5M2.byte(b))),
            Element::I8 => self.numbers(part, |a, b| {
                i8::from_le_bytes(a).abs_diff(i8::from_le_bytes(b)).into()
            }),
            Element::I16 => self.numbers(part, |a, b| {
                i16::from_le_bytes(a).abs_diff(i16::from_le_bytes(b)).into()
            }),
            Element::I32 => self.numbers(part, |a, b| {
                i32::from_le_bytes(a).abs_diff(i32::from_le_bytes(b)).into()
            }),
            Element::I64 => self.numbers(part, |a, b| {
                i64::from_le_bytes(a).abs_diff(i64::from_le_bytes(b)) as f64
            }),
            Element::U16 => self.numbers(part, |a, b| {
                u16::from_le_bytes(a).abs_diff(u16::from_le_bytes(b)).into()
            }),
            Element::U32 => self.numbers(part, |a, b| {
                u32::from_le_bytes(a).abs_diff(u32::from_le_bytes(b)).into()
            }),
            Element::U64 => self.numbers(part, |a, b| {
                u64::from_le_bytes(a).abs_diff(u64::from_le_bytes(b)) as f64
            }),
            Element::Bytes | Element::U8 | Element::Bool | Element::Encoded => {
                self.numbers(part, |[a], [b]| a.abs_diff(b).into());
            }
        }
    }

    /// Returns the difference of the parts so far; `None` if they are equal.
    #[must_use]
    pub fn difference(&self) -> Option<Difference> {
        self.found
    }

    fn numbers<const N: usize>(
        &mut self,
        part: Numbers<'_>,
        distance: impl Fn([u8; N], [u8; N]) -> f64,
    ) {
        let (a, _) = part.a.as_chunks::<N>();
        let (b, _) = part.b.as_chunks::<N>();
        let runs = a.chunks(RUN).zip(b.chunks(RUN));
        for ((a, b), start) in runs.zip((0..).step_by(RUN)) {
            if a.as_flattened() == b.as_flattened() {
                continue;
            }
            if let Some(within) = self.within {
                // No early exit, so that the compiler can vectorise the loop.
                let pairs = a.iter().zip(b);
                let agree = pairs.fold(true, |all, (a, b)| all & (distance(*a, *b) <= within));
                if agree {
                    continue;
                }
            }
            for ((a, b), index) in a.iter().zip(b).zip(start..) {
                let distance = distance(*a, *b);
                if a != b && self.within.is_none_or(|within| distance > within) {
                    self.note(part.at + index / part.parts, distance);
                }
            }
        }
    }

    fn note(&mut self, index: u64, distance: f64) {
        let found = self.found.get_or_insert(Difference {
            first: index,
            count: 0,
            largest: distance,
            largest_at: index,
        });
        found.count += u64::from(self.last != Some(index));
        self.last = Some(index);
        if distance > found.largest {
            (found.largest, found.largest_at) = (distance, index);
        }
    }
}

/// A part of two arrays.
struct Numbers<'a> {
    /// Index of the first element.
    at: u64,
    /// Numbers in each element: 2 for complex numbers, else 1.
    parts: u64,
    a: &'a [u8],
    b: &'a [u8],
}

/// Returns |a − b|: 0 for two NaN, infinity for NaN and a number.
fn apart(a: f64, b: f64) -> f64 {
    let distance = (a - b).abs();
    match distance.is_nan() {
        false => distance,
        // Two NaN, or two infinities of one sign.
        true if a == b || (a.is_nan() && b.is_nan()) => 0.0,
        true => f64::INFINITY,
    }
}

/// A floating-point format of at most 16 bits: a sign, bits of an exponent, and bits of a mantissa.
struct ShortFloat {
    exponent: u32,
    mantissa: u32,
    /// True if the largest exponent encodes infinity and NaN; false if only the pattern of all ones is NaN.
    has_infinity: bool,
}

const HALF: ShortFloat = ShortFloat::ieee(5, 10);
const BRAIN: ShortFloat = ShortFloat::ieee(8, 7);
const E5M2: ShortFloat = ShortFloat::ieee(5, 2);
const E4M3: ShortFloat = ShortFloat {
    exponent: 4,
    mantissa: 3,
    has_infinity: false,
};

impl ShortFloat {
    const fn ieee(exponent: u32, mantissa: u32) -> Self {
        Self {
            exponent,
            mantissa,
            has_infinity: true,
        }
    }

    fn short(&self, bytes: [u8; 2]) -> f64 {
        self.decode(u16::from_le_bytes(bytes).into())
    }

    fn byte(&self, [byte]: [u8; 1]) -> f64 {
        self.decode(byte.into())
    }

    /// Returns the number that `bits` encode. Each such number is exact as a double.
    fn decode(&self, bits: u32) -> f64 {
        let largest = (1 << self.exponent) - 1;
        let exponent = (bits >> self.mantissa) & largest;
        let mantissa = bits & ((1 << self.mantissa) - 1);
        let sign = match bits >> (self.exponent + self.mantissa) {
            0 => 1.0,
            _ => -1.0,
        };
        let all_ones = mantissa + 1 == 1 << self.mantissa;
        let bias = largest as i32 / 2;
        let unit = f64::from(2).powi(-(self.mantissa as i32));
        sign * match exponent {
            0 => f64::from(mantissa) * unit * f64::from(2).powi(1 - bias),
            _ if exponent == largest && self.has_infinity && mantissa == 0 => f64::INFINITY,
            _ if exponent == largest && (self.has_infinity || all_ones) => f64::NAN,
            _ => (1.0 + f64::from(mantissa) * unit) * f64::from(2).powi(exponent as i32 - bias),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_floats_are_the_numbers_that_their_formats_say() {
        for (format, bits, value) in [
            (&HALF, 0x3c00, 1.0),
            (&HALF, 0xc500, -5.0),
            (&HALF, 0x0001, 5.960_464_477_539_063e-8),
            (&HALF, 0x7bff, 65_504.0),
            (&HALF, 0x7c00, f64::INFINITY),
            (&BRAIN, 0x3fc0, 1.5),
            (&BRAIN, 0xff80, f64::NEG_INFINITY),
            (&E5M2, 0x7b, 57_344.0),
            (&E5M2, 0x7c, f64::INFINITY),
            (&E4M3, 0x7e, 448.0),
            (&E4M3, 0x01, 0.001_953_125),
        ] {
            assert_eq!(format.decode(bits), value, "{bits:#x}");
        }
        for (format, bits) in [
            (&HALF, 0x7c01),
            (&BRAIN, 0x7fc0),
            (&E5M2, 0x7d),
            (&E4M3, 0xff),
        ] {
            assert!(format.decode(bits).is_nan(), "{bits:#x}");
        }
    }

    #[test]
    fn parts_are_joined_in_any_order() {
        let part = |at| Difference {
            first: at,
            count: 1,
            largest: 0.5,
            largest_at: at,
        };
        let whole = Difference {
            count: 3,
            ..part(0)
        };
        let orders = [
            [0, 1, 2],
            [0, 2, 1],
            [1, 0, 2],
            [1, 2, 0],
            [2, 0, 1],
            [2, 1, 0],
        ];
        for [a, b, c] in orders {
            assert_eq!(part(a).joined(part(b)).joined(part(c)), whole);
        }
        // The later part holds the largest distance at an earlier index than the part that was joined first.
        let small = Difference {
            largest: 0.1,
            ..part(0)
        };
        let joined = small.joined(part(2)).joined(part(1));
        assert_eq!((joined.largest, joined.largest_at), (0.5, 1));
    }

    #[test]
    fn brain_floats_are_the_upper_halves_of_floats() {
        for bits in 0..=u16::MAX {
            let whole = f64::from(f32::from_bits(u32::from(bits) << 16));
            let decoded = BRAIN.decode(bits.into());
            assert!(
                decoded == whole || decoded.is_nan() && whole.is_nan(),
                "{bits:#x}"
            );
        }
    }
}
