//! Sizes of blocks and of their parts.

use super::code::CODE_BYTES;
use crate::element::Element;

/// Bytes of the values that are encoded together.
pub(crate) const BLOCK_BYTES: usize = 16 << 10;
/// Values of a segment: the part of a block whose planes are encoded each on its own.
pub(crate) const SEGMENT: usize = 1 << 10;
/// Values of a group, which is left out where all of them are zero.
pub(crate) const GROUP: usize = 32;
/// Planes times segments of a block, whatever the size of a value.
pub(crate) const UNITS: usize = BLOCK_BYTES / SEGMENT;

/// Bytes of the sizes.
pub(super) const SIZES_BYTES: usize = 2 * UNITS;

/// Bytes of a block's header.
pub(super) const fn header_bytes(element: Element) -> usize {
    let planes = element.bytes();
    SIZES_BYTES + 4 * (UNITS / planes) + CODE_BYTES * planes
}

/// Bytes of the longest block of so many values.
pub(crate) const fn most_block_bytes(element: Element, values: usize) -> usize {
    header_bytes(element) + values.next_multiple_of(GROUP) * element.bytes()
}
