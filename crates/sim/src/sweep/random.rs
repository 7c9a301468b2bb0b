//! Random numbers of one cell.

use crate::workload::random;

/// A sequence of random numbers, another one for each seed and cell.
pub(super) struct CellRandom {
    start: u64,
    drawn: u64,
}

impl CellRandom {
    /// Makes the numbers of cell `at` of the sweep of a seed.
    pub(super) fn of(seed: u64, at: u64) -> Self {
        Self {
            start: random(random(seed).wrapping_add(at)),
            drawn: 0,
        }
    }

    fn next(&mut self) -> u64 {
        self.drawn += 1;
        random(self.start.wrapping_add(self.drawn))
    }

    /// Draws from `0..limit`, each number as likely as any other.
    pub(super) fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }

    /// Draws from `least..most`, each octave as likely as any other.
    pub(super) fn logarithmic(&mut self, least: u64, most: u64) -> u64 {
        let share = (self.next() >> 11) as f64 / (1_u64 << 53) as f64;
        (least as f64 * (most as f64 / least as f64).powf(share)) as u64
    }
}
