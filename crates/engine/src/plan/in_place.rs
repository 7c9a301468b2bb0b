//! Slots in the cache itself: lent to be written, lent to be read.
//!
//! A slot is held for as long as the application likes, perhaps by a thread that asks for something else meanwhile. So
//! nobody ever waits for one to be given back: to whoever is blocked, what is lent counts as held, and a version that
//! is being produced is not there yet.

use super::event::{Refusal, Ticket, TierId};
use super::space::{Found, Urgency};
use super::transfers::Purpose;
use super::{Cause, Plan};
use crate::Version;

/// Where slots lie.
pub(crate) const FASTEST: TierId = TierId(0);

impl Plan {
    pub(super) fn produce(&mut self, ticket: Ticket, version: Version, size: u64) {
        let Some(fastest) = self.tiers.first() else {
            return self.finish(ticket, Err(Refusal::NoRoom));
        };
        let largest = fastest.table.capacity();
        if self.absence(version) == Refusal::Unknown && fastest.table.reserved(size) > largest {
            return self.finish(ticket, Err(Refusal::TooLarge { largest }));
        }
        self.callers.lent.insert(ticket);
        self.checkpoint(ticket, version, size);
    }

    pub(super) fn consume(&mut self, ticket: Ticket, version: Version) {
        self.callers.lent.insert(ticket);
        self.restore(ticket, version);
    }

    /// Starts to fetch a version that is to be read in place to the fastest tier. False if it is there or on its way
    /// already, or if there is no room: then it is read from where it lies.
    pub(super) fn fetch_to_lend(&mut self, version: Version) -> bool {
        let Some(record) = self.records.get(&version) else {
            return false;
        };
        if record.copy(FASTEST).is_some() || record.unreadable || !self.fits(FASTEST, record.size) {
            return false;
        }
        let (size, Some(source)) = (record.size, record.fastest()) else {
            return false;
        };
        for urgency in [Urgency::Patient, Urgency::Urgent] {
            if let Found::At(to) = self.claim(FASTEST, version, size, (urgency, Cause::Prefetch)) {
                self.start(Purpose::Prefetch, version, source, to);
                return true;
            }
        }
        false
    }
}
