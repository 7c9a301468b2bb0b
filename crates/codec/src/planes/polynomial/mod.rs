//! A block of differences from polynomials: 16 KiB of values, or less at the end. kernels/codec_polynomial.cu and
//! kernels/codec_polynomial_decode.cu do the same, operation by operation: each is rounded by IEEE 754, and none is
//! contracted with another.
//!
//! A value is expected on the polynomial through the values before it, up to six, in its lane of 128 values. The
//! difference is stored as its class, the number of its bits, by a prefix code, followed by its bits below the highest.
//! Lanes start anew, so that a processor with many lanes encodes and decodes them side by side.
//!
//! A block has its order (1 byte, 3 zeros), a mask of the stored groups (a bit each), the lengths of the codes (4 bits
//! each, up to a multiple of 4 bytes), the bits of each lane that has stored groups (2 bytes each, up to a multiple of 4),
//! then the bits of the lanes, side by side. A block of order 0 has its values as they are.

mod decode;
mod encode;
mod real;

use std::marker::PhantomData;

use super::{BLOCK_BYTES, GROUP, prefix};
use real::Real;

/// Values of a lane.
const LANE: usize = 128;
/// The number of values that the highest polynomial goes through.
const ORDERS: usize = 6;
/// Lanes of a block of the shortest values.
const LANES: usize = BLOCK_BYTES / 4 / LANE;
/// Bytes of a block's order.
const ORDER_BYTES: usize = 4;

/// Codes blocks of `F` as differences from polynomials.
#[derive(Clone, Copy, Debug)]
pub(super) struct PolynomialCoder<F>(PhantomData<F>);

impl<F> PolynomialCoder<F> {
    pub(super) const fn new() -> Self {
        Self(PhantomData)
    }
}

/// Bytes of the header of a block with so many lanes that have stored groups.
const fn header_bytes<F: Real>(lanes: usize) -> usize {
    ORDER_BYTES + F::MASK_BYTES + F::LENGTH_BYTES + (2 * lanes).next_multiple_of(4)
}
