//! Pseudo-random numbers.

use std::ops::Range;
use std::time::{Duration, SystemTime};

/// A generator of pseudo-random numbers, the same for the same seed (Vigna 2015, SplitMix64).
#[derive(Clone, Debug)]
pub struct Draws(pub u64);

impl Draws {
    /// Makes draws with a seed from the clock, and prints the seed.
    #[must_use]
    pub fn fresh() -> Self {
        let now = SystemTime::UNIX_EPOCH.elapsed();
        let seed = now.map_or(1, |now| now.as_nanos() as u64);
        println!("seed {seed}");
        Self(seed)
    }

    /// Returns 64 bits.
    pub fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        word ^ (word >> 31)
    }

    /// Returns a number below `end`; 0 if `end` is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        self.word() % end.max(1)
    }

    /// Returns a number of a range that is not empty.
    pub fn within(&mut self, range: Range<u64>) -> u64 {
        range.start + self.below(range.end - range.start)
    }

    /// Sleeps for a drawn number of microseconds.
    pub fn pause(&mut self, micros: Range<u64>) {
        std::thread::sleep(Duration::from_micros(self.within(micros)));
    }

    /// Returns an index of a list of `length` items.
    pub fn index(&mut self, length: usize) -> usize {
        self.below(length as u64) as usize
    }

    /// Returns true once in `in_so_many` calls on average.
    pub fn once(&mut self, in_so_many: u64) -> bool {
        self.below(in_so_many) == 0
    }

    /// Returns an item of a list.
    ///
    /// # Panics
    /// If the list is empty.
    pub fn one_of<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.index(from.len())]
    }

    /// Returns a number in `0..1`.
    pub fn share(&mut self) -> f64 {
        (self.word() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Returns an approximately normal number, with mean 0 and deviation 1.
    pub fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.share()).sum::<f64>() - 6.0
    }

    /// Returns bytes that cannot be compressed.
    pub fn bytes(&mut self, length: usize) -> Vec<u8> {
        let words = std::iter::repeat_with(|| self.word().to_le_bytes());
        let mut bytes: Vec<u8> = words.take(length.div_ceil(8)).flatten().collect();
        bytes.truncate(length);
        bytes
    }

    /// Puts items into a random order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for end in (1..items.len()).rev() {
            items.swap(end, self.index(end + 1));
        }
    }
}
