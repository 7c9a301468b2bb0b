//! The measured speed of writes to the lowest tier, which tells how long versions still need.
//!
//! A transfer takes a time of its own, whatever else moves, and a time for each of its bytes. *n* transfers at a time
//! share the link: each has an *n*-th of it. So a transfer is *served* for the integral of 1/*n* over its time. If
//! versions become durable in order, the time after a version's *turn* has a model of its own: one version at a time
//! has its turn, beside the others' bytes, and a version that waits for its turn does nothing.
//!
//! Each model is a line of median slope and median height through the times of the last transfers over their bytes
//! (Theil and Sen). A few that met something else hardly move it. If enough of them were alone, only these count: some
//! storage gives one stream less than an *n*-th of the rate of *n* streams together.

use std::collections::VecDeque;

/// Number of last transfers that are remembered.
const RECENT: usize = 16;

/// Number of transfers alone that is enough to ignore the others.
const ENOUGH: usize = 3;

/// Share of its time for which a transfer was served, from which on it counts as alone.
const ALONE: f64 = 0.9;

/// Share of a transfer's own time in a sample, above which the sample tells about that time.
const TELLS: f64 = 0.5;

/// Largest difference of own times' shares that count as equal.
const ALIKE: f64 = 0.1;

/// Least difference of two sizes, relative to the larger one, that tells the time of a byte.
const SPREAD: f64 = 0.1;

/// A transfer that delivered: its bytes, the ns for which it was served, and their share of its time.
#[derive(Debug, Clone, Copy)]
struct DeliveredTransfer {
    bytes: f64,
    served_ns: f64,
    share: f64,
    /// Time from the transfer's turn to its end, in ns.
    last_ns: Option<f64>,
}

/// A measured time of a transfer.
#[derive(Debug, Clone, Copy)]
struct TimeSample {
    bytes: f64,
    ns: f64,
    /// Share of the transfer's own time in it.
    own: f64,
}

/// A linear model of the time of a transfer: ns for each, and ns for each byte.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct TimeModel {
    pub(crate) each_ns: f64,
    pub(crate) byte_ns: f64,
}

impl TimeModel {
    /// Fits a line. `may_be_flat`: times may well not depend on the bytes.
    fn fit(samples: &[TimeSample], may_be_flat: bool) -> Option<Self> {
        let slope = |is_alike: &dyn Fn(&TimeSample, &TimeSample) -> bool| {
            let mut slopes = Vec::new();
            for (at, a) in samples.iter().enumerate() {
                let differs = |b: &&TimeSample| {
                    (a.bytes - b.bytes).abs() > SPREAD * a.bytes.max(b.bytes) && is_alike(a, b)
                };
                let others = samples[at + 1..].iter().filter(differs);
                slopes.extend(others.map(|b| (a.ns - b.ns) / (a.bytes - b.bytes)));
            }
            median(slopes)
                .map(|slope| if may_be_flat { slope.max(0.0) } else { slope })
                .filter(|slope| may_be_flat || *slope > 0.0)
        };
        let height = |byte_ns: f64| {
            let tell = samples.iter().filter(|sample| sample.own > TELLS);
            median(tell.map(|p| (p.ns - byte_ns * p.bytes) / p.own).collect())
        };
        // Samples with like shares of own time differ by the time of their bytes only.
        let alike = |a: &TimeSample, b: &TimeSample| (a.own - b.own).abs() <= ALIKE;
        if let Some(byte_ns) = slope(&alike).or_else(|| slope(&|_, _| true))
            && let Some(each_ns) = height(byte_ns).filter(|each| *each >= 0.0)
        {
            return Some(Self { each_ns, byte_ns });
        }
        // Practically all of the time depends on the bytes.
        let byte_ns = median(samples.iter().map(|p| p.ns / p.bytes).collect())?;
        let each_ns = 0.0;
        Some(Self { each_ns, byte_ns })
    }
}

/// The times of transfers: until their turn, or until their end without turns, and from there on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TimeModels {
    pub(crate) moving: TimeModel,
    pub(crate) last: TimeModel,
}

/// The time that a transfer still needs if nothing else moves, in ns: its own, its bytes', and that after its turn.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RemainingTime {
    pub(crate) each_ns: f64,
    pub(crate) bytes_ns: f64,
    pub(crate) last_ns: f64,
}

/// The time that several versions need, of which `depth` move at a time. The bytes share the link, and the versions' own times
/// overlap; after their turns, one follows the other. Bytes that move at the same time may arrive at the same time.
#[derive(Debug, Clone)]
pub(crate) struct ParallelTime {
    depth: usize,
    count: usize,
    longest_ns: f64,
    bytes_ns: f64,
    /// Time if each has its turn as soon as its bytes and those before it are there, in ns.
    ns: f64,
    /// Times after their turns of the last `depth` versions, in ns.
    last_ns: VecDeque<f64>,
}

impl ParallelTime {
    pub(crate) fn new(depth: usize) -> Self {
        Self {
            depth: depth.max(1),
            count: 0,
            longest_ns: 0.0,
            bytes_ns: 0.0,
            ns: 0.0,
            last_ns: VecDeque::new(),
        }
    }

    /// Adds one version behind the others. Returns the time that all need then, in ns.
    pub(crate) fn add(&mut self, left: RemainingTime) -> f64 {
        if left.each_ns + left.bytes_ns + left.last_ns > 0.0 {
            self.count += usize::from(left.each_ns > 0.0);
            self.longest_ns = self.longest_ns.max(left.each_ns);
            self.bytes_ns += left.bytes_ns;
            self.last_ns.push_back(left.last_ns);
            if self.last_ns.len() > self.depth {
                self.last_ns.pop_front();
            }
            self.ns = self.ns.max(self.moved_ns()) + left.last_ns;
        }
        let last_ns: f64 = self.last_ns.iter().sum();
        self.ns.max(self.moved_ns() + last_ns)
    }

    /// Returns the ns until all their bytes are there.
    fn moved_ns(&self) -> f64 {
        let rounds = self.count.div_ceil(self.depth);
        self.bytes_ns + rounds as f64 * self.longest_ns
    }
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_unstable_by(f64::total_cmp);
    let above = *values.get(values.len() / 2)?;
    let below = values.get((values.len() - 1) / 2)?;
    Some((above + below) / 2.0)
}

/// The progress of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Progress {
    /// The bytes are under way.
    Moving,
    /// The bytes are there; the transfer waits for its turn.
    Waiting,
    /// The turn came at `since_ns`.
    Last { since_ns: u64 },
}

/// The time for which a transfer was served, and for which its bytes were under way.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Service {
    /// While the bytes are under way: the value of [`Pace`]'s count at the start, in ns. Afterwards: ns for which it
    /// was served.
    served: f64,
    ns: u64,
    progress: Progress,
}

/// The speed at which a tier takes writes.
#[derive(Debug, Clone, Default)]
pub(crate) struct Pace {
    /// ns for which each transfer under way was served since the beginning, as of `until_ns`.
    served: f64,
    until_ns: u64,
    /// Transfers under way whose bytes are there: they take nothing of the rate.
    moved: usize,
    recent: VecDeque<DeliveredTransfer>,
}

impl Pace {
    /// Accounts for the time until `now_ns`, with `transfers` under way.
    pub(crate) fn pass(&mut self, now_ns: u64, transfers: usize) {
        self.served = self.served(now_ns, transfers);
        self.until_ns = now_ns.max(self.until_ns);
    }

    /// Returns the ns for which each transfer was served by `now_ns`, with `transfers` under way since the last one
    /// came or went.
    fn served(&self, now_ns: u64, transfers: usize) -> f64 {
        let passed = now_ns.saturating_sub(self.until_ns) as f64;
        match transfers.saturating_sub(self.moved) {
            0 => self.served,
            transfers => self.served + passed / transfers as f64,
        }
    }

    /// Begins a transfer.
    pub(crate) fn begin(&self) -> Service {
        Service {
            served: self.served,
            ns: self.until_ns,
            progress: Progress::Moving,
        }
    }

    /// Notes that a transfer's bytes are there, and that it waits for its turn or has it.
    pub(crate) fn hold(&mut self, service: &mut Service, is_held: bool) {
        if service.progress == Progress::Moving {
            service.served = self.served - service.served;
            service.ns = self.until_ns.saturating_sub(service.ns);
            self.moved += 1;
        }
        let since_ns = self.until_ns;
        service.progress = match (is_held, service.progress) {
            (true, _) => Progress::Waiting,
            (false, Progress::Last { since_ns }) => Progress::Last { since_ns },
            (false, _) => Progress::Last { since_ns },
        };
    }

    /// Returns the time that a transfer of `bytes` bytes still needs at `now_ns`, with `transfers` under way.
    pub(crate) fn left(
        &self,
        service: Service,
        bytes: u64,
        now_ns: u64,
        transfers: usize,
        models: TimeModels,
    ) -> RemainingTime {
        let whole = models.left(1, bytes);
        match service.progress {
            Progress::Moving => {
                let passed = now_ns.saturating_sub(service.ns) as f64;
                let served = self.served(now_ns, transfers) - service.served;
                // The transfer's own time came first, and passed beside others. Rather too little of its bytes' time is subtracted
                // than too much.
                let own = passed.min(whole.each_ns);
                let share = if passed > 0.0 { served / passed } else { 0.0 };
                RemainingTime {
                    each_ns: whole.each_ns - own,
                    bytes_ns: (whole.bytes_ns - share * (passed - own)).max(0.0),
                    last_ns: whole.last_ns,
                }
            }
            Progress::Waiting => RemainingTime {
                last_ns: whole.last_ns,
                ..RemainingTime::default()
            },
            Progress::Last { since_ns } => RemainingTime {
                last_ns: (whole.last_ns - now_ns.saturating_sub(since_ns) as f64).max(0.0),
                ..RemainingTime::default()
            },
        }
    }

    /// Ends a transfer. Returns its service up to now.
    pub(crate) fn end(&mut self, service: Service) -> Service {
        let mut ended = service;
        if service.progress == Progress::Moving {
            self.hold(&mut ended, true);
        }
        self.moved = self.moved.saturating_sub(1);
        // The caller reads the progress as it was.
        ended.progress = service.progress;
        ended
    }

    /// Remembers a transfer that ended and delivered `bytes` bytes.
    pub(crate) fn delivered(&mut self, bytes: u64, service: Service) {
        if self.recent.len() == RECENT {
            self.recent.pop_front();
        }
        let last_ns = match service.progress {
            Progress::Last { since_ns } => Some(self.until_ns.saturating_sub(since_ns) as f64),
            Progress::Moving | Progress::Waiting => None,
        };
        let ns = service.ns as f64;
        self.recent.push_back(DeliveredTransfer {
            bytes: bytes.max(1) as f64,
            served_ns: service.served,
            share: if ns > 0.0 { service.served / ns } else { 1.0 },
            last_ns,
        });
    }

    /// Returns the models of transfers' times; `None` before any was measured.
    pub(crate) fn models(&self) -> Option<TimeModels> {
        let is_alone = |one: &&DeliveredTransfer| one.share >= ALONE;
        let enough = self.recent.iter().filter(is_alone).count() >= ENOUGH;
        let looked_at = self.recent.iter().filter(|one| !enough || is_alone(one));
        let moving = looked_at.map(|one| TimeSample {
            bytes: one.bytes,
            ns: one.served_ns,
            // Of two side by side all the time, each has half of its own time counted, and loses half of the other's.
            own: (2.0 * one.share - 1.0).max(0.0),
        });
        let last = self.recent.iter().filter_map(|one| {
            Some(TimeSample {
                bytes: one.bytes,
                ns: one.last_ns?,
                own: 1.0,
            })
        });
        Some(TimeModels {
            moving: TimeModel::fit(&moving.collect::<Vec<_>>(), false)?,
            // Without turns, nothing comes after them.
            last: TimeModel::fit(&last.collect::<Vec<_>>(), true).unwrap_or_default(),
        })
    }
}

impl TimeModels {
    /// Returns the time that `transfers` transfers of `bytes` bytes together need, none of which has begun.
    pub(crate) fn left(self, transfers: u64, bytes: u64) -> RemainingTime {
        let (transfers, bytes) = (transfers as f64, bytes as f64);
        RemainingTime {
            each_ns: self.moving.each_ns * transfers,
            bytes_ns: self.moving.byte_ns * bytes,
            last_ns: self.last.each_ns * transfers + self.last.byte_ns * bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: f64 = 0.25;

    /// A pace that measured transfers of these sizes, one after the other, each of which took `each` ns and 4 ns a byte.
    fn measured(sizes: &[u64], each: u64) -> Pace {
        let mut pace = Pace::default();
        let mut now = 0;
        for &bytes in sizes {
            pace.pass(now, 0);
            let service = pace.begin();
            now += each + (bytes as f64 / RATE) as u64;
            pace.pass(now, 1);
            let service = pace.end(service);
            pace.delivered(bytes, service);
        }
        pace
    }

    /// How long so many transfers of so many bytes together take, one after the other.
    fn found(pace: &Pace, transfers: u64, bytes: u64) -> Option<f64> {
        let left = pace.models()?.left(transfers, bytes);
        Some(left.each_ns + left.bytes_ns + left.last_ns)
    }

    fn is_close(pace: &Pace, transfers: u64, bytes: u64, expected: f64) -> bool {
        found(pace, transfers, bytes).is_some_and(|ns| (ns - expected).abs() <= 1e-6 * expected)
    }

    #[test]
    fn nothing_is_told_before_anything_was_measured() {
        assert!(Pace::default().models().is_none());
    }

    #[test]
    fn what_does_not_depend_on_the_bytes_is_told_where_sizes_differ() {
        let pace = measured(&[1000, 5000, 2000], 700);
        assert!(is_close(&pace, 1, 9000, 700.0 + 36_000.0));
        assert!(is_close(&pace, 3, 9000, 2100.0 + 36_000.0));
        let pace = measured(&[1000, 1000], 700);
        assert!(is_close(&pace, 1, 2000, 9400.0));
    }

    #[test]
    fn transfers_side_by_side_are_measured_as_if_alone() {
        let mut pace = Pace::default();
        // Two of 1000 bytes, the second begun when the first is half done: they end at 6000 and 8000.
        let first = pace.begin();
        pace.pass(2000, 1);
        let second = pace.begin();
        pace.pass(6000, 2);
        let first = pace.end(first);
        pace.delivered(1000, first);
        pace.pass(8000, 1);
        let second = pace.end(second);
        pace.delivered(1000, second);
        assert!(is_close(&pace, 1, 500, 2000.0));
    }

    #[test]
    fn what_does_not_depend_on_the_bytes_passes_side_by_side() {
        let pace = measured(&[1000, 5000], 600);
        let models = pace.models().unwrap();
        // Half way through its own time, and 500 of its 1000 bytes further.
        let service = pace.begin();
        let left = |after| pace.left(service, 1000, pace.until_ns + after, 2, models);
        assert!((left(300).each_ns - 300.0).abs() < 1e-3);
        assert!((left(300).bytes_ns - 4000.0).abs() < 1e-3);
        assert!(left(4600).each_ns.abs() < 1e-3);
        assert!((left(4600).bytes_ns - 2000.0).abs() < 1e-3);
        let mut parallel = ParallelTime::new(2);
        let whole = models.left(1, 1000);
        assert!((parallel.add(whole) - 4600.0).abs() < 1e-3);
        assert!((parallel.add(whole) - 8600.0).abs() < 1e-3);
        assert!((parallel.add(whole) - 13_200.0).abs() < 1e-3);
    }

    #[test]
    fn what_comes_after_a_turn_comes_one_after_the_other() {
        let mut pace = Pace::default();
        // Three whose bytes are there together after 600 ns, and that then need 4000 ns each, one after the other.
        let mut all = [pace.begin(), pace.begin(), pace.begin()];
        pace.pass(600, 3);
        all.iter_mut().for_each(|one| pace.hold(one, true));
        let mut now = 600;
        for at in 0..3 {
            pace.hold(&mut all[at], false);
            if let Some(models) = pace.models() {
                let left = |of: usize| pace.left(all[of], 1000, now + 1000, 3 - at, models);
                assert!((left(at).last_ns - 3000.0).abs() < 1e-3 && left(at).bytes_ns == 0.0);
                assert!((at + 1..3).all(|of| (left(of).last_ns - 4000.0).abs() < 1e-3));
            }
            now += 4000;
            pace.pass(now, 3 - at);
            let ended = pace.end(all[at]);
            pace.delivered(1000, ended);
        }
        let mut parallel = ParallelTime::new(4);
        let whole = pace.models().unwrap().left(1, 1000);
        assert!((parallel.add(whole) - 4200.0).abs() < 1e-3);
        assert!((parallel.add(whole) - 8400.0).abs() < 1e-3);
    }

    #[test]
    fn one_that_met_something_else_is_not_believed() {
        let mut pace = measured(&[1000, 5000, 2000, 3000, 4000], 700);
        let since = pace.begin();
        pace.pass(pace.until_ns + 1_000_000_000, 1);
        let service = pace.end(since);
        pace.delivered(3000, service);
        let ns = found(&pace, 1, 9000).unwrap();
        assert!((ns / 36_700.0 - 1.0).abs() < 0.05);
    }

    #[test]
    fn what_was_alone_counts_first() {
        // Alone, a stream has half of what two have together.
        let mut pace = measured(&[1000; 3], 0);
        for _ in 0..5 {
            let since = pace.begin();
            pace.pass(pace.until_ns + 4000, 2);
            let service = pace.end(since);
            pace.delivered(1000, service);
        }
        assert!(is_close(&pace, 1, 1000, 4000.0));
    }
}
