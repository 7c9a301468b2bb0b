//! The choice of the next transfers. A link leads into one tier from above, or out of one tier upwards; each link has a
//! depth of its own. An extent *belongs* on its target: the tier that the [outlook](crate::ledger::Outlook) names for it.
//!
//! | link | carries |
//! |---|---|
//! | into an eager tier | extents that are not there yet: into the lowest the latest used first, unless it keeps versions under their names or a call waits for it; else in the order of writing |
//! | into another tier but the lowest | as far as there is room, first the soonest used extents of the tier above that belong there, those with a lower copy only while no named one comes up over a link that both directions share; then the soonest used that belong there or lower and have no lower copy; then, if the tier above will overflow or lacks room for one more checkpoint, or if one waits, the latest used without a lower copy |
//! | into the lowest tier | the latest used extents that are not there, if it is eager, they belong there, the history will not fit above, room is short, or kept versions pile up while nothing comes up that way; from tiers higher than the next, only while nothing enters the next, or those that belong there while nothing enters the lowest |
//! | out of a tier, upwards | the soonest used extents that belong higher, to their target, or as near to it as there is room; while the application writes, only those that it named; those that it has read and did not name again only after all that it named |
//!
//! Over a link that both directions share, write-backs into tiers between that are not eager wait for bytes that a caller reads or waits for, and for those that are
//! read before the next checkpoint; those into the lowest tier wait for the bytes that a caller reads from it. Extents of named versions that are shorter than the least one move together with those beside them.

mod suspended;
mod write_back;

pub(crate) use suspended::Suspension;

use super::{Purpose, Traffic};
use crate::config::TierConfig;
use crate::ledger::{KeepReason, RoomBytes, RoomRequest, Set, Urgency};
use crate::order::{ExtentId, Point, Position};
use crate::record::{Extent, Replica};
use crate::space::Runs;
use crate::statistics::EvictionCause;
use crate::{TierId, Version};

/// The end of an extent that moves first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Front,
    Back,
}

/// A part of an extent to move: at most `most` bytes of one end of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Part {
    id: ExtentId,
    end: End,
    most: u64,
}

impl Part {
    fn all(id: ExtentId, end: End) -> Self {
        let most = u64::MAX;
        Self { id, end, most }
    }
}

/// The two ends of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Link {
    from: TierId,
    to: TierId,
}

impl Traffic {
    /// Starts all transfers that may start now: those down first, and those up only while no checkpoint waits for room. The executor carries
    /// those of a link in the order in which they start.
    pub(crate) fn run(&mut self) {
        if let Some(suspension) = self.suspension {
            return self.run_suspended(suspension);
        }
        let last = self.ledger.last();
        for to in (1..=last.0).map(TierId) {
            self.vacate_into(to);
            self.write_all_back(to);
        }
        self.prefetch_blocked = false;
        if self.write_waits {
            return;
        }
        for from in (1..=last.0).map(TierId) {
            let config = self.ledger.tier(from).config;
            // A waiting call comes first: a restore, or a wait for writes if both directions share a link.
            let is_awaited = self.settles && config.shared && from == last;
            while self.depths[from.0].rising.has_room(&config)
                && !is_awaited
                && self.ledger.tier(from).callers == 0
                && self.prefetch(from)
            {}
        }
        if self.prefetch_blocked {
            self.write_all_back(last);
        }
    }

    /// Starts all transfers into a tier from above that may start now.
    fn write_all_back(&mut self, to: TierId) {
        let config = self.ledger.tier(to).config;
        while self.may_write_to(&config) && self.may_enter(to) && self.write_back(to) {}
    }

    /// Returns true if a tier may be written, also a durable one: a start that takes no checkpoint changes nothing there.
    fn may_write_to(&self, config: &TierConfig) -> bool {
        self.ledger.outlook.has_begun || self.settles || !config.whole
    }

    /// Starts one transfer out of a tier to a faster one. Returns false if there is none to be started.
    fn prefetch(&mut self, from: TierId) -> bool {
        let ledger = &self.ledger;
        let Some((key, id)) = ledger
            .tier(from)
            .set(Set::Promotable)
            .soonest(&ledger.order)
        else {
            return false;
        };
        let position = ledger.order.position(key);
        let record = ledger.records.get(&id.0);
        let was_read = record.is_some_and(|record| record.reads > 0);
        // In the papers' caches, versions without a hint are read when they are asked for.
        let before = match (&ledger.windows, was_read) {
            (Some(_), _) => ledger.outlook.unread_before.min(Position::UNKNOWN),
            (None, true) => ledger.outlook.read_before,
            (None, false) => ledger.outlook.unread_before,
        };
        if position >= before {
            return false;
        }
        let byte = id.1;
        // In the papers' caches, all that is hinted is fetched into the fastest tier.
        let target = match &ledger.windows {
            Some(_) => TierId::FASTEST,
            None => ledger.outlook.target(Point { position, byte }),
        };
        let (grain, cause) = (ledger.grain(id.0), EvictionCause::Prefetch);
        let request = RoomRequest::new(Urgency::Ranked, position, grain, cause);
        for to in (target.0..from.0).map(TierId) {
            let this = self.ledger.tier(to);
            if this.closed || !self.may_write_to(&this.config) {
                continue;
            }
            let keep = match self.depths[to.0 + 1].entering.transfers {
                0 => KeepReason::Nothing,
                _ => KeepReason::Sinking,
            };
            let request = RoomRequest { keep, ..request };
            let end = self.ledger.outlook.end(to);
            let part = Part {
                id,
                end: End::Front,
                most: match end.position == position {
                    true => end.byte.saturating_sub(byte),
                    false => u64::MAX,
                },
            };
            if self.carry(Purpose::Prefetch, part, Link { from, to }, request) {
                return true;
            }
            self.prefetch_blocked |= self.is_cramped();
        }
        false
    }

    /// Returns true if a version that hints name is not on the fastest tier as a whole.
    fn has_named_below(&self) -> bool {
        let order = &self.ledger.order;
        let mut soonest = self.ledger.tiers[1..]
            .iter()
            .filter_map(|tier| tier.set(Set::Promotable).soonest(order));
        soonest.any(|(key, _)| order.position(key) < Position::UNKNOWN)
    }

    /// Starts to copy a part of an extent, or as much of it as one transfer takes and finds room. A version goes as a
    /// whole to a tier that keeps versions under their names, and up from one.
    fn carry(&mut self, purpose: Purpose, part: Part, link: Link, request: RoomRequest) -> bool {
        let Link { from, to } = link;
        let Part { id, end, most } = part;
        let is_whole = |tier| self.ledger.tier(tier).config.whole;
        if is_whole(to) || (purpose == Purpose::Prefetch && is_whole(from)) {
            return self.carry_version(purpose, id.0, to, request);
        }
        if self.must_not_encode(purpose, id.0, link) {
            return false;
        }
        let ledger = &self.ledger;
        let Some(len) = ledger.extent(id).map(|extent| extent.len) else {
            return false;
        };
        let is_divisible = ledger.is_divisible(id);
        // The whole extent moves rather than leave a rest that is too short.
        let wanted = match end {
            End::Front => ledger.cut_front(id, most),
            End::Back => ledger.cut_back(id, most).map(|at| len - at),
        };
        let wanted = wanted.filter(|_| is_divisible && most < len).unwrap_or(len);
        let (least, most) = (ledger.extents.least, ledger.part(from, to));
        // Each transfer takes a time of its own, however short it is. A guess is not worth more of the link at a time.
        if wanted == len
            && is_divisible
            && len < least
            && request.position < Position::UNKNOWN
            && let Some(parts) = self.with_neighbours(purpose, part, link)
            && let Some(is_started) = self.carry_all(purpose, id.0, parts, to, true, request)
        {
            return is_started;
        }
        let ledger = &self.ledger;
        let wanted = match is_divisible && wanted >= most.saturating_add(least) {
            true => most,
            false => wanted,
        };
        let room = ledger.reserved_on(id.0, to, wanted);
        let bytes = RoomBytes {
            most: room,
            least: match ledger.cut_front(id, least) {
                Some(_) => room.min(ledger.tier(to).space.reserved(least)),
                None => room,
            },
        };
        let found = self.ledger.make_runs(to, is_divisible, bytes, request);
        let Some(runs) = found else { return false };
        // The evictions may have removed the version that this replica was still kept for.
        if self.ledger.replica(id, from).is_none() {
            return false;
        }
        let there: u64 = runs.iter().map(|run| run.end - run.start).sum();
        let mut first = id.1;
        if is_divisible && there < self.ledger.reserved_on(id.0, to, len) {
            let at = match end {
                End::Front => self.ledger.cut_front(id, there),
                End::Back => self.ledger.cut_back(id, there),
            };
            let Some(at) = at else { return false };
            self.ledger.split(id, at);
            first += if end == End::Back { at } else { 0 };
        }
        self.launch(purpose, id.0, vec![(first, from)], to, runs);
        true
    }

    /// Returns a short extent with those beside it that can move in one transfer with it, if there are some, until they are as long as the least extent together: those
    /// behind it if a front moves first, else those before it. At most as many bytes as the part and a transfer may have.
    fn with_neighbours(
        &self,
        purpose: Purpose,
        part: Part,
        Link { from, to }: Link,
    ) -> Option<Vec<(u64, TierId)>> {
        let ledger = &self.ledger;
        let (version, start) = part.id;
        let most = part.most.min(ledger.part(from, to));
        let comes_along = |extent: &Extent| {
            let id = (version, extent.start);
            let is_there = match purpose {
                Purpose::WriteBack => extent.has(|replica| replica.tier >= to),
                Purpose::Prefetch => extent.has(|replica| replica.tier < from),
            };
            !is_there && self.source(purpose, id, to) == Some(from) && ledger.is_divisible(id)
        };
        let mut parts = vec![(start, from)];
        let record = ledger.records.get(&version)?;
        let mut at = record.index_of(start)?;
        let mut bytes = record.extents[at].len;
        while bytes < ledger.extents.least {
            at = match part.end {
                End::Front => at + 1,
                End::Back => at.wrapping_sub(1),
            };
            let next = record.extents.get(at);
            let Some(extent) = next.filter(|next| bytes + next.len <= most && comes_along(next))
            else {
                break;
            };
            bytes += extent.len;
            parts.push((extent.start, from));
        }
        parts.sort_unstable();
        (parts.len() > 1).then_some(parts)
    }

    /// Starts to copy all extents of a version that are not on `to` yet.
    fn carry_version(
        &mut self,
        purpose: Purpose,
        version: Version,
        to: TierId,
        request: RoomRequest,
    ) -> bool {
        let ledger = &self.ledger;
        let lowest = |extent: &Extent| {
            let mut readable = extent.replicas.iter().filter(|r| r.is_readable());
            readable.next_back().map(|replica| replica.tier)
        };
        let lowest = ledger.extent((version, 0)).and_then(lowest);
        if lowest.is_some_and(|from| self.must_not_encode(purpose, version, Link { from, to })) {
            return false;
        }
        let Some(record) = ledger.records.get(&version) else {
            return false;
        };
        let is_divisible = !ledger.tier(to).config.whole && ledger.are_cut();
        let missing = record.extents.iter().filter(|extent| match purpose {
            Purpose::WriteBack => extent.on(to).is_none(),
            Purpose::Prefetch => extent.replicas.iter().all(|r| r.tier > to),
        });
        let mut parts = Vec::new();
        for extent in missing {
            let is_ready = match is_divisible {
                true => extent.is_at_rest(),
                false => extent.replicas.iter().all(Replica::is_readable),
            };
            match self.source(purpose, (version, extent.start), to) {
                Some(from) if is_ready => parts.push((extent.start, from)),
                _ => return false,
            }
        }
        let carried = self.carry_all(purpose, version, parts, to, is_divisible, request);
        carried.unwrap_or(false)
    }

    /// Starts to copy these extents in one transfer: all of them, or none. Returns false if the version is gone by then, and `None` if there is no room for them.
    fn carry_all(
        &mut self,
        purpose: Purpose,
        version: Version,
        parts: Vec<(u64, TierId)>,
        to: TierId,
        are_cut: bool,
        request: RoomRequest,
    ) -> Option<bool> {
        let ledger = &self.ledger;
        let lens = parts.iter().map(|&(start, _)| ledger.len((version, start)));
        let room = lens.map(|len| ledger.reserved_on(version, to, len));
        let bytes = RoomBytes::exactly(room.sum());
        let runs = self.ledger.make_runs(to, are_cut, bytes, request)?;
        // The evictions may have removed the version.
        let mut sources = parts.iter();
        let are_there = sources.all(|&(start, from)| {
            let source = self.ledger.replica((version, start), from);
            source.is_some()
        });
        if are_there {
            self.launch(purpose, version, parts, to, runs);
        }
        Some(are_there)
    }

    /// Returns true if no encoding of a version may begin now. A version has one encoding at a time. A chain has one
    /// at a time if its tier keeps versions for another run, which has to find their bases.
    fn must_not_encode(&self, purpose: Purpose, version: Version, Link { from, to }: Link) -> bool {
        let ledger = &self.ledger;
        let encodes = ledger.lies_encoded(to) && !ledger.lies_encoded(from);
        let has_chains = ledger.differences.is_some_and(|how| how.longest > 1);
        let lasts = |tier| ledger.tier(tier).config.whole;
        let mut flights = self.flights.values().filter(|f| f.encodes.is_some());
        purpose == Purpose::WriteBack
            && encodes
            && flights.any(|f| f.version == version || (has_chains && (lasts(to) || lasts(f.to))))
    }

    /// Returns the tier to read an extent from: for a write-back the one that feeds `to`, else the lowest that has it; for a prefetch the
    /// fastest.
    fn source(&self, purpose: Purpose, id: ExtentId, to: TierId) -> Option<TierId> {
        let extent = self.ledger.extent(id)?;
        let lowest = || self.source_down(extent, TierId(self.ledger.tiers.len()));
        match purpose {
            Purpose::WriteBack => self.feeder(id, to).or_else(lowest),
            Purpose::Prefetch => extent.fastest().map(|replica| replica.tier),
        }
    }

    /// Starts one transfer of extents into runs, and cuts the extents where the runs end.
    fn launch(
        &mut self,
        purpose: Purpose,
        version: Version,
        extents: Vec<(u64, TierId)>,
        to: TierId,
        runs: Runs,
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
                let room = self.ledger.reserved_on(version, to, len);
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
        self.start(purpose, version, parts, to, offsets);
    }

    /// Starts to fetch a version into one run of the fastest tier, if no byte of it is there.
    pub(crate) fn fetch_run(&mut self, version: Version, request: RoomRequest) -> bool {
        let to = TierId::FASTEST;
        let Some(record) = self.ledger.records.get(&version) else {
            return false;
        };
        let is_free = |extent: &Extent| {
            let is_taken = |r: &Replica| r.tier == to || r.arriving.is_some() || !r.is_readable();
            !extent.replicas.is_empty() && !extent.has(is_taken)
        };
        let is_fetchable =
            !record.unreadable && !record.extents.is_empty() && record.extents.iter().all(is_free);
        if !is_fetchable || !self.ledger.tier(to).space.holds(record.size) {
            return false;
        }
        let extents = record.extents.iter();
        let parts = extents.filter_map(|extent| Some((extent.start, extent.fastest()?.tier)));
        let parts = parts.collect();
        let carried = self.carry_all(Purpose::Prefetch, version, parts, to, false, request);
        carried.unwrap_or(false)
    }
}
