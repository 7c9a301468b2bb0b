//! Copies that cannot be read: the lane that reads notes them, the plan hears of them, and others are read in their place.

use super::core::Shared;
use super::lane::{Failed, Lane};
use super::medium::{Level, medium};
use super::stage::Links;
use crate::plan::{Event, Piece, TierId, TransferFailure};
use crate::{Error, Result, Version};
use tierflow_store::Error as StoreError;

/// Whether what failed is what lies on storage.
fn is_damage(error: &Error) -> bool {
    matches!(
        error,
        Error::Damaged(_)
            | Error::Storage(
                StoreError::Damaged { .. }
                    | StoreError::Read { .. }
                    | StoreError::Altered { .. }
                    | StoreError::NoVersion { .. }
                    | StoreError::Vanished { .. }
                    | StoreError::Panicked { .. }
                    | StoreError::File { .. }
            )
    )
}

impl Lane {
    /// What a tier has of a version could not be read, if that is what the error says.
    pub(super) fn note(&mut self, (version, tier): (Version, TierId), error: &Error) {
        if is_damage(error) {
            self.damaged.push((version, tier));
        }
    }

    /// A version, whose bytes were read, cannot be put together of them. Which one of its chain is damaged is not known: it counts
    /// as the version's own.
    pub(super) fn note_stored(&mut self, (version, place, _): Links<'_>, error: &Error) {
        if matches!(error, Error::Damaged(_)) {
            self.note((version, place.tier), error);
        }
    }

    /// The same of a transfer from these places, of which those in memory are not meant.
    pub(super) fn note_source(
        &mut self,
        tiers: &[Level],
        (version, from): (Version, &[Piece]),
        (end, error): &Failed,
    ) {
        if let (TransferFailure::Source, Some(error)) = (end, error) {
            let stored = from
                .iter()
                .filter(|piece| !medium(tiers, piece).is_memory());
            stored.for_each(|piece| self.note((version, piece.place.tier), error));
        }
    }
}

impl Shared {
    /// The plan hears of what was noted.
    pub(super) fn tell_damage(&self, lane: &mut Lane) {
        for (version, tier) in lane.damaged.drain(..) {
            self.tell(Event::Damaged { version, tier });
        }
    }

    /// Reads a version; where a copy proves to be damaged, again, as long as there are others that are not known to be.
    pub(crate) fn read_sound<T>(
        &self,
        version: Version,
        mut read: impl FnMut() -> Result<T>,
    ) -> Result<T> {
        let mut known = None;
        loop {
            let error = match read() {
                Err(error) if is_damage(&error) => error,
                read => return read,
            };
            let core = self.lock();
            let found: u64 = core
                .plan()
                .statistics()
                .tiers
                .iter()
                .map(|tier| tier.damaged)
                .sum();
            // Each attempt has to find something that was not known before.
            if !core.plan().is_sound(version) || known == Some(found) {
                return Err(error.of_scratch(version));
            }
            known = Some(found);
        }
    }
}
