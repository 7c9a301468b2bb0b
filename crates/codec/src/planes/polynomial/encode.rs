//! Encoding of blocks.

use super::prefix::{self, CLASSES};
use super::real::{Real, expected_at, with_order};
use super::{GROUP, LANE, LANES, ORDER_BYTES, ORDERS, PolynomialCoder, header_bytes};
use crate::container::BlockEncoder;
use crate::header::ALIGNMENT;

/// Returns the difference of the value at `at` of a lane from the polynomial of order `ORDER`, or from the polynomial through all
/// values before if these are fewer.
#[inline(always)]
fn difference_at<F: Real, const ORDER: usize>(lane: &[F::Bits], at: usize) -> F::Bits {
    let before = std::array::from_fn(|n| match at.checked_sub(n + 1) {
        Some(at) if n < ORDER => lane[at],
        _ => F::Bits::default(),
    });
    F::difference(lane[at], expected_at::<F, ORDER>(before, at))
}

/// Computes the differences of the values of a lane from `start` on.
#[inline(always)]
fn differences<F: Real, const ORDER: usize>(lane: &[F::Bits], start: usize, out: &mut [F::Bits]) {
    let first = ORDER.saturating_sub(start).min(out.len());
    let (few, all) = out.split_at_mut(first);
    for (n, out) in few.iter_mut().enumerate() {
        *out = difference_at::<F, ORDER>(lane, start + n);
    }
    let start = start + first;
    let values = &lane[start - ORDER..][..ORDER + all.len()];
    for (values, out) in values.windows(ORDER + 1).zip(all) {
        let before = std::array::from_fn(|n| {
            if n < ORDER {
                values[ORDER - 1 - n]
            } else {
                F::Bits::default()
            }
        });
        *out = F::difference(values[ORDER], F::expected::<ORDER>(before));
    }
}

/// Returns the number of bits below the highest ones of the differences in a sample: one group of every second lane.
fn sampled<F: Real, const ORDER: usize>(values: &[F::Bits]) -> u32 {
    let mut out = [F::Bits::default(); GROUP];
    let mut bits = 0;
    for (n, lanes) in values.chunks_exact(2 * LANE).enumerate() {
        let start = n % (LANE / GROUP) * GROUP;
        differences::<F, ORDER>(&lanes[..LANE], start, &mut out);
        bits += out
            .iter()
            .map(|difference| F::below(*difference))
            .sum::<u32>();
    }
    bits
}

fn all_differences<F: Real, const ORDER: usize>(values: &[F::Bits], out: &mut [F::Bits]) {
    for (lane, out) in values.chunks_exact(LANE).zip(out.chunks_exact_mut(LANE)) {
        differences::<F, ORDER>(lane, 0, out);
    }
}

/// Returns the class of a difference: the number of its bits.
fn class(difference: u64) -> usize {
    (u64::BITS - difference.leading_zeros()) as usize
}

impl<F: Real> BlockEncoder for PolynomialCoder<F> {
    fn encode(&self, bytes: &[u8], out: &mut Vec<u8>) {
        if bytes.iter().all(|byte| *byte == 0) {
            return;
        }
        let count = bytes.len() / F::BYTES;
        let mut values = [F::Bits::default(); LANES * LANE];
        let values = &mut values[..F::VALUES];
        for (value, bytes) in values.iter_mut().zip(bytes.chunks_exact(F::BYTES)) {
            *value = F::read(bytes);
        }
        let mut order = 1;
        let mut fewest = u32::MAX;
        for candidate in 1..=ORDERS {
            let bits = with_order!(candidate, sampled::<F>(values));
            if bits < fewest {
                (order, fewest) = (candidate, bits);
            }
        }
        let mut stored = [F::Bits::default(); LANES * LANE];
        let stored = &mut stored[..F::VALUES];
        with_order!(order, all_differences::<F>(values, stored));
        // Missing values of a short block have the difference 0.
        stored[count..].fill(F::Bits::default());

        // Counts are kept four times, so that an increment seldom waits for the one before.
        let mut counts = [[0; CLASSES]; 4];
        let mut masks = [0_u8; LANES / 2];
        let mut classes = [0; LANES * LANE];
        for (n, (group, classes)) in stored
            .chunks_exact(GROUP)
            .zip(classes.chunks_exact_mut(GROUP))
            .enumerate()
        {
            let all = group
                .iter()
                .fold(0, |all, difference| all | (*difference).into());
            if all == 0 {
                continue;
            }
            masks[n / 8] |= 1 << (n % 8);
            for (n, (difference, of)) in group.iter().zip(classes).enumerate() {
                let class = class((*difference).into());
                *of = class as u8;
                counts[n % 4][class] += 1;
            }
        }
        let counts: [u32; CLASSES] =
            std::array::from_fn(|n| counts.iter().map(|counts| counts[n]).sum());
        let lengths = prefix::lengths(&counts);
        let below = |class: usize| class.saturating_sub(1) as u32;
        let bits: u32 = (0..CLASSES)
            .map(|class| counts[class] * (u32::from(lengths[class]) + below(class)))
            .sum();
        let used = masks
            .iter()
            .flat_map(|mask| [mask & 15, mask >> 4])
            .filter(|mask| *mask != 0)
            .count();
        let header = header_bytes::<F>(used);
        let start = out.len();
        if header + bits.div_ceil(8) as usize >= ORDER_BYTES + bytes.len() {
            out.extend_from_slice(&[0; ORDER_BYTES]);
            out.extend_from_slice(bytes);
            out.resize(start + (out.len() - start).next_multiple_of(ALIGNMENT), 0);
            return;
        }
        out.resize(start + header, 0);
        out[start] = order as u8;
        let (masks_at, lengths_at) = (start + ORDER_BYTES, start + ORDER_BYTES + F::MASK_BYTES);
        out[masks_at..lengths_at].copy_from_slice(&masks[..F::MASK_BYTES]);
        for (byte, lengths) in out[lengths_at..]
            .iter_mut()
            .zip(lengths.chunks(2))
            .take(F::LENGTH_BYTES)
        {
            *byte = lengths[0] | lengths.get(1).unwrap_or(&0) << 4;
        }
        let mut lanes_at = lengths_at + F::LENGTH_BYTES;
        let codes = prefix::codes(&lengths);
        // The table has as many entries as seven bits can index, so that the loop below checks no bounds.
        let of_class: [Class; 128] = std::array::from_fn(|class| match codes.get(class) {
            Some(code) => Class {
                code: u64::from(*code),
                length: u32::from(lengths[class]),
                below: below(class),
                mask: !(u64::MAX << below(class)),
            },
            None => Class::default(),
        });
        // The 16 bytes more are room for a word behind the last bit.
        out.resize(start + header + bits.div_ceil(8) as usize + 16, 0);
        let mut writer = BitWriter {
            out,
            at: start + header,
            word: 0,
            bits: 0,
        };
        for (n, (lane, classes)) in stored
            .chunks_exact(LANE)
            .zip(classes.chunks_exact(LANE))
            .enumerate()
        {
            let mask = masks[n / 2] >> (4 * (n % 2)) & 15;
            if mask == 0 {
                continue;
            }
            let from = writer.written(start + header);
            for (n, (group, classes)) in lane
                .chunks_exact(GROUP)
                .zip(classes.chunks_exact(GROUP))
                .enumerate()
            {
                if mask >> n & 1 == 0 {
                    continue;
                }
                let coded = group.iter().zip(classes).map(|(difference, class)| {
                    of_class[usize::from(*class) % of_class.len()].code((*difference).into())
                });
                writer.push_all::<F>(coded);
            }
            let bits = writer.written(start + header) - from;
            writer.out[lanes_at..][..2].copy_from_slice(&(bits as u16).to_le_bytes());
            lanes_at += 2;
        }
        writer.flush();
        let end = header + bits.div_ceil(8) as usize;
        out.truncate(start + end);
        out.resize(start + end.next_multiple_of(ALIGNMENT), 0);
    }
}

/// The stored form of the differences of a class: the code and its length, and the number and the mask of the bits below
/// the highest one.
#[derive(Clone, Copy, Default)]
struct Class {
    code: u64,
    length: u32,
    below: u32,
    mask: u64,
}

impl Class {
    /// Returns the bits of `difference` below the highest one, and the class.
    #[inline(always)]
    const fn code(&self, difference: u64) -> (u64, Self) {
        (difference & self.mask, *self)
    }
}

/// A writer of bits, the lowest first.
struct BitWriter<'a> {
    out: &'a mut [u8],
    at: usize,
    word: u64,
    bits: u32,
}

impl BitWriter<'_> {
    /// Appends codes, each with the bits below the highest one.
    #[inline(always)]
    fn push_all<F: Real>(&mut self, mut coded: impl ExactSizeIterator<Item = (u64, Class)>) {
        while let (Some((low, class)), other) = (coded.next(), coded.next()) {
            if F::BYTES == 4 {
                // Two codes are joined before they wait for the codes before them.
                let (first, length) =
                    (class.code | low << class.length, class.length + class.below);
                let (low, class) = other.unwrap_or_default();
                let (second, other) =
                    (class.code | low << class.length, class.length + class.below);
                if length + other <= 56 {
                    self.push(first | second << length, length + other);
                } else {
                    self.push(first, length);
                    self.push(second, other);
                }
            } else {
                for (low, class) in [Some((low, class)), other].into_iter().flatten() {
                    self.push(class.code, class.length);
                    self.push(low & 0xFFFF_FFFF, class.below.min(32));
                    self.push(low >> 32, class.below.saturating_sub(32));
                }
            }
        }
    }

    /// Appends up to 56 bits.
    #[inline(always)]
    fn push(&mut self, value: u64, bits: u32) {
        self.word |= value << self.bits;
        self.bits += bits;
        if let Some(bytes) = self
            .out
            .get_mut(self.at..)
            .and_then(|out| out.first_chunk_mut())
        {
            *bytes = self.word.to_le_bytes();
        }
        self.at += (self.bits / 8) as usize;
        self.word >>= self.bits & !7;
        self.bits %= 8;
    }

    /// Returns the number of bits written since byte `start`.
    const fn written(&self, start: usize) -> usize {
        8 * (self.at - start) + self.bits as usize
    }

    fn flush(&mut self) {
        self.out[self.at] = self.word as u8;
    }
}
