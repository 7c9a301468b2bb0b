//! Sizes of blocks and of their parts.

use super::code::CODE_BYTES;
use crate::element::Element;

/// Bytes of the values in a block.
pub(crate) const BLOCK_BYTES: usize = 16 << 10;
/// Number of values in a segment. Each plane of a segment is encoded on its own, as a unit.
pub(crate) const SEGMENT: usize = 1 << 10;
/// Number of values in a group. A group of zeros is omitted.
pub(crate) const GROUP: usize = 32;
/// Number of units in a block: planes times segments, which is the same for every size of values.
pub(crate) const UNITS: usize = BLOCK_BYTES / SEGMENT;

/// Bytes of the unit sizes in a block's header.
pub(super) const SIZES_BYTES: usize = 2 * UNITS;

/// Returns the bytes of a block's header.
pub(super) const fn header_bytes(element: Element) -> usize {
    let planes = element.bytes();
    SIZES_BYTES + 4 * (UNITS / planes) + CODE_BYTES * planes
}

/// Returns the bytes of the longest block of `values` values.
pub(crate) const fn most_block_bytes(element: Element, values: usize) -> usize {
    header_bytes(element) + values.next_multiple_of(GROUP) * element.bytes()
}
