//! How fast the lowest tier takes what is written there, as measured: what tells how long versions still need.
//!
//! A transfer takes a time of its own, whatever else moves, and a time for each of its bytes, for which those under way share
//! the way: of *n* at a time each has an *n*-th. So one that ended was *served* for the integral of 1/*n* over its time. Where
//! versions become durable in order, what comes after its *turn* has a line of its own: one version does it at a time, beside
//! the others' bytes, and who waits for its turn does nothing.
//!
//! Through the times of the last ones, over their bytes, goes a line of median slope and median height (Theil and Sen), which a
//! few that met something else hardly move. Where enough of them were alone, these are looked at and no others: some storage
//! gives one stream less than an *n*-th of what *n* streams have together.

use std::collections::VecDeque;

/// Transfers that are looked back at.
const RECENT: usize = 16;

/// So many that were alone are enough.
const ENOUGH: usize = 3;

/// Of its time, the part for which a transfer is served that counts as alone.
const ALONE: f64 = 0.9;

/// A time with more than this of a transfer's own time tells of that.
const TELLS: f64 = 0.5;

/// Parts of transfers' own times that are the same.
const ALIKE: f64 = 0.1;

/// The least that two sizes differ, relative to the larger one, to tell what depends on them.
const SPREAD: f64 = 0.1;

/// A transfer that delivered: how long it took, and for which part of its time it was served.
#[derive(Debug, Clone, Copy)]
struct Delivered {
    bytes: f64,
    served_ns: f64,
    share: f64,
    /// How long it took after its turn.
    last_ns: Option<f64>,
}

/// A time that a transfer took.
#[derive(Debug, Clone, Copy)]
struct Point {
    bytes: f64,
    ns: f64,
    /// The part of the transfer's own time that is in it.
    own: f64,
}

/// How long transfers take: so long each, and so long a byte.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Line {
    pub(crate) each_ns: f64,
    pub(crate) byte_ns: f64,
}

impl Line {
    /// `may_be_flat`: it is nothing odd that times do not depend on the bytes.
    fn through(points: &[Point], may_be_flat: bool) -> Option<Self> {
        let slope = |is_alike: &dyn Fn(&Point, &Point) -> bool| {
            let mut slopes = Vec::new();
            for (at, a) in points.iter().enumerate() {
                let differs = |b: &&Point| {
                    (a.bytes - b.bytes).abs() > SPREAD * a.bytes.max(b.bytes) && is_alike(a, b)
                };
                let others = points[at + 1..].iter().filter(differs);
                slopes.extend(others.map(|b| (a.ns - b.ns) / (a.bytes - b.bytes)));
            }
            median(slopes)
                .map(|slope| if may_be_flat { slope.max(0.0) } else { slope })
                .filter(|slope| may_be_flat || *slope > 0.0)
        };
        let height = |byte_ns: f64| {
            let tell = points.iter().filter(|point| point.own > TELLS);
            median(tell.map(|p| (p.ns - byte_ns * p.bytes) / p.own).collect())
        };
        // With as much of their own times in them, what two differ by is their bytes'.
        let alike = |a: &Point, b: &Point| (a.own - b.own).abs() <= ALIKE;
        if let Some(byte_ns) = slope(&alike).or_else(|| slope(&|_, _| true))
            && let Some(each_ns) = height(byte_ns).filter(|each| *each >= 0.0)
        {
            return Some(Self { each_ns, byte_ns });
        }
        // As good as all of it depends on the bytes.
        let byte_ns = median(points.iter().map(|p| p.ns / p.bytes).collect())?;
        let each_ns = 0.0;
        Some(Self { each_ns, byte_ns })
    }
}

/// How long transfers take until their turn, or until their end where none is waited for, and from there on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lines {
    pub(crate) moving: Line,
    pub(crate) last: Line,
}

/// What a transfer still needs, if nothing else moved: its own time, that of its bytes, and that after its turn.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Left {
    pub(crate) each_ns: f64,
    pub(crate) bytes_ns: f64,
    pub(crate) last_ns: f64,
}

impl Left {
    pub(crate) fn is_nothing(self) -> bool {
        self.each_ns + self.bytes_ns + self.last_ns <= 0.0
    }
}

/// How long several versions need, of which so many move at a time: their bytes share the way, and their own times pass beside
/// each other; after its turn, one comes after the other. Bytes that move at the same time may be there at the same time.
#[derive(Debug, Clone)]
pub(crate) struct Together {
    depth: usize,
    count: usize,
    longest_ns: f64,
    bytes_ns: f64,
    /// If each had its turn as soon as the bytes before it and its own are there.
    ns: f64,
    /// What the last ones that move at the same time need after their turns.
    last_ns: VecDeque<f64>,
}

impl Together {
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

    /// One more, after the others. How long all need then.
    pub(crate) fn add(&mut self, left: Left) -> f64 {
        if !left.is_nothing() {
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

    /// How long all their bytes need to be there.
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

/// Where a transfer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Its bytes are under way.
    Moving,
    /// They are there, and it waits for its turn.
    Waiting,
    /// It has had its turn since then.
    Last { since_ns: u64 },
}

/// How far a transfer was served, and for how long its bytes were under way.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Service {
    /// While its bytes are under way, what to take from what [`Pace`] counts to know; what is known, afterwards.
    served: f64,
    ns: u64,
    stage: Stage,
}

/// How fast a tier takes what is written there.
#[derive(Debug, Clone, Default)]
pub(crate) struct Pace {
    /// ns for which each of the transfers under way was served since the beginning, and up to when that was added up.
    served: f64,
    until_ns: u64,
    /// Transfers under way whose bytes are there: they take nothing of the rate.
    moved: usize,
    recent: VecDeque<Delivered>,
}

impl Pace {
    /// Time passed with so many transfers under way.
    pub(crate) fn pass(&mut self, now_ns: u64, transfers: usize) {
        self.served = self.served(now_ns, transfers);
        self.until_ns = now_ns.max(self.until_ns);
    }

    /// ns for which each transfer was served by `now_ns`, as so many have been under way since the last one came or went.
    fn served(&self, now_ns: u64, transfers: usize) -> f64 {
        let passed = now_ns.saturating_sub(self.until_ns) as f64;
        match transfers.saturating_sub(self.moved) {
            0 => self.served,
            transfers => self.served + passed / transfers as f64,
        }
    }

    /// A transfer begins.
    pub(crate) fn begin(&self) -> Service {
        Service {
            served: self.served,
            ns: self.until_ns,
            stage: Stage::Moving,
        }
    }

    /// A transfer's bytes are there: it waits for its turn, or has it.
    pub(crate) fn hold(&mut self, service: &mut Service, is_held: bool) {
        if service.stage == Stage::Moving {
            service.served = self.served - service.served;
            service.ns = self.until_ns.saturating_sub(service.ns);
            self.moved += 1;
        }
        let since_ns = self.until_ns;
        service.stage = match (is_held, service.stage) {
            (true, _) => Stage::Waiting,
            (false, Stage::Last { since_ns }) => Stage::Last { since_ns },
            (false, _) => Stage::Last { since_ns },
        };
    }

    /// What a transfer of so many bytes still needs at `now_ns`, of so many.
    pub(crate) fn left(
        &self,
        (service, bytes): (Service, u64),
        (now_ns, transfers): (u64, usize),
        lines: Lines,
    ) -> Left {
        let whole = lines.left(1, bytes);
        match service.stage {
            Stage::Moving => {
                let passed = now_ns.saturating_sub(service.ns) as f64;
                let served = self.served(now_ns, transfers) - service.served;
                // Its own time came first, and passed whatever others were there; rather too little of its bytes than too much.
                let own = passed.min(whole.each_ns);
                let share = if passed > 0.0 { served / passed } else { 0.0 };
                Left {
                    each_ns: whole.each_ns - own,
                    bytes_ns: (whole.bytes_ns - share * (passed - own)).max(0.0),
                    last_ns: whole.last_ns,
                }
            }
            Stage::Waiting => Left {
                last_ns: whole.last_ns,
                ..Left::default()
            },
            Stage::Last { since_ns } => Left {
                last_ns: (whole.last_ns - now_ns.saturating_sub(since_ns) as f64).max(0.0),
                ..Left::default()
            },
        }
    }

    /// A transfer ended, of which this much is known.
    pub(crate) fn end(&mut self, service: Service) -> Service {
        let mut ended = service;
        if service.stage == Stage::Moving {
            self.hold(&mut ended, true);
        }
        self.moved = self.moved.saturating_sub(1);
        // As it was, for who reads it.
        ended.stage = service.stage;
        ended
    }

    /// A transfer that ended delivered so many bytes.
    pub(crate) fn delivered(&mut self, bytes: u64, service: Service) {
        if self.recent.len() == RECENT {
            self.recent.pop_front();
        }
        let last_ns = match service.stage {
            Stage::Last { since_ns } => Some(self.until_ns.saturating_sub(since_ns) as f64),
            Stage::Moving | Stage::Waiting => None,
        };
        let ns = service.ns as f64;
        self.recent.push_back(Delivered {
            bytes: bytes.max(1) as f64,
            served_ns: service.served,
            share: if ns > 0.0 { service.served / ns } else { 1.0 },
            last_ns,
        });
    }

    /// How long transfers take; `None` before any was measured.
    pub(crate) fn lines(&self) -> Option<Lines> {
        let is_alone = |one: &&Delivered| one.share >= ALONE;
        let enough = self.recent.iter().filter(is_alone).count() >= ENOUGH;
        let looked_at = self.recent.iter().filter(|one| !enough || is_alone(one));
        let moving = looked_at.map(|one| Point {
            bytes: one.bytes,
            ns: one.served_ns,
            // Of two all the time, each is counted half of its own time, and loses half of the other's.
            own: (2.0 * one.share - 1.0).max(0.0),
        });
        let last = self.recent.iter().filter_map(|one| {
            Some(Point {
                bytes: one.bytes,
                ns: one.last_ns?,
                own: 1.0,
            })
        });
        Some(Lines {
            moving: Line::through(&moving.collect::<Vec<_>>(), false)?,
            // Where no transfer waits for turns, nothing comes after them.
            last: Line::through(&last.collect::<Vec<_>>(), true).unwrap_or_default(),
        })
    }
}

impl Lines {
    /// What so many transfers of so many bytes need, of which none has begun.
    pub(crate) fn left(self, transfers: u64, bytes: u64) -> Left {
        let (transfers, bytes) = (transfers as f64, bytes as f64);
        Left {
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
        let left = pace.lines()?.left(transfers, bytes);
        Some(left.each_ns + left.bytes_ns + left.last_ns)
    }

    fn is_close(pace: &Pace, transfers: u64, bytes: u64, expected: f64) -> bool {
        found(pace, transfers, bytes).is_some_and(|ns| (ns - expected).abs() <= 1e-6 * expected)
    }

    #[test]
    fn nothing_is_told_before_anything_was_measured() {
        assert!(Pace::default().lines().is_none());
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
        let lines = pace.lines().unwrap();
        // Half way through its own time, and 500 of its 1000 bytes further.
        let service = pace.begin();
        let left = |after| pace.left((service, 1000), (pace.until_ns + after, 2), lines);
        assert!((left(300).each_ns - 300.0).abs() < 1e-3);
        assert!((left(300).bytes_ns - 4000.0).abs() < 1e-3);
        assert!(left(4600).each_ns.abs() < 1e-3);
        assert!((left(4600).bytes_ns - 2000.0).abs() < 1e-3);
        let mut together = Together::new(2);
        let whole = lines.left(1, 1000);
        assert!((together.add(whole) - 4600.0).abs() < 1e-3);
        assert!((together.add(whole) - 8600.0).abs() < 1e-3);
        assert!((together.add(whole) - 13_200.0).abs() < 1e-3);
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
            if let Some(lines) = pace.lines() {
                let left = |of: usize| pace.left((all[of], 1000), (now + 1000, 3 - at), lines);
                assert!((left(at).last_ns - 3000.0).abs() < 1e-3 && left(at).bytes_ns == 0.0);
                assert!((at + 1..3).all(|of| (left(of).last_ns - 4000.0).abs() < 1e-3));
            }
            now += 4000;
            pace.pass(now, 3 - at);
            let ended = pace.end(all[at]);
            pace.delivered(1000, ended);
        }
        let mut together = Together::new(4);
        let whole = pace.lines().unwrap().left(1, 1000);
        assert!((together.add(whole) - 4200.0).abs() < 1e-3);
        assert!((together.add(whole) - 8400.0).abs() < 1e-3);
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
