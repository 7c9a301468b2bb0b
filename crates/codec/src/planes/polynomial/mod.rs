//! A block of differences from polynomials: 16 KiB of values, or less at the end. kernels/codec_polynomial.cu and
//! kernels/codec_polynomial_decode.cu do the same, operation by operation: each operation is rounded by IEEE 754, and none
//! is contracted with another.
//!
//! A value is predicted by the polynomial through up to six values before it, in its lane of 128 values. The difference is
//! stored as a prefix code of its class (the number of its bits), followed by its bits below the highest one. Lanes start
//! anew, so that a processor with many lanes encodes and decodes them side by side.
//!
//! A block consists of its order (1 byte, 3 zeros), a mask of the stored groups (a bit each), the lengths of the codes (4
//! bits each, up to a multiple of 4 bytes), the number of bits of each lane that has stored groups (2 bytes each, up to a
//! multiple of 4), then the bits of the lanes, one lane behind the other. A block of order 0 has its values unencoded.

mod decode;
mod encode;
mod real;

use std::marker::PhantomData;

use super::{BLOCK_BYTES, GROUP, prefix};
use real::Real;

/// Number of values in a lane.
const LANE: usize = 128;
/// The highest order: the number of values through which its polynomial goes.
const ORDERS: usize = 6;
/// Number of lanes in a block of the shortest values.
const LANES: usize = BLOCK_BYTES / 4 / LANE;
/// Bytes of a block's order.
const ORDER_BYTES: usize = 4;

/// Encodes and decodes blocks of `F` as differences from polynomials.
#[derive(Clone, Copy, Debug)]
pub(super) struct PolynomialCoder<F>(PhantomData<F>);

impl<F> PolynomialCoder<F> {
    pub(super) const fn new() -> Self {
        Self(PhantomData)
    }
}

/// Returns the bytes of the header of a block in which `lanes` lanes have stored groups.
const fn header_bytes<F: Real>(lanes: usize) -> usize {
    ORDER_BYTES + F::MASK_BYTES + F::LENGTH_BYTES + (2 * lanes).next_multiple_of(4)
}
