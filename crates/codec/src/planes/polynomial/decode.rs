//! Decoding of blocks.

use super::prefix::{self, CLASSES};
use super::real::{Real, expected_at, with_order};
use super::{BLOCK_BYTES, GROUP, LANE, LANES, ORDER_BYTES, ORDERS, PolynomialCoder};
use crate::container::BlockDecoder;
use crate::header::ALIGNMENT;

/// Bytes behind a block's bits that decoding a damaged lane may reach: each of its values takes at most 8 bits more than a
/// value of the type has.
const BEYOND: usize = LANE * 9 + 16;

impl<F: Real> BlockDecoder for PolynomialCoder<F> {
    fn decode(&self, stored: &[u8], values: &mut [u8]) -> Result<(), &'static str> {
        const SHORT: &str = "a block is shorter than its header";
        if stored.len() > (ORDER_BYTES + BLOCK_BYTES).next_multiple_of(ALIGNMENT) {
            return Err("a block is longer than it can be");
        }
        let (order, rest) = stored.split_at_checked(ORDER_BYTES).ok_or(SHORT)?;
        let order = usize::from(order[0]);
        if order > ORDERS {
            return Err("a block's order is not known");
        }
        if order == 0 {
            if rest.len() < values.len() || rest.len() - values.len() >= ALIGNMENT {
                return Err("a block is not as long as its values");
            }
            values.copy_from_slice(&rest[..values.len()]);
            return Ok(());
        }
        let (masks, rest) = rest.split_at_checked(F::MASK_BYTES).ok_or(SHORT)?;
        let (of_classes, rest) = rest.split_at_checked(F::LENGTH_BYTES).ok_or(SHORT)?;
        let mut lengths = [0; CLASSES];
        for (lengths, byte) in lengths.chunks_mut(2).zip(of_classes) {
            for (length, bits) in lengths.iter_mut().zip([byte & 15, byte >> 4]) {
                *length = bits;
            }
        }
        if lengths
            .iter()
            .any(|length| u32::from(*length) > prefix::LONGEST_CODE)
            || lengths[8 * F::BYTES + 1..].iter().any(|length| *length > 0)
        {
            return Err("a block has codes that are too long");
        }
        let table = prefix::table(&lengths)?;
        let mask = |lane: usize| masks[lane / 2] >> (4 * (lane % 2)) & 15;
        let lanes = F::VALUES / LANE;
        let used = (0..lanes).filter(|lane| mask(*lane) != 0).count();
        let (of_lanes, bits) = rest
            .split_at_checked((2 * used).next_multiple_of(4))
            .ok_or(SHORT)?;
        let (of_lanes, _) = of_lanes.as_chunks::<2>();
        let total: usize = of_lanes[..used]
            .iter()
            .map(|bits| usize::from(u16::from_le_bytes(*bits)))
            .sum();
        let bytes = total.div_ceil(8);
        if bits.len() < bytes || bits.len() - bytes >= ALIGNMENT {
            return Err("a block is not as long as its lanes");
        }
        let mut padded = [0; BLOCK_BYTES + BEYOND];
        padded[..bits.len()].copy_from_slice(bits);

        let mut differences = [F::Bits::default(); LANES * LANE];
        let differences = &mut differences[..F::VALUES];
        let mut ends = of_lanes[..used]
            .iter()
            .map(|bits| usize::from(u16::from_le_bytes(*bits)));
        let mut at = [0; AT_ONCE];
        let mut end = 0;
        for (first, differences) in (0..lanes)
            .step_by(SIDE)
            .zip(differences.chunks_exact_mut(SIDE * LANE))
        {
            for first_at_once in (0..SIDE).step_by(AT_ONCE) {
                let mut all = GROUPS_MASK;
                let mut to = [0; AT_ONCE];
                for n in 0..AT_ONCE {
                    let mask = mask(first + first_at_once + n);
                    at[n] = end;
                    all &= mask;
                    end += if mask == 0 {
                        0
                    } else {
                        ends.next().unwrap_or_default()
                    };
                    to[n] = end;
                }
                if all == GROUPS_MASK {
                    // The lanes are read side by side, as each code waits for the one before in its lane.
                    for row in differences.chunks_exact_mut(SIDE) {
                        for (stored, at) in row[first_at_once..].iter_mut().zip(&mut at) {
                            let (found, bits) = next::<F>(&padded, *at, &table);
                            *stored = F::narrow(found);
                            *at += bits as usize;
                        }
                    }
                } else {
                    for (n, at) in at.iter_mut().enumerate() {
                        let lane = first_at_once + n;
                        let mask = mask(first + lane);
                        for (group, rows) in differences.chunks_exact_mut(SIDE * GROUP).enumerate()
                        {
                            if mask >> group & 1 == 0 {
                                continue;
                            }
                            for row in rows.chunks_exact_mut(SIDE) {
                                let (found, bits) = next::<F>(&padded, *at, &table);
                                row[lane] = F::narrow(found);
                                *at += bits as usize;
                            }
                        }
                    }
                }
                if at != to {
                    return Err("a lane is not as long as its codes");
                }
            }
        }
        with_order!(order, restore::<F>(differences, values));
        Ok(())
    }
}

/// Number of lanes that are restored side by side. The differences of these lanes are interleaved.
const SIDE: usize = 8;
/// Number of lanes whose bits are read side by side.
const AT_ONCE: usize = 4;
/// The mask of a lane all of whose groups are stored.
const GROUPS_MASK: u8 = (1 << (LANE / GROUP)) - 1;

/// Returns the difference that starts at bit `at`, and the number of its stored bits.
#[inline(always)]
fn next<F: Real>(bits: &[u8], at: usize, table: &prefix::Table) -> (u64, u32) {
    let word = |at: usize| {
        let bytes = bits
            .get(at / 8..)
            .and_then(|bits| bits.first_chunk())
            .map_or(0, |bytes| u64::from_le_bytes(*bytes));
        bytes >> (at % 8)
    };
    let ahead = word(at);
    let (class, length) = table[(ahead & 0xFF) as usize];
    let length = u32::from(length);
    let below = u32::from(class).saturating_sub(1);
    // `ahead` has at least 57 bits of the stream.
    let mut low = ahead >> length;
    if F::BYTES > 4 && below + length > 57 {
        low = (low & 0xFFFF_FFFF) | word(at + length as usize + 32) << 32;
    }
    let low = low & !(u64::MAX << below);
    let highest = u64::from(class > 0) << below;
    (highest | low, length + below)
}

/// Computes the values from their differences, and writes them.
fn restore<F: Real, const ORDER: usize>(differences: &[F::Bits], values: &mut [u8]) {
    let lanes_bytes = LANE * F::BYTES;
    for (differences, values) in differences
        .chunks_exact(SIDE * LANE)
        .zip(values.chunks_mut(SIDE * lanes_bytes))
    {
        let mut out = [F::Bits::default(); SIDE * LANE];
        let mut before = [[F::Bits::default(); SIDE]; ORDERS];
        for (at, row) in differences.chunks_exact(SIDE).enumerate() {
            let mut now = [F::Bits::default(); SIDE];
            for (side, now) in now.iter_mut().enumerate() {
                let before: [F::Bits; ORDERS] = std::array::from_fn(|n| before[n][side]);
                *now = F::value(row[side], expected_at::<F, ORDER>(before, at));
            }
            for (side, now) in now.iter().enumerate() {
                out[side * LANE + at] = *now;
            }
            before.copy_within(0..ORDERS - 1, 1);
            before[0] = now;
        }
        for (bits, value) in out.iter().zip(values.chunks_exact_mut(F::BYTES)) {
            F::write(*bits, value);
        }
    }
}
