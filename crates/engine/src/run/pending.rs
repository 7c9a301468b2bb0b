//! Work that the application's streams still do on slots that it has given back. A slot is memory of a cache that is written or read in
//! place. Plain checkpoints and restores leave no such work: they return when their bytes are copied.
//!
//! Giving a slot back does not wait for the device: the plan goes on, and the thread that touches the bytes next waits
//! for the work that must come first. Until then the bytes stay lent, so that no other thread can come before by mistake.

use crate::blocked::{Cause, spend_on};
use crate::plan::{Place, TierId};
use std::ops::Range;
use std::sync::Arc;
use tierflow_device::{Access, Event, ReadLoan};
use tierflow_sync::model::{AtomicUsize, Mutex, Ordering};
use tierflow_sync::rank;

/// The work under way, on all tiers.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    /// Number of works. Mostly there are none, and then no lock is taken.
    count: AtomicUsize,
    works: Mutex<Vec<Arc<Work>>, { rank::LIST }>,
}

#[derive(Debug)]
struct Work {
    tier: TierId,
    bytes: Range<u64>,
    access: Access,
    ends: Event,
    /// The loan of the bytes. The first thread that sees the end of the work gives it back.
    loan: Mutex<Option<ReadLoan>>,
}

impl Work {
    /// Returns true if the work has ended, and the bytes are given back.
    fn is_over(&self) -> bool {
        // A device that cannot be asked is lost, and nothing runs on it any more. The capture of a graph does not keep a device from
        // answering.
        let is_over = self.ends.is_done().unwrap_or(true);
        if is_over {
            self.give_back();
        }
        is_over
    }

    /// Waits until the work has ended, as it has on a lost device, and the bytes are given back.
    fn wait(&self) {
        let _ = self.ends.synchronize();
        self.give_back();
    }

    /// Gives the bytes back. Several threads may wait for one work: all of them find the bytes free when this returns.
    fn give_back(&self) {
        let mut loan = self.loan.lock();
        drop(loan.take());
    }
}

impl Pending {
    /// Notes that the application's work reads or writes the bytes at `place` until `ends`. The bytes stay lent until then.
    pub(crate) fn note(&self, place: &Place, access: Access, ends: Event, loan: ReadLoan) {
        let mut works = self.works.lock();
        works.retain(|work| !work.is_over());
        works.push(Arc::new(Work {
            tier: place.tier,
            bytes: bytes(place),
            access,
            ends,
            loan: Mutex::new(Some(loan)),
        }));
        // A thread hears of the version from the plan, which is told of it after this.
        self.count.store(works.len(), Ordering::Release);
    }

    /// Waits for all work that must be over before the bytes at `place` are read or written.
    pub(crate) fn settle(&self, place: &Place, access: Access) {
        // The work stays in the list while this thread waits for it, so that others wait for it, too.
        while let Some(work) = self.before(place, access) {
            spend_on(Cause::Stream, || work.wait());
            self.forget(&work);
        }
    }

    /// Settles work that is over already. Returns true if none is left that must be over before the bytes at `place` are read or written.
    pub(super) fn is_settled(&self, place: &Place, access: Access) -> bool {
        while let Some(work) = self.before(place, access) {
            if !work.is_over() {
                return false;
            }
            self.forget(&work);
        }
        true
    }

    fn forget(&self, work: &Arc<Work>) {
        let mut works = self.works.lock();
        works.retain(|other| !Arc::ptr_eq(other, work));
        self.count.store(works.len(), Ordering::Release);
    }

    /// Returns true if some work must be over before the bytes at `place` are read or written.
    pub(super) fn is_any_before(&self, place: &Place, access: Access) -> bool {
        self.before(place, access).is_some()
    }

    /// Returns some work that must be over before the bytes at `place` are read or written.
    fn before(&self, place: &Place, access: Access) -> Option<Arc<Work>> {
        if self.count.load(Ordering::Acquire) == 0 {
            return None;
        }
        let wanted = bytes(place);
        let is_before = |work: &&Arc<Work>| {
            let conflict = access == Access::Write || work.access == Access::Write;
            let overlaps = work.bytes.start < wanted.end && wanted.start < work.bytes.end;
            work.tier == place.tier && overlaps && conflict
        };
        self.works.lock().iter().find(is_before).cloned()
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

#[cfg(all(test, not(shuttle)))]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;
    use std::time::Duration;
    use tierflow_device::host;

    /// Two prefetches go to the room of one slot that a stream still reads. The thread that saw the end later had the bytes lent a moment
    /// longer, and the other was refused them.
    #[test]
    fn all_who_waited_for_a_work_find_its_bytes_free() {
        const THREADS: usize = 4;
        let device = host::open(host::Options::default()).unwrap();
        let memory = device.alloc(THREADS).unwrap();
        let (stream, ends) = host::late_stream(&device).unwrap();
        let place = |offset: usize, bytes: usize| Place {
            tier: TierId(0),
            offset: offset as u64,
            size: bytes as u64,
            reserved: bytes as u64,
        };
        for _ in 0..200 {
            let pending = Pending::default();
            let loan = memory.lend(0..THREADS).unwrap();
            let event = stream.record().unwrap();
            pending.note(&place(0, THREADS), Access::Read, event, loan);
            std::thread::scope(|scope| {
                for at in 0..THREADS {
                    let (pending, memory) = (&pending, &memory);
                    scope.spawn(move || {
                        pending.settle(&place(at, 1), Access::Write);
                        memory.lend_mut(at..at + 1).map(drop).unwrap();
                    });
                }
                std::thread::sleep(Duration::from_micros(200));
                assert!(ends.reach_next());
            });
        }
    }
}
