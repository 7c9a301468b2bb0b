//! What the engine measured, as a dictionary. Times are in seconds.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use tierflow_engine::{Calls, HopMetrics, Metrics, TierMetrics};

/// What a notebook shows as tables.
///
/// # Errors
/// Those of memory.
pub(crate) fn shown<'py>(py: Python<'py>, metrics: &Metrics) -> PyResult<Bound<'py, PyAny>> {
    let module = py.import("tierflow._metrics")?;
    let class = module.getattr(intern!(py, "Metrics"))?;
    class.call1((dictionary(py, metrics)?,))
}

/// A dictionary: of fields of a value by their names, and of other entries.
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
        stalls,
        prefetch_distance: distance,
        ..
    } = metrics;
    let tiers = metrics.tiers.iter().map(|metrics| tier(py, metrics));
    let hops = metrics.hops.iter().map(|metrics| hop(py, metrics));
    let all = dictionary!(py, metrics { pruned }
        checkpoint: calls(py, &metrics.checkpoint)?;
        restore: calls(py, &metrics.restore)?;
        produce: calls(py, &metrics.produce)?;
        consume: calls(py, &metrics.consume)?;
        stalls: dictionary!(py, stalls {}
            room: calls(py, &stalls.room)?;
            arrival: calls(py, &stalls.arrival)?;
            flushes: calls(py, &stalls.flushes)?;
        );
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
    Ok(dictionary!(py, calls { count bytes } blocked: calls.blocked.as_secs_f64();))
}

fn tier<'py>(py: Python<'py>, tier: &TierMetrics) -> PyResult<Bound<'py, PyDict>> {
    let evicted = &tier.evicted;
    Ok(dictionary!(py, tier {
            name capacity limit used peak checkpoints restores evictions dropped_prefetches damaged
        }
        evicted: dictionary!(py, evicted { for_checkpoints for_flushes for_prefetches for_limits });
    ))
}

fn hop<'py>(py: Python<'py>, hop: &HopMetrics) -> PyResult<Bound<'py, PyDict>> {
    Ok(
        dictionary!(py, hop { from to transfers bytes cancelled failed } busy: hop.busy.as_secs_f64();),
    )
}
