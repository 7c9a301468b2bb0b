//! Jobs that are preempted.

use std::ffi::c_int;
use std::time::Instant;

use tierflow_engine::{Awaited, Error, Notice, Version};

use crate::core::OpenEngine;
use crate::failure::{Outcome, exported};
use crate::ffi::{self, In, Out};
use crate::handles::{Handle, Named};

impl Named for Notice {
    const NAME: &'static str = "tf_notice";
}

/// The number that stands for no version.
const NONE: Version = Version::MAX;

/// `tf_suspension` of the header.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct RawSuspension {
    pub(crate) version: Version,
    pub(crate) newest: Version,
    pub(crate) seconds: f64,
}

fn suspend(
    engine: Handle<OpenEngine>,
    version: Option<Version>,
    seconds: f64,
) -> Outcome<RawSuspension> {
    let (core, patience) = (engine.get()?, ffi::patience(seconds)?);
    let suspended = core.handle().suspend(version, patience)?;
    Ok(RawSuspension {
        version: suspended.version.unwrap_or(NONE),
        newest: suspended.newest.unwrap_or(NONE),
        seconds: suspended.expected.map_or(-1.0, |time| time.as_secs_f64()),
    })
}

exported! {
    fn tf_suspend(engine: Handle<OpenEngine>, seconds: f64, to: Out<RawSuspension>) {
        to.put(suspend(engine, None, seconds)?, "suspension")
    }

    fn tf_suspend_to(engine: Handle<OpenEngine>, version: Version, seconds: f64, to: Out<RawSuspension>) {
        to.put(suspend(engine, Some(version), seconds)?, "suspension")
    }

    fn tf_suspend_wait(engine: Handle<OpenEngine>, version: Version, seconds: f64) {
        let (core, begun) = (engine.get()?, Instant::now());
        let suspended = core.handle().suspend(Some(version), ffi::patience(seconds)?)?;
        let late = || Error::TimedOut { what: Awaited::Durable(version), patience: begun.elapsed() };
        suspended.wait(&|| false)?.then_some(()).ok_or_else(|| late().into())
    }

    fn tf_time_to_durable(engine: Handle<OpenEngine>, version: Version, seconds: Out<f64>) {
        let time = engine.get()?.engine.time_to_durable(version)?;
        seconds.put(time.map_or(-1.0, |time| time.as_secs_f64()), "seconds")
    }

    fn tf_notice_open(signals: In<'_, c_int>, count: usize, grace: f64, notice: Out<Handle<Notice>>) {
        notice.exists("notice")?;
        let made = match signals.list(count, "signals")? {
            [] => Notice::new(),
            signals => Notice::on_signals(signals, ffi::patience(grace)?)?,
        };
        notice.put(Handle::new(made), "notice")
    }

    fn tf_notice_give(notice: Handle<Notice>, grace: f64) {
        let grace = ffi::patience(grace)?;
        notice.get().map(|notice| notice.give(grace))
    }

    fn tf_notice_left(notice: Handle<Notice>, seconds: Out<f64>) {
        let left = |at: Instant| at.saturating_duration_since(Instant::now());
        let deadline = notice.get()?.deadline();
        let left = deadline.map_or(f64::INFINITY, |at| left(at).as_secs_f64());
        seconds.put(left, "seconds")
    }

    fn tf_notice_close(notice: Handle<Notice>) { notice.take().map(drop) }
}
