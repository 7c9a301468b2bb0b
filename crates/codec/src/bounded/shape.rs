//! Sizes of blocks and of their parts.

use super::segment;
use crate::element::Element;

/// Values that are encoded together.
pub(crate) const BLOCK_VALUES: usize = SEGMENTS * SEGMENT;
/// Segments of a block: each starts anew.
pub(crate) const SEGMENTS: usize = 4;
/// Values of a segment.
pub(crate) const SEGMENT: usize = 1 << 10;
/// Values of a group, which are packed with equally many bits.
pub(crate) const GROUP: usize = 32;

/// Bytes of a block's header.
pub(super) const HEADER_BYTES: usize = 16;

/// Bytes of the longest block of so many values.
pub(crate) const fn most_block_bytes(element: Element, values: usize) -> usize {
    let widths = values.div_ceil(SEGMENT) * segment::MOST_WIDTHS_BYTES;
    HEADER_BYTES + widths + values.next_multiple_of(GROUP) * element.bytes()
}
