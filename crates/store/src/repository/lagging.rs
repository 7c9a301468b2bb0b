//! Pieces of earlier runs that a later run did not know of because a listing of blobs lagged when it started. The later run
//! continued from an older version, so these pieces do not count beside the pieces that it wrote.
//!
//! The run writes a note when it meets the first such piece, before it writes over it. The note, a [`Truncation`], counts once
//! there is a piece of the run's epoch: a run that ends before it writes a piece changes nothing.

use super::catalog::Catalog;
use super::identity::Identity;
use super::record::Record;
use super::truncate::Truncation;

/// The version from which the run of this process continues, in blobs.
#[derive(Debug, Clone, Copy)]
pub(super) struct OwnTruncation {
    truncation: Truncation,
    is_noted: bool,
    /// True if this run wrote a piece, which fixes its epoch.
    has_begun: bool,
}

impl Catalog {
    /// Takes note of an epoch and a sequence that no other run or record may get.
    pub(super) fn see(&mut self, epoch: u32, sequence: u64) {
        self.seen = (self.seen.0.max(epoch), self.seen.1.max(sequence));
    }

    /// Enters the only record of a blob, as the newest one of its number.
    pub(super) fn count(&mut self, record: &Record) {
        let (epoch, sequence) = record.identity.order();
        self.see(epoch, sequence);
        // A truncation may start to count with the first piece of its epoch.
        let is_first = record.manifest().is_none() && self.epochs.insert(record.identity.epoch);
        match is_first && !self.truncations.is_empty() {
            true => self.sort(),
            false => self.take(record),
        }
    }

    /// Returns true if a noted truncation counts. In blobs, its run must have written a piece.
    pub(super) fn counts(&self, truncation: &Truncation) -> bool {
        !self.is_of_blobs || self.epochs.contains(&truncation.epoch)
    }

    /// Starts a run that writes pieces in this epoch. The run continues from the last version that is known now, or from the
    /// version to which its group [truncated](Self::go_on_from) the history.
    pub(super) fn begin(&mut self, epoch: u32) {
        let chosen = self.begun.filter(|own| !own.has_begun);
        let last = self.pieces.last_key_value().map(|(last, _)| *last);
        let from = match chosen {
            Some(own) => Some(own.truncation.from),
            None => last.map_or(Some(0), |last| last.checked_add(1)),
        };
        let is_known = self
            .begun
            .is_some_and(|own| own.has_begun && own.truncation.epoch >= epoch);
        if let (Some(from), false) = (from, is_known) {
            self.begun = Some(OwnTruncation {
                truncation: Truncation { epoch, from },
                is_noted: false,
                has_begun: true,
            });
        }
    }

    /// Starts a run before a piece of this epoch is copied, like [`begin`](Self::begin), if no piece of the rank has so high an
    /// epoch.
    pub(super) fn begin_if_later(&mut self, epoch: u32) {
        if epoch > self.seen.0 {
            self.begin(epoch);
        }
    }

    /// Lets the run continue from an older version: later pieces of earlier runs do not count any more. No note of this is written
    /// before the run has written a piece.
    pub(super) fn go_on_from(&mut self, truncation: Truncation) {
        self.begun = Some(OwnTruncation {
            truncation,
            is_noted: false,
            has_begun: false,
        });
        self.sort();
    }

    /// Returns true if this run was not offered this piece.
    pub(super) fn was_not_offered(&self, version: u64, identity: &Identity) -> bool {
        let own = self.begun;
        own.is_some_and(|own| own.truncation.hits(version, identity))
    }

    /// Returns true if this run was not offered this piece, and has not written the note of that.
    pub(super) fn is_unnoted(&self, version: u64, identity: &Identity) -> bool {
        let is_noted = self.begun.is_some_and(|own| own.is_noted);
        !is_noted && self.was_not_offered(version, identity)
    }

    /// Moves the truncation past a piece of an earlier run if this run copies the piece here, as the run found the piece elsewhere.
    /// Returns the note that became invalid.
    pub(super) fn bring(&mut self, version: u64, identity: &Identity) -> Option<Truncation> {
        let own = self.begun.as_mut()?;
        let before = own.truncation;
        if !before.hits(version, identity) {
            return None;
        }
        own.truncation.from = version.saturating_add(1);
        std::mem::take(&mut own.is_noted).then_some(before)
    }

    /// Returns the note that this run still has to write.
    pub(super) fn to_note(&self) -> Option<Truncation> {
        let own = self.begun.filter(|own| !own.is_noted);
        own.map(|own| own.truncation)
    }

    /// Enters the note of this run, which replaced the note `before`.
    pub(super) fn note(&mut self, truncation: Truncation, before: Option<Truncation>) {
        let Some(own) = &mut self.begun else {
            return;
        };
        own.is_noted = own.truncation == truncation;
        before.map(|before| self.truncations.remove(&before));
        self.truncations.insert(truncation);
    }
}
