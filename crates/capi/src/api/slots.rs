//! Room that is lent to be written, and versions that are lent to be read.

use std::ffi::{c_int, c_void};
use std::mem::ManuallyDrop;
use std::sync::Arc;

use parking_lot::Mutex;
use tierflow_engine::{ConsumeSlot, ProduceSlot, Version};

use super::engine::engine;
use crate::core::Core;
use crate::failure::{Failure, Outcome, status};
use crate::{ffi, handles};

enum Slot {
    Produced(ProduceSlot<'static>),
    Consumed(ConsumeSlot<'static>),
}

/// A slot and its engine, which goes after it.
struct Lent {
    slot: ManuallyDrop<Mutex<Slot>>,
    core: ManuallyDrop<Arc<Core>>,
}

impl Lent {
    fn of(slot: Slot, core: Arc<Core>) -> Self {
        Self {
            slot: ManuallyDrop::new(Mutex::new(slot)),
            core: ManuallyDrop::new(core),
        }
    }

    /// Ends the loan by `end`, which does not keep the slot.
    fn end<T>(self, end: impl FnOnce(Slot, &Core) -> T) -> T {
        let mut lent = ManuallyDrop::new(self);
        // SAFETY: taken once, as `lent` is not dropped any more.
        let slot = unsafe { ManuallyDrop::take(&mut lent.slot) };
        // SAFETY: as above.
        let core = unsafe { ManuallyDrop::take(&mut lent.core) };
        end(slot.into_inner(), &core)
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        // SAFETY: dropped once; the engine that it borrows is still there.
        unsafe { ManuallyDrop::drop(&mut self.slot) };
        // SAFETY: dropped once.
        unsafe { ManuallyDrop::drop(&mut self.core) };
    }
}

fn pointer(address: u64) -> *mut c_void {
    std::ptr::with_exposed_provenance_mut(address as usize)
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn tf_produce(
    handle: u64,
    version: Version,
    bytes: usize,
    slot: *mut u64,
    address: *mut *mut c_void,
) -> c_int {
    status(|| {
        let core = engine(handle)?;
        let produced = core.engine.produce(version, bytes)?;
        let at = pointer(produced.address());
        // SAFETY: only the lifetime differs: the slot borrows the engine within `core`, which stays where it is and is there
        // until the slot is gone, as `Lent` sees to.
        let produced =
            unsafe { std::mem::transmute::<ProduceSlot<'_>, ProduceSlot<'static>>(produced) };
        let lent = Lent::of(Slot::Produced(produced), core);
        // SAFETY: the header's contract.
        unsafe { ffi::put(address, at, "address") }?;
        // SAFETY: the header's contract.
        unsafe { ffi::put(slot, 0, "slot") }?;
        // SAFETY: as above.
        unsafe { ffi::put(slot, handles::insert(lent), "slot") }
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn tf_consume(
    handle: u64,
    version: Version,
    slot: *mut u64,
    address: *mut *const c_void,
    bytes: *mut usize,
) -> c_int {
    status(|| {
        let core = engine(handle)?;
        let consumed = core.engine.consume(version)?;
        let (at, length) = (pointer(consumed.address()).cast_const(), consumed.len());
        // SAFETY: as in `tf_produce`.
        let consumed =
            unsafe { std::mem::transmute::<ConsumeSlot<'_>, ConsumeSlot<'static>>(consumed) };
        let lent = Lent::of(Slot::Consumed(consumed), core);
        // SAFETY: the header's contract.
        unsafe { ffi::put(address, at, "address") }?;
        // SAFETY: the header's contract.
        unsafe { ffi::put(bytes, length, "bytes") }?;
        // SAFETY: the header's contract.
        unsafe { ffi::put(slot, 0, "slot") }?;
        // SAFETY: as above.
        unsafe { ffi::put(slot, handles::insert(lent), "slot") }
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn tf_slot_end(slot: u64, how: c_int, stream: *mut c_void) -> c_int {
    status(|| {
        let keep = match how {
            0 => false,
            1 => true,
            other => return Err(Failure::argument(format!("{other} is no tf_slot_end_how"))),
        };
        let lent = handles::take::<Lent>(slot, "tf_slot")?;
        let stream = stream.addr() as u64;
        lent.end(|slot, core| {
            let end = || -> Outcome<_> {
                let is_device = core.is_cuda() && !is_on_host(&slot);
                match is_device || stream != 0 {
                    // SAFETY: the header's contract.
                    true => unsafe { core.behind(stream) },
                    false => Ok(None),
                }
            };
            let behind = end()?;
            match (slot, keep, behind.as_deref()) {
                (Slot::Produced(slot), true, None) => slot.commit(),
                (Slot::Produced(slot), true, Some(stream)) => slot.commit_after(stream)?,
                (Slot::Produced(slot), false, _) => drop(slot),
                (Slot::Consumed(slot), true, None) => drop(slot),
                (Slot::Consumed(slot), true, Some(stream)) => slot.finish_after(stream)?,
                (Slot::Consumed(slot), false, _) => slot.give_back(),
            }
            Ok(())
        })
    })
}

fn is_on_host(slot: &Slot) -> bool {
    match slot {
        Slot::Produced(slot) => slot.host_accessible(),
        Slot::Consumed(slot) => slot.host_accessible(),
    }
}
