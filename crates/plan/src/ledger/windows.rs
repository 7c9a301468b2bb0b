//! Room in one run: the window that a policy chooses, or the one whose soonest use is the latest.

use super::{Ledger, RoomRequest, Urgency};
use crate::TierId;
use crate::order::{ExtentId, Point, Position};
use crate::record::{Extent, Replica, WriteBack};
use crate::space::Fragment;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use tierflow_evict::{Candidates, Distance, Outlook as Expected};
use tierflow_lifecycle::State;

/// The policy that chooses windows, and the windows whose copies are waited for.
#[derive(Debug, Clone)]
pub(crate) struct Windows {
    /// Shared by copies of the plan: all that a chooser keeps is scratch memory.
    pub(crate) chooser: Arc<Mutex<Box<dyn tierflow_evict::Policy + Send>>>,
    pub(crate) awaited: Vec<Awaited>,
}

/// A window that was chosen before all of its copies could be evicted (HPDC'23, Algorithm 1, lines 25 to 28).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Awaited {
    tier: TierId,
    urgency: Urgency,
    bytes: u64,
    window: Range<u64>,
}

/// The time until a copy may be evicted, measured in bytes that move before, as times are only compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Evictable {
    Now,
    /// The expected wait. `at_once`: the copy may go without it, and would have to be fetched again.
    After {
        bytes: u64,
        at_once: bool,
    },
    Never,
}

impl Ledger {
    /// Returns true if versions may be cut: not if they are encoded or a policy chooses windows.
    pub(crate) fn are_cut(&self) -> bool {
        self.differences.is_none() && self.windows.is_none()
    }

    /// Returns one free run of `bytes` on `tier`. Without one, evicts a window: the policy's choice, or else the one
    /// whose soonest use is the latest. `None` also while the chosen window is waited for.
    pub(crate) fn make_run(
        &mut self,
        tier: TierId,
        bytes: u64,
        request: RoomRequest,
    ) -> Option<Range<u64>> {
        let space = &self.tier(tier).space;
        if let Some(offset) = space.gap(bytes) {
            return Some(offset..offset + bytes);
        }
        let found = match self.windows.is_some() {
            true => self.chosen_window(tier, bytes, request)?,
            false => {
                let fragments = space.fragments();
                let used = |fragment| self.use_of(tier, fragment, request);
                let uses: Vec<_> = fragments.iter().map(used).collect();
                let window = latest_window(&fragments, &uses, bytes)?;
                fragments[window].to_vec()
            }
        };
        let offset = found.first()?.offset;
        for fragment in found {
            match fragment.owner {
                // Of a version that goes as a whole, other fragments may have gone with the first.
                Some(owner) if self.tier(tier).config.whole => {
                    self.evict_version(owner.0, tier, request.cause);
                }
                Some(owner) => self.evict(owner, tier, request.cause),
                None => {}
            }
        }
        Some(offset..offset + bytes)
    }

    /// Returns the fragments of the window that the policy chooses, once all of it may be evicted. Until then the window is waited for,
    /// and no other is chosen unless some of its copies can no longer be foreseen to go.
    fn chosen_window(
        &mut self,
        tier: TierId,
        bytes: u64,
        request: RoomRequest,
    ) -> Option<Vec<Fragment>> {
        let space = &self.tier(tier).space;
        let windows = self.windows.as_ref()?;
        let is_same = |awaited: &Awaited| {
            (awaited.tier, awaited.urgency, awaited.bytes) == (tier, request.urgency, bytes)
        };
        let at = windows.awaited.iter().position(is_same);
        if let Some(awaited) = at.and_then(|at| windows.awaited.get(at)) {
            let fragments = space.fragments_in(awaited.window.clone());
            // A cache that shrank meanwhile has a part of the window, or nothing.
            let is_whole = fragments.iter().map(|fragment| fragment.bytes).sum::<u64>() >= bytes;
            let evictable = self.evictable(tier, &fragments, request);
            if is_whole && evictable.iter().all(|copy| copy.may_go(request.urgency)) {
                self.windows.as_mut()?.awaited.retain(|one| !is_same(one));
                return Some(fragments);
            }
            if is_whole && !evictable.contains(&Evictable::Never) {
                return None;
            }
        }
        let fragments = space.fragments();
        let evictable = self.evictable(tier, &fragments, request);
        let mut candidates = Candidates::new();
        for (fragment, evictable) in fragments.iter().zip(&evictable) {
            let occupant = fragment.owner.map(|(version, _)| Expected {
                evictable_in: evictable.wait(),
                distance: match self.hints.distance(version) {
                    Some(distance) => Distance::At(distance),
                    None => Distance::Unhinted,
                },
            });
            candidates.push(fragment.bytes, occupant);
        }
        let windows = self.windows.as_mut()?;
        windows.awaited.retain(|one| !is_same(one));
        let chooser = windows.chooser.lock();
        let mut chooser = chooser.unwrap_or_else(PoisonError::into_inner);
        let window = chooser.choose_victims(&candidates, bytes)?;
        drop(chooser);
        let chosen = window.first..window.last;
        let may_go = |copy: &Evictable| copy.may_go(request.urgency);
        if evictable[chosen.clone()].iter().all(may_go) {
            return Some(fragments[chosen].to_vec());
        }
        windows.awaited.push(Awaited {
            tier,
            urgency: request.urgency,
            bytes,
            window: window.offset..window.offset + window.span,
        });
        None
    }

    /// Returns when each fragment may be given up: HPDC'23's `predict_evictable` (§4.2). A copy that goes down waits for the copies
    /// that were written before it; a copy that is about to be read waits for the reads before it.
    fn evictable(
        &self,
        tier: TierId,
        fragments: &[Fragment],
        request: RoomRequest,
    ) -> Vec<Evictable> {
        let last = self.last();
        let mut dirty = Vec::new();
        let mut goes_down = false;
        let mut evictable = Vec::new();
        for (at, fragment) in fragments.iter().enumerate() {
            let Some(owner) = fragment.owner else {
                evictable.push(Evictable::Now);
                continue;
            };
            evictable.push(Evictable::Never);
            let record = self.records.get(&owner.0);
            let Some((record, extent)) = record.zip(self.extent(owner)) else {
                continue;
            };
            if extent.is_sound_below(tier) {
                evictable[at] = self.consumed(owner, extent.on(tier), request);
                continue;
            }
            let state = extent.write_back(tier, last, record.unreadable);
            goes_down |= state == WriteBack::InFlight;
            if matches!(state, WriteBack::InFlight | WriteBack::Queued) {
                dirty.push((record.written, owner.1, at, extent.len));
            }
        }
        dirty.retain(|_| goes_down);
        dirty.sort_unstable();
        let mut before = 0;
        for (_, _, at, bytes) in dirty {
            before += bytes;
            evictable[at] = Evictable::After {
                bytes: before,
                at_once: false,
            };
        }
        evictable
    }

    /// Returns when a copy that a lower tier has, too, may be given up.
    fn consumed(&self, owner: ExtentId, on: Option<&Replica>, request: RoomRequest) -> Evictable {
        let Some(replica) = on.filter(|replica| replica.is_readable()) else {
            return Evictable::Never;
        };
        let distance = self.hints.distance(owner.0);
        let is_expected = replica.state == State::ReadComplete && distance.is_some();
        let is_sooner = self.position(owner.0) <= request.position;
        let waits = match request.urgency {
            Urgency::Ranked => is_sooner,
            Urgency::Idle | Urgency::Urgent => is_expected,
        };
        let reads = match (waits, replica.readers > 0) {
            (false, false) => return Evictable::Now,
            (false, true) => 1,
            (true, _) => distance.unwrap_or(0).saturating_add(1),
        };
        Evictable::After {
            bytes: reads.saturating_mul(replica.size),
            at_once: replica.readers == 0,
        }
    }

    /// Returns the next use of a fragment that may be given up; `LAST` for a gap, `None` for a fragment that has to
    /// stay.
    fn use_of(&self, tier: TierId, fragment: &Fragment, request: RoomRequest) -> Option<Position> {
        let Some(owner) = fragment.owner else {
            return Some(Position::LAST);
        };
        let record = self.records.get(&owner.0)?;
        // A version that goes as a whole frees no less.
        let goes = |extent: &&Extent| self.tier(tier).config.whole || extent.start == owner.1;
        let mut parts = record.extents.iter().filter(goes);
        let can_go = parts.all(|extent| {
            let is_idle = extent.on(tier).is_none_or(Replica::is_idle);
            is_idle && extent.is_sound_below(tier)
        });
        let position = self.position(owner.0);
        let point = Point {
            position,
            byte: owner.1,
        };
        let is_outside = self.outlook.target(point) > tier;
        let may_go = match request.urgency {
            Urgency::Idle => is_outside,
            Urgency::Ranked => position > request.position || is_outside,
            Urgency::Urgent => true,
        };
        (can_go && may_go).then_some(position)
    }
}

impl Evictable {
    fn wait(self) -> Option<u64> {
        match self {
            Self::Now => Some(0),
            Self::After { bytes, .. } => Some(bytes),
            Self::Never => None,
        }
    }

    /// Returns true if a request takes the copy's room now. An application that waits for room does not read meanwhile: an urgent
    /// request does not wait until a copy is read.
    fn may_go(self, urgency: Urgency) -> bool {
        match self {
            Self::Now => true,
            Self::After { at_once, .. } => at_once && urgency == Urgency::Urgent,
            Self::Never => false,
        }
    }
}

/// Returns the shortest window of at least `bytes` in which all fragments may go and whose soonest use is the latest.
fn latest_window(
    fragments: &[Fragment],
    uses: &[Option<Position>],
    bytes: u64,
) -> Option<Range<usize>> {
    let mut best: Option<(Position, Range<usize>)> = None;
    let (mut first, mut span) = (0, 0);
    for (at, fragment) in fragments.iter().enumerate() {
        if uses[at].is_none() {
            (first, span) = (at + 1, 0);
            continue;
        }
        span += fragment.bytes;
        while span - fragments[first].bytes >= bytes {
            span -= fragments[first].bytes;
            first += 1;
        }
        if span >= bytes
            && let Some(soonest) = uses[first..=at].iter().flatten().min()
            && best.as_ref().is_none_or(|(so_far, _)| soonest > so_far)
        {
            best = Some((*soonest, first..at + 1));
        }
    }
    best.map(|(_, window)| window)
}
