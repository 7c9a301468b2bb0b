//! The choice between two methods by their measured rates.

use std::time::Duration;

/// The share of the time that copies by the slower method may take, which reveal if it has become the faster one.
const TRIALS: f64 = 0.01;

/// The weight of the newest copy in the average of the faster method.
const WEIGHT: f64 = 0.25;

/// The method of a copy between device memory and a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CopyMethod {
    /// Through pinned buffers.
    Buffered,
    /// By the device's library for files.
    Direct,
}

/// Measurements of the copies by one method.
#[derive(Debug, Clone, Copy, Default)]
struct Rate {
    copies: u64,
    /// Bytes per second.
    rate: f64,
}

/// Chooses both methods in turn until both are measured, then the faster one, and the slower one for a small share of the time.
///
/// The choice uses no clock and moves no bytes.
#[derive(Debug, Default)]
pub(super) struct RateChoice {
    buffered: Rate,
    direct: Rate,
    /// Seconds that a copy by the slower method may take now.
    earned: f64,
}

impl RateChoice {
    /// Returns the method for a copy of `bytes` bytes.
    pub(super) fn decide(&mut self, bytes: u64) -> CopyMethod {
        let (faster, slower) = match self.buffered.copies.min(self.direct.copies) {
            0 | 1 if self.buffered.copies <= self.direct.copies => return CopyMethod::Buffered,
            0 | 1 => return CopyMethod::Direct,
            _ if self.direct.rate > self.buffered.rate => {
                (CopyMethod::Direct, CopyMethod::Buffered)
            }
            _ => (CopyMethod::Buffered, CopyMethod::Direct),
        };
        if bytes as f64 > self.earned * self.of(slower).rate {
            return faster;
        }
        self.earned = 0.0;
        slower
    }

    /// Records the time of a copy.
    pub(super) fn took(&mut self, method: CopyMethod, bytes: u64, time: Duration) {
        let seconds = time.as_secs_f64().max(1e-9);
        let other = match method {
            CopyMethod::Buffered => self.direct.rate,
            CopyMethod::Direct => self.buffered.rate,
        };
        let measured = self.of(method);
        let (rate, is_faster) = (bytes as f64 / seconds, measured.rate > other);
        measured.copies += 1;
        measured.rate = match measured.copies {
            // The first copy allocates the buffers that all others use, so its rate does not count.
            1 => 0.0,
            // A method that is used only now and then has the rate of its last copy.
            copies if copies > 2 && is_faster => measured.rate + WEIGHT * (rate - measured.rate),
            _ => rate,
        };
        if is_faster {
            self.earned += TRIALS * seconds;
        }
    }

    fn of(&mut self, method: CopyMethod) -> &mut Rate {
        match method {
            CopyMethod::Buffered => &mut self.buffered,
            CopyMethod::Direct => &mut self.direct,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: u64 = 64 << 20;

    /// Simulates copies at these rates in GB/s. Returns the number of direct copies, and the seconds of all copies.
    fn copies(choice: &mut RateChoice, count: usize, rates: [f64; 2]) -> (usize, f64) {
        let [buffered, direct] = rates;
        let (mut taken, mut seconds) = (0, 0.0);
        for _ in 0..count {
            let method = choice.decide(BYTES);
            let rate = if method == CopyMethod::Direct {
                direct
            } else {
                buffered
            };
            let time = BYTES as f64 / rate / 1e9;
            choice.took(method, BYTES, Duration::from_secs_f64(time));
            taken += usize::from(method == CopyMethod::Direct);
            seconds += time;
        }
        (taken, seconds)
    }

    #[test]
    fn both_methods_are_measured_first() {
        let mut choice = RateChoice::default();
        let (taken, _) = copies(&mut choice, 4, [3.0, 6.0]);
        assert_eq!(taken, 2);
        assert_eq!(choice.decide(BYTES), CopyMethod::Direct);
    }

    #[test]
    fn the_first_copy_by_a_method_does_not_count() {
        let mut choice = RateChoice::default();
        for (method, milliseconds) in [
            (CopyMethod::Buffered, 20),
            (CopyMethod::Direct, 500),
            (CopyMethod::Buffered, 20),
            (CopyMethod::Direct, 10),
        ] {
            assert_eq!(choice.decide(BYTES), method);
            choice.took(method, BYTES, Duration::from_millis(milliseconds));
        }
        assert_eq!(choice.decide(BYTES), CopyMethod::Direct);
    }

    #[test]
    fn the_slower_method_costs_little_and_is_not_forgotten() {
        for (buffered, direct) in [(3.0, 1.0), (3.0, 2.9), (2.0, 6.0)] {
            let mut choice = RateChoice::default();
            let count = 10_000;
            let (taken, seconds) = copies(&mut choice, count, [buffered, direct]);
            let best = count as f64 * BYTES as f64 / f64::max(buffered, direct) / 1e9;
            assert!(seconds < 1.02 * best, "{seconds} s for {best} s");
            let slower = if direct > buffered {
                count - taken
            } else {
                taken
            };
            assert!(slower > 20, "{slower} copies");
        }
    }

    #[test]
    fn a_method_that_has_become_faster_is_taken() {
        let mut choice = RateChoice::default();
        copies(&mut choice, 100, [3.0, 1.0]);
        // A trial at 1 GB/s is paid for after some 300 copies by the other method.
        copies(&mut choice, 400, [3.0, 6.0]);
        assert_eq!(choice.decide(BYTES), CopyMethod::Direct);
        let (taken, _) = copies(&mut choice, 100, [3.0, 6.0]);
        assert!(taken >= 98);
    }

    #[test]
    fn no_time_at_all_is_no_failure() {
        let mut choice = RateChoice::default();
        for _ in 0..10 {
            let method = choice.decide(0);
            choice.took(method, 0, Duration::ZERO);
        }
    }
}
