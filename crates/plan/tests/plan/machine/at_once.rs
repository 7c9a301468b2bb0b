//! Calls whose copies end before the plan hears of the calls.

use super::Machine;
use super::hands::Byte;
use tierflow_plan::{AfterRestore, Coding, Event, Piece, Version};

impl Machine {
    /// Takes a checkpoint at once. Returns false if the plan must grant the call.
    pub(crate) fn write_at_once(&mut self, version: Version, size: u64) -> bool {
        let Some(place) = self.plan().place_to_write(version, size) else {
            return false;
        };
        self.unread.remove(&version);
        for (at, byte) in self.hands.span(&place).iter_mut().enumerate() {
            *byte = Some(Byte::Of(version, at as u64));
        }
        self.hands.held.insert(version, size);
        self.tell(Event::WrittenAtOnce { version, size });
        true
    }

    /// Reads a version at once. Returns false if the plan must grant the call.
    pub(crate) fn read_at_once(&mut self, version: Version) -> bool {
        let Some(place) = self.plan().place_to_read(version) else {
            return false;
        };
        self.unread.remove(&version);
        let piece = Piece { start: 0, place };
        self.hands.assert_holds(version, &[piece], &Coding::Plain);
        if self.hands.after == AfterRestore::Discard {
            self.hands.forget(version);
        }
        self.tell(Event::ReadAtOnce { version });
        true
    }
}
