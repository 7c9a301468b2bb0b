//! The class `Engine`.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::RwLock;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use tierflow_dedup::Tree;
use tierflow_device::{Kind, open};
use tierflow_engine::{EngineBuilder, Error, Version};

use crate::array::{Arrays, Use};
use crate::core::{Core, let_go};
use crate::dtype::DType;
use crate::errors::{self, OrRaise};
use crate::ffi::lent::Held;
use crate::metrics;
use crate::options::{self, Bytes, Retention};
use crate::order::Streams;
use crate::pool::HostPool;
use crate::slot::{ConsumeSlot, Layout, ProduceSlot};

/// How long a wait goes on before it looks whether somebody pressed Ctrl-C.
const SLICE: Duration = Duration::from_millis(50);

/// A checkpoint cache over GPU memory, host memory, disk and external storage.
///
/// Every method may be called from any thread. It blocks only as long as its own bytes are copied, and for room where there is
/// none; the interpreter is free meanwhile.
#[pyclass(frozen, subclass, weakref, module = "tierflow")]
pub(crate) struct Engine {
    core: RwLock<Option<Arc<Core>>>,
    /// The process that built it.
    process: u32,
    /// Whether versions outlive it.
    lasts: bool,
}

impl Engine {
    fn core(&self, py: Python<'_>) -> PyResult<Arc<Core>> {
        self.at_home(py)?;
        let core = self.core.read().clone();
        core.ok_or_else(|| errors::closed(py, "the engine is closed: build another one"))
    }

    /// Before anything is locked: a thread that a fork does not have may hold it.
    fn at_home(&self, py: Python<'_>) -> PyResult<()> {
        if self.process == std::process::id() {
            return Ok(());
        }
        Err(errors::forked(py, self.process))
    }

    /// Waits until `deadline` for all flushes, and looks for Ctrl-C in between.
    fn wait_until(&self, py: Python<'_>, patience: Option<Duration>) -> PyResult<()> {
        let begun = Instant::now();
        loop {
            let left = patience.map(|patience| patience.saturating_sub(begun.elapsed()));
            let slice = left.map_or(SLICE, |left| left.min(SLICE));
            // Not held from slice to slice: another thread may close the engine.
            let core = self.core(py)?;
            let waited = py.detach(|| core.engine.wait_for(slice));
            let_go(core);
            match waited {
                Err(Error::TimedOut { .. }) => py.check_signals()?,
                answer => return answer.or_raise(py),
            }
            if let (Some(patience), Some(Duration::ZERO)) = (patience, left) {
                return Err(errors::raised(py, &Error::TimedOut { patience }));
            }
        }
    }
}

#[pymethods]
impl Engine {
    #[new]
    #[expect(clippy::too_many_arguments, reason = "they are keywords")]
    #[pyo3(signature = (
        *,
        device = None,
        device_cache = None,
        host_cache = None,
        host_pool = None,
        scratch = None,
        storage_limit = None,
        node_local = None,
        node_local_limit = None,
        external = None,
        rank = 0,
        ranks = 1,
        run = 0,
        retention = None,
        after_restore = "keep",
        flush = None,
        dedup = None,
        timeline = 0,
        evict_while_growing = false,
        closing_patience = 60.0,
    ))]
    fn new(
        py: Python<'_>,
        device: Option<&Bound<'_, PyAny>>,
        device_cache: Option<Bytes>,
        host_cache: Option<Bytes>,
        host_pool: Option<HostPool>,
        scratch: Option<PathBuf>,
        storage_limit: Option<Bytes>,
        node_local: Option<PathBuf>,
        node_local_limit: Option<Bytes>,
        external: Option<PathBuf>,
        rank: u32,
        ranks: u32,
        run: u64,
        retention: Option<&Bound<'_, PyAny>>,
        after_restore: &str,
        flush: Option<&str>,
        dedup: Option<u32>,
        timeline: usize,
        evict_while_growing: bool,
        closing_patience: f64,
    ) -> PyResult<Self> {
        let choice = options::choice(device)?;
        let after = options::after_restore(py, after_restore)?;
        let flush = flush.map(|name| options::flush(py, name)).transpose()?;
        let lasts = node_local.is_some() || external.is_some();
        let retention = match retention {
            None => None,
            Some(given) => match given.extract::<usize>() {
                Ok(newest) => Some(tierflow_engine::Retention::newest(newest)),
                Err(_) => Some(given.cast::<Retention>()?.get().rules(py)?),
            },
        };
        let closing = options::duration(py, Some(closing_patience))?.unwrap_or(Duration::MAX);
        let opened = py.detach(|| open(choice));
        let device = opened.map_err(|error| errors::device(py, &error))?;
        let mut builder: EngineBuilder = tierflow_engine::Engine::builder(&device)
            .after_restore(after)
            .timeline(timeline)
            .evict_while_growing(evict_while_growing)
            .closing_patience(closing);
        if (rank, ranks, run) != (0, 1, 0) {
            builder = builder.group(rank, ranks, run);
        }
        if let Some(bytes) = device_cache {
            builder = builder.device_cache(bytes.to_usize());
        }
        if let Some(bytes) = host_cache {
            builder = builder.host_cache(bytes.to_usize());
        }
        if let Some(pool) = &host_pool {
            builder = builder.host_pool(&pool.pool);
        }
        if let Some(directory) = scratch {
            builder = builder.scratch(directory);
        }
        if let Some(bytes) = storage_limit {
            builder = builder.storage_limit(bytes.0);
        }
        if let Some(directory) = node_local {
            builder = builder.node_local(directory);
        }
        if let Some(bytes) = node_local_limit {
            builder = builder.node_local_limit(bytes.0);
        }
        if let Some(directory) = external {
            builder = builder.external(directory);
        }
        if let Some(rules) = retention {
            builder = builder.retention(rules);
        }
        if let Some(flush) = flush {
            builder = builder.flush(flush);
        }
        if let Some(chunk) = dedup {
            builder = builder.dedup(Tree { chunk });
        }
        let engine = py.detach(|| builder.build()).or_raise(py)?;
        let core = Core {
            engine,
            device,
            streams: Streams::default(),
        };
        Ok(Self {
            core: RwLock::new(Some(Arc::new(core))),
            process: std::process::id(),
            lasts,
        })
    }

    /// Takes in the bytes of `arrays`, one after the other, as `version`. Returns when they are copied: the arrays may be
    /// changed at once.
    ///
    /// Arrays on a GPU are copied after the work that their framework has given its current stream, and that was given to
    /// `stream`.
    #[pyo3(signature = (version, *arrays, stream = None))]
    fn checkpoint(
        &self,
        py: Python<'_>,
        version: Version,
        arrays: &Bound<'_, PyTuple>,
        stream: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let core = self.core(py)?;
        let mut order = core.order(stream)?;
        let given = Arrays::of(arrays, Use::Read, &mut order)?;
        let regions = given.regions();
        let done = py.detach(|| match order.stream() {
            Some(stream) => core.engine.checkpoint_on(stream, version, &regions),
            None => core.engine.checkpoint(version, &regions),
        });
        drop(order);
        let_go(core);
        done.or_raise(py)
    }

    /// Brings `version` back into `arrays`, one after the other, and counts it as consumed. Work given to any stream
    /// afterwards sees the bytes.
    #[pyo3(signature = (version, *arrays, stream = None))]
    fn restore(
        &self,
        py: Python<'_>,
        version: Version,
        arrays: &Bound<'_, PyTuple>,
        stream: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let core = self.core(py)?;
        let mut order = core.order(stream)?;
        let mut given = Arrays::of(arrays, Use::Write, &mut order)?;
        let mut regions = given.regions_mut();
        let done = py.detach(|| match order.stream() {
            Some(stream) => core.engine.restore_on(stream, version, &mut regions),
            None => core.engine.restore(version, &mut regions),
        });
        drop(order);
        let_go(core);
        done.or_raise(py)
    }

    /// Lends room in the fastest tier for an array of this shape and element type, to be written and committed: see
    /// `ProduceSlot`.
    #[pyo3(signature = (version, shape, dtype))]
    fn produce(
        &self,
        py: Python<'_>,
        version: Version,
        shape: &Bound<'_, PyAny>,
        dtype: &Bound<'_, PyAny>,
    ) -> PyResult<ProduceSlot> {
        let core = self.core(py)?;
        let layout = Layout::of(shape, DType::of(dtype)?)?;
        let bytes = layout.bytes();
        let held = py.detach(|| Held::produce(core, version, bytes));
        Ok(ProduceSlot::new(held.or_raise(py)?, layout))
    }

    /// Lends the cached copy of `version` as a read-only array: see `ConsumeSlot`. Without a shape it is flat.
    #[pyo3(signature = (version, shape = None, dtype = None))]
    fn consume(
        &self,
        py: Python<'_>,
        version: Version,
        shape: Option<&Bound<'_, PyAny>>,
        dtype: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<ConsumeSlot> {
        let core = self.core(py)?;
        let dtype = match dtype {
            Some(dtype) => DType::of(dtype)?,
            None => DType::of(intern!(py, "uint8"))?,
        };
        let size = py.detach(|| core.engine.restore_size(version));
        let held = usize::try_from(size.or_raise(py)?).unwrap_or(usize::MAX);
        let layout = match shape {
            Some(shape) => Layout::of(shape, dtype)?,
            None => Layout::new(py, dtype, &[held / dtype.bytes()])?,
        };
        if layout.bytes() != held {
            return Err(errors::argument(
                py,
                format!(
                    "version {version} holds {held} bytes, and {:?} of {} are {}: name what was checkpointed",
                    layout.shape(),
                    dtype.name,
                    layout.bytes()
                ),
            ));
        }
        let slot = py.detach(|| Held::consume(core, version));
        Ok(ConsumeSlot::new(slot.or_raise(py)?, layout))
    }

    /// Tells which versions will be restored, in this order, after those hinted before.
    ///
    /// Hints may come at any time, in parts, and name versions not written yet. They are advice: wrong, missing and late ones
    /// cost time, never correctness.
    fn hint(&self, py: Python<'_>, versions: &Bound<'_, PyAny>) -> PyResult<()> {
        let core = self.core(py)?;
        let mut order = Vec::new();
        for version in versions.try_iter()? {
            order.push(version?.extract::<Version>()?);
            if order.len().is_multiple_of(1 << 16) {
                py.check_signals()?;
            }
        }
        py.detach(|| core.engine.hint(order));
        let_go(core);
        Ok(())
    }

    /// Lets prefetching begin, before the first restore does.
    fn prefetch_start(&self, py: Python<'_>) -> PyResult<()> {
        let core = self.core(py)?;
        py.detach(|| core.engine.prefetch_start());
        let_go(core);
        Ok(())
    }

    /// Gives `version` up, restored or not.
    fn discard(&self, py: Python<'_>, version: Version) -> PyResult<()> {
        let core = self.core(py)?;
        let done = py.detach(|| core.engine.discard(version));
        let_go(core);
        done.or_raise(py)
    }

    /// Waits until every version taken in lies on the lowest tier: where that outlives the engine, they are there to stay.
    ///
    /// `timeout` is in seconds; when it is over, `TimedOutError`, and the versions are still on their way. Ctrl-C ends the wait,
    /// too.
    #[pyo3(signature = (timeout = None))]
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        let patience = options::duration(py, timeout)?;
        self.wait_until(py, patience)
    }

    /// The newest version held; with `before`, the newest of a smaller number than that. `None` if there is none.
    #[pyo3(signature = (before = None))]
    fn latest(&self, py: Python<'_>, before: Option<Version>) -> PyResult<Option<Version>> {
        let core = self.core(py)?;
        let latest = py.detach(|| core.engine.latest(before));
        let_go(core);
        Ok(latest)
    }

    /// The versions held, in ascending order.
    fn versions(&self, py: Python<'_>) -> PyResult<Vec<Version>> {
        let core = self.core(py)?;
        let versions = py.detach(|| core.engine.versions());
        let_go(core);
        Ok(versions)
    }

    /// Bytes of `version`: what the arrays that it is restored to must add up to.
    fn restore_size(&self, py: Python<'_>, version: Version) -> PyResult<u64> {
        let core = self.core(py)?;
        let size = py.detach(|| core.engine.restore_size(version));
        let_go(core);
        size.or_raise(py)
    }

    /// What is known to be damaged, unreadable or unusable of the storage that outlives the engine, in words.
    fn damage(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        let core = self.core(py)?;
        let damage = py.detach(|| core.engine.damage());
        let_go(core);
        Ok(damage.iter().map(ToString::to_string).collect())
    }

    /// Leaves the device cache its first `bytes` bytes and gives the other memory back to the device, or takes it again.
    /// `TimedOutError` if emptying it takes longer than `timeout` seconds.
    #[pyo3(signature = (bytes, timeout = 60.0))]
    fn resize_device_cache(&self, py: Python<'_>, bytes: Bytes, timeout: f64) -> PyResult<()> {
        let core = self.core(py)?;
        let patience = options::duration(py, Some(timeout))?.unwrap_or(Duration::MAX);
        let done = py.detach(|| core.engine.resize_device_cache(bytes.to_usize(), patience));
        let_go(core);
        done.or_raise(py)
    }

    /// `resize_device_cache`, of the host cache.
    #[pyo3(signature = (bytes, timeout = 60.0))]
    fn resize_host_cache(&self, py: Python<'_>, bytes: Bytes, timeout: f64) -> PyResult<()> {
        let core = self.core(py)?;
        let patience = options::duration(py, Some(timeout))?.unwrap_or(Duration::MAX);
        let done = py.detach(|| core.engine.resize_host_cache(bytes.to_usize(), patience));
        let_go(core);
        done.or_raise(py)
    }

    /// What was measured so far: a dictionary, which a notebook shows as tables. Times are in seconds.
    fn metrics<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let core = self.core(py)?;
        let measured = py.detach(|| core.engine.metrics());
        let_go(core);
        let dictionary: Bound<'_, PyDict> = metrics::dictionary(py, &measured)?;
        let class = py
            .import("tierflow._metrics")?
            .getattr(intern!(py, "Metrics"))?;
        class.call1((dictionary,))
    }

    /// Writes the time line that `timeline=` asked for, in the Chrome trace format, which Perfetto opens.
    fn write_timeline(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        let core = self.core(py)?;
        let written = py.detach(|| core.engine.write_timeline(path));
        let_go(core);
        written.map_err(|error| errors::file(py, &error))
    }

    /// Ends the engine, its transfers and its history: call `wait` first for what is to outlive it. Slots that are still lent
    /// stay good, and the last of them ends it. Closing again does nothing.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.at_home(py)?;
        let core = self.core.write().take();
        if let Some(core) = core {
            let_go(core);
        }
        Ok(())
    }

    /// Whether it was closed.
    #[getter]
    fn closed(&self, py: Python<'_>) -> PyResult<bool> {
        self.at_home(py)?;
        Ok(self.core.read().is_none())
    }

    /// Where its fastest memory is: "host", or "cuda:0".
    #[getter]
    fn device(&self, py: Python<'_>) -> PyResult<String> {
        let core = self.core(py)?;
        let info = core.device.info();
        Ok(match info.kind {
            Kind::Cuda => format!("cuda:{}", info.ordinal),
            _ => "host".to_owned(),
        })
    }

    fn __enter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    /// Closes the engine. If the block raised nothing, and versions are to outlive the engine, waits for them first.
    #[pyo3(signature = (kind, error, trace))]
    fn __exit__(
        &self,
        py: Python<'_>,
        kind: &Bound<'_, PyAny>,
        error: &Bound<'_, PyAny>,
        trace: &Bound<'_, PyAny>,
    ) -> PyResult<bool> {
        let _ = (error, trace);
        let is_open = !self.closed(py)?;
        let waited = match is_open && self.lasts && kind.is_none() {
            true => self.wait_until(py, None),
            false => Ok(()),
        };
        self.close(py)?;
        waited.map(|()| false)
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(match self.closed(py)? {
            true => "<tierflow.Engine, closed>".to_owned(),
            false => format!("<tierflow.Engine on {}>", self.device(py)?),
        })
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        let Some(core) = self.core.get_mut().take() else {
            return;
        };
        if self.process == std::process::id() {
            let_go(core);
        } else {
            // It is the parent's.
            std::mem::forget(core);
        }
    }
}
