//! Chooses the number of pieces to bring at a time by measured bandwidth: the elastic threads of VeloC (IPDPS'19, §IV-E).
//!
//! External storage has a number of writers at which it is fastest, and this number changes with the load of others. While pieces wait, the
//! agent tries an additional thread. The thread stays if the total bandwidth rose, and ends otherwise. From time to time the agent checks
//! whether the last additional thread is still worth it.

/// The least gain of bandwidth, in percent, for which an additional thread is kept.
const MIN_GAIN_PERCENT: u64 = 5;
/// Number of pieces over which bytes/s are averaged, roughly.
const WEIGHT: u64 = 4;
/// Pieces between two trials.
const TRIAL_INTERVAL: u32 = 8;

/// The number of threads, and the bandwidth measured with each number.
#[derive(Debug)]
pub(crate) struct Elastic {
    threads: usize,
    most: usize,
    /// Bytes/s of all threads together, by the number of threads, up to the most that there were; 0 if not measured.
    bandwidth: Vec<u64>,
    /// Pieces until the next trial.
    until_trial: u32,
}

impl Elastic {
    pub(crate) fn new(most: usize) -> Self {
        let most = most.max(1);
        Self {
            threads: 1,
            most,
            bandwidth: vec![0; 2],
            until_trial: TRIAL_INTERVAL,
        }
    }

    /// Returns the number of threads that there should be.
    pub(crate) fn threads(&self) -> usize {
        self.threads
    }

    /// Takes a measurement: `threads` threads together brought pieces at `bytes_a_second`, and `waiting` pieces wait. May change the number of
    /// threads.
    pub(crate) fn measured(&mut self, threads: usize, bytes_a_second: u64, waiting: usize) {
        if let Some(known) = self.bandwidth.get_mut(threads).filter(|_| threads > 0) {
            *known = match *known {
                0 => bytes_a_second,
                known => (known * (WEIGHT - 1) + bytes_a_second) / WEIGHT,
            };
        }
        self.until_trial = self.until_trial.saturating_sub(1);
        if self.until_trial > 0 || threads != self.threads {
            return;
        }
        self.until_trial = TRIAL_INTERVAL;
        let now = self.bandwidth[self.threads];
        let fewer = self.bandwidth[self.threads - 1];
        let was_worth_it = fewer == 0 || now >= fewer + fewer / 100 * MIN_GAIN_PERCENT;
        if self.threads > 1 && !was_worth_it {
            self.threads -= 1;
            // The next trial comes later, when the storage may be faster.
            self.until_trial = 4 * TRIAL_INTERVAL;
        } else if waiting > 0 && self.threads < self.most {
            self.threads += 1;
            if self.bandwidth.len() <= self.threads {
                self.bandwidth.push(0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the numbers of threads after many pieces, on storage whose bandwidth depends on the number.
    fn settles(most: usize, waiting: usize, bandwidth: impl Fn(usize) -> u64) -> Vec<usize> {
        let mut elastic = Elastic::new(most);
        let mut seen = Vec::new();
        for _ in 0..600 {
            let threads = elastic.threads();
            elastic.measured(threads, bandwidth(threads), waiting);
            seen.push(elastic.threads());
        }
        seen.split_off(300)
    }

    #[test]
    fn threads_come_while_they_help() {
        let scaling = settles(8, 100, |threads| threads as u64 * 100_000_000);
        assert!(scaling.iter().all(|&threads| threads == 8), "{scaling:?}");
        let best_of_three = |threads: usize| 300_000_000_u64 * threads.min(3) as u64;
        let settled = settles(8, 100, best_of_three);
        assert!(
            settled.iter().all(|threads| (3..=4).contains(threads)),
            "{settled:?}"
        );
        let crowded = settles(8, 100, |threads| 400_000_000 / threads as u64);
        assert!(crowded.iter().all(|&threads| threads <= 2), "{crowded:?}");
    }

    #[test]
    fn nothing_waits_for_more_threads() {
        assert!(
            settles(8, 0, |threads| threads as u64)
                .iter()
                .all(|&threads| threads == 1)
        );
    }

    #[test]
    fn any_report_is_taken() {
        for (most, expected) in [(0, 1), (usize::MAX, 2)] {
            let mut elastic = Elastic::new(most);
            for threads in [0, 2, 99, 0, 2, 99, 0, 1] {
                elastic.measured(threads, u64::MAX / 8, usize::MAX);
            }
            assert_eq!(elastic.threads(), expected);
        }
    }
}
