//! Down: the choice of extents to write back, and of the time.

use super::super::{Purpose, Traffic};
use super::{End, Link, Part};
use crate::config::AfterRestore;
use crate::ledger::{RoomRequest, Set, Tier, Urgency};
use crate::order::{ExtentId, Key, Point, Position, Ranked};
use crate::record::Replica;
use crate::statistics::EvictionCause;
use crate::{TierId, Version};

impl Traffic {
    /// Returns the bytes on the tiers above `tier` that are free, or whose replicas a lower tier has too.
    fn at_hand_above(&self, tier: TierId) -> u64 {
        let above = self.ledger.tiers[..tier.0].iter();
        let clean = |tier: &Tier| tier.set(Set::Clean).bytes();
        let at_hand = above.map(|tier| tier.space.free().saturating_add(clean(tier)));
        at_hand.fold(0, u64::saturating_add)
    }

    /// Returns true if fewer than `bytes` bytes of the fastest tier are free, or hold replicas that belong on a lower tier and lie there, too: a
    /// checkpoint that took the room of others would have them fetched again.
    fn fastest_lacks(&self, bytes: u64) -> bool {
        let ledger = &self.ledger;
        let fastest = ledger.tier(TierId::FASTEST);
        let missing = bytes.saturating_sub(fastest.space.free());
        if missing == 0 || missing > fastest.set(Set::Clean).bytes() {
            return missing > 0;
        }
        let end = ledger.outlook.end(TierId::FASTEST);
        let outside = fastest.set(Set::Clean).latest_first(&ledger.order);
        let outside = outside.take_while(|&(key, id)| ledger.point(key, id) >= end);
        let mut replicas = outside.filter_map(|(_, id)| ledger.replica(id, TierId::FASTEST));
        let without =
            |missing: u64, one: &Replica| missing.checked_sub(one.size).filter(|&left| left > 0);
        replicas.try_fold(missing, without).is_some()
    }

    /// Returns true if the tiers above `to` are about to lack room for the next checkpoint, or if a checkpoint waits
    /// and no transfer into the tier between makes room.
    fn is_short(&self, to: TierId) -> bool {
        // Nothing enters the fastest tier from above.
        let waits = self.write_waits && self.depths[to.0 - 1].entering.transfers == 0;
        let reserve = self.ledger.outlook.write_reserve;
        waits
            || match to.0 {
                1 => self.fastest_lacks(reserve),
                _ => self.at_hand_above(to) < reserve,
            }
    }

    /// Returns true if less than half of the room above the lowest tier can be had at once. Every byte that is written
    /// down to make more room has to be fetched again, which pays only if there is too little room to fetch ahead.
    pub(super) fn is_cramped(&self) -> bool {
        let last = self.ledger.last();
        let above = self.ledger.tiers[..last.0].iter();
        let room: u64 = above.map(|tier| tier.space.limit()).sum();
        self.at_hand_above(last) < room / 2
    }

    /// Starts one transfer into a tier. Returns false if there is none to be started.
    pub(super) fn write_back(&mut self, to: TierId) -> bool {
        let config = self.ledger.tier(to).config;
        let is_last = to == self.ledger.last();
        // A call that waits, and a reader after the application's end, want versions in the order of writing.
        let is_awaited = is_last && self.settles;
        if is_awaited || (config.eager && (config.whole || !is_last)) {
            return self.write_owed(to);
        }
        let is_short = self.is_short(to);
        if is_last {
            return self.write_to_last(to, is_short);
        }
        if self.gives_way(to) {
            return false;
        }
        // Versions that are discarded when they are read leave room behind. Others leave none: the replica that is used last
        // gives way, or two tiers that are full would wait for each other's room.
        let urgency = match (is_short, self.ledger.after_restore) {
            (true, _) => Urgency::Urgent,
            (false, AfterRestore::Keep) => Urgency::Ranked,
            (false, AfterRestore::Discard) => Urgency::Idle,
        };
        let above = TierId(to.0 - 1);
        let ledger = &self.ledger;
        let (begin, end) = (ledger.outlook.end(above), ledger.outlook.end(to));
        let sinkable = self.first_beyond(ledger.tier(above).set(Set::Sinkable), begin);
        // A difference is made only once.
        if let Some((key, part)) = sinkable
            && ledger.point(key, part.id) < end
            && !ledger.lies_encoded(to)
        {
            let id = part.id;
            let is_dirty = ledger
                .extent(id)
                .is_some_and(|extent| !extent.has_below(to));
            // A replica that only moves nearer to its target evicts none that belong there, and gives way to waiting
            // checkpoints and, while named ones have to come up, to those that use the same link.
            let urgency = if is_dirty { urgency } else { Urgency::Idle };
            let gives_way = self.write_waits
                || (config.shared && self.has_named_below() && self.rises_through(to));
            if (is_dirty || !gives_way) && self.carry_down(part, Link { from: above, to }, urgency)
            {
                return true;
            }
        }
        let outlook = &self.ledger.outlook;
        let is_early = outlook.overflows(above) || self.at_hand_above(to) < outlook.last_size;
        for from in (0..to.0).rev().map(TierId) {
            let ledger = &self.ledger;
            let dirty = ledger.tier(from).set(Set::Dirty);
            let outside = self.first_beyond(dirty, begin);
            let outside = outside.map(|(_, part)| (part, urgency));
            // Replicas that belong on their tier have to make room too if a checkpoint finds none beside them, or will
            // not. While none waits, they take no room that is fetched for: the two would take it from each other. Nothing announces a version that is written
            // and never read, so room for one more checkpoint is made ready at all times.
            let early = match self.write_waits {
                true => Some(urgency),
                false => is_early.then_some(Urgency::Idle),
            };
            let inside = || {
                let (_, id) = dirty.latest(&ledger.order)?;
                Some((Part::all(id, End::Back), early?))
            };
            if let Some((part, urgency)) = outside.or_else(inside)
                && self.carry_down(part, Link { from, to }, urgency)
            {
                return true;
            }
        }
        false
    }

    /// Returns true if write-backs into `to` wait for bytes that come up over a link which both directions share: those that a caller reads, unless room is
    /// short, and those that are waited for or read before the next checkpoint. Side by side, both would take twice as long.
    fn gives_way(&self, to: TierId) -> bool {
        let tiers = &self.ledger.tiers;
        let is_read = || {
            let mut through = (to.0..tiers.len()).filter(|&from| self.passes(TierId(from), to));
            through.any(|from| tiers[from].callers > 0) && !self.is_short(to)
        };
        tiers[to.0].config.shared
            && !self.write_waits
            && (is_read() || self.rises_first(to, self.ledger.outlook.next_checkpoint))
    }

    /// Returns true if bytes that come up out of a tier pass the link into `to`. Tiers that keep versions under their names have a way of their own.
    fn passes(&self, from: TierId, to: TierId) -> bool {
        from == to || (from > to && !self.ledger.tier(from).config.whole)
    }

    /// Returns true if a transfer comes up out of `tier` or through it.
    fn rises_through(&self, tier: TierId) -> bool {
        self.depths[tier.0..]
            .iter()
            .any(|depths| depths.rising.transfers > 0)
    }

    /// Returns true if bytes that are read before `position`, or that a restore waits for, come up out of `tier` or through it.
    fn rises_first(&self, tier: TierId, position: Position) -> bool {
        let ledger = &self.ledger;
        self.flights.values().any(|flight| {
            flight.purpose == Purpose::Prefetch
                && flight.to < tier
                && self.passes(flight.from(), tier)
                && (ledger.position(flight.version) < position || ledger.is_awaited(flight.version))
        })
    }

    /// Starts to write down the version written first of those that a tier is owed.
    fn write_owed(&mut self, to: TierId) -> bool {
        let unsent = &self.ledger.tier(to).unsent;
        let mut under_way = Vec::new();
        let mut one_waits = false;
        let missing = unsent.iter().find_map(|&(written, version)| {
            if self.first_missing(version, to).is_none() {
                under_way.push((written, version));
            }
            let (id, from) = self.missing(version, to)?;
            one_waits |= self.has_to_pass(version, Link { from, to });
            // Beside the tier above, no version passes one that waits for room there. A version that lies there makes that room.
            (from.0 + 1 == to.0 || !one_waits).then_some((id, from))
        });
        for entry in under_way {
            // An entry returns to the set if its transfer does not arrive.
            self.ledger.tier_mut(to).unsent.remove(&entry);
        }
        // No other way leads past a tier that feeds the one below.
        let below = self.ledger.tiers.get(to.0 + 1);
        let urgency = match below.is_some_and(|below| below.config.from_above) {
            true => Urgency::Urgent,
            false => Urgency::Idle,
        };
        missing.is_some_and(|(id, from)| {
            let part = Part::all(id, End::Front);
            self.carry_down(part, Link { from, to }, urgency)
        })
    }

    /// Returns true if a version has to lie on the tier above `to` first, and lies on another one.
    pub(super) fn has_to_pass(&self, version: Version, Link { from, to }: Link) -> bool {
        let record = self.ledger.records.get(&version);
        from.0 + 1 < to.0 && record.is_some_and(|record| self.ledger.is_fed(to, record.size))
    }

    /// Returns a version's first extent that is neither on `to` or lower, nor on its way there.
    fn first_missing(&self, version: Version, to: TierId) -> Option<ExtentId> {
        let mut extents = self.ledger.extents(version).iter();
        let missing = extents.find(|extent| !extent.has(|replica| replica.tier >= to));
        Some((version, missing?.start))
    }

    /// Returns a version's first missing extent with the tier to write it back from, if it can be read.
    pub(super) fn missing(&self, version: Version, to: TierId) -> Option<(ExtentId, TierId)> {
        let id = self.first_missing(version, to)?;
        let is_readable = !self.ledger.records.get(&version)?.unreadable;
        let from = self.source(Purpose::WriteBack, id, to)?;
        is_readable.then_some((id, from))
    }

    /// Starts to write down the latest used extent that is not on the lowest tier, from the lowest tier above that has
    /// any.
    fn write_to_last(&mut self, last: TierId, is_short: bool) -> bool {
        let this = self.ledger.tier(last);
        if this.config.shared && this.callers > 0 {
            return false;
        }
        // Writes cost nothing while nothing comes up, or where that goes another way.
        let is_idle = !this.config.shared || self.depths[last.0].rising.transfers == 0;
        let outlook = &self.ledger.outlook;
        let may_as_well = outlook.piles_up && is_idle;
        let is_eager = this.config.eager;
        if !(outlook.expects_writes || self.prefetch_blocked || is_short || is_eager || may_as_well)
        {
            return false;
        }
        let end = outlook.end(TierId(last.0 - 1));
        for from in (0..last.0).rev().map(TierId) {
            let mut between = (from.0 + 1..last.0).map(TierId);
            if between.any(|to| self.gives_way(to)) {
                continue;
            }
            let ledger = &self.ledger;
            let Some((key, id)) = ledger.tier(from).set(Set::Dirty).latest(&ledger.order) else {
                continue;
            };
            // While a transfer enters the tier between, bytes go there first: straight down, early ones would cross the link above it twice, and all of them
            // hold their room for as long as the lowest tier takes. Bytes that belong there go all the same rather than leave it idle.
            let passes = from.0 + 1 < last.0 && self.depths[last.0 - 1].entering.transfers > 0;
            let is_busy = self.depths[last.0].entering.transfers > 0;
            let is_early = ledger.outlook.overflows(TierId(last.0 - 1)) || may_as_well || is_eager;
            let most = match is_short || (is_early && !passes) {
                true => u64::MAX,
                false if passes && is_busy => 0,
                false => self.beyond(key, id, end),
            };
            let part = Part {
                id,
                end: End::Back,
                most,
            };
            if most > 0 && self.carry_down(part, Link { from, to: last }, Urgency::Idle) {
                return true;
            }
        }
        false
    }

    /// Returns the bytes of an extent at and behind a point. An extent that begins before the point and cannot be cut
    /// there has none.
    fn beyond(&self, key: Key, id: ExtentId, point: Point) -> u64 {
        let ledger = &self.ledger;
        let len = ledger.len(id);
        let begin = ledger.point(key, id);
        if begin >= point {
            return len;
        }
        let behind = (id.1 + len).saturating_sub(point.byte);
        let is_cut = begin.position == point.position
            && ledger.is_divisible(id)
            && ledger.cut_back(id, behind).is_some();
        if is_cut { behind } else { 0 }
    }

    /// Returns the soonest used part of a set at or behind a point.
    fn first_beyond(&self, set: &Ranked, point: Point) -> Option<(Key, Part)> {
        let order = &self.ledger.order;
        if let Some((key, id)) = set.just_before(order, point)
            && let most @ 1.. = self.beyond(key, id, point)
        {
            let end = End::Back;
            return Some((key, Part { id, end, most }));
        }
        let (key, id) = set.soonest_from(order, point)?;
        Some((key, Part::all(id, End::Front)))
    }

    /// Starts to write back a part of an extent, or as much of it as one transfer takes.
    fn carry_down(&mut self, part: Part, link: Link, urgency: Urgency) -> bool {
        let position = self.ledger.position(part.id.0);
        // The lowest tier's room has no other use.
        let grain = match link.to == self.ledger.last() {
            true => self.ledger.unit,
            false => self.ledger.grain(part.id.0),
        };
        let request = RoomRequest::new(urgency, position, grain, EvictionCause::Flush);
        self.carry(Purpose::WriteBack, part, link, request)
    }

    /// Starts to move extents that lie beyond the limit of the tier above.
    pub(super) fn vacate_into(&mut self, to: TierId) {
        let from = TierId(to.0 - 1);
        if !self.ledger.tier(from).vacating {
            return;
        }
        let beyond: Vec<_> = self.ledger.tier(from).space.beyond_limit().collect();
        for id in beyond {
            for lower in (to.0..self.ledger.tiers.len()).map(TierId) {
                let is_dirty = self.ledger.extent(id).is_some_and(|extent| {
                    !extent.has_below(from)
                        && extent.is_at_rest()
                        && extent.replicas.last().is_some_and(|r| r.tier == from)
                });
                if is_dirty
                    && !self.has_to_pass(id.0, Link { from, to: lower })
                    && self.may_enter(lower)
                    && self.carry_down(
                        Part::all(id, End::Front),
                        Link { from, to: lower },
                        Urgency::Urgent,
                    )
                {
                    break;
                }
            }
        }
    }
}
