//! Copies that cannot be read. The context that reads notes them, the plan is told of them, and the reader takes other copies.

use super::context::{Pieces, TierContext, TransferError};
use super::core::EngineCore;
use super::medium::{TierState, medium};
use super::stage::Links;
use crate::plan::{Event, TierId, TransferFailure};
use crate::{Error, Result, Version};
use tierflow_device::Error as DeviceError;
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

/// Returns true if a device failed for good: what lies in its memory, and what only it copies, cannot be read.
fn is_lost(error: &Error) -> bool {
    matches!(error, Error::Device(DeviceError::Lost { .. }))
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

    /// Notes the pieces in memory that could not be read, if the device failed for good.
    pub(super) fn note_lost(&mut self, tiers: &[TierState], from: Pieces<'_>, error: &Error) {
        if is_lost(error) {
            let Pieces { version, pieces } = from;
            let in_memory = pieces
                .iter()
                .filter(|piece| medium(tiers, piece).is_memory());
            let mut lost: Vec<_> = in_memory.map(|piece| (version, piece.place.tier)).collect();
            // The fastest tier first: while its replicas count as sound, the plan gives slower ones up that count as damaged.
            lost.sort_unstable();
            lost.dedup();
            self.damaged.extend(lost);
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

    /// Reads a version. If a copy proves to be damaged, or lost with a device, reads again as long as there are copies that are not known to be so.
    pub(crate) fn read_sound<T>(
        &self,
        version: Version,
        mut read: impl FnMut() -> Result<T>,
    ) -> Result<T> {
        let mut known = None;
        loop {
            let error = match read() {
                Err(error) if is_damage(&error) || is_lost(&error) => error,
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

#[cfg(all(test, not(shuttle)))]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;
    use crate::{Engine, Region, RegionMut};
    use tierflow_device::{Choice, open};

    #[test]
    fn a_version_is_read_from_the_disk_where_a_device_is_lost() {
        let directory = tempfile::tempdir().unwrap();
        let device = open(Choice::Host).unwrap();
        let engine = Engine::builder(&device)
            .device_cache(1 << 20)
            .host_cache(1 << 20)
            .node_local(directory.path())
            .build()
            .unwrap();
        let bytes = vec![7; 100_000];
        engine.checkpoint(1, &[Region::from(&bytes[..])]).unwrap();
        engine.wait().unwrap();
        let shared = &engine.shared;
        let mut back = vec![0; bytes.len()];
        let mut lost = Vec::new();
        let read = || {
            let tier = TierId(lost.len());
            if tier.0 == 2 {
                return engine.restore(1, &mut [RegionMut::from(&mut back[..])]);
            }
            lost.push(tier);
            let pieces = shared.lock().plan().pieces(1, tier);
            let error = Error::Device(DeviceError::Lost {
                call: "a test",
                reason: String::new(),
            });
            shared.with_context(|context| {
                let from = Pieces {
                    version: 1,
                    pieces: &pieces,
                };
                context.note_lost(&shared.tiers, from, &error);
                Err(error)
            })
        };
        shared.read_sound(1, read).unwrap();
        assert!(back == bytes);
        let restores = engine.metrics().tiers;
        let restores: Vec<_> = restores.iter().map(|tier| tier.restores).collect();
        assert_eq!(restores, [0, 0, 1]);
    }
}
