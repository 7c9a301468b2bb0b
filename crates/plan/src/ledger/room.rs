//! Room on a tier: the replicas that are given up for it. A replica *belongs* on the tier that the [outlook](super::Outlook)
//! names for its bytes.
//!
//! | | given up, in this order |
//! |---|---|
//! | 1 | replicas that a lower tier has too and that belong on the lower one, latest use first |
//! | 2 | replicas that a faster tier has too, belong on the faster one and are used sooner than the new bytes, soonest use first, or latest use first where read versions stay, are hinted once at most and all fit here and above; where read versions stay, a prefetch and a write-back that nobody waits for keep those that are read a second time before the new bytes |
//! | 3 | replicas that a lower tier has too, latest use first: for a checkpoint; for a prefetch, and for a write-back where read versions stay, if they are used later than the new bytes |
//!
//! A replica that is being copied, read or written is never given up: only one that is *clean*, idle with a sound replica of its
//! bytes on a lower tier, or *superseded*, idle with one on a faster tier, as `sets_of` of `membership.rs` decides. While there are too few of these, a checkpoint waits.

use super::{Ledger, Set};
use crate::TierId;
use crate::config::AfterRestore;
use crate::order::{ExtentId, Key, Point, Position};
use crate::record::Replica;
use crate::space::Runs;
use crate::statistics::EvictionCause;
use hashbrown::HashSet;
use smallvec::smallvec;
use std::ops::Range;

/// The replicas that may be given up for new bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Urgency {
    /// Only replicas that do not belong there.
    Idle,
    /// As `Idle`, and replicas that are used later than the new bytes.
    Ranked,
    /// All replicas that a lower tier has too.
    Urgent,
}

/// A request for room on a tier.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RoomRequest {
    pub(crate) urgency: Urgency,
    /// The time at which the new bytes are used.
    pub(crate) position: Position,
    /// Runs count in multiples of this many bytes.
    pub(crate) grain: u64,
    pub(crate) cause: EvictionCause,
    pub(crate) keep: KeepReason,
}

impl RoomRequest {
    /// A request that keeps no replicas for a reason of its own.
    pub(crate) fn new(
        urgency: Urgency,
        position: Position,
        grain: u64,
        cause: EvictionCause,
    ) -> Self {
        Self {
            urgency,
            position,
            grain,
            cause,
            keep: KeepReason::Nothing,
        }
    }
}

/// Bytes of room that are asked for: up to `most`, but no fewer than `least`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RoomBytes {
    pub(crate) most: u64,
    pub(crate) least: u64,
}

impl RoomBytes {
    pub(crate) fn exactly(bytes: u64) -> Self {
        Self {
            most: bytes,
            least: bytes,
        }
    }
}

/// The reason for which replicas are kept, whatever the urgency.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeepReason {
    Nothing,
    /// Keeps replicas that belong on a lower tier and are neither there nor between: they are about to be moved down, and would
    /// have to be fetched again from below.
    Sinking,
    /// Keeps replicas that a faster tier has too: that tier may be about to give them up.
    Superseded,
}

impl Ledger {
    /// Returns free runs of up to `most` bytes together on `tier`, and of at least `least`. Evicts replicas for them as
    /// far as the request allows. Evicts none if that is not enough.
    pub(crate) fn make_room(
        &mut self,
        tier: TierId,
        RoomBytes { most, least }: RoomBytes,
        request: RoomRequest,
    ) -> Option<Runs> {
        let mut runs = self.tier(tier).space.find(most, request.grain);
        let free = bytes_of(&runs);
        if free >= most {
            return Some(runs);
        }
        let (victims, freed) = self.victims(tier, most - free, request);
        if free + freed < least {
            return None;
        }
        for id in victims {
            let missing = most.saturating_sub(bytes_of(&runs));
            if missing == 0 {
                break;
            }
            let missing = missing.next_multiple_of(request.grain);
            self.evict_part(id, tier, missing, request.cause);
            runs = self.tier(tier).space.find(most, request.grain);
        }
        (bytes_of(&runs) >= least).then_some(runs)
    }

    /// Returns runs as [`make_room`](Self::make_room) does for bytes that may be cut, and for others one run of the most
    /// bytes.
    pub(crate) fn make_runs(
        &mut self,
        tier: TierId,
        are_cut: bool,
        bytes: RoomBytes,
        request: RoomRequest,
    ) -> Option<Runs> {
        match are_cut {
            true => self.make_room(tier, bytes, request),
            false => {
                let run = self.make_run(tier, bytes.most, request)?;
                Some(smallvec![run])
            }
        }
    }

    /// Returns how many of `most` bytes could be had on `tier`.
    pub(crate) fn at_hand(&self, tier: TierId, most: u64, request: RoomRequest) -> u64 {
        let runs = self.tier(tier).space.find(most, request.grain);
        let free = bytes_of(&runs);
        let (_, freed) = self.victims(tier, most - free, request);
        free + freed.min(most - free)
    }

    /// Returns the replicas to give up for `bytes` bytes, and the bytes that this frees.
    fn victims(&self, tier: TierId, bytes: u64, request: RoomRequest) -> (Vec<ExtentId>, u64) {
        let this = self.tier(tier);
        let position = |key| self.order.position(key);
        let end = self.outlook.end(tier);
        let outside = this.set(Set::Clean).latest_first(&self.order);
        let outside = outside.take_while(|&(key, id)| self.point(key, id) >= end);
        let outside = outside.filter(|&(key, id)| {
            let target = self.outlook.target(self.point(key, id));
            let is_there = |r: &Replica| r.tier > tier && r.tier <= target && r.is_sound();
            request.keep != KeepReason::Sinking
                || self.extent(id).is_some_and(|extent| extent.has(is_there))
        });
        let gives_way = |&(key, id): &(Key, ExtentId)| {
            let belongs_above = self.extent(id).is_some_and(|extent| {
                // The last byte decides: of a replica that is given up in part, the end goes first.
                let last = (id.0, extent.end().saturating_sub(1));
                let target = self.outlook.target(self.point(key, last));
                extent.fastest().is_some_and(|own| target <= own.tier)
            });
            // On an eager tier the two tiers could take each other's room for ever.
            let is_kept = request.keep == KeepReason::Superseded || this.config.eager;
            belongs_above && position(key) < request.position && !is_kept
        };
        // A version that stays comes back here after its reading, if all fit here and above and hints name none twice. So the one that is read last goes first.
        let comes_back = self.after_restore == AfterRestore::Keep
            && end == Point::LAST
            && self.hints.are_distinct();
        let (soonest, latest) = match comes_back {
            true => (
                None,
                Some(this.set(Set::Superseded).latest_first(&self.order)),
            ),
            false => (
                Some(this.set(Set::Superseded).soonest_first(&self.order)),
                None,
            ),
        };
        let soonest = soonest.into_iter().flatten().take_while(gives_way);
        let latest = latest.into_iter().flatten();
        let superseded = soonest.chain(latest.skip_while(|entry| !gives_way(entry)));
        // The replica above serves the next reading, the one here those behind it. A caller that waits for room gets it all the same.
        let keeps_again = request.urgency == Urgency::Ranked
            && self.after_restore == AfterRestore::Keep
            && self.policy.follows_hints();
        let is_read_again = |version| {
            let again = self.hints.after_next(version);
            again.is_some_and(|again| self.order.hinted(again) < request.position)
        };
        let superseded = superseded.filter(|&(_, id)| !(keeps_again && is_read_again(id.0)));
        let inside = this.set(Set::Clean).latest_first(&self.order);
        let inside = inside.take_while(|&(key, _)| match request.urgency {
            Urgency::Idle => false,
            Urgency::Ranked => position(key) > request.position,
            Urgency::Urgent => true,
        });
        let inside = inside.skip_while(|&(key, id)| self.point(key, id) >= end);
        let mut victims = Vec::new();
        let mut seen: HashSet<ExtentId> = HashSet::new();
        let mut freed = 0;
        for (_, id) in outside.chain(superseded).chain(inside) {
            if freed >= bytes {
                break;
            }
            if let Some(replica) = self.replica(id, tier)
                && seen.insert(id)
            {
                let bytes = this.space.reserved(replica.size);
                freed += bytes / request.grain * request.grain;
                victims.push(id);
            }
        }
        (victims, freed)
    }

    /// Evicts a replica, or enough of its end.
    fn evict_part(&mut self, id: ExtentId, tier: TierId, bytes: u64, cause: EvictionCause) {
        if self.tier(tier).config.whole {
            return self.evict_version(id.0, tier, cause);
        }
        if self.is_divisible(id)
            && let Some(first) = self.cut_front(id, self.len(id).saturating_sub(bytes))
        {
            self.split(id, first);
            return self.evict((id.0, id.1 + first), tier, cause);
        }
        self.evict(id, tier, cause);
    }

    /// Evicts all replicas of a version on a tier.
    pub(super) fn evict_version(&mut self, version: u64, tier: TierId, cause: EvictionCause) {
        let extents = self.extents(version).iter();
        let on = extents.filter(|extent| extent.on(tier).is_some());
        let starts: Vec<_> = on.map(|extent| extent.start).collect();
        for start in starts {
            self.evict((version, start), tier, cause);
        }
    }
}

fn bytes_of(runs: &[Range<u64>]) -> u64 {
    runs.iter().map(|run| run.end - run.start).sum()
}
