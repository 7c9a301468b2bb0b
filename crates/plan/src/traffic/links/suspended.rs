//! Transfers while the application is about to be preempted: those that a suspension needs, and no others.

use super::super::pace::{RemainingTime, TimeModels};
use super::super::{Purpose, Traffic};
use super::{Link, Part};
use crate::ledger::{RoomRequest, Urgency};
use crate::order::ExtentId;
use crate::record::{Extent, Record, Replica, first_sound};
use crate::statistics::EvictionCause;
use crate::{Scope, TierId, TransferId, Version};

/// A suspension: the versions that must be on the lowest tier before the application is preempted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Suspension {
    pub(crate) version: Version,
    pub(crate) scope: Scope,
    /// True if the application asked for something else since: the suspension is over once its versions are there.
    pub(crate) goes_on: bool,
}

impl Suspension {
    fn wants(&self, version: Version) -> bool {
        match self.scope {
            Scope::Version => version == self.version,
            Scope::History => version <= self.version,
        }
    }
}

impl Traffic {
    /// Returns true if a suspension wants a version, or one that builds upon it.
    fn is_wanted(&self, suspension: Suspension, version: Version) -> bool {
        let mut next = vec![version];
        while let Some(version) = next.pop() {
            if suspension.wants(version) {
                return true;
            }
            next.extend_from_slice(self.ledger.dependents(version));
        }
        false
    }

    /// Returns the versions that a suspension needs and the lowest tier is still owed, in the order of writing.
    pub(crate) fn owed_to(&self, suspension: Suspension) -> impl Iterator<Item = Version> + '_ {
        let owed = self.ledger.tier(self.ledger.last()).owed.iter().flatten();
        let owed = owed.map(|&(_, version)| version);
        owed.filter(move |&version| self.is_wanted(suspension, version))
    }

    /// Returns the transfers that take time from a suspension. Encodings of wanted versions are needed, and transfers
    /// up for which callers wait.
    pub(crate) fn competing_transfers(&self, suspension: Suspension) -> Vec<TransferId> {
        let last = self.ledger.last();
        let flights = self.flights.iter().filter(|(id, flight)| {
            let is_needed = match flight.purpose {
                Purpose::WriteBack => {
                    let goes_there = flight.to == last
                        || flight.encodes.is_some()
                        || (flight.to.0 + 1 == last.0 && self.ledger.is_fed(last, flight.bytes));
                    goes_there && self.is_wanted(suspension, flight.version)
                }
                Purpose::Prefetch => self.ledger.is_awaited(flight.version),
            };
            !is_needed && !self.has_arrived(**id)
        });
        let mut ids: Vec<_> = flights.map(|(&id, _)| id).collect();
        ids.sort_unstable();
        ids
    }

    /// Starts the transfers that a suspension wants, past all tiers between but one that feeds the lowest.
    pub(super) fn run_suspended(&mut self, suspension: Suspension) {
        let last = self.ledger.last();
        if last == TierId::FASTEST {
            return;
        }
        while let Some((id, link)) = self.next_suspended(suspension) {
            if !self.send(id, link) && (link.to == last || !self.make_way()) {
                return;
            }
        }
    }

    /// Returns the extent that a suspension moves next, and between which tiers.
    fn next_suspended(&self, suspension: Suspension) -> Option<(ExtentId, Link)> {
        let last = self.ledger.last();
        self.owed_to(suspension).find_map(|version| {
            let (id, from) = self.missing(version, last)?;
            let whole_way = Link { from, to: last };
            let (id, link) = match self.has_to_pass(version, whole_way) {
                true => {
                    let to = TierId(last.0 - 1);
                    let (id, from) = self.missing(version, to)?;
                    (id, Link { from, to })
                }
                false => (id, whole_way),
            };
            self.may_enter(link.to).then_some((id, link))
        })
    }

    /// Sends a version that a suspension does not want from a full tier to the lowest, which that tier feeds.
    fn make_way(&mut self) -> bool {
        let last = self.ledger.last();
        if self.depths[last.0].entering.transfers > 0 || !self.may_enter(last) {
            return false;
        }
        let owed = self.ledger.tier(last).owed.iter().flatten();
        let lying = owed.filter_map(|&(_, version)| self.missing(version, last));
        let first = { lying }.find(|(_, from)| from.0 + 1 == last.0);
        first.is_some_and(|(id, from)| self.send(id, Link { from, to: last }))
    }

    /// Returns true if one more transfer into a tier from above may begin.
    pub(super) fn may_enter(&self, to: TierId) -> bool {
        let this = self.ledger.tier(to);
        !this.closed && self.depths[to.0].entering.has_room(&this.config)
    }

    /// Returns the tier above `to`, if `to` takes versions from there alone and it has this extent.
    pub(super) fn feeder(&self, id: ExtentId, to: TierId) -> Option<TierId> {
        let size = self.ledger.records.get(&id.0)?.size;
        let above = TierId(to.0.checked_sub(1)?);
        let replica = self.ledger.replica(id, above)?;
        (replica.is_sound() && self.ledger.is_fed(to, size)).then_some(above)
    }

    /// Returns the tier from which an extent is written back to `to`: the lowest that has it. During a suspension, the
    /// lowest memory that has it, if any does.
    pub(super) fn source_down(&self, extent: &Extent, to: TierId) -> Option<TierId> {
        let above = || extent.replicas.iter().rev().filter(|r| r.tier < to);
        let is_memory = |tier| self.ledger.tier(tier).config.is_memory();
        let is_sought = |r: &&Replica| r.is_sound() && is_memory(r.tier);
        let memory = || above().find(|r| self.suspension.is_some() && is_sought(r));
        // A difference stays one on its way down.
        let source = first_sound(above().filter(|r| self.ledger.lies_encoded(r.tier)))
            .or_else(memory)
            .or_else(|| first_sound(above()));
        source.map(|replica| replica.tier)
    }

    fn send(&mut self, id: ExtentId, link: Link) -> bool {
        let (position, grain) = (self.ledger.position(id.0), self.ledger.unit);
        let request = RoomRequest::new(Urgency::Urgent, position, grain, EvictionCause::Flush);
        let part = Part::all(id, super::End::Front);
        self.carry(Purpose::WriteBack, part, link, request)
    }

    /// Returns the time that a version still needs to reach the lowest tier if nothing else moves; `None` without
    /// `models`.
    pub(crate) fn left_to_settle(
        &self,
        version: Version,
        now_ns: u64,
        models: Option<TimeModels>,
    ) -> Option<RemainingTime> {
        let ledger = &self.ledger;
        let last = ledger.last();
        let Some(record) = ledger.records.get(&version) else {
            return Some(RemainingTime::default());
        };
        let under_way_there = self.depths[last.0].entering.transfers;
        let (mut transfers, mut bytes, mut left) = (0, 0_u64, RemainingTime::default());
        let mut under_way: Vec<TransferId> = Vec::new();
        for extent in &record.extents {
            match extent.on(last) {
                Some(replica) => under_way.extend(replica.arriving),
                None => {
                    bytes = bytes.saturating_add(ledger.expected_on(version, last, extent.len));
                    if !ledger.tier(last).config.whole {
                        transfers += extent.len.div_ceil(ledger.part(last, last));
                    }
                }
            }
        }
        if bytes > 0 {
            left = models?.left(transfers.max(1), bytes);
            // Transfers side by side spend their own times together, in rounds.
            let rounds = transfers.max(1).div_ceil(self.depth_down() as u64);
            left.each_ns = left.each_ns / transfers.max(1) as f64 * rounds as f64;
        }
        under_way.dedup();
        for flight in under_way.iter().filter_map(|id| self.flights.get(id)) {
            let (service, bytes) = (flight.service, flight.bytes);
            let more = self
                .pace
                .left(service, bytes, now_ns, under_way_there, models?);
            left.each_ns = left.each_ns.max(more.each_ns);
            left.bytes_ns += more.bytes_ns;
            left.last_ns += more.last_ns;
        }
        left.each_ns += self.way_to_feeder(record, now_ns);
        Some(left)
    }

    /// Returns the ns that a version still needs to the tier that feeds the lowest, by the throughput to there so far; 0 if it needs not go
    /// there, or nothing was measured.
    fn way_to_feeder(&self, record: &Record, now_ns: u64) -> f64 {
        let ledger = &self.ledger;
        let last = ledger.last();
        if !ledger.is_fed(last, record.size) {
            return 0.0;
        }
        let feeder = TierId(last.0 - 1);
        let to_feeder = ledger.statistics.hops.iter();
        let to_feeder = to_feeder.filter(|hop| hop.to == feeder && hop.from < feeder);
        let (ns, carried) = to_feeder.fold((0, 0_u64), |(ns, bytes), hop| {
            (
                hop.busy_ns.saturating_add(ns),
                hop.bytes.saturating_add(bytes),
            )
        });
        let (mut bytes, mut passed) = (0_u64, 0);
        for extent in &record.extents {
            let replica = extent.on(feeder);
            if extent.on(last).is_none() && !replica.is_some_and(Replica::is_readable) {
                bytes = bytes.saturating_add(extent.len);
                let flight = replica.and_then(|replica| self.flights.get(&replica.arriving?));
                passed = flight.map_or(passed, |flight| now_ns.saturating_sub(flight.begun_ns));
            }
        }
        let whole_ns = bytes as f64 * ns as f64 / carried.max(1) as f64;
        (whole_ns - passed as f64).max(0.0)
    }

    /// Transfers into the lowest tier at a time.
    pub(crate) fn depth_down(&self) -> usize {
        self.ledger.tier(self.ledger.last()).config.depth.max(1)
    }
}
