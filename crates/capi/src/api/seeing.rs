//! Metrics, reports and time lines of an engine.

use std::ffi::{c_char, c_int};

use tierflow_engine::Calls;

use super::engine::engine;
use crate::failure::{Failure, status};
use crate::ffi;

/// `tf_calls` of the header.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct RawCalls {
    count: u64,
    bytes: u64,
    pub(crate) blocked_seconds: f64,
}

/// `tf_metrics` of the header.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct RawMetrics {
    checkpoint: RawCalls,
    restore: RawCalls,
    produce: RawCalls,
    pub(crate) consume: RawCalls,
    /// Of restores and consumes, by where they found the version: the fastest tier first.
    pub(crate) restores_from: [u64; TIERS],
}

/// Tiers of an engine, at most.
const TIERS: usize = 6;

impl From<Calls> for RawCalls {
    fn from(calls: Calls) -> Self {
        Self {
            count: calls.count,
            bytes: calls.bytes,
            blocked_seconds: calls.blocked.as_secs_f64(),
        }
    }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn tf_metrics_read(handle: u64, to: *mut RawMetrics) -> c_int {
    status(|| {
        let metrics = engine(handle)?.engine.metrics();
        let mut restores_from = [0; TIERS];
        for (to, tier) in restores_from.iter_mut().zip(&metrics.tiers) {
            *to = tier.restores;
        }
        let read = RawMetrics {
            checkpoint: metrics.checkpoint.into(),
            restore: metrics.restore.into(),
            produce: metrics.produce.into(),
            consume: metrics.consume.into(),
            restores_from,
        };
        // SAFETY: the header's contract.
        unsafe { ffi::put(to, read, "metrics") }
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn tf_report(
    handle: u64,
    buffer: *mut c_char,
    size: usize,
    length: *mut usize,
) -> c_int {
    status(|| {
        let core = engine(handle)?;
        let mut report = core.engine.metrics().to_string();
        for damage in core.engine.damage() {
            report.push_str(&format!("damage: {damage}\n"));
        }
        // SAFETY: the header's contract.
        let whole = unsafe { ffi::put_text(buffer, size, &report) };
        match length.is_null() {
            true => Ok(()),
            // SAFETY: the header's contract.
            false => unsafe { ffi::put(length, whole, "length") },
        }
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn tf_write_timeline(handle: u64, path: *const c_char) -> c_int {
    status(|| {
        let core = engine(handle)?;
        // SAFETY: the header's contract.
        let path = unsafe { ffi::text(path, "path") }?;
        let written = core.engine.write_timeline(path);
        written.map_err(|error| Failure::file(path.as_ref(), &error))
    })
}
