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

use std::marker::PhantomData;

use super::prefix::{self, CLASSES};
use super::{BLOCK_BYTES, GROUP};
use crate::container::{BlockDecoder, BlockEncoder};
use crate::header::ALIGNMENT;

/// Values of a lane.
const LANE: usize = 128;
/// The number of values that the highest polynomial goes through.
const ORDERS: usize = 6;
/// Lanes of a block of the shortest values.
const LANES: usize = BLOCK_BYTES / 4 / LANE;
/// Bytes of a block's order.
const ORDER_BYTES: usize = 4;
/// The shares of the values before, the nearest first, for the polynomials through 0 to 6 values.
const SHARES: [[i8; ORDERS]; ORDERS + 1] = [
    [0; ORDERS],
    [1, 0, 0, 0, 0, 0],
    [2, -1, 0, 0, 0, 0],
    [3, -3, 1, 0, 0, 0],
    [4, -6, 4, -1, 0, 0],
    [5, -10, 10, -5, 1, 0],
    [6, -15, 20, -15, 6, -1],
];

/// A type of values.
pub(super) trait Real: Copy + Send + Sync {
    /// Bytes of a value.
    const BYTES: usize;
    /// Values of a block.
    const VALUES: usize = BLOCK_BYTES / Self::BYTES;
    /// Bytes of the masks in a block's header.
    const MASK_BYTES: usize = Self::VALUES / GROUP / 8;
    /// Bytes of the codes' lengths in a block's header.
    const LENGTH_BYTES: usize = (8 * Self::BYTES + 1).div_ceil(8) * 4;

    /// The bits of a value.
    type Bits: Copy + Default + Into<u64>;

    fn read(bytes: &[u8]) -> Self::Bits;
    fn write(bits: Self::Bits, bytes: &mut [u8]);
    fn narrow(bits: u64) -> Self::Bits;
    /// The bits of the value on the polynomial through `ORDER` values before, the nearest first.
    fn expected<const ORDER: usize>(before: [Self::Bits; ORDERS]) -> Self::Bits;
    /// The difference between two values, counted in values between them: 2 d, or -2 d - 1 for negative d.
    fn difference(value: Self::Bits, expected: Self::Bits) -> Self::Bits;
    /// The inverse of [`difference`](Self::difference).
    fn value(difference: Self::Bits, expected: Self::Bits) -> Self::Bits;
    /// The number of bits below the highest one.
    fn below(difference: Self::Bits) -> u32;
}

/// The place of a value among all values by size, and the inverse: magnitudes of negative values are inverted.
macro_rules! rank {
    ($bits:expr) => {{
        let bits = $bits;
        bits ^ ((bits.cast_signed() >> (8 * size_of_val(&bits) - 1)).cast_unsigned() >> 1)
    }};
}

macro_rules! real {
    ($float:ty, $bits:ident, $below:expr) => {
        impl Real for $float {
            const BYTES: usize = size_of::<$float>();
            type Bits = $bits;

            #[inline(always)]
            fn read(bytes: &[u8]) -> $bits {
                bytes
                    .first_chunk()
                    .map_or(0, |bytes| <$bits>::from_le_bytes(*bytes))
            }

            #[inline(always)]
            fn write(bits: $bits, bytes: &mut [u8]) {
                bytes[..Self::BYTES].copy_from_slice(&bits.to_le_bytes());
            }

            #[inline(always)]
            fn narrow(bits: u64) -> $bits {
                bits as $bits
            }

            #[inline(always)]
            fn expected<const ORDER: usize>(before: [$bits; ORDERS]) -> $bits {
                const DIGITS: u32 = <$float>::MANTISSA_DIGITS;
                const EXPONENT: $bits = <$float>::INFINITY.to_bits();
                if ORDER < 2 {
                    return if ORDER == 0 { 0 } else { before[0] };
                }
                let mut sum: $float = 0.0;
                for n in (0..ORDER).rev() {
                    // Smaller values count as zeros: so no sum is subnormal, and processors that flush those to zero
                    // compute the same.
                    let is_small = before[n] & EXPONENT < (DIGITS as $bits) << (DIGITS - 1);
                    let value = <$float>::from_bits(if is_small { 0 } else { before[n] });
                    sum += <$float>::from(SHARES[ORDER][n]) * value;
                }
                let bits = sum.to_bits();
                let is_usual =
                    bits & EXPONENT != EXPONENT && bits & !(1 << (<$bits>::BITS - 1)) != 0;
                if is_usual { bits } else { 0 }
            }

            #[inline(always)]
            fn difference(value: $bits, expected: $bits) -> $bits {
                let difference = rank!(value).wrapping_sub(rank!(expected)).cast_signed();
                ((difference << 1) ^ (difference >> (<$bits>::BITS - 1))).cast_unsigned()
            }

            #[inline(always)]
            fn value(difference: $bits, expected: $bits) -> $bits {
                let difference = (difference >> 1) ^ (difference & 1).wrapping_neg();
                let rank = rank!(expected).wrapping_add(difference);
                rank!(rank)
            }

            #[inline(always)]
            fn below(difference: $bits) -> u32 {
                $below(difference)
            }
        }
    };
}

real!(f32, u32, |difference: u32| {
    // By way of a float, which many processors convert several of at a time. No bit follows the highest one, so rounding
    // does not carry.
    let half = difference >> 1;
    (((half & !(half >> 1)) as i32 as f32).to_bits() >> 23).saturating_sub(126)
});
real!(f64, u64, |difference: u64| u64::BITS
    - (difference >> 1).leading_zeros());

/// Codes blocks of `F` as differences from polynomials.
#[derive(Clone, Copy, Debug)]
pub(super) struct PolynomialCoder<F>(PhantomData<F>);

impl<F> PolynomialCoder<F> {
    pub(super) const fn new() -> Self {
        Self(PhantomData)
    }
}

/// Calls a function of a const order.
macro_rules! with_order {
    ($order:expr, $function:ident::<$float:ty>($($argument:expr),*)) => {
        match $order {
            1 => $function::<$float, 1>($($argument),*),
            2 => $function::<$float, 2>($($argument),*),
            3 => $function::<$float, 3>($($argument),*),
            4 => $function::<$float, 4>($($argument),*),
            5 => $function::<$float, 5>($($argument),*),
            _ => $function::<$float, 6>($($argument),*),
        }
    };
}

/// The value at `at` of a lane: its difference from the polynomial of the given order, or of one through all values before it.
#[inline(always)]
fn difference_at<F: Real, const ORDER: usize>(lane: &[F::Bits], at: usize) -> F::Bits {
    let before = std::array::from_fn(|n| match at.checked_sub(n + 1) {
        Some(at) if n < ORDER => lane[at],
        _ => F::Bits::default(),
    });
    let expected = match at {
        _ if at >= ORDER => F::expected::<ORDER>(before),
        0 => F::expected::<0>(before),
        1 => F::expected::<1>(before),
        2 => F::expected::<2>(before),
        3 => F::expected::<3>(before),
        4 => F::expected::<4>(before),
        _ => F::expected::<5>(before),
    };
    F::difference(lane[at], expected)
}

/// The differences of the values of a lane from `start` on.
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

/// The bits below the highest one of a sample: of a group of every second lane.
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

/// The class of a difference: the number of its bits.
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
        // Values that are not there are as expected.
        stored[count..].fill(F::Bits::default());

        // Several, so that a count seldom waits for the one before.
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
        // Has as many entries as seven bits count, so that the loop below checks no bounds.
        let of_class: [Class; 128] = std::array::from_fn(|class| match codes.get(class) {
            Some(code) => Class {
                code: u64::from(*code),
                length: u32::from(lengths[class]),
                below: below(class),
                mask: !(u64::MAX << below(class)),
            },
            None => Class::default(),
        });
        // Room for a word behind the last bit.
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

/// Bytes of the header of a block with so many lanes that have stored groups.
const fn header_bytes<F: Real>(lanes: usize) -> usize {
    ORDER_BYTES + F::MASK_BYTES + F::LENGTH_BYTES + (2 * lanes).next_multiple_of(4)
}

/// How the differences of a class are stored.
#[derive(Clone, Copy, Default)]
struct Class {
    code: u64,
    length: u32,
    below: u32,
    mask: u64,
}

impl Class {
    /// The bits below the highest one, the code and the length of both.
    #[inline(always)]
    const fn code(&self, difference: u64) -> (u64, Self) {
        (difference & self.mask, *self)
    }
}

/// Writes bits, the lowest first.
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
                // Two are joined before they wait for those before them.
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

    /// Bits since `start`.
    const fn written(&self, start: usize) -> usize {
        8 * (self.at - start) + self.bits as usize
    }

    fn flush(&mut self) {
        self.out[self.at] = self.word as u8;
    }
}

/// Bytes behind a block's bits that a lane of damaged bits may reach: each of its values takes at most 8 bits more than its
/// type has.
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
            .any(|length| u32::from(*length) > prefix::LONGEST)
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
                    // Side by side, as each code waits for the one before in its lane.
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

/// Lanes that are restored side by side. Their differences lie together.
const SIDE: usize = 8;
/// Lanes whose bits are read side by side.
const AT_ONCE: usize = 4;
/// The mask of a lane that has all groups.
const GROUPS_MASK: u8 = (1 << (LANE / GROUP)) - 1;

/// Returns the difference at a bit, and the number of its bits.
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
    // 57 bits at least are ahead.
    let mut low = ahead >> length;
    if F::BYTES > 4 && below + length > 57 {
        low = (low & 0xFFFF_FFFF) | word(at + length as usize + 32) << 32;
    }
    let low = low & !(u64::MAX << below);
    let highest = u64::from(class > 0) << below;
    (highest | low, length + below)
}

/// Writes the values that the differences stand for.
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
                let expected = match at {
                    _ if at >= ORDER => F::expected::<ORDER>(before),
                    0 => F::expected::<0>(before),
                    1 => F::expected::<1>(before),
                    2 => F::expected::<2>(before),
                    3 => F::expected::<3>(before),
                    4 => F::expected::<4>(before),
                    _ => F::expected::<5>(before),
                };
                *now = F::value(row[side], expected);
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
