//! Pieces of earlier runs that a later one was not offered, as a list of blobs lagged when it began: the later run went on from an
//! older version, so they do not count beside what it wrote.
//!
//! The run notes that when it meets the first such piece, before it writes over it. The note, a [`Truncation`], counts once
//! there is a piece of the run's epoch: a run that ends before it wrote one changes nothing.

use super::catalog::Catalog;
use super::identity::Identity;
use super::record::Record;
use super::truncate::Truncation;

/// The version from which the run of this process goes on, in blobs.
#[derive(Debug, Clone, Copy)]
pub(super) struct OwnTruncation {
    truncation: Truncation,
    is_noted: bool,
    /// True if this run wrote a piece, so that its epoch is known.
    has_begun: bool,
}

impl Catalog {
    /// Notes that no other run gets this epoch, and no record this sequence.
    pub(super) fn see(&mut self, epoch: u32, sequence: u64) {
        self.seen = (self.seen.0.max(epoch), self.seen.1.max(sequence));
    }

    /// Enters the one record of a blob, as the last one of its number.
    pub(super) fn count(&mut self, record: &Record) {
        let (epoch, sequence) = record.identity.order();
        self.see(epoch, sequence);
        // A truncation may count from the first piece of its epoch on.
        let is_first = record.manifest().is_none() && self.epochs.insert(record.identity.epoch);
        match is_first && !self.truncations.is_empty() {
            true => self.sort(),
            false => self.take(record),
        }
    }

    /// Returns true if a noted truncation counts: for blobs, if its run has written a piece.
    pub(super) fn counts(&self, truncation: &Truncation) -> bool {
        !self.is_of_blobs || self.epochs.contains(&truncation.epoch)
    }

    /// A run begins to write pieces, in this epoch: it goes on from the last version that is known now, or from the one
    /// to which its group [truncated](Self::go_on_from) the history.
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

    /// A piece of this epoch is copied: [begins](Self::begin) a run if no piece of the rank has so high an epoch.
    pub(super) fn begin_if_later(&mut self, epoch: u32) {
        if epoch > self.seen.0 {
            self.begin(epoch);
        }
    }

    /// The group goes on from an older version: later pieces of earlier runs do not count. Nothing of it is noted before
    /// this run has written a piece.
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

    /// Returns true if this run was not offered this piece, and did not note that.
    pub(super) fn is_unnoted(&self, version: u64, identity: &Identity) -> bool {
        let is_noted = self.begun.is_some_and(|own| own.is_noted);
        !is_noted && self.was_not_offered(version, identity)
    }

    /// Moves the truncation behind a piece of an earlier run that this run brings, as it was offered the piece elsewhere. Returns
    /// the note that does not hold any more.
    pub(super) fn bring(&mut self, version: u64, identity: &Identity) -> Option<Truncation> {
        let own = self.begun.as_mut()?;
        let before = own.truncation;
        if !before.hits(version, identity) {
            return None;
        }
        own.truncation.from = version.saturating_add(1);
        std::mem::take(&mut own.is_noted).then_some(before)
    }

    /// The note that this run has yet to write.
    pub(super) fn to_note(&self) -> Option<Truncation> {
        let own = self.begun.filter(|own| !own.is_noted);
        own.map(|own| own.truncation)
    }

    /// Enters the note of this run, which was written in the place of `before`.
    pub(super) fn note(&mut self, truncation: Truncation, before: Option<Truncation>) {
        let Some(own) = &mut self.begun else {
            return;
        };
        own.is_noted = own.truncation == truncation;
        before.map(|before| self.truncations.remove(&before));
        self.truncations.insert(truncation);
    }
}
