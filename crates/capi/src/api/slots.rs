//! Room that is lent to be written, and versions that are lent to be read.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use parking_lot::Mutex;
use tierflow_bind::{OrderAfter, Slot, SlotEnd, Until};
use tierflow_engine::Version;

use super::engine::engine;
use crate::failure::{Failure, status};
use crate::{ffi, handles};

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
        let lent = Slot::produce(core.handle(), version, bytes, Until::default())?;
        let at = pointer(lent.address());
        // SAFETY: the header's contract.
        unsafe { ffi::put(address, at, "address") }?;
        // SAFETY: the header's contract.
        unsafe { ffi::put(slot, 0, "slot") }?;
        // SAFETY: as above.
        unsafe { ffi::put(slot, handles::insert(Mutex::new(lent)), "slot") }
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
        let lent = Slot::consume(core.handle(), version, Until::default())?;
        let at = pointer(lent.address()).cast_const();
        let length = lent.consumed().map_or(0, |slot| slot.len());
        // SAFETY: the header's contract.
        unsafe { ffi::put(address, at, "address") }?;
        // SAFETY: the header's contract.
        unsafe { ffi::put(bytes, length, "bytes") }?;
        // SAFETY: the header's contract.
        unsafe { ffi::put(slot, 0, "slot") }?;
        // SAFETY: as above.
        unsafe { ffi::put(slot, handles::insert(Mutex::new(lent)), "slot") }
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn tf_slot_end(slot: u64, how: c_int, stream: *mut c_void) -> c_int {
    status(|| {
        let how = match how {
            0 => SlotEnd::Cancel,
            1 => SlotEnd::Keep,
            other => return Err(Failure::argument(format!("{other} is no tf_slot_end_how"))),
        };
        let mut lent = handles::take::<Mutex<Slot>>(slot, "tf_slot")?.into_inner();
        let engine = Arc::clone(lent.engine());
        // SAFETY: the header's contract.
        let order = unsafe { engine.behind(stream.addr() as u64) };
        let ended = order.and_then(|order| match order.stream() {
            Some(stream) => lent.end(how, OrderAfter::Stream(stream)),
            None => lent.end(how, OrderAfter::AllWork),
        });
        if ended.is_err() && lent.is_there() {
            handles::put_back(slot, Mutex::new(lent));
        }
        ended
    })
}
