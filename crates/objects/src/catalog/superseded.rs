//! Pieces of earlier runs that a later one was not offered, as the store's list lagged when it began: the later run went on from an
//! older version, so they do not count beside what it wrote.
//!
//! The run notes that when it meets the first such piece, before it writes over it. The note, a [`Truncation`], counts once
//! there is a piece of the run's epoch: a run that ends before it wrote one changes nothing.

use super::Catalog;
use crate::name::Name;
use std::collections::{BTreeMap, BTreeSet};
use tierflow_store::{Identity, Truncation};

/// The notes of runs that were not offered all versions.
#[derive(Debug, Default)]
pub(super) struct Truncations {
    /// The notes that lie in the store, by rank.
    noted: BTreeMap<u32, BTreeSet<Truncation>>,
    /// The one of the run of this process.
    own: Option<Own>,
}

#[derive(Debug, Clone, Copy)]
struct Own {
    rank: u32,
    truncation: Truncation,
    is_noted: bool,
    /// True if this run wrote a piece, so that its epoch is known.
    has_begun: bool,
}

impl Catalog {
    /// Enters a note that lies in the store.
    pub(super) fn add_note(&mut self, rank: u32, truncation: Truncation) {
        // No other run gets its epoch.
        self.see(rank, (truncation.epoch, 0));
        let noted = self.truncations.noted.entry(rank).or_default();
        noted.insert(truncation);
    }

    /// A run begins to write pieces of a rank, in this epoch: it goes on from the last version that is known now, or from the one
    /// to which its group [truncated](Self::truncate) the history.
    pub(crate) fn begin(&mut self, rank: u32, epoch: u32) {
        let chosen = self.truncations.own.filter(|own| !own.has_begun);
        let last = self.pieces(rank).last().map(|piece| piece.version);
        let from = match chosen {
            Some(own) => Some(own.truncation.from),
            None => last.map_or(Some(0), |last| last.checked_add(1)),
        };
        let is_known = self
            .truncations
            .own
            .is_some_and(|own| own.has_begun && own.truncation.epoch >= epoch);
        if let (Some(from), false) = (from, is_known) {
            self.truncations.own = Some(Own {
                rank,
                truncation: Truncation { epoch, from },
                is_noted: false,
                has_begun: true,
            });
        }
    }

    /// A piece of this epoch is copied: [begins](Self::begin) a run if no piece of the rank has so high an epoch.
    pub(crate) fn begin_if_later(&mut self, rank: u32, epoch: u32) {
        if epoch > self.order(rank).0 {
            self.begin(rank, epoch);
        }
    }

    /// The group goes on from an older version: later pieces of earlier runs do not count. Nothing of it is in the store before
    /// this run has written a piece.
    pub(crate) fn truncate(&mut self, rank: u32, truncation: Truncation) {
        self.truncations.own = Some(Own {
            rank,
            truncation,
            is_noted: false,
            has_begun: false,
        });
        self.supersede();
    }

    /// Returns true if a run that has written a piece gave up this piece of a rank.
    pub(crate) fn gave_up(&self, rank: u32, version: u64, identity: &Identity) -> bool {
        let noted = self.truncations.noted.get(&rank).into_iter().flatten();
        let mut noted = noted.filter(|note| note.hits(version, identity));
        noted.any(|note| self.has_epoch(rank, note.epoch))
    }

    /// Returns true if this run was not offered this piece of its rank.
    pub(crate) fn is_superseded(&self, version: u64, identity: &Identity) -> bool {
        let own = self.truncations.own;
        own.is_some_and(|own| own.truncation.hits(version, identity))
    }

    /// Moves the truncation behind a piece of an earlier run that this run brings, as it was offered the piece elsewhere. Returns
    /// the note that does not hold any more.
    pub(crate) fn bring(&mut self, version: u64, identity: &Identity) -> Option<Truncation> {
        let own = self.truncations.own.as_mut()?;
        let before = own.truncation;
        if !before.hits(version, identity) {
            return None;
        }
        own.truncation.from = version.saturating_add(1);
        std::mem::take(&mut own.is_noted).then_some(before)
    }

    /// The note that this run has yet to write.
    pub(crate) fn to_note(&self) -> Option<Truncation> {
        let own = self.truncations.own.filter(|own| !own.is_noted);
        own.map(|own| own.truncation)
    }

    /// Enters the note of this run, which was written in the place of `before`.
    pub(crate) fn note(&mut self, truncation: Truncation, before: Option<Truncation>) {
        let Some(own) = &mut self.truncations.own else {
            return;
        };
        own.is_noted = own.truncation == truncation;
        let rank = own.rank;
        let noted = self.truncations.noted.entry(rank).or_default();
        before.map(|before| noted.remove(&before));
        noted.insert(truncation);
    }

    /// Sets aside the pieces that do not count.
    pub(super) fn supersede(&mut self) {
        let Truncations { noted, own } = &self.truncations;
        let own = own.map(|own| (own.rank, own.truncation));
        let noted = noted.iter();
        let mut all: Vec<(u32, Truncation)> = noted
            .flat_map(|(rank, notes)| notes.iter().map(|note| (*rank, *note)))
            .filter(|(rank, note)| self.has_epoch(*rank, note.epoch))
            .collect();
        all.extend(own);
        for (name, entry) in std::mem::take(&mut self.superseded) {
            self.replace(name, entry);
        }
        for (rank, truncation) in all {
            let behind = self.entries.range(Name::piece(truncation.from, 0)..);
            let own = behind.filter(|(name, _)| name.rank == rank);
            let hit = own.filter(|(name, entry)| {
                let identity = entry.content.identity();
                identity.is_some_and(|identity| truncation.hits(name.version, &identity))
            });
            let hit: Vec<Name> = hit.map(|(name, _)| *name).collect();
            for name in hit {
                if let Some(entry) = self.entries.remove(&name) {
                    self.indexes.remove_live(entry.index);
                    self.superseded.insert(name, entry);
                }
            }
        }
    }

    fn has_epoch(&self, rank: u32, epoch: u32) -> bool {
        let mut pieces = self.pieces(rank).into_iter();
        pieces.any(|piece| piece.identity.epoch == epoch)
    }

    /// Returns true if there are pieces that do not count.
    pub(crate) fn has_superseded(&self) -> bool {
        !self.superseded.is_empty()
    }

    /// The pieces that do not count and go with those of these versions: of the same numbers, and of smaller ones.
    pub(crate) fn superseded_up_to(&self, versions: &BTreeSet<u64>) -> impl Iterator<Item = Name> {
        let last = versions.last().copied();
        let names = self.superseded.keys().copied();
        names.filter(move |name| Some(name.version) <= last)
    }
}
