//! How fast the lowest tier takes what is written there, as measured: what tells how long a version still needs.
//!
//! Of *n* transfers at a time each has an *n*-th of the way, so a transfer that ended was *served* for the integral of 1/*n*
//! over its time: as long as it would have taken alone. Through the times of the last ones, over their bytes, goes a line of
//! median slope and median height (Theil and Sen), which a few that met something else hardly move. Where enough of them were
//! alone, these are looked at and no others: some storage gives one stream less than an *n*-th of what *n* streams have
//! together.

use std::collections::VecDeque;

/// Transfers that are looked back at.
const RECENT: usize = 16;

/// So many that were alone are enough.
const ENOUGH: usize = 3;

/// Of its time, the part for which a transfer is served that counts as alone.
const ALONE: f64 = 0.9;

/// The least that two sizes differ, relative to the larger one, to tell what depends on them.
const SPREAD: f64 = 0.1;

/// A transfer that delivered.
#[derive(Debug, Clone, Copy)]
struct Delivered {
    bytes: f64,
    served_ns: f64,
    is_alone: bool,
}

/// How long transfers take alone: so long each, and so long a byte.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Line {
    each_ns: f64,
    byte_ns: f64,
}

impl Line {
    fn through(points: &[Delivered]) -> Option<Self> {
        let mut slopes = Vec::new();
        for (at, a) in points.iter().enumerate() {
            let others = points[at + 1..].iter();
            let others =
                others.filter(|b| (a.bytes - b.bytes).abs() > SPREAD * a.bytes.max(b.bytes));
            slopes.extend(others.map(|b| (a.served_ns - b.served_ns) / (a.bytes - b.bytes)));
        }
        let byte_ns = median(slopes).filter(|slope| *slope > 0.0);
        let rest = |byte_ns: f64| {
            let rests = points.iter().map(|p| p.served_ns - byte_ns * p.bytes);
            median(rests.collect())
        };
        if let Some(byte_ns) = byte_ns
            && let Some(each_ns) = rest(byte_ns).filter(|each| *each >= 0.0)
        {
            return Some(Self { each_ns, byte_ns });
        }
        // As good as all of it depends on the bytes.
        let byte_ns = median(points.iter().map(|p| p.served_ns / p.bytes).collect())?;
        let each_ns = 0.0;
        Some(Self { each_ns, byte_ns })
    }

    /// ns for so many transfers of so many bytes together, if nothing else moves.
    pub(crate) fn ns(self, transfers: u64, bytes: u64) -> f64 {
        self.each_ns * transfers as f64 + self.byte_ns * bytes as f64
    }
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_unstable_by(f64::total_cmp);
    let above = *values.get(values.len() / 2)?;
    let below = values.get((values.len() - 1) / 2)?;
    Some((above + below) / 2.0)
}

/// How far a transfer was served, and for how long it was under way but for the time for which it was held.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Service {
    /// What to take from what [`Pace`] counts to know; what is known, while it is held.
    served: f64,
    ns: u64,
    is_held: bool,
}

/// How fast a tier takes what is written there.
#[derive(Debug, Clone, Default)]
pub(crate) struct Pace {
    /// ns for which each of the transfers under way was served since the beginning, and up to when that was added up.
    served: f64,
    until_ns: u64,
    /// Transfers under way that wait for others to be there before them: nobody serves these.
    held: usize,
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
        match transfers.saturating_sub(self.held) {
            0 => self.served,
            transfers => self.served + passed / transfers as f64,
        }
    }

    /// A transfer begins.
    pub(crate) fn begin(&self) -> Service {
        Service {
            served: self.served,
            ns: self.until_ns,
            is_held: false,
        }
    }

    /// A transfer is held from now on, or no longer.
    pub(crate) fn hold(&mut self, service: &mut Service, is_held: bool) {
        if service.is_held == is_held {
            return;
        }
        *service = Service {
            served: self.served - service.served,
            ns: self.until_ns.saturating_sub(service.ns),
            is_held,
        };
        match is_held {
            true => self.held += 1,
            false => self.held = self.held.saturating_sub(1),
        }
    }

    /// ns for which a transfer was served by `now_ns`, of so many.
    pub(crate) fn served_to(&self, service: Service, now_ns: u64, transfers: usize) -> f64 {
        match service.is_held {
            true => service.served,
            false => self.served(now_ns, transfers) - service.served,
        }
    }

    /// A transfer ended, of which this much is known.
    pub(crate) fn end(&mut self, mut service: Service) -> Service {
        // As it is counted while it is held.
        self.hold(&mut service, true);
        self.held = self.held.saturating_sub(1);
        service
    }

    /// A transfer that ended delivered so many bytes.
    pub(crate) fn delivered(&mut self, bytes: u64, Service { served, ns, .. }: Service) {
        if self.recent.len() == RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back(Delivered {
            bytes: bytes.max(1) as f64,
            served_ns: served,
            is_alone: served >= ALONE * ns as f64,
        });
    }

    /// How long transfers take alone; `None` before any was measured.
    pub(crate) fn line(&self) -> Option<Line> {
        let recent = self.recent.iter().copied();
        let alone: Vec<_> = recent.clone().filter(|one| one.is_alone).collect();
        match alone.len() >= ENOUGH {
            true => Line::through(&alone),
            false => Line::through(&recent.collect::<Vec<_>>()),
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

    fn is_close(pace: &Pace, transfers: u64, bytes: u64, expected: f64) -> bool {
        let found = pace.line().map(|line| line.ns(transfers, bytes));
        found.is_some_and(|found| (found - expected).abs() <= 1e-6 * expected)
    }

    #[test]
    fn nothing_is_told_before_anything_was_measured() {
        assert!(Pace::default().line().is_none());
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
    fn who_waits_for_others_to_be_there_is_not_served_meanwhile() {
        let mut pace = Pace::default();
        // Three of 1000 bytes that begin together and are served one after the other, 4000 ns each.
        let mut all = [pace.begin(), pace.begin(), pace.begin()];
        all[1..].iter_mut().for_each(|one| pace.hold(one, true));
        let mut now = 0;
        for at in 0..3 {
            pace.hold(&mut all[at], false);
            assert!(pace.served_to(all[at], now + 1000, 3 - at) > 999.0);
            assert!(
                all[at + 1..]
                    .iter()
                    .all(|one| pace.served_to(*one, now, 3 - at) == 0.0)
            );
            now += 4000;
            pace.pass(now, 3 - at);
            let ended = pace.end(all[at]);
            pace.delivered(1000, ended);
            assert!(is_close(&pace, 1, 500, 2000.0));
        }
    }

    #[test]
    fn one_that_met_something_else_is_not_believed() {
        let mut pace = measured(&[1000, 5000, 2000, 3000, 4000], 700);
        let since = pace.begin();
        pace.pass(pace.until_ns + 1_000_000_000, 1);
        let service = pace.end(since);
        pace.delivered(3000, service);
        let line = pace.line().unwrap();
        assert!((line.ns(1, 9000) / 36_700.0 - 1.0).abs() < 0.05);
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
