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

fn dictionary<'py>(py: Python<'py>, metrics: &Metrics) -> PyResult<Bound<'py, PyDict>> {
    let all = PyDict::new(py);
    all.set_item("checkpoint", calls(py, &metrics.checkpoint)?)?;
    all.set_item("restore", calls(py, &metrics.restore)?)?;
    all.set_item("produce", calls(py, &metrics.produce)?)?;
    all.set_item("consume", calls(py, &metrics.consume)?)?;
    let stalls = PyDict::new(py);
    stalls.set_item("room", calls(py, &metrics.stalls.room)?)?;
    stalls.set_item("arrival", calls(py, &metrics.stalls.arrival)?)?;
    stalls.set_item("flushes", calls(py, &metrics.stalls.flushes)?)?;
    all.set_item("stalls", stalls)?;
    let distance = PyDict::new(py);
    distance.set_item("restores", metrics.prefetch_distance.restores)?;
    distance.set_item("mean", metrics.prefetch_distance.mean())?;
    distance.set_item("last", metrics.prefetch_distance.last)?;
    distance.set_item("largest", metrics.prefetch_distance.largest)?;
    all.set_item("prefetch_distance", distance)?;
    all.set_item("pruned", metrics.pruned)?;
    let tiers = metrics.tiers.iter().map(|metrics| tier(py, metrics));
    all.set_item(
        "tiers",
        PyList::new(py, tiers.collect::<PyResult<Vec<_>>>()?)?,
    )?;
    let hops = metrics.hops.iter().map(|metrics| hop(py, metrics));
    all.set_item(
        "hops",
        PyList::new(py, hops.collect::<PyResult<Vec<_>>>()?)?,
    )?;
    if let Some(compression) = &metrics.compression {
        let entry = PyDict::new(py);
        entry.set_item("is_on", compression.is_on)?;
        entry.set_item("compressed", compression.compressed)?;
        entry.set_item("stored", compression.stored)?;
        entry.set_item("as_they_are", compression.as_they_are)?;
        entry.set_item("stage_rate", compression.stage_rate)?;
        entry.set_item("link_rate", compression.link_rate)?;
        entry.set_item("switches", compression.switches)?;
        all.set_item("compression", entry)?;
    }
    Ok(all)
}

fn calls<'py>(py: Python<'py>, calls: &Calls) -> PyResult<Bound<'py, PyDict>> {
    let entry = PyDict::new(py);
    entry.set_item("count", calls.count)?;
    entry.set_item("bytes", calls.bytes)?;
    entry.set_item("blocked", calls.blocked.as_secs_f64())?;
    Ok(entry)
}

fn tier<'py>(py: Python<'py>, tier: &TierMetrics) -> PyResult<Bound<'py, PyDict>> {
    let entry = PyDict::new(py);
    entry.set_item("name", tier.name)?;
    entry.set_item("capacity", tier.capacity)?;
    entry.set_item("limit", tier.limit)?;
    entry.set_item("used", tier.used)?;
    entry.set_item("peak", tier.peak)?;
    entry.set_item("checkpoints", tier.checkpoints)?;
    entry.set_item("restores", tier.restores)?;
    entry.set_item("evictions", tier.evictions)?;
    entry.set_item("dropped_prefetches", tier.dropped_prefetches)?;
    entry.set_item("damaged", tier.damaged)?;
    let evicted = PyDict::new(py);
    evicted.set_item("for_checkpoints", tier.evicted.for_checkpoints)?;
    evicted.set_item("for_flushes", tier.evicted.for_flushes)?;
    evicted.set_item("for_prefetches", tier.evicted.for_prefetches)?;
    evicted.set_item("for_limits", tier.evicted.for_limits)?;
    entry.set_item("evicted", evicted)?;
    Ok(entry)
}

fn hop<'py>(py: Python<'py>, hop: &HopMetrics) -> PyResult<Bound<'py, PyDict>> {
    let entry = PyDict::new(py);
    entry.set_item("from", hop.from)?;
    entry.set_item("to", hop.to)?;
    entry.set_item("transfers", hop.transfers)?;
    entry.set_item("bytes", hop.bytes)?;
    entry.set_item("busy", hop.busy.as_secs_f64())?;
    entry.set_item("cancelled", hop.cancelled)?;
    entry.set_item("failed", hop.failed)?;
    Ok(entry)
}
