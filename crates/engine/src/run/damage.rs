//! Copies that cannot be read. The context that reads notes them, the plan is told of them, and the reader takes other copies.

use super::context::{Pieces, TierContext, TransferError};
use super::core::EngineCore;
use super::medium::{TierState, medium};
use super::stage::Links;
use crate::plan::{Event, TierId, TransferFailure};
use crate::{Error, Result, Version};
use tierflow_store::Error as StoreError;

/// Returns true if the bytes on storage are at fault, and not a passing lack of descriptors, memory or time.
fn is_damage(error: &Error) -> bool {
    match error {
        Error::Damaged(_) => true,
        Error::Storage(
            error @ (StoreError::Damaged { .. }
            | StoreError::Read { .. }
            | StoreError::Altered { .. }
            | StoreError::NoVersion { .. }
            | StoreError::Vanished { .. }
            | StoreError::Panicked { .. }
            | StoreError::File { .. }),
        ) => !error.is_passing(),
        _ => false,
    }
}

impl TierContext {
    /// Notes that a tier's copy of a version could not be read, if the error says so.
    pub(super) fn note(&mut self, version: Version, tier: TierId, error: &Error) {
        if is_damage(error) {
            self.damaged.push((version, tier));
        }
    }

    /// Notes that a version cannot be decoded from the bytes that were read. The damaged version of its chain is not known, so the damage
    /// counts as the version's own.
    pub(super) fn note_stored(&mut self, (version, place, _): Links<'_>, error: &Error) {
        if matches!(error, Error::Damaged(_)) {
            self.note(version, place.tier, error);
        }
    }

    /// Notes the failed source of a transfer from these pieces; memory is never at fault.
    pub(super) fn note_source(
        &mut self,
        tiers: &[TierState],
        from: Pieces<'_>,
        failed: &TransferError,
    ) {
        if let (TransferFailure::Source, Some(error)) = (failed.end, &failed.error) {
            let Pieces { version, pieces } = from;
            let stored = pieces
                .iter()
                .filter(|piece| !medium(tiers, piece).is_memory());
            stored.for_each(|piece| self.note(version, piece.place.tier, error));
        }
    }
}

impl EngineCore {
    /// Tells the plan of the damage that was noted.
    pub(super) fn tell_damage(&self, context: &mut TierContext) {
        for (version, tier) in context.damaged.drain(..) {
            self.tell(Event::Damaged { version, tier });
        }
    }

    /// Reads a version. If a copy proves to be damaged, reads again as long as there are copies that are not known to be damaged.
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
            // Each attempt has to find damage that was not known before.
            if !core.plan().is_sound(version) || known == Some(found) {
                return Err(error.of_scratch(version));
            }
            known = Some(found);
        }
    }
}
