//! A unit: a plane of a segment, encoded with the plane's code.

use super::code::{CONSTANT, Code, RAW, code_words};
use super::{GROUP, SEGMENT};
use crate::bits::{SPREAD, low_bits};

/// The size of a unit that is stored unencoded.
pub(super) const STORED_RAW: u16 = 1 << 15;

/// Appends the encoded form of `bytes`, the bytes of the stored groups, whose number is a multiple of [`GROUP`]. Returns the
/// size for the block's header: a number of words, or [`STORED_RAW`].
pub(super) fn encode(code: &Code, ranks: &[u8; 256], bytes: &[u8], out: &mut Vec<u8>) -> u16 {
    if code.profile == CONSTANT || bytes.is_empty() {
        return 0;
    }
    let start = out.len();
    if let Some(widths) = code.widths()
        && ranked(widths, ranks, bytes, out)
    {
        return ((out.len() - start) / 4) as u16;
    }
    out.truncate(start);
    out.extend_from_slice(bytes);
    STORED_RAW
}

/// Appends the codes of `bytes`. Returns false if they take more room than `bytes`; then `out` has part of them.
fn ranked(widths: &[u32], ranks: &[u8; 256], bytes: &[u8], out: &mut Vec<u8>) -> bool {
    let end = out.len() + bytes.len();
    let mut list = [0; SEGMENT];
    list[..bytes.len()].copy_from_slice(bytes);
    let mut count = bytes.len();
    let mut first = 0;
    for &width in widths {
        if out.len() + 4 * code_words(count, width) > end {
            return false;
        }
        let escape = (1 << width) - 1;
        let mut escaped = 0;
        for at in (0..count).step_by(GROUP) {
            let here = GROUP.min(count - at);
            let mut codes = [0; GROUP];
            for lane in 0..here {
                let byte = list[at + lane];
                let code = (ranks[usize::from(byte)] - first).min(escape);
                codes[lane] = code;
                // `escaped` never passes `at + lane`, so no unread byte is overwritten.
                list[escaped] = byte;
                escaped += usize::from(code == escape);
            }
            let (codes, _) = codes.as_chunks::<8>();
            for bit in 0..width {
                let word = |eight: &[u8; 8]| low_bits(u64::from_le_bytes(*eight) >> bit);
                out.extend(codes.iter().map(word));
            }
        }
        first += escape;
        count = escaped;
    }
    let padded = count.next_multiple_of(4);
    if out.len() + padded > end {
        return false;
    }
    list[count..padded].fill(0);
    out.extend_from_slice(&list[..padded]);
    true
}

/// Returns the stored bytes of a unit of this size that decodes to `count` bytes.
pub(super) fn stored_bytes(size: u16, count: usize) -> Result<usize, &'static str> {
    match size {
        STORED_RAW => Ok(count),
        words if usize::from(words) <= count / 4 => Ok(4 * usize::from(words)),
        _ => Err("a unit is longer than what it decodes to"),
    }
}

/// Fills `bytes`, a multiple of [`GROUP`], from a unit of this size and of [`stored_bytes`] bytes.
pub(super) fn decode(
    code: &Code,
    size: u16,
    stored: &[u8],
    bytes: &mut [u8],
) -> Result<(), &'static str> {
    const WRONG: &str = "a unit is not as long as its codes";
    if bytes.is_empty() {
        return if size == 0 { Ok(()) } else { Err(WRONG) };
    }
    if size == STORED_RAW && code.profile != CONSTANT {
        bytes.copy_from_slice(stored);
        return Ok(());
    }
    let Some(widths) = code.widths() else {
        if code.profile == RAW || size != 0 {
            return Err(WRONG);
        }
        bytes.fill(code.symbols[0]);
        return Ok(());
    };
    let (words, _) = stored.as_chunks::<4>();
    let word = |at: usize| u32::from_le_bytes(words[at]);

    // Start, in words, and number of the first codes, the second codes, and so on.
    let mut levels = [(0, 0); 4];
    let (mut at, mut count) = (0, bytes.len());
    for (&width, level) in widths.iter().zip(&mut levels) {
        *level = (at, count);
        let end = at + code_words(count, width);
        if end > words.len() {
            return Err(WRONG);
        }
        let groups = (at..end)
            .step_by(width as usize)
            .zip((0..count).step_by(GROUP));
        let mut escaped = 0;
        for (at, done) in groups {
            let all =
                (0..width as usize).fold(lanes(count - done), |all, bit| all & word(at + bit));
            escaped += all.count_ones() as usize;
        }
        (at, count) = (end, escaped);
    }
    if at + count.div_ceil(4) != words.len() {
        return Err(WRONG);
    }

    // The last codes are decoded first: they give the bytes to which the codes before escape.
    let mut list = [0; SEGMENT];
    list[..count].copy_from_slice(&stored[4 * at..4 * at + count]);
    let mut first = widths.iter().map(|width| (1 << width) - 1).sum::<usize>();
    for (&width, &(start, count)) in widths.iter().zip(&levels).rev() {
        let escape = (1 << width) - 1;
        first -= escape;
        // The array has one more entry than there are bytes with codes, so that the loop below checks no bounds.
        let mut named = [0; 16];
        for (named, symbol) in named.iter_mut().zip(&code.symbols[first..]) {
            *named = *symbol;
        }
        let lower = list;
        let mut escaped = 0;
        for (group, bytes) in list[..count].chunks_mut(GROUP).enumerate() {
            let words = &words[start + group * width as usize..][..width as usize];
            let mut codes = [0_u64; GROUP / 8];
            for (bit, word) in words.iter().enumerate() {
                for (codes, bits) in codes.iter_mut().zip(word) {
                    *codes |= SPREAD[usize::from(*bits)] << bit;
                }
            }
            let codes = codes.map(u64::to_le_bytes);
            for (byte, code) in bytes.iter_mut().zip(codes.as_flattened()) {
                let code = usize::from(*code);
                let is_lower = code == escape;
                let named = named[code % named.len()];
                *byte = if is_lower {
                    lower[escaped % SEGMENT]
                } else {
                    named
                };
                escaped += usize::from(is_lower);
            }
        }
    }
    bytes.copy_from_slice(&list[..bytes.len()]);
    Ok(())
}

/// Returns the mask of the first `count` lanes of a group.
const fn lanes(count: usize) -> u32 {
    if count >= GROUP {
        u32::MAX
    } else {
        (1 << count) - 1
    }
}
