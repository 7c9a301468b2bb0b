//! The engine's measurements as a dictionary of Python. Times are in seconds.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use tierflow_engine::{Calls, Cause, HopMetrics, Metrics, TierMetrics, Times, Waits};

/// Returns the metrics as a `tierflow.Metrics`, a dictionary that a notebook shows as tables.
///
/// # Errors
/// `MemoryError` if there is no memory for the dictionary.
pub(crate) fn shown<'py>(py: Python<'py>, metrics: &Metrics) -> PyResult<Bound<'py, PyAny>> {
    let module = py.import("tierflow._metrics")?;
    let class = module.getattr(intern!(py, "Metrics"))?;
    class.call1((dictionary(py, metrics)?,))
}

/// Makes a dictionary of some fields of a value, by their names, and of other entries.
macro_rules! dictionary {
    ($py:ident, $of:ident { $($field:ident)* } $($key:ident: $value:expr;)*) => {{
        let entries = PyDict::new($py);
        $(entries.set_item(stringify!($field), $of.$field)?;)*
        $(entries.set_item(stringify!($key), $value)?;)*
        entries
    }};
}

fn dictionary<'py>(py: Python<'py>, metrics: &Metrics) -> PyResult<Bound<'py, PyDict>> {
    let Metrics {
        prefetch_distance: distance,
        ..
    } = metrics;
    let causes = PyDict::new(py);
    for cause in Cause::ALL {
        causes.set_item(cause.name(), times(py, metrics.times(cause))?)?;
    }
    let ended = metrics.waits.iter().map(|metrics| waits(py, metrics));
    let tiers = metrics.tiers.iter().map(|metrics| tier(py, metrics));
    let hops = metrics.hops.iter().map(|metrics| hop(py, metrics));
    let all = dictionary!(py, metrics { hinted pruned }
        checkpoint: calls(py, &metrics.checkpoint)?;
        restore: calls(py, &metrics.restore)?;
        produce: calls(py, &metrics.produce)?;
        consume: calls(py, &metrics.consume)?;
        wait: calls(py, &metrics.wait)?;
        running: metrics.running.as_secs_f64();
        causes: causes;
        waits: PyList::new(py, ended.collect::<PyResult<Vec<_>>>()?)?;
        prefetch_distance: dictionary!(py, distance { restores last largest } mean: distance.mean(););
        tiers: PyList::new(py, tiers.collect::<PyResult<Vec<_>>>()?)?;
        hops: PyList::new(py, hops.collect::<PyResult<Vec<_>>>()?)?;
    );
    if let Some(compression) = &metrics.compression {
        let entry = dictionary!(py, compression {
            is_on compressed stored as_they_are stage_rate link_rate switches
        });
        all.set_item("compression", entry)?;
    }
    Ok(all)
}

fn calls<'py>(py: Python<'py>, calls: &Calls) -> PyResult<Bound<'py, PyDict>> {
    Ok(dictionary!(py, calls { count failed bytes } blocked: calls.blocked.as_secs_f64();))
}

fn times<'py>(py: Python<'py>, times: Times) -> PyResult<Bound<'py, PyDict>> {
    Ok(dictionary!(py, times { count }
        total: times.total.as_secs_f64();
        p50: times.p50.as_secs_f64();
        p99: times.p99.as_secs_f64();
        p999: times.p999.as_secs_f64();
        worst: times.worst.as_secs_f64();
    ))
}

fn waits<'py>(py: Python<'py>, waits: &Waits) -> PyResult<Bound<'py, PyDict>> {
    Ok(
        dictionary!(py, waits { from to count ahead waiting transferred }
            cause: waits.cause.name();
            total: waits.total.as_secs_f64();
            before: waits.before.as_secs_f64();
            queued: waits.queued.as_secs_f64();
            moving: waits.moving.as_secs_f64();
            longest: waits.longest.as_secs_f64();
        ),
    )
}

fn tier<'py>(py: Python<'py>, tier: &TierMetrics) -> PyResult<Bound<'py, PyDict>> {
    Ok(dictionary!(py, tier {
        name capacity limit used peak checkpoints restores evictions dropped_prefetches damaged
        evicted_for_checkpoints evicted_for_flushes evicted_for_prefetches evicted_for_limits
    }))
}

fn hop<'py>(py: Python<'py>, hop: &HopMetrics) -> PyResult<Bound<'py, PyDict>> {
    Ok(
        dictionary!(py, hop { from to transfers bytes cancelled failed } busy: hop.busy.as_secs_f64();),
    )
}
