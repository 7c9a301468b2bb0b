//! Work that the application's streams still do on slots that it has given back.
//!
//! Giving a slot back does not wait for the device: the plan goes on, and the thread that touches the bytes next waits
//! for the work that must come first. Until then the bytes stay lent, so that no other thread can come before by mistake.

use super::sync::Mutex;
use crate::plan::{Place, TierId};
use std::ops::Range;
use std::sync::Arc;
use tierflow_device::{Access, Event, ReadLoan};

/// The work under way, on all tiers.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    works: Mutex<Vec<Arc<Work>>>,
}

#[derive(Debug)]
struct Work {
    tier: TierId,
    bytes: Range<u64>,
    access: Access,
    ends: Event,
    /// Given back when the work has ended.
    _loan: ReadLoan,
}

impl Work {
    fn is_over(&self) -> bool {
        // A device that cannot be asked is lost, and nothing runs on it any more.
        self.ends.is_done().unwrap_or(true)
    }

    /// Waits for the end, which a lost device is, too.
    fn wait(&self) {
        let _ = self.ends.synchronize();
    }
}

impl Pending {
    /// The application's work on the bytes at `place` goes on until `ends`; it reads or writes them.
    pub(crate) fn note(&self, place: &Place, access: Access, ends: Event, loan: ReadLoan) {
        let mut works = self.works.lock();
        works.retain(|work| !work.is_over());
        works.push(Arc::new(Work {
            tier: place.tier,
            bytes: bytes(place),
            access,
            ends,
            _loan: loan,
        }));
    }

    /// Waits for all work that must be over before the bytes at `place` are read or written.
    pub(crate) fn settle(&self, place: &Place, access: Access) {
        let wanted = bytes(place);
        let is_before = |work: &Arc<Work>| {
            let conflict = access == Access::Write || work.access == Access::Write;
            let overlaps = work.bytes.start < wanted.end && wanted.start < work.bytes.end;
            work.tier == place.tier && overlaps && conflict
        };
        loop {
            // It stays in the list while it is waited for, so that others wait for it, too.
            let Some(work) = self.works.lock().iter().find(|&w| is_before(w)).cloned() else {
                return;
            };
            work.wait();
            self.works.lock().retain(|other| !Arc::ptr_eq(other, &work));
        }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        for work in self.works.get_mut() {
            work.wait();
        }
    }
}

fn bytes(place: &Place) -> Range<u64> {
    place.offset..place.offset + place.reserved
}
