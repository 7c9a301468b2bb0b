//! What comes up next: each tier holds the beginning of the restore order, as far as it and the tiers above it reach.

use super::event::TierId;
use super::history::Copy;
use super::space::{Found, Urgency};
use super::transfers::Purpose;
use super::{Cause, Plan};
use crate::Version;
use tierflow_lifecycle::Event as Move;

/// How far along the restore order a tier's wants are settled.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Cursor {
    /// Every entry before this sequence number is settled.
    pub(super) at: u64,
    /// Bytes of the settled entries still ahead of the reader.
    pub(super) bytes: u64,
}

/// Where one wanted version stands.
enum Wanted {
    /// It lies on this tier or above, or is on its way there, or never can.
    Settled,
    /// A tier in between fetches it first.
    Later,
    /// No room, or enough prefetches under way.
    Full,
}

impl Plan {
    /// Starts every prefetch that may start. While a caller waits for room, prefetches leave it alone.
    pub(super) fn prefetch_all(&mut self) {
        if self.callers.anyone_blocked() {
            return;
        }
        let mut reach = 0_u64;
        for tier in (0..self.tiers.len().saturating_sub(1)).map(TierId) {
            reach = reach.saturating_add(self.tiers[tier.0].table.limit());
            if self.prefetch_into(tier, reach) {
                self.guess_into(tier);
            }
        }
    }

    /// Walks the restore order from the cursor on, for the versions whose bytes add up to `reach`.
    /// True if nothing more is wanted.
    fn prefetch_into(&mut self, tier: TierId, reach: u64) -> bool {
        let mut satisfied = true;
        let mut cursor = self.tiers[tier.0].cursor;
        cursor.at = cursor.at.max(self.order.head());
        let (mut at, mut bytes) = (cursor.at, cursor.bytes);
        while at < self.order.end() {
            let contiguous = at == cursor.at;
            let settled = match self.order.at(at) {
                // A hole.
                None => true,
                Some(version) => {
                    let (size, written) = self.expected_size(version);
                    bytes = bytes.saturating_add(size);
                    if bytes > reach {
                        satisfied = false;
                        break;
                    }
                    // What is to be written yet will be read before all that stands behind it, so its room is spoken
                    // for; its write brings the walk back here.
                    match if written {
                        self.want(version, tier)
                    } else {
                        Wanted::Settled
                    } {
                        Wanted::Settled => true,
                        Wanted::Later => {
                            satisfied = false;
                            false
                        }
                        Wanted::Full => {
                            satisfied = false;
                            break;
                        }
                    }
                }
            };
            at += 1;
            if contiguous && settled {
                cursor = Cursor { at, bytes };
            }
        }
        self.tiers[tier.0].cursor = cursor;
        satisfied
    }

    /// Bytes of a hinted version and whether it can be read yet. One that was not even begun is taken to be as large as
    /// the last one that was.
    fn expected_size(&self, version: Version) -> (u64, bool) {
        let record = self.records.get(&version).filter(|r| !r.doomed);
        record.map_or((self.last_size, false), |r| (r.size, r.fastest().is_some()))
    }

    fn want(&mut self, version: Version, tier: TierId) -> Wanted {
        let Some(record) = self.records.get(&version) else {
            return Wanted::Settled;
        };
        let near = &record.copies[..=tier.0];
        if let Some(nearest) = near.iter().position(Option::is_some) {
            self.pin(version, TierId(nearest));
            return Wanted::Settled;
        }
        let Some(source) = record.fastest() else {
            return Wanted::Settled;
        };
        let unreadable = record.unreadable;
        let size = self.room_on(version, tier);
        if unreadable || !self.fits(tier, size) {
            return Wanted::Settled;
        }
        let mut between = (tier.0 + 1..source.0).map(TierId);
        if between.any(|between| self.fits(between, self.room_on(version, between))) {
            return Wanted::Later;
        }
        if self.tiers[tier.0].prefetching >= self.tiers[tier.0].prefetch_depth {
            return Wanted::Full;
        }
        match self.claim(tier, version, size, (Urgency::Patient, Cause::Prefetch)) {
            Found::At(to) => {
                self.start(Purpose::Prefetch, version, source, to);
                Wanted::Settled
            }
            Found::Wait | Found::Never => Wanted::Full,
        }
    }

    /// A copy will be read next: it stays until then, if it is there.
    fn pin(&mut self, version: Version, tier: TierId) {
        let is_loose = |copy: &Copy| copy.is_readable() && !copy.is_pinned();
        let copy = self.records.get(&version).and_then(|r| r.copy(tier));
        // Most are pinned already: looking is not changing.
        if copy.is_some_and(is_loose)
            && let Some(record) = self.records.get_mut(&version)
            && let Some(copy) = record.copy_mut(tier)
        {
            advance(&mut copy.state, Move::Pinned);
        }
    }

    /// The entry at `sequence` was read, and was `size` bytes.
    pub(super) fn settle(&mut self, sequence: u64, size: u64) {
        for tier in &mut self.tiers {
            if sequence < tier.cursor.at {
                tier.cursor.bytes = tier.cursor.bytes.saturating_sub(size);
            }
        }
    }

    /// Something that was settled may not be any more: every tier looks again from the head on.
    pub(super) fn rewind(&mut self) {
        for tier in &mut self.tiers {
            tier.cursor = Cursor::default();
        }
    }
}

/// Moves a state that the caller has just looked at. The plan only asks for moves that the life cycle allows; should
/// it ever not, the copy stays as it is, which is always safe, and [`Plan::check`] reports it.
pub(super) fn advance(state: &mut tierflow_lifecycle::State, event: Move) {
    let moved = state.on(event);
    debug_assert!(moved.is_ok(), "{moved:?}");
    if let Ok(next) = moved {
        *state = next;
    }
}
