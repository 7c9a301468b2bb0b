//! What moves next. A lane is a way into one tier from above, or out of one tier upwards; each has a depth of its own.
//!
//! | lane | takes |
//! |---|---|
//! | into an eager tier | what is not there yet, in the order of writing |
//! | into another tier but the lowest | the soonest used of what belongs there, and of what belongs lower and lies nowhere lower, if there is room |
//! | into the lowest tier | of what is not there the latest used, if it belongs there, the history will not fit above, or room is short |
//! | out of a tier, upwards | the soonest used of what belongs higher, to its target, or as near to it as there is room |

use super::{Purpose, Traffic};
use crate::config::ExtentSize;
use crate::ledger::{Claim, Ledger, Outlook, Urgency};
use crate::order::{ExtentId, Position};
use crate::record::{Extent, Replica};
use crate::statistics::Cause;
use crate::{TierId, Version};
use std::ops::Range;

/// Which end of an extent moves first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Front,
    Back,
}

/// Who needs what moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pressure {
    /// A checkpoint waits for room.
    pub(crate) write_waits: bool,
    /// Somebody waits for everything to be on the lowest tier.
    pub(crate) settles: bool,
    /// What is used before is fetched ahead.
    pub(crate) fetched_before: Position,
}

impl Traffic {
    /// Starts all that may start now.
    pub(crate) fn run(&mut self, outlook: &Outlook, pressure: Pressure) {
        let last = self.ledger.last();
        for to in (1..=last.0).map(TierId) {
            self.vacate_into(to, outlook);
            let depth = self.ledger.tier(to).config.depth.max(1);
            while self.depths[to.0].entering < depth
                && !self.ledger.tier(to).closed
                && self.write_back(to, outlook, pressure)
            {}
        }
        self.starved = false;
        if pressure.write_waits {
            return;
        }
        for from in (1..=last.0).map(TierId) {
            let depth = self.ledger.tier(from).config.depth.max(1);
            while self.depths[from.0].rising < depth
                && self.ledger.tier(from).callers == 0
                && self.prefetch(from, pressure.fetched_before, outlook)
            {}
        }
        if self.starved {
            let depth = self.ledger.tier(last).config.depth.max(1);
            while self.depths[last.0].entering < depth
                && !self.ledger.tier(last).closed
                && self.write_back(last, outlook, pressure)
            {}
        }
    }

    /// Whether the tiers above `to` are about to lack room for the next checkpoint, or one waits and the tier between makes
    /// none.
    fn is_short(&self, to: TierId, outlook: &Outlook, pressure: Pressure) -> bool {
        let above = &self.ledger.tiers[..to.0];
        let at_hand = above
            .iter()
            .map(|tier| tier.space.free().saturating_add(tier.clean.bytes()));
        let waits = pressure.write_waits && (to.0 == 1 || self.depths[to.0 - 1].entering == 0);
        waits || (outlook.expects_writes && at_hand.sum::<u64>() < outlook.landing)
    }

    /// Whether less than half of the room above the lowest tier can be had at once. Of what holds the rest, each byte that
    /// is written down has to be fetched again: that is worth while only if there is too little room to fetch ahead.
    fn is_cramped(&self) -> bool {
        let above = &self.ledger.tiers[..self.ledger.last().0];
        let room: u64 = above.iter().map(|tier| tier.space.limit()).sum();
        let at_hand = above
            .iter()
            .map(|tier| tier.space.free() + tier.clean.bytes());
        at_hand.sum::<u64>() < room / 2
    }

    // Down.

    /// Starts one transfer into a tier. False if there is none to be started.
    fn write_back(&mut self, to: TierId, outlook: &Outlook, pressure: Pressure) -> bool {
        let config = self.ledger.tier(to).config;
        let is_last = to == self.ledger.last();
        if config.eager || (is_last && pressure.settles) {
            return self.write_owed(to, outlook);
        }
        let is_short = self.is_short(to, outlook, pressure);
        if is_last {
            return self.write_to_last(to, outlook, is_short);
        }
        let urgency = if is_short {
            Urgency::Urgent
        } else {
            Urgency::Idle
        };
        let above = TierId(to.0 - 1);
        let (begin, end) = (outlook.end(above), outlook.end(to));
        let ledger = &self.ledger;
        let sinkable = ledger
            .tier(above)
            .sinkable
            .soonest_from(&ledger.order, begin);
        // A difference is made once.
        if let Some((key, id)) = sinkable
            && ledger.order.position(key) < end
            && ledger.differences.is_none()
        {
            let is_dirty = ledger
                .extent(id)
                .is_some_and(|extent| !extent.has_below(to));
            // What is only to lie nearer takes nothing from what belongs there, and waits for who waits.
            let urgency = if is_dirty { urgency } else { Urgency::Idle };
            if (is_dirty || !pressure.write_waits)
                && self.carry_down((id, End::Front), (above, to), urgency, outlook)
            {
                return true;
            }
        }
        for from in (0..to.0).rev().map(TierId) {
            let ledger = &self.ledger;
            let dirty = &ledger.tier(from).dirty;
            let outside = dirty.soonest_from(&ledger.order, begin);
            let outside = outside.map(|(_, id)| ((id, End::Front), urgency));
            // What belongs there has to make room, too, if a checkpoint finds none beside it, or will not. Before one
            // waits, it takes no room that is fetched for: the two would take it from each other.
            let early = match pressure.write_waits {
                true => Some(urgency),
                false => outlook.overflows(above).then_some(Urgency::Idle),
            };
            let inside = || Some(((dirty.latest(&ledger.order)?.1, End::Back), early?));
            if let Some((moving, urgency)) = outside.or_else(inside)
                && self.carry_down(moving, (from, to), urgency, outlook)
            {
                return true;
            }
        }
        false
    }

    /// Of what a tier is owed, the first that was written.
    fn write_owed(&mut self, to: TierId, outlook: &Outlook) -> bool {
        let mut after = None;
        while let Some(entry) = self.next_owed(to, after) {
            after = Some(entry);
            if let Some((id, from)) = self.owed_extent(entry.1, to) {
                return self.carry_down((id, End::Front), (from, to), Urgency::Idle, outlook);
            }
        }
        false
    }

    fn next_owed(&self, to: TierId, after: Option<(u64, Version)>) -> Option<(u64, Version)> {
        use std::ops::Bound::{Excluded, Unbounded};
        let owed = self.ledger.tier(to).owed.as_ref()?;
        let from = after.map_or(Unbounded, Excluded);
        owed.range((from, Unbounded)).next().copied()
    }

    /// The first extent of a version that is not on `to`, nor on its way there or lower, and the lowest tier above that
    /// it can be read from.
    fn owed_extent(&self, version: Version, to: TierId) -> Option<(ExtentId, TierId)> {
        let record = self.ledger.records.get(&version)?;
        if record.unreadable {
            return None;
        }
        let missing = record.extents.iter().find(|extent| {
            let mut replicas = extent.replicas.iter();
            !replicas.any(|replica| replica.tier >= to)
        })?;
        let mut above = missing.replicas.iter().rev();
        let from = above.find(|replica| replica.is_readable())?.tier;
        Some(((version, missing.start), from))
    }

    /// The latest used of what is not on the lowest tier, from the lowest tier above that has any.
    fn write_to_last(&mut self, last: TierId, outlook: &Outlook, is_short: bool) -> bool {
        let this = self.ledger.tier(last);
        if this.config.shared && this.callers > 0 {
            return false;
        }
        // Idle time costs nothing.
        let may_as_well = outlook.piles_up && self.depths[last.0].rising == 0;
        if !(outlook.expects_writes || self.starved || is_short || may_as_well) {
            return false;
        }
        let end = outlook.end(TierId(last.0 - 1));
        for from in (0..last.0).rev().map(TierId) {
            let ledger = &self.ledger;
            let Some((key, id)) = ledger.tier(from).dirty.latest(&ledger.order) else {
                continue;
            };
            let belongs_there = ledger.order.position(key) >= end;
            if (belongs_there || outlook.overflows(TierId(last.0 - 1)) || is_short || may_as_well)
                && self.carry_down((id, End::Back), (from, last), Urgency::Idle, outlook)
            {
                return true;
            }
        }
        false
    }

    /// Starts to write an extent back, or so much of its end as one transfer takes.
    fn carry_down(
        &mut self,
        (id, end): (ExtentId, End),
        (from, to): (TierId, TierId),
        urgency: Urgency,
        outlook: &Outlook,
    ) -> bool {
        let is_last = to == self.ledger.last();
        let claim = Claim {
            urgency,
            position: self.ledger.position(id.0),
            // Nothing else takes what the lowest tier has no room for.
            grain: if is_last {
                self.ledger.unit
            } else {
                self.ledger.grain(id.0)
            },
            cause: Cause::Flush,
        };
        if self.ledger.tier(to).config.whole {
            return self.carry_version(Purpose::WriteBack, id.0, to, claim, outlook);
        }
        self.carry((Purpose::WriteBack, end), id, (from, to), claim, outlook)
    }

    // Up.

    /// Starts one transfer out of a tier to a faster one. False if there is none to be started.
    fn prefetch(&mut self, from: TierId, before: Position, outlook: &Outlook) -> bool {
        let ledger = &self.ledger;
        let Some((key, id)) = ledger.tier(from).promotable.soonest(&ledger.order) else {
            return false;
        };
        let position = ledger.order.position(key);
        if position >= before {
            return false;
        }
        let claim = Claim {
            urgency: Urgency::Ranked,
            position,
            grain: ledger.grain(id.0),
            cause: Cause::Prefetch,
        };
        let is_whole = ledger.tier(from).config.whole;
        for to in (outlook.target(position).0..from.0).map(TierId) {
            if self.ledger.tier(to).closed {
                continue;
            }
            let started = match is_whole || self.ledger.tier(to).config.whole {
                true => self.carry_version(Purpose::Prefetch, id.0, to, claim, outlook),
                false => self.carry(
                    (Purpose::Prefetch, End::Front),
                    id,
                    (from, to),
                    claim,
                    outlook,
                ),
            };
            if started {
                return true;
            }
            self.starved |= self.is_cramped();
        }
        false
    }

    // Both.

    /// Starts to copy an extent, or as much of one end of it as one transfer takes and there is room for.
    fn carry(
        &mut self,
        (purpose, end): (Purpose, End),
        id: ExtentId,
        (from, to): (TierId, TierId),
        claim: Claim,
        outlook: &Outlook,
    ) -> bool {
        if from == TierId::FASTEST && self.makes_a_difference(purpose) {
            return false;
        }
        let ledger = &self.ledger;
        let Some(len) = ledger.extent(id).map(|extent| extent.len) else {
            return false;
        };
        let ExtentSize { least, most } = ledger.extents;
        let is_divisible = ledger.is_divisible(id);
        let wanted = match is_divisible && len >= most.saturating_add(least) {
            true => most,
            false => len,
        };
        let space = &ledger.tier(to).space;
        let room = space.reserved(ledger.room_on(id.0, to, wanted));
        let found = match is_divisible {
            true => {
                let enough = match ledger.cut_front(id, least) {
                    Some(_) => room.min(space.reserved(least)),
                    None => room,
                };
                self.ledger.make_room(to, (room, enough), claim, outlook)
            }
            false => {
                let run = self.ledger.make_run(to, room, claim, outlook);
                run.map(|run| vec![run])
            }
        };
        let Some(runs) = found else { return false };
        // Giving others up may have taken away what this one was still kept for.
        if self.ledger.extent(id).and_then(|e| e.on(from)).is_none() {
            return false;
        }
        let there: u64 = runs.iter().map(|run| run.end - run.start).sum();
        let mut first = id.1;
        if is_divisible && there < space_for(&self.ledger, to, len) {
            let at = match end {
                End::Front => self.ledger.cut_front(id, there),
                End::Back => self.ledger.cut_back(id, there),
            };
            let Some(at) = at else { return false };
            self.ledger.split(id, at);
            first += if end == End::Back { at } else { 0 };
        }
        self.launch(purpose, id.0, vec![(first, from)], (to, runs));
        true
    }

    /// Starts to copy all of a version that is not on `to` yet.
    fn carry_version(
        &mut self,
        purpose: Purpose,
        version: Version,
        to: TierId,
        claim: Claim,
        outlook: &Outlook,
    ) -> bool {
        let ledger = &self.ledger;
        let is_fastest = |extent: &Extent| {
            let mut readable = extent.replicas.iter().filter(|r| r.is_readable());
            readable
                .next_back()
                .is_some_and(|r| r.tier == TierId::FASTEST)
        };
        let of_fastest = ledger.extent((version, 0)).is_some_and(is_fastest);
        if of_fastest && self.makes_a_difference(purpose) {
            return false;
        }
        let Some(record) = ledger.records.get(&version) else {
            return false;
        };
        let is_divisible = !ledger.tier(to).config.whole && ledger.differences.is_none();
        let missing = record.extents.iter().filter(|extent| match purpose {
            Purpose::WriteBack => extent.on(to).is_none(),
            Purpose::Prefetch => extent.replicas.iter().all(|r| r.tier > to),
        });
        let mut bytes = 0;
        for extent in missing.clone() {
            let is_ready = match is_divisible {
                true => extent.is_at_rest(),
                false => extent.replicas.iter().all(Replica::is_readable),
            };
            if !is_ready {
                return false;
            }
            bytes += space_for(ledger, to, ledger.room_on(version, to, extent.len));
        }
        let starts: Vec<_> = missing.map(|extent| extent.start).collect();
        let found = match is_divisible {
            true => self.ledger.make_room(to, (bytes, bytes), claim, outlook),
            false => {
                let run = self.ledger.make_run(to, bytes, claim, outlook);
                run.map(|run| vec![run])
            }
        };
        let is_there = |ledger: &Ledger, start| {
            let extent = ledger.extent((version, start));
            extent.is_some_and(|extent| !extent.replicas.is_empty())
        };
        match found {
            Some(runs) if starts.iter().all(|&start| is_there(&self.ledger, start)) => {
                let parts = starts.into_iter();
                let parts = parts
                    .filter_map(|start| Some((start, self.source(purpose, (version, start))?)));
                let parts = parts.collect();
                self.launch(purpose, version, parts, (to, runs));
                true
            }
            _ => false,
        }
    }

    /// Whether a difference is being made: one is made at a time.
    fn makes_a_difference(&self, purpose: Purpose) -> bool {
        let mut flights = self.flights.values();
        purpose == Purpose::WriteBack && flights.any(|flight| flight.encodes.is_some())
    }

    /// Where an extent is read: written back from the lowest tier that has it, fetched from the fastest.
    fn source(&self, purpose: Purpose, id: ExtentId) -> Option<TierId> {
        let extent = self.ledger.extent(id)?;
        let mut readable = extent.replicas.iter().filter(|r| r.is_readable());
        let source = match purpose {
            Purpose::WriteBack => readable.next_back(),
            Purpose::Prefetch => readable.next(),
        };
        source.map(|replica| replica.tier)
    }

    /// Starts one transfer of extents into runs that hold them, cut where the runs end.
    fn launch(
        &mut self,
        purpose: Purpose,
        version: Version,
        extents: Vec<(u64, TierId)>,
        (to, runs): (TierId, Vec<Range<u64>>),
    ) {
        let mut parts = Vec::new();
        let mut offsets = Vec::new();
        let mut runs = runs.into_iter().filter(|run| !run.is_empty());
        let mut run = 0..0;
        for (mut start, from) in extents {
            loop {
                if run.is_empty() {
                    run = runs.next().unwrap_or_default();
                }
                let Some(extent) = self.ledger.extent((version, start)) else {
                    return;
                };
                let (len, here) = (extent.len, run.end - run.start);
                let room = space_for(&self.ledger, to, self.ledger.room_on(version, to, len));
                if room > here {
                    self.ledger.split((version, start), here);
                }
                parts.push((start, from));
                offsets.push(run.start);
                run.start += room.min(here);
                if room <= here {
                    break;
                }
                start += here;
            }
        }
        self.start(purpose, version, parts, (to, offsets));
    }

    /// Starts to fetch a version into one run of the fastest tier, if nothing of it is there.
    pub(crate) fn fetch_run(&mut self, version: Version, claim: Claim, outlook: &Outlook) -> bool {
        let to = TierId::FASTEST;
        let Some(record) = self.ledger.records.get(&version) else {
            return false;
        };
        let is_free = |replicas: &[Replica]| {
            let mut all = replicas.iter();
            !replicas.is_empty()
                && all.all(|r| r.tier != to && r.arriving.is_none() && r.is_readable())
        };
        let mut extents = record.extents.iter();
        let is_fetchable = !record.unreadable
            && !record.extents.is_empty()
            && extents.all(|extent| is_free(&extent.replicas));
        let bytes = self.ledger.tier(to).space.reserved(record.size);
        if !is_fetchable || bytes > self.ledger.tier(to).space.limit() {
            return false;
        }
        let Some(run) = self.ledger.make_run(to, bytes, claim, outlook) else {
            return false;
        };
        let record = self.ledger.records.get(&version);
        let extents = record.iter().flat_map(|record| &record.extents);
        let parts = extents.filter_map(|extent| Some((extent.start, extent.fastest()?.tier)));
        let parts: Vec<_> = parts.collect();
        let offsets = parts.iter().map(|&(start, _)| run.start + start).collect();
        self.start(Purpose::Prefetch, version, parts, (to, offsets));
        true
    }

    /// Starts to move what lies beyond the limit of the tier above.
    fn vacate_into(&mut self, to: TierId, outlook: &Outlook) {
        let from = TierId(to.0 - 1);
        if !self.ledger.tier(from).vacating {
            return;
        }
        let beyond: Vec<_> = self.ledger.tier(from).space.beyond_limit().collect();
        for id in beyond {
            for lower in (to.0..self.ledger.tiers.len()).map(TierId) {
                let depth = self.ledger.tier(lower).config.depth.max(1);
                let is_dirty = self.ledger.extent(id).is_some_and(|extent| {
                    !extent.has_below(from)
                        && extent.is_at_rest()
                        && extent.replicas.last().is_some_and(|r| r.tier == from)
                });
                let this = self.ledger.tier(lower);
                if is_dirty
                    && self.depths[lower.0].entering < depth
                    && !this.closed
                    && self.carry_down((id, End::Front), (from, lower), Urgency::Urgent, outlook)
                {
                    break;
                }
            }
        }
    }
}

/// Bytes that `bytes` bytes occupy on a tier.
fn space_for(ledger: &Ledger, tier: TierId, bytes: u64) -> u64 {
    ledger.tier(tier).space.reserved(bytes)
}
