//! Slots: room that is lent to write a version, and versions that are lent to be read.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use parking_lot::Mutex;
use tierflow_bind::{OrderAfter, Slot, SlotEnd, Until};
use tierflow_engine::Version;

use crate::core::OpenEngine;
use crate::failure::{Failure, Outcome, exported};
use crate::ffi::{self, Out, RawStream};
use crate::handles::{Handle, Named};

type LockedSlot = Mutex<Slot>;

impl Named for LockedSlot {
    const NAME: &'static str = "tf_slot";
}

fn produce(
    engine: Handle<OpenEngine>,
    version: Version,
    bytes: usize,
    seconds: f64,
) -> Outcome<Slot> {
    let until = Until::patience(ffi::patience(seconds)?);
    Ok(Slot::produce(
        engine.get()?.handle(),
        version,
        bytes,
        until,
    )?)
}

fn consume(
    engine: Handle<OpenEngine>,
    version: Version,
    seconds: f64,
    bytes: &Out<usize>,
) -> Outcome<Slot> {
    let until = Until::patience(ffi::patience(seconds)?);
    let lent = Slot::consume(engine.get()?.handle(), version, until)?;
    bytes.put(lent.consumed().map_or(0, |slot| slot.len()), "bytes")?;
    Ok(lent)
}

/// Writes a slot's handle and the address of its bytes to `slot` and `address`. If one of them is null, gives the slot up and fails.
fn put(lent: Slot, slot: &Out<Handle<LockedSlot>>, address: &Out<*mut c_void>) -> Outcome {
    let at = std::ptr::with_exposed_provenance_mut(lent.address() as usize);
    address.put(at, "address")?;
    slot.exists("slot")?;
    slot.put(Handle::new(Mutex::new(lent)), "slot")
}

exported! {
    fn tf_produce(
        engine: Handle<OpenEngine>, version: Version, bytes: usize, slot: Out<Handle<LockedSlot>>, address: Out<*mut c_void>
    ) {
        put(produce(engine, version, bytes, -1.0)?, &slot, &address)
    }

    fn tf_produce_within(
        engine: Handle<OpenEngine>, version: Version, bytes: usize, seconds: f64, slot: Out<Handle<LockedSlot>>, address: Out<*mut c_void>
    ) {
        put(produce(engine, version, bytes, seconds)?, &slot, &address)
    }

    fn tf_consume(
        engine: Handle<OpenEngine>, version: Version, slot: Out<Handle<LockedSlot>>, address: Out<*mut c_void>, bytes: Out<usize>
    ) {
        put(consume(engine, version, -1.0, &bytes)?, &slot, &address)
    }

    fn tf_consume_within(
        engine: Handle<OpenEngine>, version: Version, seconds: f64, slot: Out<Handle<LockedSlot>>, address: Out<*mut c_void>, bytes: Out<usize>
    ) {
        put(consume(engine, version, seconds, &bytes)?, &slot, &address)
    }

    fn tf_slot_end(slot: Handle<LockedSlot>, how: c_int, stream: RawStream) {
        let how = match how {
            0 => SlotEnd::Cancel,
            1 => SlotEnd::Keep,
            2 => {
                drop(slot.take()?);
                return Ok(());
            }
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
    }
}
