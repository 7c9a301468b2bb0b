//! Options, and engines that are opened and closed.

use std::ffi::{c_char, c_int};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tierflow_bind::Until;

use crate::core::Core;
use crate::failure::{Failure, Outcome, status};
use crate::group::{Group, RawGroup};
use crate::options::Options;
use crate::{ffi, handles};

type Shared = Mutex<Options>;

#[unsafe(no_mangle)]
pub(crate) extern "C" fn tf_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn tf_options_new(options: *mut u64) -> c_int {
    status(|| {
        let handle = handles::insert(Shared::default());
        // SAFETY: the header's contract.
        unsafe { ffi::put(options, handle, "options") }
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn tf_options_set(
    options: u64,
    key: *const c_char,
    value: *const c_char,
) -> c_int {
    status(|| {
        let options = handles::get::<Shared>(options, "tf_options")?;
        // SAFETY: the header's contract.
        let key = unsafe { ffi::text(key, "key") }?;
        // SAFETY: the header's contract.
        let value = unsafe { ffi::text(value, "value") }?;
        let unknown = || Err(Failure::argument(format!("no option is called {key:?}")));
        options.lock().set(key, value).unwrap_or_else(unknown)
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn tf_options_free(options: u64) -> c_int {
    status(|| handles::take::<Shared>(options, "tf_options").map(drop))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn tf_open(
    options: u64,
    group: *const RawGroup,
    engine: *mut u64,
) -> c_int {
    status(|| {
        let options = handles::get::<Shared>(options, "tf_options")?;
        let options = options.lock().clone();
        // SAFETY: the header's contract.
        let group = unsafe { ffi::read(group) };
        let group = group.as_ref().map(Group::new).transpose()?;
        if engine.is_null() {
            return Err(Failure::argument("engine is null"));
        }
        let handle = handles::insert(Core::open(&options, group.map(Arc::new))?);
        // SAFETY: the header's contract.
        unsafe { ffi::put(engine, handle, "engine") }
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn tf_close(engine: u64) -> c_int {
    status(|| {
        let core: Core = handles::take(engine, "tf_engine")?;
        let until = Until::patience(core.closing_patience());
        let closed = core.lends_nothing().and_then(|()| Ok(core.close(until)?));
        match closed {
            Ok(()) => close(core),
            Err(failure) => {
                handles::put_back(engine, core);
                Err(failure)
            }
        }
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn tf_end(engine: u64) -> c_int {
    status(|| {
        let core: Core = handles::take(engine, "tf_engine")?;
        if let Err(failure) = core.lends_nothing() {
            handles::put_back(engine, core);
            return Err(failure);
        }
        core.end(Duration::ZERO)
    })
}

/// Ends an engine once what it took in is durable, if that outlives it; what is lost is named.
pub(crate) fn close(core: Core) -> Outcome {
    let patience = core.closing_patience();
    core.end(patience)
}
