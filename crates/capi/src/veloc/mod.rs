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
use std::os::unix::ffi::OsStrExt;
use std::sync::{Arc, Once};
use std::time::Duration;

use parking_lot::RwLock;
use tierflow_bind::{Level, PerProcess, at_exit, to_standard_error};

use crate::core::Core;
use crate::failure::{Failure, Outcome, Status, guarded, message};
use crate::ffi::{In, Out, Text};
use crate::group::{Group, RawGroup};
use crate::handles::Handle;
use client::{Client, Context, DEFAULT, Observer, Which};

const SUCCESS: c_int = 0;
const FAILURE: c_int = -1;
/// `VELOC_UNKNOWN`: what there is could not be found out.
const UNKNOWN: c_int = -2;
/// `VELOC_MAX_NAME`: room for a routed path.
pub(crate) const ROUTED: usize = 1024;
/// `VELOC_OBSERVE_CKPT_END`.
pub(crate) const AT_END: c_int = 0;

static CLIENT: PerProcess<RwLock<Option<Arc<Client>>>> = PerProcess::new();

/// The client that `VELOC_Init` made.
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

/// Runs a call. Failures are written to standard error, too, as VELOC's codes do not say what failed.
fn told(name: &str, call: impl FnOnce() -> Outcome<c_int>) -> c_int {
    told_as(name, FAILURE, call)
}

fn told_as(name: &str, failure: c_int, call: impl FnOnce() -> Outcome<c_int>) -> c_int {
    guarded(call).unwrap_or_else(|_| {
        to_standard_error(Level::Error, &format!("{name}: {}", message()));
        failure
    })
}

fn with(name: &str, call: impl FnOnce(&Client) -> Outcome) -> c_int {
    told(name, || call(&*client()?).map(|()| SUCCESS))
}

fn init(file: &str, group: Option<Group>, alone: u32) -> Outcome {
    let mut client = CLIENT.get().write();
    if client.is_none() {
        *client = Some(Arc::new(Client::open(file, group, alone)?));
        // Behind the engine's call at the end of the process, so that it comes first.
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
    // A call of another thread's that opens or ends the client may never return.
    let client = CLIENT.get().try_write_for(Duration::from_secs(1));
    let Some(client) = client.and_then(|mut client| client.take()) else {
        return;
    };
    let _told = told("VELOC_Finalize was not called", || {
        client.end_with_program().map(|()| SUCCESS)
    });
    // Other threads may be in its calls, and the group may be gone.
    std::mem::forget(client);
}

fn named(call: &str, name: Text<'_>, run: impl FnOnce(&Client, &str) -> Outcome) -> c_int {
    with(call, |client| run(client, name.read("name")?))
}

#[unsafe(no_mangle)]
extern "C" fn VELOC_Init_single(id: u32, file: Text<'_>) -> c_int {
    told("VELOC_Init_single", || {
        init(file.or_empty("cfg_file")?, None, id).map(|()| SUCCESS)
    })
}

#[unsafe(no_mangle)]
extern "C" fn VELOC_Init_group(group: In<'_, RawGroup>, file: Text<'_>) -> c_int {
    told("VELOC_Init", || {
        let missing = || Failure::argument("the group is null");
        let group = Group::new(&group.read().ok_or_else(missing)?)?;
        init(file.or_empty("cfg_file")?, Some(group), 0).map(|()| SUCCESS)
    })
}

#[unsafe(no_mangle)]
extern "C" fn VELOC_Finalize(_drain: c_int) -> c_int {
    told("VELOC_Finalize", || {
        client()?;
        let missing = || Failure::new(Status::Closed, "VELOC_Init was not called");
        let client = CLIENT.get().write().take().ok_or_else(missing)?;
        let client = Arc::try_unwrap(client).map_err(|client| {
            *CLIENT.get().write() = Some(client);
            Failure::argument("another thread is in a call of VELOC")
        })?;
        client.close().map(|()| SUCCESS)
    })
}

#[unsafe(no_mangle)]
extern "C" fn VELOC_Engine() -> Handle<Core> {
    guarded(|| Ok(client()?.handle)).unwrap_or(Handle::NONE)
}

#[unsafe(no_mangle)]
extern "C" fn VELOC_Mem_protect(id: c_int, at: *mut c_void, count: usize, size: usize) -> c_int {
    let bytes = count.checked_mul(size);
    with("VELOC_Mem_protect", |client| {
        client.protect(DEFAULT, id, at, bytes)
    })
}

#[unsafe(no_mangle)]
extern "C" fn VELOC_Region_protect(
    id: c_int,
    at: *mut c_void,
    count: usize,
    size: usize,
    name: Text<'_>,
) -> c_int {
    let bytes = count.checked_mul(size);
    named("VELOC_Region_protect", name, |client, name| {
        client.protect(name, id, at, bytes)
    })
}

#[unsafe(no_mangle)]
extern "C" fn VELOC_Mem_unprotect(id: c_int) -> c_int {
    with("VELOC_Mem_unprotect", |client| {
        client.unprotect(DEFAULT, id)
    })
}

#[unsafe(no_mangle)]
extern "C" fn VELOC_Region_unprotect(id: c_int, name: Text<'_>) -> c_int {
    named("VELOC_Region_unprotect", name, |client, name| {
        client.unprotect(name, id)
    })
}

#[unsafe(no_mangle)]
extern "C" fn VELOC_Mem_clear() -> c_int {
    with("VELOC_Mem_clear", |client| client.unprotect_all(DEFAULT))
}

#[unsafe(no_mangle)]
extern "C" fn VELOC_Region_clear(name: Text<'_>) -> c_int {
    named("VELOC_Region_clear", name, Client::unprotect_all)
}

#[unsafe(no_mangle)]
extern "C" fn VELOC_Route_file(original: Text<'_>, routed: Out<c_char>) -> c_int {
    with("VELOC_Route_file", |client| {
        let path = client.route(original.read("original")?)?;
        let path = String::from_utf8_lossy(path.as_os_str().as_bytes());
        if path.len() >= ROUTED {
            let text = format!("{path} does not fit into VELOC_MAX_NAME bytes");
            return Err(Failure::argument(text));
        }
        routed.exists("routed")?;
        // Some programs have room for the path alone.
        routed.put_text(path.len() + 1, &path);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn VELOC_Cleanup(name: Text<'_>) -> c_int {
    named("VELOC_Cleanup", name, Client::clean)
}

#[unsafe(no_mangle)]
extern "C" fn VELOC_Checkpoint_begin(name: Text<'_>, version: c_int) -> c_int {
    named("VELOC_Checkpoint_begin", name, |client, name| {
        client.begin(name, version)
    })
}

/// `VELOC_CKPT_*` and `VELOC_RECOVER_*`.
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

#[unsafe(no_mangle)]
extern "C" fn VELOC_Checkpoint_selective(mode: c_int, ids: In<'_, c_int>, count: c_int) -> c_int {
    with("VELOC_Checkpoint_selective", |client| {
        client.take_in(&which(mode, ids, count)?)
    })
}

#[unsafe(no_mangle)]
extern "C" fn VELOC_Checkpoint_mem() -> c_int {
    with("VELOC_Checkpoint_mem", |client| client.take_in(&Which::All))
}

#[unsafe(no_mangle)]
extern "C" fn VELOC_Checkpoint_end(success: c_int) -> c_int {
    with("VELOC_Checkpoint_end", |client| client.end(success != 0))
}

#[unsafe(no_mangle)]
extern "C" fn VELOC_Checkpoint_wait() -> c_int {
    with("VELOC_Checkpoint_wait", Client::wait)
}

#[unsafe(no_mangle)]
extern "C" fn VELOC_Checkpoint_finished() -> c_int {
    told("VELOC_Checkpoint_finished", || {
        Ok(match client()?.is_finished() {
            true => SUCCESS,
            false => FAILURE,
        })
    })
}

#[unsafe(no_mangle)]
extern "C" fn VELOC_Checkpoint(name: Text<'_>, version: c_int) -> c_int {
    named("VELOC_Checkpoint", name, |client, name| {
        let waited = client.wait();
        // Begun nevertheless, as the other ranks begin it.
        client.begin(name, version)?;
        let taken = waited.and_then(|()| client.take_in(&Which::All));
        let ended = client.end(taken.is_ok());
        taken.and(ended)
    })
}

#[unsafe(no_mangle)]
extern "C" fn VELOC_Restart_test(name: Text<'_>, version: c_int) -> c_int {
    VELOC_Restart_test_rank(name, version, -1)
}

#[unsafe(no_mangle)]
extern "C" fn VELOC_Restart_test_rank(name: Text<'_>, version: c_int, rank: c_int) -> c_int {
    told_as("VELOC_Restart_test", UNKNOWN, || {
        let (client, name) = (client()?, name.read("name")?);
        let newest = client.newest(name, version, u32::try_from(rank).ok())?;
        let newest = newest.and_then(|newest| c_int::try_from(newest).ok());
        Ok(newest.unwrap_or(FAILURE))
    })
}

#[unsafe(no_mangle)]
extern "C" fn VELOC_Restart_begin(name: Text<'_>, version: c_int) -> c_int {
    VELOC_Restart_begin_rank(name, version, -1)
}

#[unsafe(no_mangle)]
extern "C" fn VELOC_Restart_begin_rank(name: Text<'_>, version: c_int, rank: c_int) -> c_int {
    named("VELOC_Restart_begin", name, |client, name| {
        client.begin_restart(name, version, u32::try_from(rank).ok())
    })
}

#[unsafe(no_mangle)]
extern "C" fn VELOC_Recover_selective(mode: c_int, ids: In<'_, c_int>, count: c_int) -> c_int {
    with("VELOC_Recover_selective", |client| {
        client.recover(&which(mode, ids, count)?)
    })
}

#[unsafe(no_mangle)]
extern "C" fn VELOC_Recover_mem() -> c_int {
    with("VELOC_Recover_mem", |client| client.recover(&Which::All))
}

#[unsafe(no_mangle)]
extern "C" fn VELOC_Recover_size(id: c_int) -> c_int {
    told("VELOC_Recover_size", || {
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
extern "C" fn VELOC_Restart_end(_success: c_int) -> c_int {
    with("VELOC_Restart_end", Client::end_restart)
}

#[unsafe(no_mangle)]
extern "C" fn VELOC_Restart(name: Text<'_>, version: c_int) -> c_int {
    named("VELOC_Restart", name, |client, name| {
        client.restart(name, version)
    })
}

#[unsafe(no_mangle)]
extern "C" fn VELOC_Prefetch_enqueue(version: c_int) -> c_int {
    with("VELOC_Prefetch_enqueue", |client| client.enqueue(version))
}

#[unsafe(no_mangle)]
extern "C" fn VELOC_Prefetch_start() -> c_int {
    with("VELOC_Prefetch_start", Client::start_prefetches)
}

#[unsafe(no_mangle)]
extern "C" fn VELOC_Recover_size_of(version: c_int, id: c_int) -> i64 {
    let size = || Ok(client()?.size_of(version, id)?.cast_signed());
    guarded(size).unwrap_or_else(|_| {
        to_standard_error(Level::Error, &format!("VELOC_Recover_size: {}", message()));
        -1
    })
}

#[unsafe(no_mangle)]
extern "C" fn VELOC_Restart_version(version: c_int) -> c_int {
    with("VELOC_Restart", |client| {
        client.restart(&client.name_of(version)?, version)
    })
}

#[unsafe(no_mangle)]
extern "C" fn VELOC_Observe(
    kind: c_int,
    observer: Option<Observer>,
    context: *mut c_void,
) -> c_int {
    with("VELOC_Observe", |client| {
        let none = || {
            Failure::argument(format!(
                "{kind} cannot be observed, or the observer is null: pass VELOC_OBSERVE_CKPT_END and a function"
            ))
        };
        let observer = observer.filter(|_| kind == AT_END).ok_or_else(none)?;
        let mut state = client.state.lock();
        state.observers.push((observer, Context(context)));
        Ok(())
    })
}

/// Tells observers that a checkpoint was ended.
fn observe(observers: &[(Observer, Context)], name: &str, version: u64) {
    let name = CString::new(name).unwrap_or_default();
    let version = c_int::try_from(version).unwrap_or(c_int::MAX);
    for (observer, Context(context)) in observers {
        // SAFETY: the application's function, by the contract of `VELOC_Observe`.
        unsafe { observer(*context, name.as_ptr(), version) };
    }
}
