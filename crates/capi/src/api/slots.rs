//! Room that is lent to be written, and versions that are lent to be read.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use parking_lot::Mutex;
use tierflow_bind::{OrderAfter, Slot, SlotEnd, Until};
use tierflow_engine::Version;

use crate::core::Core;
use crate::failure::{Failure, Outcome, status};
use crate::ffi::{self, Out, RawStream};
use crate::handles::{Handle, Named};

type Lent = Mutex<Slot>;

impl Named for Lent {
    const NAME: &'static str = "tf_slot";
}

fn until(seconds: f64) -> Outcome<Until<'static>> {
    Ok(Until::patience(ffi::patience(seconds)?))
}

/// Answers with a slot and where its bytes are; a slot that cannot be answered with is given up.
fn put(lent: Slot, slot: Out<Handle<Lent>>, address: Out<*mut c_void>) -> Outcome {
    let at = std::ptr::with_exposed_provenance_mut(lent.address() as usize);
    address.put(at, "address")?;
    slot.exists("slot")?;
    slot.put(Handle::new(Mutex::new(lent)), "slot")
}

#[unsafe(no_mangle)]
extern "C" fn tf_produce(
    engine: Handle<Core>,
    version: Version,
    bytes: usize,
    slot: Out<Handle<Lent>>,
    address: Out<*mut c_void>,
) -> c_int {
    tf_produce_within(engine, version, bytes, -1.0, slot, address)
}

#[unsafe(no_mangle)]
extern "C" fn tf_produce_within(
    engine: Handle<Core>,
    version: Version,
    bytes: usize,
    seconds: f64,
    slot: Out<Handle<Lent>>,
    address: Out<*mut c_void>,
) -> c_int {
    status(|| {
        let core = engine.get()?;
        let lent = Slot::produce(core.handle(), version, bytes, until(seconds)?)?;
        put(lent, slot, address)
    })
}

#[unsafe(no_mangle)]
extern "C" fn tf_consume(
    engine: Handle<Core>,
    version: Version,
    slot: Out<Handle<Lent>>,
    address: Out<*mut c_void>,
    bytes: Out<usize>,
) -> c_int {
    tf_consume_within(engine, version, -1.0, slot, address, bytes)
}

#[unsafe(no_mangle)]
extern "C" fn tf_consume_within(
    engine: Handle<Core>,
    version: Version,
    seconds: f64,
    slot: Out<Handle<Lent>>,
    address: Out<*mut c_void>,
    bytes: Out<usize>,
) -> c_int {
    status(|| {
        let core = engine.get()?;
        let lent = Slot::consume(core.handle(), version, until(seconds)?)?;
        let length = lent.consumed().map_or(0, |slot| slot.len());
        bytes.put(length, "bytes")?;
        put(lent, slot, address)
    })
}

#[unsafe(no_mangle)]
extern "C" fn tf_slot_end(slot: Handle<Lent>, how: c_int, stream: RawStream) -> c_int {
    status(|| {
        let how = match how {
            0 => SlotEnd::Cancel,
            1 => SlotEnd::Keep,
            other => return Err(Failure::argument(format!("{other} is no tf_slot_end_how"))),
        };
        let mut lent = slot.take()?.into_inner();
        let engine = Arc::clone(lent.engine());
        // SAFETY: the contract of `RawStream`.
        let order = unsafe { engine.behind(stream.handle()) };
        let ended = order.and_then(|order| match order.stream() {
            Some(stream) => lent.end(how, OrderAfter::Stream(stream)),
            None => lent.end(how, OrderAfter::AllWork),
        });
        if ended.is_err() && lent.is_there() {
            slot.put_back(Mutex::new(lent));
        }
        ended
    })
}
