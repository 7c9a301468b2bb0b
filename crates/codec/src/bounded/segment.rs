//! A segment: differences of multiples, in groups of 32. Each group has one width, in bits.
//!
//! The widths of the groups come first, as bit planes: a word for each bit of the largest width, in which bit `g` is of
//! group `g`. Then come the groups: a word for each bit of the width, in which bit `i` is of value `i`. A difference d is
//! stored as 2 d, a negative one as -2 d - 1, so small differences have few bits.

use super::quantiser::{Float, Quantiser};
use super::{GROUP, SEGMENT};
use crate::bits::transpose;

/// Number of groups in a segment.
const GROUPS: usize = SEGMENT / GROUP;
/// The width that marks a group of values stored bit for bit.
const EXACT: u32 = 33;
/// Number of bit planes for widths up to [`EXACT`].
const WIDTH_PLANES: u32 = u32::BITS - EXACT.leading_zeros();

/// Largest number of bytes for a segment's widths.
pub(super) const MOST_WIDTHS_BYTES: usize = 4 * WIDTH_PLANES as usize;

const fn group_words<F: Float>(width: u32) -> usize {
    if width == EXACT {
        GROUP * F::BYTES / 4
    } else {
        width as usize
    }
}

/// Appends a segment of up to [`SEGMENT`] values. Returns its number of width words.
pub(super) fn encode<F: Float>(quantiser: &Quantiser, values: &[u8], out: &mut Vec<u8>) -> u8 {
    let mut widths = [0; GROUPS];
    let mut stored = [[0; GROUP]; GROUPS];
    let mut before = 0;
    for ((group, width), stored) in values
        .chunks(GROUP * F::BYTES)
        .zip(&mut widths)
        .zip(&mut stored)
    {
        let mut last = before;
        let mut all = 0;
        let mut is_exact = false;
        for (value, stored) in group.chunks_exact(F::BYTES).zip(stored) {
            match quantiser.multiple(F::from_le(value)) {
                Some(multiple) => {
                    // A difference of 2^31, the only one that 32 bits do not hold, becomes -2^31: the decoder's sum wraps
                    // back.
                    let difference = multiple.wrapping_sub(last);
                    *stored = ((difference << 1) ^ (difference >> 31)).cast_unsigned();
                    all |= *stored;
                    last = multiple;
                }
                None => is_exact = true,
            }
        }
        if is_exact {
            *width = EXACT;
        } else {
            *width = u32::BITS - all.leading_zeros();
            before = last;
        }
    }
    let planes = u32::BITS
        - widths
            .iter()
            .fold(0, |all, width| all | width)
            .leading_zeros();
    let mut width_planes = widths;
    transpose(&mut width_planes);
    push(out, &width_planes[..planes as usize]);
    for ((group, width), stored) in values.chunks(GROUP * F::BYTES).zip(widths).zip(&mut stored) {
        if width == EXACT {
            let end = out.len() + GROUP * F::BYTES;
            out.extend_from_slice(group);
            out.resize(end, 0);
        } else if width > 0 {
            transpose(stored);
            push(out, &stored[..width as usize]);
        }
    }
    planes as u8
}

fn push(out: &mut Vec<u8>, words: &[u32]) {
    for word in words {
        out.extend_from_slice(&word.to_le_bytes());
    }
}

/// Decodes a segment to up to [`SEGMENT`] values. Returns the defect if the segment is damaged.
pub(super) fn decode<F: Float>(
    quantiser: &Quantiser,
    stored: &[u8],
    planes: u8,
    values: &mut [u8],
) -> Result<(), &'static str> {
    const WRONG: &str = "a segment is not as long as its widths say";
    let (words, _) = stored.as_chunks::<4>();
    if u32::from(planes) > WIDTH_PLANES {
        return Err("a segment's widths are too wide");
    }
    let (planes, mut words) = words.split_at_checked(usize::from(planes)).ok_or(WRONG)?;
    let widths: [u32; GROUPS] = gather(planes);
    if widths.iter().any(|width| *width > EXACT) {
        return Err("a group's width is too wide");
    }
    let mut before = 0_i32;
    let mut groups = values.chunks_mut(GROUP * F::BYTES);
    for width in widths {
        let (group, others) = words
            .split_at_checked(group_words::<F>(width))
            .ok_or(WRONG)?;
        words = others;
        let Some(values) = groups.next() else {
            continue;
        };
        if width == EXACT {
            let len = values.len();
            values.copy_from_slice(&group.as_flattened()[..len]);
            continue;
        }
        let stored = gather(group);
        for (value, stored) in values.chunks_exact_mut(F::BYTES).zip(stored) {
            let difference = (stored >> 1).cast_signed() ^ -((stored & 1).cast_signed());
            before = before.wrapping_add(difference);
            quantiser.value::<F>(before).to_le(value);
        }
    }
    if words.is_empty() { Ok(()) } else { Err(WRONG) }
}

/// Returns the values of bit planes: bit `i` of word `j` becomes bit `j` of value `i`.
fn gather(words: &[[u8; 4]]) -> [u32; 32] {
    let mut values = [0; 32];
    if !words.is_empty() {
        for (value, word) in values.iter_mut().zip(words) {
            *value = u32::from_le_bytes(*word);
        }
        transpose(&mut values);
    }
    values
}
