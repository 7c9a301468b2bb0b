//! Conversion between values and multiples of a step. kernels/codec_bounded.cuh does the same, operation by operation:
//! each is rounded by IEEE 754, and none is contracted with another.

use rayon::prelude::*;

/// The largest multiple: the difference of two, with a sign bit, fits in 32 bits.
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
}

macro_rules! float {
    ($($type:ty),*) => {$(
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
        }
    )*};
}

float!(f32, f64);

/// Rounds values to multiples of a step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Quantiser {
    bound: f64,
    step: f64,
    per_unit: f64,
}

impl Quantiser {
    pub(crate) fn new(bound: f64) -> Self {
        let step = 2.0 * bound;
        Self {
            bound,
            step,
            per_unit: 1.0 / step,
        }
    }

    /// Returns the multiple nearest to a value; `None` if it is not within the bound.
    pub(super) fn multiple<F: Float>(&self, value: F) -> Option<i32> {
        let exact = value.to_f64();
        let scaled = exact * self.per_unit;
        if scaled.is_nan() || scaled.abs() >= MOST {
            return None;
        }
        let multiple = scaled.round_ties_even() as i32;
        let off = (exact - self.value::<F>(multiple).to_f64()).abs();
        (off <= self.bound).then_some(multiple)
    }

    /// Returns the value that a multiple stands for.
    pub(super) fn value<F: Float>(&self, multiple: i32) -> F {
        F::from_f64(f64::from(multiple) * self.step)
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
/// number. A smaller one is kept by storing every value bit for bit, but zeros alone keep every bound.
pub(super) fn of_share(share: f64, peak: f64) -> (Quantiser, f64) {
    let exact = share * peak;
    let bound = exact.max(f64::MIN_POSITIVE);
    let mut quantiser = Quantiser::new(bound);
    if peak > 0.0 && exact < f64::MIN_POSITIVE {
        // No value has a multiple then.
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
    fn a_peak_is_finite() {
        let values = [1.0_f32, -3.0, f32::NAN, f32::NEG_INFINITY];
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        assert_eq!(peak::<f32>(&bytes), 3.0);
        assert_eq!(peak::<f32>(&[]), 0.0);
        assert_eq!(of_share(0.1, 0.0).1, f64::MIN_POSITIVE);
    }
}
