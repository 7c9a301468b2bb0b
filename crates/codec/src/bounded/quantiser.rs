//! Conversion between values and multiples of a step. kernels/codec_bounded.cuh does the same, operation by operation:
//! each operation is rounded by IEEE 754, and none is contracted with another.

use rayon::prelude::*;

use crate::header::Header;

/// Multiples have magnitudes below this, so that the difference of two fits in 32 bits, as a wrapped sum.
const MOST: f64 = 1_073_741_824.0;

/// A type of values.
pub(crate) trait Float: Copy + Send + Sync {
    /// Bytes of a value.
    const BYTES: usize;

    fn from_le(bytes: &[u8]) -> Self;
    /// Writes the value to the start of `out`.
    fn to_le(self, out: &mut [u8]);
    fn to_f64(self) -> f64;
    fn from_f64(value: f64) -> Self;
    /// Returns the value's place among all values by size: its bits as an integer. If the sign is set, all other bits are inverted.
    fn rank(self) -> i64;
    /// Returns the value whose [`rank`](Self::rank) has the lowest bits of `rank`.
    fn of_rank(rank: i64) -> Self;
    /// Number of values from 1 to 2, without 2.
    const IN_BINADE: f64;
}

macro_rules! float {
    ($($type:ty, $bits:ty, $signed:ty;)*) => {$(
        impl Float for $type {
            const BYTES: usize = size_of::<$type>();

            fn from_le(bytes: &[u8]) -> Self {
                bytes.first_chunk().map_or(0.0, |bytes| Self::from_le_bytes(*bytes))
            }

            fn to_le(self, out: &mut [u8]) {
                out[..Self::BYTES].copy_from_slice(&self.to_le_bytes());
            }

            fn to_f64(self) -> f64 {
                self.into()
            }

            fn from_f64(value: f64) -> Self {
                value as Self
            }

            fn rank(self) -> i64 {
                let bits = self.to_bits().cast_signed();
                i64::from(bits ^ ((bits >> (<$bits>::BITS - 1)).cast_unsigned() >> 1).cast_signed())
            }

            fn of_rank(rank: i64) -> Self {
                let bits = rank as $signed;
                let sign = (bits >> (<$bits>::BITS - 1)).cast_unsigned();
                Self::from_bits(bits.cast_unsigned() ^ (sign >> 1))
            }

            const IN_BINADE: f64 = (1_u64 << (<$type>::MANTISSA_DIGITS - 1)) as f64;
        }
    )*};
}

float!(f32, u32, i32; f64, u64, i64;);

/// Rounds values to multiples of a step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Quantiser {
    bound: f64,
    step: f64,
    per_unit: f64,
    /// True if the step is in ranks, and the bound is a share of each value.
    is_pointwise: bool,
}

impl Quantiser {
    pub(crate) fn new(bound: f64) -> Self {
        let step = 2.0 * bound;
        Self {
            bound,
            step,
            per_unit: 1.0 / step,
            is_pointwise: false,
        }
    }

    /// Makes the quantiser of a container.
    pub(crate) fn of<F: Float>(header: &Header) -> Self {
        match header.is_pointwise() {
            true => Self::pointwise::<F>(header.bound),
            false => Self::new(header.bound),
        }
    }

    /// Makes the quantiser for a share of each value of `F`. Neighbouring values differ by a share of at most
    /// 1 / [`Float::IN_BINADE`]. So values that are half a step of ranks apart differ by at most `share`.
    pub(crate) fn pointwise<F: Float>(share: f64) -> Self {
        let step = (2.0 * share * F::IN_BINADE).floor().max(1.0);
        Self {
            bound: share,
            step,
            per_unit: 1.0 / step,
            is_pointwise: true,
        }
    }

    /// Returns the multiple nearest to a value; `None` if that multiple is not within the bound.
    pub(super) fn multiple<F: Float>(&self, value: F) -> Option<i32> {
        let exact = value.to_f64();
        let (unscaled, bound) = match self.is_pointwise {
            true => (value.rank() as f64, self.bound * exact.abs()),
            false => (exact, self.bound),
        };
        let scaled = unscaled * self.per_unit;
        if scaled.is_nan() || scaled.abs() >= MOST {
            return None;
        }
        let multiple = scaled.round_ties_even() as i32;
        let off = (exact - self.value::<F>(multiple).to_f64()).abs();
        // An infinite value has an infinite bound, which any multiple would keep.
        (off <= bound && bound < f64::INFINITY).then_some(multiple)
    }

    /// Returns the value that a multiple stands for.
    pub(super) fn value<F: Float>(&self, multiple: i32) -> F {
        match self.is_pointwise {
            true => F::of_rank(i64::from(multiple).wrapping_mul(self.step as i64)),
            false => F::from_f64(f64::from(multiple) * self.step),
        }
    }
}

/// Returns the largest finite magnitude; 0 if there is none.
pub(super) fn peak<F: Float>(input: &[u8]) -> f64 {
    let chunks = input.par_chunks(1 << 20);
    let peaks = chunks.map(|chunk| {
        let values = chunk.chunks_exact(F::BYTES).map(F::from_le);
        let magnitudes = values.map(|value| value.to_f64().abs());
        magnitudes
            .filter(|value| value.is_finite())
            .fold(0.0, f64::max)
    });
    peaks.reduce(|| 0.0, f64::max)
}

/// Returns the quantiser for a share of the largest magnitude, and the bound for the header. A header's bound is a normal
/// number. If the exact bound is smaller, every value is stored bit for bit, unless all are zeros, which keep every bound.
pub(super) fn of_share(share: f64, peak: f64) -> (Quantiser, f64) {
    let exact = share * peak;
    let bound = exact.max(f64::MIN_POSITIVE);
    let mut quantiser = Quantiser::new(bound);
    if peak > 0.0 && exact < f64::MIN_POSITIVE {
        // With this factor, no value has a multiple.
        quantiser.per_unit = f64::INFINITY;
    }
    (quantiser, bound)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_keep_the_bound_is_told() {
        let quantiser = Quantiser::new(0.5);
        assert_eq!(quantiser.multiple(2.4_f32), Some(2));
        assert_eq!(quantiser.multiple(-2.4_f32), Some(-2));
        assert_eq!(quantiser.multiple(-0.0_f32), Some(0));
        for value in [f32::NAN, f32::INFINITY, f32::MIN, 2e9] {
            assert_eq!(quantiser.multiple(value), None, "{value}");
        }
        // No f32 is near enough to the multiple.
        let fine = Quantiser::new(1e-9);
        assert_eq!(
            fine.multiple(1.0_f32).map(|m| fine.value::<f32>(m)),
            Some(1.0)
        );
    }

    #[test]
    fn a_share_of_each_value_is_kept() {
        for share in [1.0, 0.3, 1e-3, 1e-6, 1e-9] {
            let quantiser = Quantiser::pointwise::<f32>(share);
            for value in [
                1.0,
                1.999_999_9,
                2.0,
                -3e-30,
                7e37,
                f32::MAX,
                1e-45,
                0.0,
                -0.0,
            ] {
                if let Some(multiple) = quantiser.multiple(value) {
                    let back = f64::from(quantiser.value::<f32>(multiple));
                    let off = (f64::from(value) - back).abs();
                    assert!(
                        off <= share * f64::from(value.abs()),
                        "{share} {value} {back}"
                    );
                }
            }
            // Shares that f32 can resolve are kept by all but the largest and the smallest values.
            assert!(
                share < 1e-7 || quantiser.multiple(-1.7_f32).is_some(),
                "{share}"
            );
            for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                assert_eq!(quantiser.multiple(value), None);
            }
        }
        assert_eq!(f64::of_rank((-2.5_f64).rank()), -2.5);
        assert!((-2.5_f32).rank() < (-0.0_f32).rank() && 0.0_f32.rank() == 0);
    }

    #[test]
    fn a_peak_is_finite() {
        let values = [1.0_f32, -3.0, f32::NAN, f32::NEG_INFINITY];
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        assert_eq!(peak::<f32>(&bytes), 3.0);
        assert_eq!(peak::<f32>(&[]), 0.0);
        assert_eq!(of_share(0.1, 0.0).1, f64::MIN_POSITIVE);
    }
}
