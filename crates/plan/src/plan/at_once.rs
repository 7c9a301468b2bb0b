//! Calls whose copies are over at once: the driver asks for the place, copies, and reports the whole call as one event.

use super::Plan;
use crate::command::Place;
use crate::event::Misuse;
use crate::record::{Extent, Replica};
use crate::{TierId, Version};

impl Plan {
    /// Returns the place for a checkpoint that need not wait: a gap of the fastest tier, if that is memory. The driver may copy the
    /// bytes there and then report [`Event::WrittenAtOnce`](crate::Event::WrittenAtOnce), with no other event in between. `None` if
    /// the checkpoint has to be asked for, as it waits or is refused.
    #[must_use]
    pub fn place_to_write(&self, version: Version, size: u64) -> Option<Place> {
        let ledger = self.ledger();
        let fastest = ledger.tier(TierId::FASTEST);
        if size == 0 || !fastest.config.is_memory() || self.calls.is_any_blocked() {
            return None;
        }
        let reserved = fastest.space.reserved(size);
        let offset = fastest.space.gap(reserved)?;
        self.is_new(version).then_some(Place {
            tier: TierId::FASTEST,
            offset,
            size,
            reserved,
        })
    }

    /// Returns the place of a version that lies in one run on the fastest tier, if that is memory. The driver may copy the bytes out
    /// and then report [`Event::ReadAtOnce`](crate::Event::ReadAtOnce), with no other event in between. `None` if the restore has
    /// to be asked for.
    #[must_use]
    pub fn place_to_read(&self, version: Version) -> Option<Place> {
        let (extent, replica) = self.read_at_once_from(version)?;
        Some(self.ledger().piece(extent, replica).place)
    }

    fn read_at_once_from(&self, version: Version) -> Option<(&Extent, &Replica)> {
        let [extent] = self.ledger().held(version)?.extents.as_slice() else {
            return None;
        };
        let fastest = &self.ledger().tier(TierId::FASTEST).config;
        let replica = extent.replicas.first()?;
        let is_there = replica.tier == TierId::FASTEST && replica.is_sound();
        (is_there && fastest.is_memory()).then_some((extent, replica))
    }

    pub(super) fn written_at_once(&mut self, version: Version, size: u64) -> Result<(), Misuse> {
        let place = self.place_to_write(version, size);
        let place = place.ok_or(Misuse::NotAtOnce(version))?;
        let run = place.offset..place.offset + place.reserved;
        self.begin_checkpoint(size);
        let ledger = self.ledger_mut();
        ledger.insert(version, size, false, false);
        ledger.grant(version, &[(TierId::FASTEST, run)]);
        ledger.counts.tiers[TierId::FASTEST.0].checkpoints += 1;
        ledger.take_in(version);
        Ok(())
    }

    pub(super) fn read_at_once(&mut self, version: Version) -> Result<(), Misuse> {
        let is_there = self.read_at_once_from(version).is_some();
        is_there.then_some(()).ok_or(Misuse::NotAtOnce(version))?;
        self.begin_restore();
        self.begin_reading(version);
        self.consumed(version, &[]);
        Ok(())
    }
}
