//! The functions that `veloc.h` declares: VELOC's client API, over the same engine.

mod client;
mod closing;
mod config;
mod files;
mod foretold;
mod head;
mod history;
mod housekeeping;
mod keeping;
mod losses;
mod other_groups;
mod restart;
mod writing;

use std::collections::BTreeSet;
use std::ffi::{CString, c_char, c_int, c_void};
use std::sync::{Arc, Once};
use std::time::Duration;

use parking_lot::RwLock;
use tierflow_bind::{Level, PerProcess, at_exit, to_standard_error};

use crate::core::OpenEngine;
use crate::failure::{Failure, Outcome, Status, guarded, message};
use crate::ffi::{In, Out, Text};
use crate::group::{Group, RawGroup};
use crate::handles::Handle;
use client::{Client, Context, DEFAULT, Observer, Which};

const SUCCESS: c_int = 0;
const FAILURE: c_int = -1;
/// `VELOC_UNKNOWN`: an error hides which checkpoints there are.
const UNKNOWN: c_int = -2;
/// `VELOC_MAX_NAME`: the room for a routed path, with its zero.
pub(crate) const ROUTED: usize = 1024;
/// `VELOC_OBSERVE_CKPT_END`.
pub(crate) const AT_END: c_int = 0;

static CLIENT: PerProcess<RwLock<Option<Arc<Client>>>> = PerProcess::new();

/// Returns the client that `VELOC_Init` made.
fn client() -> Outcome<Arc<Client>> {
    if let Some(own) = CLIENT.get().read().clone() {
        return Ok(own);
    }
    let text = match CLIENT.parent() {
        Some(parent) => {
            format!("VELOC_Init was called by process {parent}, of which this one is a fork")
        }
        None => "VELOC_Init was not called".to_owned(),
    };
    Err(Failure::new(Status::Closed, text))
}

/// Runs a call. Writes a failure to standard error, too, as VELOC's codes do not say what failed.
fn told<T>(name: &str, failure: T, call: impl FnOnce() -> Outcome<T>) -> T {
    guarded(call).unwrap_or_else(|_| {
        to_standard_error(Level::Error, &format!("{name}: {}", message()));
        failure
    })
}

fn done(name: &str, call: impl FnOnce() -> Outcome) -> c_int {
    told(name, FAILURE, || call().map(|()| SUCCESS))
}

fn init(file: &str, group: Option<Group>, alone: u32) -> Outcome {
    let mut client = CLIENT.get().write();
    if client.is_none() {
        *client = Some(Arc::new(Client::open(file, group, alone)?));
        // The engine registered its function for the end of the process before. The process calls this one first, as it was registered later.
        static AT_EXIT: Once = Once::new();
        AT_EXIT.call_once(|| {
            if !at_exit(end_of_program) {
                to_standard_error(
                    Level::Error,
                    "call VELOC_Finalize: else what is lost is not named",
                );
            }
        });
    }
    Ok(())
}

/// Ends the client of a program that did not call `VELOC_Finalize`.
extern "C" fn end_of_program() {
    // A call of another thread that opens or ends the client may never return.
    let client = CLIENT.get().try_write_for(Duration::from_secs(1));
    let Some(client) = client.and_then(|mut client| client.take()) else {
        return;
    };
    let _told = done("VELOC_Finalize was not called", || {
        client.end_with_program()
    });
    // The client is not dropped: other threads may be in its calls, and the group may be gone.
    std::mem::forget(client);
}

/// Reads a mode, `VELOC_CKPT_*` or `VELOC_RECOVER_*`, and its ids.
fn which(mode: c_int, ids: In<'_, c_int>, count: c_int) -> Outcome<Which> {
    let count = usize::try_from(count);
    let count = count.map_err(|_| Failure::argument("id_count is less than 0"))?;
    let ids = match mode {
        0 => return Ok(Which::All),
        _ => ids.list(count, "ids")?.iter(),
    };
    let ids: BTreeSet<i64> = ids.map(|id| i64::from(*id)).collect();
    match mode {
        1 => Ok(Which::Some(ids)),
        2 => Ok(Which::Rest(ids)),
        other => Err(Failure::argument(format!(
            "{other} is no mode: see veloc/defs.h"
        ))),
    }
}

/// Exports functions under their names. Each returns one of VELOC's codes. Messages name the function behind `of`, if there is one.
macro_rules! exported {
    ($(fn $name:ident $(of $told:ident)? ($($argument:ident: $kind:ty),*) $body:block)*) => {
        $(#[unsafe(no_mangle)]
        extern "C" fn $name($($argument: $kind),*) -> c_int {
            done([$(stringify!($told),)? stringify!($name)][0], || $body)
        })*
    };
}

exported! {
    fn VELOC_Init_single(id: u32, file: Text<'_>) { init(file.or_empty("cfg_file")?, None, id) }

    fn VELOC_Init_group of VELOC_Init (group: In<'_, RawGroup>, file: Text<'_>) {
        let group = group.read().ok_or_else(|| Failure::argument("the group is null"))?;
        let group = Group::new(&group)?;
        init(file.or_empty("cfg_file")?, Some(group), 0)
    }

    fn VELOC_Finalize(_drain: c_int) {
        client()?;
        let missing = || Failure::new(Status::Closed, "VELOC_Init was not called");
        // The lock is held until the client is taken or back, so that no other thread finds none meanwhile.
        let mut held = CLIENT.get().write();
        let client = held.take().ok_or_else(missing)?;
        let client = Arc::try_unwrap(client).map_err(|client| {
            *held = Some(client);
            Failure::argument("another thread is in a call of VELOC")
        })?;
        drop(held);
        client.close()
    }

    fn VELOC_Mem_protect(id: c_int, at: *mut c_void, count: usize, size: usize) {
        client()?.protect(DEFAULT, id, at, count.checked_mul(size))
    }

    fn VELOC_Region_protect(id: c_int, at: *mut c_void, count: usize, size: usize, name: Text<'_>) {
        client()?.protect(name.read("name")?, id, at, count.checked_mul(size))
    }

    fn VELOC_Mem_unprotect(id: c_int) { client()?.unprotect(DEFAULT, id) }

    fn VELOC_Region_unprotect(id: c_int, name: Text<'_>) { client()?.unprotect(name.read("name")?, id) }

    fn VELOC_Mem_clear() { client()?.unprotect_all(DEFAULT) }

    fn VELOC_Region_clear(name: Text<'_>) { client()?.unprotect_all(name.read("name")?) }

    fn VELOC_Route_file(original: Text<'_>, routed: Out<c_char>) {
        routed.exists("routed")?;
        let path = client()?.route(original.read("original")?)?;
        // Writes the path and a zero only, as some programs have no more room.
        routed.put_text(path.len() + 1, &path);
        Ok(())
    }

    fn VELOC_Cleanup(name: Text<'_>) { client()?.clean(name.read("name")?) }

    fn VELOC_Checkpoint_begin(name: Text<'_>, version: c_int) { client()?.begin(name.read("name")?, version) }

    fn VELOC_Checkpoint_selective(mode: c_int, ids: In<'_, c_int>, count: c_int) {
        client()?.take_in(&which(mode, ids, count)?)
    }

    fn VELOC_Checkpoint_mem() { client()?.take_in(&Which::All) }

    fn VELOC_Checkpoint_end(success: c_int) { client()?.end(success != 0) }

    fn VELOC_Checkpoint_wait() { client()?.wait() }

    fn VELOC_Checkpoint(name: Text<'_>, version: c_int) {
        let client = client()?;
        let (name, waited) = (name.read("name")?, client.wait());
        // The checkpoint begins even if the wait failed, as the other ranks begin it.
        client.begin(name, version)?;
        let taken = waited.and_then(|()| client.take_in(&Which::All));
        let ended = client.end(taken.is_ok());
        taken.and(ended)
    }

    fn VELOC_Restart_begin(name: Text<'_>, version: c_int) {
        client()?.begin_restart(name.read("name")?, version, None)
    }

    fn VELOC_Restart_begin_rank of VELOC_Restart_begin (name: Text<'_>, version: c_int, rank: c_int) {
        client()?.begin_restart(name.read("name")?, version, u32::try_from(rank).ok())
    }

    fn VELOC_Recover_selective(mode: c_int, ids: In<'_, c_int>, count: c_int) {
        client()?.recover(&which(mode, ids, count)?)
    }

    fn VELOC_Recover_mem() { client()?.recover(&Which::All) }

    fn VELOC_Restart_end(_success: c_int) { client()?.end_restart() }

    fn VELOC_Restart(name: Text<'_>, version: c_int) { client()?.restart(name.read("name")?, version) }

    fn VELOC_Restart_version of VELOC_Restart (version: c_int) {
        let client = client()?;
        client.restart(&client.name_of(version)?, version)
    }

    fn VELOC_Prefetch_enqueue(version: c_int) { client()?.enqueue(version) }

    fn VELOC_Prefetch_start() { client()?.start_prefetches() }

    fn VELOC_Observe(kind: c_int, observer: Option<Observer>, context: *mut c_void) {
        let client = client()?;
        let none = || Failure::argument(format!(
            "{kind} cannot be observed, or the observer is null: pass VELOC_OBSERVE_CKPT_END and a function"
        ));
        let observer = observer.filter(|_| kind == AT_END).ok_or_else(none)?;
        client.state.lock().observers.push((observer, Context(context)));
        Ok(())
    }
}

#[unsafe(no_mangle)]
extern "C" fn VELOC_Engine() -> Handle<OpenEngine> {
    guarded(|| Ok(client()?.handle)).unwrap_or(Handle::NONE)
}

#[unsafe(no_mangle)]
extern "C" fn VELOC_Checkpoint_finished() -> c_int {
    told("VELOC_Checkpoint_finished", FAILURE, || {
        Ok(match client()?.is_finished() {
            true => SUCCESS,
            false => FAILURE,
        })
    })
}

#[unsafe(no_mangle)]
extern "C" fn VELOC_Restart_test(name: Text<'_>, version: c_int) -> c_int {
    VELOC_Restart_test_rank(name, version, -1)
}

#[unsafe(no_mangle)]
extern "C" fn VELOC_Restart_test_rank(name: Text<'_>, version: c_int, rank: c_int) -> c_int {
    told("VELOC_Restart_test", UNKNOWN, || {
        let rank = u32::try_from(rank).ok();
        let newest = client()?.newest(name.read("name")?, version, rank)?;
        let newest = newest.and_then(|newest| c_int::try_from(newest).ok());
        Ok(newest.unwrap_or(FAILURE))
    })
}

#[unsafe(no_mangle)]
extern "C" fn VELOC_Recover_size(id: c_int) -> c_int {
    told("VELOC_Recover_size", FAILURE, || {
        let bytes = client()?.recover_size(id)?;
        let large = format!("region {id} has {bytes} bytes: call VELOC_Recover_bytes");
        c_int::try_from(bytes).map_err(|_| Failure::argument(large))
    })
}

#[unsafe(no_mangle)]
extern "C" fn VELOC_Recover_bytes(id: c_int) -> i64 {
    guarded(|| Ok(client()?.recover_size(id)?.cast_signed())).unwrap_or(-1)
}

#[unsafe(no_mangle)]
extern "C" fn VELOC_Recover_size_of(version: c_int, id: c_int) -> i64 {
    told("VELOC_Recover_size", -1, || {
        Ok(client()?.size_of(version, id)?.cast_signed())
    })
}

/// Calls the observers after the end of a checkpoint.
fn observe(observers: &[(Observer, Context)], name: &str, version: u64) {
    let name = CString::new(name).unwrap_or_default();
    let version = c_int::try_from(version).unwrap_or(c_int::MAX);
    for (observer, Context(context)) in observers {
        // SAFETY: the application's function, by the contract of `VELOC_Observe`.
        unsafe { observer(*context, name.as_ptr(), version) };
    }
}
