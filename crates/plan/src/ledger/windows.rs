//! Room in one run: the window that a policy chooses, or the one whose soonest use is the latest.

use super::{Ledger, Outlook, RoomRequest, Urgency};
use crate::order::{ExtentId, Point, Position};
use crate::record::{Replica, WriteBack};
use crate::space::Fragment;
use crate::{TierId, Version};
use hashbrown::HashMap;
use std::collections::VecDeque;
use std::ops::Range;
use tierflow_evict::{Candidates, Distance, Outlook as Expected};

impl Ledger {
    /// Returns true if versions may be cut: not if they are encoded or a policy chooses windows.
    pub(crate) fn are_cut(&self) -> bool {
        self.differences.is_none() && self.windows.is_none()
    }

    /// Returns one free run of `bytes` on `tier`. Without one, evicts a window: the policy's choice, or else the one
    /// whose soonest use is the latest. `None` also if the chosen window is still to be written down.
    pub(crate) fn make_run(
        &mut self,
        tier: TierId,
        bytes: u64,
        request: RoomRequest,
        outlook: &Outlook,
    ) -> Option<Range<u64>> {
        let space = &self.tier(tier).space;
        if space.largest_gap() >= bytes {
            return space.find(bytes, bytes).into_iter().next();
        }
        let fragments = self.tier(tier).space.fragments();
        let uses = fragments.iter();
        let uses = uses.map(|fragment| self.use_of(tier, fragment, request, outlook));
        let uses: Vec<_> = uses.collect();
        let window = match self.windows.is_some() {
            true => self.chosen_window(tier, bytes, &fragments, &uses, request)?,
            false => latest_window(&fragments, &uses, bytes)?,
        };
        let offset = fragments[window.start].offset;
        for fragment in &fragments[window] {
            if let Some(owner) = fragment.owner {
                self.evict(owner, tier, request.cause);
            }
        }
        Some(offset..offset + bytes)
    }

    /// Returns the window that the policy chooses, if all of it may be evicted at once.
    fn chosen_window(
        &mut self,
        tier: TierId,
        bytes: u64,
        fragments: &[Fragment],
        uses: &[Option<Position>],
        request: RoomRequest,
    ) -> Option<Range<usize>> {
        let waits = match request.urgency {
            Urgency::Urgent => self.waits(tier, fragments),
            Urgency::Idle | Urgency::Ranked => HashMap::new(),
        };
        let mut candidates = Candidates::new();
        for (fragment, used) in fragments.iter().zip(uses) {
            let occupant = fragment.owner.map(|owner| {
                let wait = if used.is_some() {
                    Some(0)
                } else {
                    waits.get(&owner).copied()
                };
                self.expected(owner.0, wait)
            });
            candidates.push(fragment.bytes, occupant);
        }
        let window = self.windows.as_mut()?.choose_victims(&candidates, bytes)?;
        (window.p_score == 0).then_some(window.first..window.last)
    }

    /// Returns all that an eviction policy may know of a version in one run.
    fn expected(&self, version: Version, evictable_in: Option<u64>) -> Expected {
        let record = self.records.get(&version);
        let written = record.map_or(0, |record| record.written);
        let distance = self.hints.distance(version);
        Expected {
            evictable_in,
            distance: distance.map_or(Distance::Unhinted, Distance::At),
            written,
            used: record.and_then(|record| record.read).unwrap_or(written),
        }
    }

    /// Returns for each owner the wait until a lower tier has its bytes too, measured in bytes, as waits are only
    /// compared: versions go down in the order of writing. Empty if nothing goes down from `tier` now.
    fn waits(&self, tier: TierId, fragments: &[Fragment]) -> HashMap<ExtentId, u64> {
        let last = self.last();
        let mut dirty = Vec::new();
        let mut goes_down = false;
        for owner in fragments.iter().filter_map(|fragment| fragment.owner) {
            let Some(record) = self.records.get(&owner.0) else {
                continue;
            };
            let extent = record.index_of(owner.1).map(|at| &record.extents[at]);
            let state = extent.map(|extent| extent.write_back(tier, last, record.unreadable));
            goes_down |= state == Some(WriteBack::InFlight);
            if matches!(state, Some(WriteBack::InFlight | WriteBack::Queued)) {
                dirty.push((record.written, owner, extent.map_or(0, |extent| extent.len)));
            }
        }
        dirty.retain(|_| goes_down);
        dirty.sort_unstable();
        let mut wait = 0;
        let waits = dirty.into_iter().map(|(_, owner, bytes)| {
            wait += bytes;
            (owner, wait)
        });
        waits.collect()
    }

    /// Returns the next use of a fragment that may be given up; `LAST` for a gap, `None` for a fragment that has to
    /// stay.
    fn use_of(
        &self,
        tier: TierId,
        fragment: &Fragment,
        request: RoomRequest,
        outlook: &Outlook,
    ) -> Option<Position> {
        let Some(owner) = fragment.owner else {
            return Some(Position::LAST);
        };
        let extent = self.extent(owner)?;
        let is_idle = extent.on(tier).is_some_and(Replica::is_idle);
        let position = self.position(owner.0);
        let point = Point {
            position,
            byte: owner.1,
        };
        let is_outside = outlook.target(point) > tier;
        let may_go = match request.urgency {
            Urgency::Idle => is_outside,
            Urgency::Ranked => position > request.position || is_outside,
            Urgency::Urgent => true,
        };
        (is_idle && extent.is_sound_below(tier) && may_go).then_some(position)
    }
}

/// Returns the shortest window of at least `bytes` in which all fragments may go and whose soonest use is the latest.
fn latest_window(
    fragments: &[Fragment],
    uses: &[Option<Position>],
    bytes: u64,
) -> Option<Range<usize>> {
    let mut best: Option<(Position, Range<usize>)> = None;
    // Indices of the window in ascending order of use: the front is used soonest.
    let mut soonest: VecDeque<usize> = VecDeque::new();
    let (mut first, mut span) = (0, 0);
    for (at, (fragment, used)) in fragments.iter().zip(uses).enumerate() {
        let Some(used) = used else {
            (first, span) = (at + 1, 0);
            soonest.clear();
            continue;
        };
        span += fragment.bytes;
        while soonest
            .back()
            .is_some_and(|&back| uses[back] >= Some(*used))
        {
            soonest.pop_back();
        }
        soonest.push_back(at);
        while span - fragments[first].bytes >= bytes {
            span -= fragments[first].bytes;
            first += 1;
        }
        while soonest.front().is_some_and(|&front| front < first) {
            soonest.pop_front();
        }
        let key = soonest.front().and_then(|&front| uses[front]);
        if let Some(key) = key.filter(|_| span >= bytes)
            && best.as_ref().is_none_or(|(so_far, _)| key > *so_far)
        {
            best = Some((key, first..at + 1));
        }
    }
    best.map(|(_, window)| window)
}
