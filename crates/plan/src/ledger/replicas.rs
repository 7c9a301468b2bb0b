//! Replicas: their arrival, their reads, their end.

use super::Ledger;
use crate::command::{Command, Piece, Place};
use crate::order::ExtentId;
use crate::record::{Extent, Record, Replica, count, first_sound};
use crate::statistics::{Eviction, EvictionCause};
use crate::{TierId, TransferId, Version};
use smallvec::{SmallVec, smallvec};
use std::ops::Range;
use tierflow_lifecycle::{Event as Move, State};

impl Ledger {
    /// Puts the bytes of a new version into free runs: one extent each, to be filled by the caller.
    pub(crate) fn grant(&mut self, version: Version, room: &[(TierId, Range<u64>)]) {
        let Some(record) = self.records.get_mut(&version) else {
            return;
        };
        let mut start = 0;
        for (tier, run) in room {
            let tier = *tier;
            let len = (run.end - run.start).min(record.size - start);
            record.extents.push(Extent {
                start,
                len,
                replicas: smallvec![Replica::new(tier, Move::WriteBegan, run.start, len)],
            });
            self.tiers[tier.0].space.take(run.clone(), (version, start));
            start += len;
        }
        let tiers = room.iter().map(|&(tier, _)| tier);
        tiers.for_each(|tier| self.count_peak(tier));
    }

    /// Notes that the caller has filled the room of a new version.
    pub(crate) fn take_in(&mut self, version: Version) {
        let all = |record: &Record| Some(0..record.extents.len());
        self.change_extents(version, all, |record, _, _| {
            record.is_taken_in = true;
            for extent in &mut record.extents {
                if let Some(replica) = extent.replicas.first_mut() {
                    replica.arriving = None;
                    replica.advance(Move::WriteEnded);
                }
            }
        });
        self.settle_owed(version);
    }

    /// Puts an extent into a free run of a tier, to be filled by a transfer.
    pub(crate) fn receive(
        &mut self,
        id: ExtentId,
        place: Place,
        transfer: TransferId,
        began: Move,
    ) {
        let run = place.offset..place.offset + place.reserved;
        self.tier_mut(place.tier).space.take(run, id);
        self.count_peak(place.tier);
        self.change(id, |extent| {
            extent.insert(Replica {
                arriving: Some(transfer),
                ..Replica::new(place.tier, began, place.offset, place.size)
            });
        });
    }

    fn count_peak(&mut self, tier: TierId) {
        let used = self.tiers[tier.0].space.used();
        let counts = &mut self.statistics.tiers[tier.0];
        counts.peak_bytes = counts.peak_bytes.max(used);
    }

    /// Makes a move of the life cycle of one replica.
    pub(crate) fn step(&mut self, id: ExtentId, tier: TierId, step: Move) {
        self.change(id, |extent| {
            if let Some(replica) = extent.on_mut(tier) {
                if step == Move::WriteEnded || step == Move::ReadEnded {
                    replica.arriving = None;
                }
                replica.advance(step);
            }
        });
        if step == Move::WriteEnded {
            self.settle_owed(id.0);
        }
    }

    /// Notes that a tier's replicas of a version could not be read.
    pub(crate) fn damaged(&mut self, version: Version, tier: TierId) {
        let found = self.change_record(version, |record| {
            let replicas = record.extents.iter_mut();
            let replicas = replicas.filter_map(|extent| extent.on_mut(tier));
            let sound = replicas.filter(|replica| replica.is_sound());
            sound.map(|replica| replica.damaged = true).count()
        });
        if found.is_some_and(|found| found > 0) {
            self.statistics.tiers[tier.0].damaged += 1;
        }
    }

    /// Gives up a version's damaged replicas that keep a sound one of a faster tier from being written down again. The tiers of these replicas take
    /// nothing more until the application acts: it may be damaged, too. A durable tier keeps its own, as later runs may have no
    /// other, and so does one where differences lie: others may build upon it.
    pub(crate) fn give_up_damaged(&mut self, version: Version) {
        let Some(record) = self.records.get(&version) else {
            return;
        };
        let mut in_the_way = Vec::new();
        for extent in &record.extents {
            let is_moving = extent.has(|replica| replica.arriving.is_some());
            let damaged = extent.replicas.iter().filter(|replica| {
                let tier = replica.tier;
                !is_moving
                    && replica.damaged
                    && replica.is_idle()
                    && extent.is_sound_above(tier)
                    && !extent.is_sound_below(tier)
                    && !self.lies_encoded(tier)
                    && !self.tier(tier).config.whole
            });
            in_the_way.extend(damaged.map(|replica| (extent.start, replica.tier)));
        }
        for (start, tier) in in_the_way {
            self.release((version, start), tier);
            self.tier_mut(tier).closed = true;
        }
    }

    /// Returns true if there are sound replicas of all bytes of a version, and of those that it builds upon.
    pub(crate) fn is_sound(&self, version: Version) -> bool {
        let record = self.records.get(&version);
        let builds_upon = match record.and_then(Record::fastest) {
            Some(tier) if !self.lies_encoded(tier) => 0,
            _ => usize::MAX,
        };
        let is_read_soundly = |version, is_base: bool| {
            self.extents(version).iter().all(|extent| {
                let replicas = extent.replicas.iter();
                let read = first_sound(replicas.filter(|r| !is_base || self.lies_encoded(r.tier)));
                read.is_some_and(Replica::is_sound)
            })
        };
        let mut bases = self.chain(version).skip(1).take(builds_upon);
        is_read_soundly(version, false) && bases.all(|base| is_read_soundly(base, true))
    }

    /// Lets damaged replicas of a version, and of those that it builds upon, be read again: there may be no others.
    pub(crate) fn read_damaged(&mut self, version: Version) {
        let chain: Vec<_> = self.chain(version).collect();
        for version in chain {
            self.change_record(version, |record| {
                let replicas = record
                    .extents
                    .iter_mut()
                    .flat_map(|extent| &mut extent.replicas);
                replicas.for_each(|replica| replica.damaged = false);
            });
        }
    }

    /// Counts a caller or a transfer that begins to read a replica, or that has ended.
    pub(crate) fn read(&mut self, id: ExtentId, tier: TierId, begin: bool) {
        self.change(id, |extent| {
            if let Some(replica) = extent.on_mut(tier) {
                count(&mut replica.readers, begin);
            }
        });
    }

    /// Counts a caller that begins to read replicas of many extents of one version, or that has ended.
    pub(crate) fn read_all(&mut self, version: Version, parts: &[(u64, TierId)], begin: bool) {
        let all = |record: &Record| Some(0..record.extents.len());
        self.change_extents(version, all, |record, _, _| record.read(parts, begin));
    }

    /// Notes that a version was found on a tier, in one run of `bytes` bytes: its difference's if it lies there as one.
    pub(crate) fn place_adopted(&mut self, version: Version, tier: TierId, begin: u64, bytes: u64) {
        let all = |record: &Record| Some(0..record.extents.len());
        self.change_extents(version, all, |record, at, tiers| {
            record.is_taken_in = true;
            if record.extents.is_empty() {
                record.extents.push(Extent {
                    start: 0,
                    len: record.size,
                    replicas: SmallVec::new(),
                });
                *at = 0..1;
            }
            let is_one = record.extents.len() == 1;
            let space = &mut tiers[tier.0].space;
            for extent in &mut record.extents {
                let size = if is_one { bytes } else { extent.len };
                let offset = begin + extent.start;
                extent.insert(Replica::new(tier, Move::WriteBegan, offset, size));
                let end = offset + space.reserved(size);
                space.take(offset..end, (version, extent.start));
            }
        });
        self.count_peak(tier);
    }

    /// Removes a replica: it failed to arrive, was given up for room, or is of no use any more.
    fn take(&mut self, id: ExtentId, tier: TierId) {
        let taken = self.change(id, |extent| {
            let at = extent.replicas.iter().position(|r| r.tier == tier)?;
            let mut replica = extent.replicas.remove(at);
            if replica.state.in_transit() {
                replica.advance(Move::Failed);
                return Some(replica);
            }
            let has_below = extent.has_below(tier);
            replica.advance_to_end(has_below);
            if !has_below
                && let Some(above) = extent.replicas.iter_mut().rfind(|r| r.tier < tier)
                && above.state == State::Flushed
            {
                // The replica above is again one without a copy below.
                above.advance(Move::Unflushed);
            }
            Some(replica)
        });
        if let Some(Some(replica)) = taken {
            let space = &mut self.tiers[tier.0].space;
            let reserved = space.reserved(replica.size);
            space.give(replica.offset..replica.offset + reserved);
        }
    }

    /// Removes a replica. Emits `Remove` if it was the last one of its version on the tier.
    pub(crate) fn release(&mut self, id: ExtentId, tier: TierId) {
        let was_there = self.replica(id, tier).is_some_and(Replica::is_readable);
        self.take(id, tier);
        self.settle_owed(id.0);
        let Some(record) = self.records.get(&id.0) else {
            return;
        };
        if was_there && record.is_off(tier) {
            let bytes = record.size_on(self.lies_encoded(tier), record.size);
            let is_discarded = record.discarded && record.dependents.is_empty();
            self.emit_removal(id.0, tier, bytes, is_discarded);
        }
        self.forget_form(id.0);
    }

    /// Emits `Remove` for a version of which nothing is left on a tier. A discarded one goes from the tier that is fed from there, too: it
    /// may have got there after its transfer failed, or without one.
    pub(super) fn emit_removal(
        &mut self,
        version: Version,
        tier: TierId,
        bytes: u64,
        is_discarded: bool,
    ) {
        let below = self.tiers.get(tier.0 + 1);
        let is_fed = is_discarded && below.is_some_and(|below| below.config.from_above);
        let fed = is_fed.then_some(TierId(tier.0 + 1));
        let tiers = std::iter::once(tier).chain(fed);
        self.commands.extend(tiers.map(|tier| Command::Remove {
            version,
            tier,
            bytes,
            is_discarded,
        }));
    }

    /// Gives a replica up to make room, and counts it.
    pub(crate) fn evict(&mut self, id: ExtentId, tier: TierId, cause: EvictionCause) {
        let Some(replica) = self.replica(id, tier) else {
            return;
        };
        let unread = replica.state == State::ReadComplete;
        let bytes = replica.size;
        self.statistics.evicted(tier, cause, unread);
        if let Some(evictions) = &mut self.evictions {
            evictions.push(Eviction {
                version: id.0,
                tier,
                bytes,
                cause,
            });
        }
        self.release(id, tier);
    }

    /// Shrinks the room of a replica to `bytes`.
    pub(crate) fn shrink(&mut self, id: ExtentId, tier: TierId, bytes: u64) {
        let space = &mut self.tiers[tier.0].space;
        let record = self.records.get_mut(&id.0);
        if let Some(replica) = record.and_then(|record| record.replica_mut(id.1, tier)) {
            let (from, to) = (space.reserved(replica.size), space.reserved(bytes));
            space.shrink(replica.offset, from, to);
            replica.size = bytes;
        }
    }

    /// Moves a replica without written bytes to the smallest room that is large enough, its own included.
    pub(crate) fn move_to_smallest_gap(&mut self, id: ExtentId, tier: TierId) {
        let space = &mut self.tiers[tier.0].space;
        let record = self.records.get_mut(&id.0);
        let Some(replica) = record.and_then(|record| record.replica_mut(id.1, tier)) else {
            return;
        };
        let bytes = space.reserved(replica.size);
        let own = replica.offset..replica.offset + bytes;
        // Bytes beyond a limit have to leave it; `vacate_into` moves them.
        if own.end > space.limit() {
            return;
        }
        space.give(own);
        if let [run] = space.find(bytes, bytes.max(1)).as_slice() {
            replica.offset = run.start;
        }
        space.take(replica.offset..replica.offset + bytes, id);
    }

    /// Returns the run that a replica holds.
    pub(crate) fn piece(&self, extent: &Extent, replica: &Replica) -> Piece {
        Piece {
            start: extent.start,
            place: Place {
                tier: replica.tier,
                offset: replica.offset,
                size: replica.size,
                reserved: self.tier(replica.tier).space.reserved(replica.size),
            },
        }
    }
}
