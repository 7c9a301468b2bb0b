//! Metrics, reports and time lines of an engine.

use std::ffi::c_char;

use tierflow_engine::Calls;

use crate::core::OpenEngine;
use crate::failure::{Failure, exported};
use crate::ffi::{Out, Text};
use crate::handles::Handle;

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
    /// Number of restores and consumes by the tier that held the version, the fastest tier first.
    pub(crate) restores_from: [u64; TIERS],
}

/// Number of tiers of an engine, at most.
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

exported! {
    fn tf_metrics_read(engine: Handle<OpenEngine>, to: Out<RawMetrics>) {
        let metrics = engine.get()?.engine.metrics();
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
        to.put(read, "metrics")
    }

    fn tf_report(engine: Handle<OpenEngine>, buffer: Out<c_char>, size: usize, length: Out<usize>) {
        let core = engine.get()?;
        let metrics = core.engine.metrics();
        let mut report = format!("{metrics}{}\n", metrics.explain().join("\n"));
        for damage in core.engine.damage() {
            report.push_str(&format!("damage: {damage}\n"));
        }
        for gone in core.engine.reports().losses {
            report.push_str(&format!("lost: version {}: {}\n", gone.version, gone.why));
        }
        length.put_if_asked(buffer.put_text(size, &report));
        Ok(())
    }

    fn tf_open_metrics(engine: Handle<OpenEngine>, buffer: Out<c_char>, size: usize, length: Out<usize>) {
        let text = engine.get()?.engine.metrics().open_metrics();
        length.put_if_asked(buffer.put_text(size, &text));
        Ok(())
    }

    fn tf_statistics(engine: Handle<OpenEngine>, buffer: Out<c_char>, size: usize, length: Out<usize>) {
        let text = engine.get()?.statistics();
        length.put_if_asked(buffer.put_text(size, &text));
        Ok(())
    }

    fn tf_write_timeline(engine: Handle<OpenEngine>, path: Text<'_>) {
        let (core, path) = (engine.get()?, path.read("path")?);
        let written = core.engine.write_timeline(path);
        written.map_err(|error| Failure::file(path.as_ref(), &error))
    }
}
