//! Room that is lent to be written, and versions that are lent to be read.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use parking_lot::Mutex;
use tierflow_engine::{ConsumeSlot, ProduceSlot, Version};

use super::engine::engine;
use crate::core::Core;
use crate::failure::{Failure, status};
use crate::{ffi, handles};

enum Slot {
    Produced(ProduceSlot<'static>),
    Consumed(ConsumeSlot<'static>),
}

/// A slot and its engine.
struct Lent {
    slot: Mutex<Slot>,
    core: Arc<Core>,
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
        let slot_of = Slot::Produced(produced.owned(Arc::clone(&core))?);
        let lent = Lent {
            slot: Mutex::new(slot_of),
            core: Arc::clone(&core),
        };
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
        let slot_of = Slot::Consumed(consumed.owned(Arc::clone(&core))?);
        let lent = Lent {
            slot: Mutex::new(slot_of),
            core: Arc::clone(&core),
        };
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
        let (slot, core) = (lent.slot.into_inner(), lent.core);
        let is_device = core.is_cuda() && !is_on_host(&slot);
        let behind = match is_device || stream != 0 {
            // SAFETY: the header's contract.
            true => unsafe { core.behind(stream) }?,
            false => None,
        };
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
}

fn is_on_host(slot: &Slot) -> bool {
    match slot {
        Slot::Produced(slot) => slot.host_accessible(),
        Slot::Consumed(slot) => slot.host_accessible(),
    }
}
