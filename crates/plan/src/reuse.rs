//! The order in which versions without hints are read again, learned from the readings so far.

use crate::Version;
use crate::scan::{Direction, Scan};
use crate::sums::{Sums, Weight};

/// The order in which versions without hints are expected to be read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Reuse {
    /// First the versions that were not read yet, from the newest, from the oldest or from the one read last on, then the others, the
    /// one read longest ago first.
    #[default]
    Scan,
    /// The version written or read last first.
    Recency,
    /// The version written last first.
    Age,
}

/// The use of a version so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct UseSoFar {
    /// Tick at which it was taken in.
    pub(crate) written: u64,
    /// Tick at which it was read last.
    pub(crate) read: Option<u64>,
    /// Bytes of the version.
    pub(crate) bytes: u64,
}

/// The version read last, if no hint announced that and it is held.
///
/// The first reading says nothing about the next: a program that goes back in time reads the same version again or drops
/// it, a scan reads another. A version that was read stays first until another is read. Once a program read another while
/// the last one stayed, no more do, until a version is read twice in succession, or dropped after its reading.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(crate) struct LastRead {
    version: Option<Version>,
    /// True if another version was read while the last one was held.
    reads_on: bool,
}

impl LastRead {
    /// Takes in that a reading of a version begins. Returns the version read before if it was another.
    pub(crate) fn leave_for(&mut self, version: Version) -> Option<Version> {
        let last = self.version?;
        self.reads_on = last != version;
        self.version.take_if(|last| *last != version)
    }

    /// Takes in that a version was read. Returns the order in which it takes its place.
    pub(crate) fn read(&mut self, version: Version, followed: Reuse) -> Reuse {
        self.version = Some(version);
        match followed {
            Reuse::Scan if !self.reads_on => Reuse::Recency,
            followed => followed,
        }
    }

    /// Takes in that a version was given up.
    pub(crate) fn discard(&mut self, version: Version) {
        if self.version.take_if(|last| *last == version).is_some() {
            self.reads_on = false;
        }
    }
}

/// The costs of the orders that versions without hints may be read in, of which the cheapest is followed.
///
/// All held versions are kept in each order, whichever is followed. A reading costs an order the bytes of the version that
/// would have lain below each tier, had the versions lain in that order. All costs are halved each time half of the bytes
/// held were read, so that the last readings count most (follow the leader: Littlestone and Warmuth, Information and Computation
/// 108(2), 1994; versions followed beside the cache, as in the ghost lists of ARC: Megiddo and Modha, FAST'03).
#[derive(Debug, Clone, Default)]
pub(crate) struct Contest {
    /// False on an only tier, where nothing lies below: no order costs anything, and none is kept.
    is_held: bool,
    /// Versions that were not read, by the tick of their writing.
    unread: Sums,
    /// Versions that were read, by the tick of their last reading.
    read: Sums,
    /// Versions that were read, by the tick of their writing.
    read_by_age: Sums,
    /// Tick of writing of the version that was the last one to be read for the first time, since the last checkpoint; 0 if there is none.
    head: u64,
    costs: Costs,
}

/// Scans from an end, and from the version read last on, in both directions.
const SCANS: usize = 4;

/// The places of recency and age behind the scans.
const RECENCY: usize = SCANS;
const AGE: usize = SCANS + 1;

/// The costs of the orders, and the order that is followed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(crate) struct Costs {
    /// Of the [scans](Contest::scans), of recency and of age, less the least of them.
    of: [u64; SCANS + 2],
    /// The number of the scan that costs least.
    scan: usize,
    /// Bytes read, halved with the costs.
    observed: u64,
    followed: Reuse,
}

impl Costs {
    fn of(&self, order: Reuse) -> u64 {
        self.of[match order {
            Reuse::Scan => self.scan,
            Reuse::Recency => RECENCY,
            Reuse::Age => AGE,
        }]
    }
}

impl Contest {
    /// A contest without readings so far, over so many tiers.
    pub(crate) fn new(tiers: usize) -> Self {
        Self {
            is_held: tiers > 1,
            ..Self::default()
        }
    }

    /// The order that is followed.
    pub(crate) fn followed(&self) -> Reuse {
        self.costs.followed
    }

    /// Returns the scan that unread versions were read in at least cost.
    pub(crate) fn scan(&self) -> Scan {
        self.scans()[self.costs.scan]
    }

    fn scans(&self) -> [Scan; SCANS] {
        let scan = |direction, head| Scan { direction, head };
        [
            scan(Direction::NewestFirst, 0),
            scan(Direction::OldestFirst, 0),
            scan(Direction::NewestFirst, self.head),
            scan(Direction::OldestFirst, self.head),
        ]
    }

    /// Takes in that the application writes: the next scan begins at an end.
    pub(crate) fn write(&mut self) {
        self.head = 0;
    }

    /// Returns the bytes of unread versions below the head.
    #[cfg(any(test, feature = "check"))]
    pub(crate) fn below_head(&self) -> u64 {
        self.unread.before(self.head).bytes
    }

    #[cfg(any(test, feature = "check"))]
    pub(crate) fn costs(&self) -> Costs {
        self.costs
    }

    pub(crate) fn enter(&mut self, version: UseSoFar) {
        self.change(version, Sums::add);
    }

    pub(crate) fn leave(&mut self, version: UseSoFar) {
        self.change(version, Sums::subtract);
    }

    fn change(&mut self, version: UseSoFar, change: impl Fn(&mut Sums, u64, Weight)) {
        if !self.is_held {
            return;
        }
        let weight = Weight::written(version.bytes);
        match version.read {
            None => change(&mut self.unread, version.written, weight),
            Some(read) => {
                change(&mut self.read, read, weight);
                change(&mut self.read_by_age, version.written, weight);
            }
        }
    }

    /// Takes in the reading of a version that no hint announced. `reaches`: by tier but the lowest, the bytes that fit
    /// there and above.
    pub(crate) fn observe(&mut self, version: UseSoFar, reaches: &[u64]) {
        let held = self.unread.total().bytes + self.read.total().bytes;
        // An order without a byte below any tier costs nothing.
        if reaches.iter().any(|&reach| reach < held) {
            self.add_costs(version, reaches);
        }
        if version.read.is_none() {
            self.head = version.written;
        }
        let costs = &mut self.costs;
        costs.observed = costs.observed.saturating_add(version.bytes);
        let is_over = costs.observed > held;
        costs.observed >>= u32::from(is_over);
        let least = costs.of.into_iter().min().unwrap_or(0);
        costs.of = costs.of.map(|cost| (cost - least) >> u32::from(is_over));
        let best = (0..SCANS).min_by_key(|&scan| costs.of[scan]);
        let is_better = |&best: &usize| costs.of[best] < costs.of[costs.scan];
        costs.scan = best.filter(is_better).unwrap_or(costs.scan);
        let orders = [Reuse::Scan, Reuse::Recency, Reuse::Age].into_iter();
        let best = orders.min_by_key(|&order| costs.of(order));
        if let Some(best) = best.filter(|&best| costs.of(best) < costs.of(costs.followed)) {
            costs.followed = best;
        }
    }

    /// Adds the costs of a reading.
    fn add_costs(&mut self, version: UseSoFar, reaches: &[u64]) {
        let UseSoFar {
            written,
            read,
            bytes,
        } = version;
        let below = |before: u64| -> u64 {
            let end = before.saturating_add(bytes);
            let below = reaches.iter().map(|&reach| end.saturating_sub(reach));
            below.map(|below| below.min(bytes)).sum()
        };
        let of_scans = self.scans().map(|scan| {
            below(match read {
                None => scan.before(&self.unread, written),
                Some(read) => self.unread.total().bytes + self.read.before(read).bytes,
            })
        });
        let touched = read.unwrap_or(written);
        let recency = after(&self.unread, touched) + after(&self.read, touched);
        let age = after(&self.unread, written) + after(&self.read_by_age, written);
        let [newest, oldest, down, up] = of_scans;
        // The version that was read last belongs on the fastest tier by recency: its bytes are moved there, too. A scan that goes on from it moves the
        // bytes that it passes by. Counted once, such a scan would win by chance where a program reads at random.
        let twice = |cost: u64| cost.saturating_mul(2);
        let added = [
            newest,
            oldest,
            twice(down),
            twice(up),
            twice(below(recency)),
            below(age),
        ];
        for (cost, more) in self.costs.of.iter_mut().zip(added) {
            *cost = cost.saturating_add(more);
        }
    }
}

/// Returns the bytes of larger numbers.
fn after(sums: &Sums, number: u64) -> u64 {
    sums.total().bytes - sums.before(number + 1).bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    /// Returns the bytes of a version that lie below the tiers, if all versions lie in the order of a key.
    fn below<K: Ord>(
        held: &BTreeMap<u64, UseSoFar>,
        version: u64,
        reaches: &[u64],
        key: impl Fn(&UseSoFar) -> K,
    ) -> u64 {
        let own = held[&version];
        let sooner = held.values().filter(|other| key(other) < key(&own));
        let before: u64 = sooner.map(|other| other.bytes).sum();
        let bytes = before..before + own.bytes;
        let missed = |&reach: &u64| bytes.clone().filter(|&byte| byte >= reach).count() as u64;
        reaches.iter().map(missed).sum()
    }

    proptest! {
        #[test]
        fn a_reading_costs_each_order_the_bytes_that_would_have_lain_below(
            steps in prop::collection::vec((0_u8..4, 0_u64..12, 1_u64..9), 1..60),
            reaches in prop::collection::vec(1_u64..40, 1..3),
        ) {
            let mut contest = Contest::new(2);
            let mut held: BTreeMap<u64, UseSoFar> = BTreeMap::new();
            for (tick, (step, version, bytes)) in (1..).zip(steps) {
                let before = held.get(&version).copied();
                match (step, before) {
                    (0 | 1, None) => {
                        let written = UseSoFar { written: tick, read: None, bytes };
                        contest.enter(written);
                        held.insert(version, written);
                    }
                    (0, Some(before)) => {
                        contest.leave(before);
                        held.remove(&version);
                    }
                    (_, Some(before)) => {
                        let head = contest.head;
                        let is_passed = |u: &UseSoFar, is_behind: bool| u.read.is_none() && is_behind;
                        let down = |u: &UseSoFar| if u.read.is_none() { -i128::from(u.written) } else { 0 };
                        let up = |u: &UseSoFar| -down(u);
                        let expected = [
                            below(&held, version, &reaches, |u| (u.read, down(u))),
                            below(&held, version, &reaches, |u| (u.read, up(u))),
                            2 * below(&held, version, &reaches, |u| (u.read, is_passed(u, u.written >= head), down(u))),
                            2 * below(&held, version, &reaches, |u| (u.read, is_passed(u, u.written < head), up(u))),
                            2 * below(&held, version, &reaches, |u| std::cmp::Reverse(u.read.unwrap_or(u.written))),
                            below(&held, version, &reaches, |u| std::cmp::Reverse(u.written)),
                        ];
                        contest.costs = Costs::default();
                        contest.observe(before, &reaches);
                        let least = expected.iter().min().copied().unwrap_or(0);
                        let halved = u32::from(before.bytes > held.values().map(|u| u.bytes).sum());
                        prop_assert_eq!(contest.costs.of, expected.map(|cost| (cost - least) >> halved));
                        let after = UseSoFar { read: Some(tick), ..before };
                        contest.enter(after);
                        contest.leave(before);
                        held.insert(version, after);
                    }
                    (_, None) => {}
                }
            }
        }
    }

    #[test]
    fn the_order_of_least_cost_is_followed() {
        let mut contest = Contest::new(2);
        let mut held: Vec<_> = (0..10)
            .map(|tick| UseSoFar {
                written: tick,
                read: None,
                bytes: 1,
            })
            .collect();
        held.iter().for_each(|&version| contest.enter(version));
        let mut read = |contest: &mut Contest, at: usize, tick: u64| {
            contest.observe(held[at], &[3]);
            let after = UseSoFar {
                read: Some(tick),
                ..held[at]
            };
            contest.enter(after);
            contest.leave(held[at]);
            held[at] = after;
        };
        // From the oldest to the newest: a scan.
        (0..10).for_each(|at| read(&mut contest, at, 10 + at as u64));
        assert_eq!(
            (contest.followed(), contest.scan().direction),
            (Reuse::Scan, Direction::OldestFirst)
        );
        // The same two again and again.
        (20..60).for_each(|tick| read(&mut contest, tick % 2, tick as u64));
        assert_eq!(contest.followed(), Reuse::Recency);
        // Once more one after the other, twice.
        (60..80).for_each(|tick| read(&mut contest, tick % 10, tick as u64));
        assert_eq!(contest.followed(), Reuse::Scan);
    }

    #[test]
    fn the_version_read_last_stays_first_until_a_program_reads_on() {
        let mut last = LastRead::default();
        // Read twice, then dropped.
        for _ in 0..2 {
            assert_eq!(last.leave_for(7), None);
            assert_eq!(last.read(7, Reuse::Scan), Reuse::Recency);
        }
        last.discard(7);
        assert_eq!(last.leave_for(6), None);
        assert_eq!(last.read(6, Reuse::Age), Reuse::Age);
        assert_eq!(last.read(6, Reuse::Scan), Reuse::Recency);
        // A scan leaves its version at once from the second on.
        for version in (1..6).rev() {
            assert_eq!(last.leave_for(version), Some(version + 1));
            assert_eq!(last.read(version, Reuse::Scan), Reuse::Scan);
        }
        last.discard(3);
        assert_eq!(last.read(0, Reuse::Scan), Reuse::Scan, "3 was not the last");
        last.discard(0);
        assert_eq!(last.read(1, Reuse::Scan), Reuse::Recency);
    }
}
