//! Sizes of blocks and of their parts.

use super::segment;
use crate::element::Element;

/// Number of values in a block.
pub(crate) const BLOCK_VALUES: usize = SEGMENTS * SEGMENT;
/// Number of segments in a block. Differences start anew in each segment.
pub(crate) const SEGMENTS: usize = 4;
/// Number of values in a segment.
pub(crate) const SEGMENT: usize = 1 << 10;
/// Number of values in a group. A group has one width.
pub(crate) const GROUP: usize = 32;

/// Bytes of a block's header.
pub(super) const HEADER_BYTES: usize = 16;

/// Returns the bytes of the longest block of `values` values.
pub(crate) const fn most_block_bytes(element: Element, values: usize) -> usize {
    let widths = values.div_ceil(SEGMENT) * segment::MOST_WIDTHS_BYTES;
    HEADER_BYTES + widths + values.next_multiple_of(GROUP) * element.bytes()
}
