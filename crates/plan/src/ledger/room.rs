//! Room on a tier: which replicas are given up for which bytes.
//!
//! | | given up, in this order |
//! |---|---|
//! | 1 | what a lower tier has and belongs there, latest use first |
//! | 2 | what a faster tier has, belongs there and is used sooner than what comes, soonest use first |
//! | 3 | what a lower tier has, latest use first: for a checkpoint; for a prefetch, if it is used later than what comes |

use super::Ledger;
use super::Outlook;
use crate::TierId;
use crate::order::{ExtentId, Position};
use crate::record::{Extent, Replica};
use crate::statistics::Cause;
use hashbrown::HashSet;
use std::ops::Range;

/// How much may be given up for what comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Urgency {
    /// Only what does not belong there.
    Idle,
    /// That, and what is used later than what comes.
    Ranked,
    /// Whatever a lower tier has.
    Urgent,
}

/// Who asks for room.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Claim {
    pub(crate) urgency: Urgency,
    /// When what comes is used.
    pub(crate) position: Position,
    /// Room counts in runs of multiples of so many bytes.
    pub(crate) grain: u64,
    pub(crate) cause: Cause,
    pub(crate) spared: Spared,
}

/// Which replicas are not evicted, whatever the claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Spared {
    Nothing,
    /// What belongs on a tier between and is not there yet: it would have to be fetched again, and is about to be moved.
    Sinking,
    /// What a faster tier has: that one may be about to give it up.
    Superseded,
}

impl Ledger {
    /// Free runs of up to `most` bytes together on `tier`, but of `least` at least; replicas are given up for them as far
    /// as the claim goes. Where that is not enough, none is given up.
    pub(crate) fn make_room(
        &mut self,
        tier: TierId,
        (most, least): (u64, u64),
        claim: Claim,
        outlook: &Outlook,
    ) -> Option<Vec<Range<u64>>> {
        let mut runs = self.tier(tier).space.find(most, claim.grain);
        let free = bytes_of(&runs);
        if free >= most {
            return Some(runs);
        }
        let (victims, freed) = self.victims(tier, most - free, claim, outlook);
        if free + freed < least {
            return None;
        }
        for id in victims {
            let missing = most.saturating_sub(bytes_of(&runs));
            if missing == 0 {
                break;
            }
            let missing = missing.next_multiple_of(claim.grain);
            self.evict_part(id, tier, missing, claim.cause);
            runs = self.tier(tier).space.find(most, claim.grain);
        }
        (bytes_of(&runs) >= least).then_some(runs)
    }

    /// How many bytes of `most` could be had on `tier`.
    pub(crate) fn at_hand(&self, tier: TierId, most: u64, claim: Claim, outlook: &Outlook) -> u64 {
        let runs = self.tier(tier).space.find(most, claim.grain);
        let free = bytes_of(&runs);
        let (_, freed) = self.victims(tier, most - free, claim, outlook);
        free + freed.min(most - free)
    }

    /// The replicas to give up for so many bytes, and how many bytes they have together.
    fn victims(
        &self,
        tier: TierId,
        bytes: u64,
        claim: Claim,
        outlook: &Outlook,
    ) -> (Vec<ExtentId>, u64) {
        let this = self.tier(tier);
        let position = |key| self.order.position(key);
        let end = outlook.end(tier);
        let outside = this.clean.latest_first(&self.order);
        let outside = outside.take_while(|&(key, id)| self.point(key, id) >= end);
        let outside = outside.filter(|&(key, id)| {
            let target = outlook.target(self.point(key, id));
            let is_there = |r: &Replica| r.tier > tier && r.tier <= target && r.is_sound();
            claim.spared != Spared::Sinking
                || self
                    .extent(id)
                    .is_some_and(|extent| extent.replicas.iter().any(is_there))
        });
        let superseded = this.superseded.soonest_first(&self.order);
        let superseded = superseded.take_while(|&(key, id)| {
            // All of it: of what is given up in part, the end goes first.
            let last = |extent: &Extent| (id.0, (extent.start + extent.len).saturating_sub(1));
            let belongs_above = self.extent(id).is_some_and(|extent| {
                let target = outlook.target(self.point(key, last(extent)));
                extent
                    .fastest()
                    .is_some_and(|fastest| target <= fastest.tier)
            });
            // Else the two could take each other's room for ever.
            let is_spared = claim.spared == Spared::Superseded || this.config.eager;
            belongs_above && position(key) < claim.position && !is_spared
        });
        let inside = this.clean.latest_first(&self.order);
        let inside = inside.take_while(|&(key, _)| match claim.urgency {
            Urgency::Idle => false,
            Urgency::Ranked => position(key) > claim.position,
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
            let replica = self.extent(id).and_then(|extent| extent.on(tier));
            if let Some(replica) = replica
                && seen.insert(id)
            {
                let bytes = this.space.reserved(replica.size);
                freed += bytes / claim.grain * claim.grain;
                victims.push(id);
            }
        }
        (victims, freed)
    }

    /// Evicts a replica, or so much of its end as is needed.
    fn evict_part(&mut self, id: ExtentId, tier: TierId, bytes: u64, cause: Cause) {
        if self.tier(tier).config.whole {
            return self.evict_version(id.0, tier, cause);
        }
        if self.is_divisible(id)
            && let Some(first) = self.cut_off(id, bytes)
        {
            self.split(id, first);
            return self.evict((id.0, id.1 + first), tier, cause);
        }
        self.evict(id, tier, cause);
    }

    /// Evicts all replicas of a version on a tier.
    fn evict_version(&mut self, version: u64, tier: TierId, cause: Cause) {
        let Some(record) = self.records.get(&version) else {
            return;
        };
        let on = record.extents.iter().filter(|e| e.on(tier).is_some());
        let starts: Vec<_> = on.map(|extent| extent.start).collect();
        for start in starts {
            self.evict((version, start), tier, cause);
        }
    }
}

fn bytes_of(runs: &[Range<u64>]) -> u64 {
    runs.iter().map(|run| run.end - run.start).sum()
}
