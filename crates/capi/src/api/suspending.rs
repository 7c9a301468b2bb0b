//! Jobs that are preempted.

use std::ffi::c_int;
use std::time::{Duration, Instant};

use tierflow_engine::{Awaited, Error, Notice, Version};

use super::engine::engine;
use crate::failure::{Failure, Outcome, status};
use crate::{ffi, handles};

/// Stands for no version.
const NONE: Version = Version::MAX;

/// Longer than any job runs.
const LONG: Duration = Duration::from_secs(10 * 365 * 86_400);

/// `tf_suspension` of the header.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct RawSuspension {
    pub(crate) version: Version,
    pub(crate) newest: Version,
    pub(crate) seconds: f64,
}

/// The deadline so many seconds from now.
fn deadline(seconds: f64) -> Outcome<Instant> {
    let patience = ffi::patience(seconds)?.min(LONG);
    Ok(Instant::now() + patience)
}

/// # Safety
/// `to` is null, or can be written.
unsafe fn suspend(
    handle: u64,
    version: Option<Version>,
    seconds: f64,
    to: *mut RawSuspension,
) -> c_int {
    status(|| {
        let core = engine(handle)?;
        let suspended = core.handle().suspend(version, deadline(seconds)?)?;
        let raw = RawSuspension {
            version: suspended.version.unwrap_or(NONE),
            newest: suspended.newest.unwrap_or(NONE),
            seconds: suspended.expected.map_or(-1.0, |time| time.as_secs_f64()),
        };
        // SAFETY: the caller's promise.
        unsafe { ffi::put(to, raw, "suspension") }
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn tf_suspend(
    handle: u64,
    seconds: f64,
    suspension: *mut RawSuspension,
) -> c_int {
    // SAFETY: the header's contract.
    unsafe { suspend(handle, None, seconds, suspension) }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn tf_suspend_to(
    handle: u64,
    version: Version,
    seconds: f64,
    suspension: *mut RawSuspension,
) -> c_int {
    // SAFETY: the header's contract.
    unsafe { suspend(handle, Some(version), seconds, suspension) }
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn tf_suspend_wait(handle: u64, version: Version, seconds: f64) -> c_int {
    status(|| {
        let (core, begun) = (engine(handle)?, Instant::now());
        let suspended = core.handle().suspend(Some(version), deadline(seconds)?)?;
        match suspended.wait(&|| false)? {
            true => Ok(()),
            false => Err(Failure::from(Error::TimedOut {
                what: Awaited::Durable(version),
                patience: begun.elapsed(),
            })),
        }
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn tf_time_to_durable(
    handle: u64,
    version: Version,
    seconds: *mut f64,
) -> c_int {
    status(|| {
        let time = engine(handle)?.engine.time_to_durable(version)?;
        let time = time.map_or(-1.0, |time| time.as_secs_f64());
        // SAFETY: the header's contract.
        unsafe { ffi::put(seconds, time, "seconds") }
    })
}

fn notice_of(handle: u64) -> Outcome<std::sync::Arc<Notice>> {
    handles::get(handle, "tf_notice")
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn tf_notice_open(
    signals: *const c_int,
    count: usize,
    grace: f64,
    notice: *mut u64,
) -> c_int {
    status(|| {
        // SAFETY: the header's contract.
        let signals = unsafe { ffi::list(signals, count, "signals") }?;
        let made = match signals {
            [] => Notice::new(),
            signals => Notice::on_signals(signals, ffi::patience(grace)?.min(LONG))?,
        };
        // SAFETY: the header's contract.
        unsafe { ffi::put(notice, handles::insert(made), "notice") }
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn tf_notice_give(notice: u64, grace: f64) -> c_int {
    status(|| {
        let grace = ffi::patience(grace)?.min(LONG);
        notice_of(notice)?.give(grace);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn tf_notice_left(notice: u64, seconds: *mut f64) -> c_int {
    status(|| {
        let deadline = notice_of(notice)?.deadline();
        let left = |at: Instant| at.saturating_duration_since(Instant::now());
        let left = deadline.map_or(f64::INFINITY, |at| left(at).as_secs_f64());
        // SAFETY: the header's contract.
        unsafe { ffi::put(seconds, left, "seconds") }
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn tf_notice_close(notice: u64) -> c_int {
    status(|| {
        let closed: Notice = handles::take(notice, "tf_notice")?;
        drop(closed);
        Ok(())
    })
}
