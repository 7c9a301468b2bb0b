//! Jobs that are preempted.

use std::ffi::c_int;
use std::time::{Duration, Instant};

use tierflow_engine::{Awaited, Error, Notice, Version};

use crate::core::Core;
use crate::failure::{Outcome, status};
use crate::ffi::{self, In, Out};
use crate::handles::{Handle, Named};

impl Named for Notice {
    const NAME: &'static str = "tf_notice";
}

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

/// A time of a job's, in seconds.
fn patience(seconds: f64) -> Outcome<Duration> {
    Ok(ffi::patience(seconds)?.min(LONG))
}

fn suspend(
    engine: Handle<Core>,
    version: Option<Version>,
    seconds: f64,
    to: Out<RawSuspension>,
) -> c_int {
    status(|| {
        let (core, deadline) = (engine.get()?, Instant::now() + patience(seconds)?);
        let suspended = core.handle().suspend(version, deadline)?;
        let raw = RawSuspension {
            version: suspended.version.unwrap_or(NONE),
            newest: suspended.newest.unwrap_or(NONE),
            seconds: suspended.expected.map_or(-1.0, |time| time.as_secs_f64()),
        };
        to.put(raw, "suspension")
    })
}

#[unsafe(no_mangle)]
extern "C" fn tf_suspend(engine: Handle<Core>, seconds: f64, to: Out<RawSuspension>) -> c_int {
    suspend(engine, None, seconds, to)
}

#[unsafe(no_mangle)]
extern "C" fn tf_suspend_to(
    engine: Handle<Core>,
    version: Version,
    seconds: f64,
    to: Out<RawSuspension>,
) -> c_int {
    suspend(engine, Some(version), seconds, to)
}

#[unsafe(no_mangle)]
extern "C" fn tf_suspend_wait(engine: Handle<Core>, version: Version, seconds: f64) -> c_int {
    status(|| {
        let (core, begun) = (engine.get()?, Instant::now());
        let deadline = begun + patience(seconds)?;
        let suspended = core.handle().suspend(Some(version), deadline)?;
        let is_durable = suspended.wait(&|| false)?;
        let late = || Error::TimedOut {
            what: Awaited::Durable(version),
            patience: begun.elapsed(),
        };
        is_durable.then_some(()).ok_or_else(|| late().into())
    })
}

#[unsafe(no_mangle)]
extern "C" fn tf_time_to_durable(
    engine: Handle<Core>,
    version: Version,
    seconds: Out<f64>,
) -> c_int {
    status(|| {
        let time = engine.get()?.engine.time_to_durable(version)?;
        seconds.put(time.map_or(-1.0, |time| time.as_secs_f64()), "seconds")
    })
}

#[unsafe(no_mangle)]
extern "C" fn tf_notice_open(
    signals: In<'_, c_int>,
    count: usize,
    grace: f64,
    notice: Out<Handle<Notice>>,
) -> c_int {
    status(|| {
        let made = match signals.list(count, "signals")? {
            [] => Notice::new(),
            signals => Notice::on_signals(signals, patience(grace)?)?,
        };
        notice.put(Handle::new(made), "notice")
    })
}

#[unsafe(no_mangle)]
extern "C" fn tf_notice_give(notice: Handle<Notice>, grace: f64) -> c_int {
    status(|| {
        let grace = patience(grace)?;
        notice.get()?.give(grace);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn tf_notice_left(notice: Handle<Notice>, seconds: Out<f64>) -> c_int {
    status(|| {
        let left = |at: Instant| at.saturating_duration_since(Instant::now());
        let deadline = notice.get()?.deadline();
        let left = deadline.map_or(f64::INFINITY, |at| left(at).as_secs_f64());
        seconds.put(left, "seconds")
    })
}

#[unsafe(no_mangle)]
extern "C" fn tf_notice_close(notice: Handle<Notice>) -> c_int {
    status(|| notice.take().map(drop))
}
