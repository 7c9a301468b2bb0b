//! Values, the polynomials through them, and their differences.

use super::{BLOCK_BYTES, GROUP, ORDERS};

/// The coefficients of the values before, the nearest value first, for the polynomials through 0 to 6 values.
const SHARES: [[i8; ORDERS]; ORDERS + 1] = [
    [0; ORDERS],
    [1, 0, 0, 0, 0, 0],
    [2, -1, 0, 0, 0, 0],
    [3, -3, 1, 0, 0, 0],
    [4, -6, 4, -1, 0, 0],
    [5, -10, 10, -5, 1, 0],
    [6, -15, 20, -15, 6, -1],
];

/// A type of values.
pub(in crate::planes) trait Real: Copy + Send + Sync {
    /// Bytes of a value.
    const BYTES: usize;
    /// Number of values in a block.
    const VALUES: usize = BLOCK_BYTES / Self::BYTES;
    /// Bytes of the masks in a block's header.
    const MASK_BYTES: usize = Self::VALUES / GROUP / 8;
    /// Bytes of the codes' lengths in a block's header.
    const LENGTH_BYTES: usize = (8 * Self::BYTES + 1).div_ceil(8) * 4;

    /// The bits of a value.
    type Bits: Copy + Default + Into<u64>;

    fn read(bytes: &[u8]) -> Self::Bits;
    fn write(bits: Self::Bits, bytes: &mut [u8]);
    fn narrow(bits: u64) -> Self::Bits;
    /// Returns the bits of the value on the polynomial through `ORDER` values before, of which the nearest is first.
    fn expected<const ORDER: usize>(before: [Self::Bits; ORDERS]) -> Self::Bits;
    /// Returns the difference d of two values' places among all values by size, as 2 d, or -2 d - 1 for negative d.
    fn difference(value: Self::Bits, expected: Self::Bits) -> Self::Bits;
    /// Returns the value that has this [`difference`](Self::difference) from `expected`.
    fn value(difference: Self::Bits, expected: Self::Bits) -> Self::Bits;
    /// Returns the number of bits below the highest one.
    fn below(difference: Self::Bits) -> u32;
}

/// Returns the place of a value among all values by size, or the value at a place: the magnitude bits of negative values
/// are inverted.
macro_rules! rank {
    ($bits:expr) => {{
        let bits = $bits;
        bits ^ ((bits.cast_signed() >> (8 * size_of_val(&bits) - 1)).cast_unsigned() >> 1)
    }};
}

macro_rules! real {
    ($float:ty, $bits:ident, $below:expr) => {
        impl Real for $float {
            const BYTES: usize = size_of::<$float>();
            type Bits = $bits;

            #[inline(always)]
            fn read(bytes: &[u8]) -> $bits {
                bytes
                    .first_chunk()
                    .map_or(0, |bytes| <$bits>::from_le_bytes(*bytes))
            }

            #[inline(always)]
            fn write(bits: $bits, bytes: &mut [u8]) {
                bytes[..Self::BYTES].copy_from_slice(&bits.to_le_bytes());
            }

            #[inline(always)]
            fn narrow(bits: u64) -> $bits {
                bits as $bits
            }

            #[inline(always)]
            fn expected<const ORDER: usize>(before: [$bits; ORDERS]) -> $bits {
                const DIGITS: u32 = <$float>::MANTISSA_DIGITS;
                const EXPONENT: $bits = <$float>::INFINITY.to_bits();
                if ORDER < 2 {
                    return if ORDER == 0 { 0 } else { before[0] };
                }
                let mut sum: $float = 0.0;
                for n in (0..ORDER).rev() {
                    // Values this small count as zeros. So no sum is subnormal, and processors that flush subnormal
                    // numbers to zero compute the same.
                    let is_small = before[n] & EXPONENT < (DIGITS as $bits) << (DIGITS - 1);
                    let value = <$float>::from_bits(if is_small { 0 } else { before[n] });
                    sum += <$float>::from(SHARES[ORDER][n]) * value;
                }
                let bits = sum.to_bits();
                let is_usual =
                    bits & EXPONENT != EXPONENT && bits & !(1 << (<$bits>::BITS - 1)) != 0;
                if is_usual { bits } else { 0 }
            }

            #[inline(always)]
            fn difference(value: $bits, expected: $bits) -> $bits {
                let difference = rank!(value).wrapping_sub(rank!(expected)).cast_signed();
                ((difference << 1) ^ (difference >> (<$bits>::BITS - 1))).cast_unsigned()
            }

            #[inline(always)]
            fn value(difference: $bits, expected: $bits) -> $bits {
                let difference = (difference >> 1) ^ (difference & 1).wrapping_neg();
                let rank = rank!(expected).wrapping_add(difference);
                rank!(rank)
            }

            #[inline(always)]
            fn below(difference: $bits) -> u32 {
                $below(difference)
            }
        }
    };
}

real!(f32, u32, |difference: u32| {
    // The exponent of a float gives the highest bit, as many processors convert several integers to floats at a time. No
    // bit follows the highest one, so rounding does not carry.
    let half = difference >> 1;
    (((half & !(half >> 1)) as i32 as f32).to_bits() >> 23).saturating_sub(126)
});
real!(f64, u64, |difference: u64| u64::BITS
    - (difference >> 1).leading_zeros());

/// Returns the value that is expected at `at` of a lane, by the polynomial of order `ORDER`, or by the polynomial through all values
/// before if these are fewer.
#[inline(always)]
pub(super) fn expected_at<F: Real, const ORDER: usize>(
    before: [F::Bits; ORDERS],
    at: usize,
) -> F::Bits {
    match at {
        _ if at >= ORDER => F::expected::<ORDER>(before),
        0 => F::expected::<0>(before),
        1 => F::expected::<1>(before),
        2 => F::expected::<2>(before),
        3 => F::expected::<3>(before),
        4 => F::expected::<4>(before),
        _ => F::expected::<5>(before),
    }
}

/// Calls a function whose const argument is the order.
macro_rules! with_order {
    ($order:expr, $function:ident::<$float:ty>($($argument:expr),*)) => {
        match $order {
            1 => $function::<$float, 1>($($argument),*),
            2 => $function::<$float, 2>($($argument),*),
            3 => $function::<$float, 3>($($argument),*),
            4 => $function::<$float, 4>($($argument),*),
            5 => $function::<$float, 5>($($argument),*),
            _ => $function::<$float, 6>($($argument),*),
        }
    };
}
pub(super) use with_order;
