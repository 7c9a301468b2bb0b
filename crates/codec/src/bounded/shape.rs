//! Sizes of blocks and of their parts.

use super::segment;
use crate::element::Element;

/// Values of a block.
pub(crate) const BLOCK_VALUES: usize = SEGMENTS * SEGMENT;
/// Segments of a block. Differences start anew in each.
pub(crate) const SEGMENTS: usize = 4;
/// Values of a segment.
pub(crate) const SEGMENT: usize = 1 << 10;
/// Values of a group. A group has one width.
pub(crate) const GROUP: usize = 32;

/// Bytes of a block's header.
pub(super) const HEADER_BYTES: usize = 16;

/// Bytes of the longest block of `values` values.
pub(crate) const fn most_block_bytes(element: Element, values: usize) -> usize {
    let widths = values.div_ceil(SEGMENT) * segment::MOST_WIDTHS_BYTES;
    HEADER_BYTES + widths + values.next_multiple_of(GROUP) * element.bytes()
}
