//! The class `Engine`.

mod inner;
mod named;

pub(crate) use self::named::{Described, described};

use std::path::PathBuf;

use parking_lot::RwLock;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use tierflow_bind::{Failure, Slot};
use tierflow_device::{Kind, OwnerProcess};
use tierflow_engine::{AfterRestore, Cache, Error, RegionMut, Version, read_regions};
use tierflow_store::{LostVersion, Place};

use self::named::{Checkpointed, agree, parts};
use crate::array::{Arrays, Use};
use crate::core::SharedEngine;
use crate::dtype::DType;
use crate::errors::{Answer, Number, Raised};
use crate::options::{self, Bytes};
use crate::patience::{self, Timeout};
use crate::slot::{ConsumeSlot, Layout, ProduceSlot};
use crate::suspending::Suspension;
use crate::{metrics, order};

/// A directory, or the URL of an object store: Python's `Path` would make one slash of a URL's two.
#[derive(IntoPyObject)]
enum PathOrUrl {
    Path(PathBuf),
    Url(String),
}

#[doc = include_str!("engine.md")]
#[pyclass(frozen, subclass, weakref, module = "tierflow")]
pub(crate) struct Engine {
    core: RwLock<Option<SharedEngine>>,
    /// The process that built the engine.
    process: OwnerProcess,
    /// The engine's rank, and the number of ranks.
    group: (u32, u32),
    /// The directory or URL of all ranks' pieces: `external`, or else `node_local`.
    directory: Option<PathBuf>,
}

#[pymethods]
impl Engine {
    #[new]
    #[pyo3(
        signature = (**options),
        text_signature = "(*, device=None, device_cache=None, device_growth=None, peers=None, overflow=None, machine=None, \
                          host_cache=None, \
                          host_growth=None, host_lead=None, host_pool=None, host_pool_slab=None, \
                          host_pool_directory=None, scratch=None, storage_limit=None, scratch_checksums=True, \
                          direct_io=None, \
                          node_local=None, node_local_limit=None, external=None, agent=None, agent_program=None, rank=0, ranks=1, run=0, \
                          group=None, group_patience=None, redundancy=None, failure_domain=None, \
                          refuse_losses=False, exchange=None, retention=None, keep_newest=None, keep_every=None, \
                          keep_younger_than=None, durable_in_order=None, after_restore='keep', flush=None, \
                          policy=None, dedup=None, dedup_reads=None, compress=None, timeline=0, evict_while_growing=False, \
                          statistics=None, closing_patience=60.0)"
    )]
    fn new(py: Python<'_>, options: Option<&Bound<'_, PyDict>>) -> Answer<Self> {
        let options = options::of_keywords(options)?;
        let group = (options.ranks.rank, options.ranks.ranks);
        let directory = options.external.clone();
        let directory = directory.or_else(|| options.node_local.clone());
        let core = crate::core::open(py, options)?;
        Ok(Self {
            core: RwLock::new(Some(core)),
            process: OwnerProcess::current(),
            group,
            directory,
        })
    }

    /// Takes in the bytes of `arrays`, one array after the other, as `version`. Returns when the bytes are copied: the program may
    /// change the arrays at once. Until then, no other thread may free the memory of a tensor, as `set_` and `resize_` do.
    ///
    /// Arrays on a GPU are copied after the work that was given to `stream` and to the current stream of their framework. Raises
    /// `TimedOutError` if there is no room, or storage hangs, for `timeout` seconds.
    ///
    /// `names`, one for each array, let `restore_regions` restore single arrays, and are stored in files. Element types and shapes
    /// are stored with the arrays. Arrays without names are stored as "checkpoint", or as "region-0", "region-1" and so on, which are no names
    /// to give.
    ///
    /// `within_error` replaces the bounds of `compress` for this version: a value that comes back differs by at most so much, in the
    /// unit of the values. Arrays without a bound in `compress` come back as they were.
    #[pyo3(signature = (version, *arrays, names = None, stream = None, timeout = None, within_error = None))]
    #[expect(clippy::too_many_arguments, reason = "Python passes them by name")]
    fn checkpoint(
        &self,
        py: Python<'_>,
        version: Number,
        arrays: &Bound<'_, PyTuple>,
        names: Option<&Bound<'_, PyAny>>,
        stream: Option<&Bound<'_, PyAny>>,
        timeout: Option<f64>,
        within_error: Option<f64>,
    ) -> Answer {
        let patience = Timeout::new(timeout)?;
        let core = self.core()?;
        let mut order = order::behind(&core.streams, stream)?;
        let given = Arrays::of(arrays, Use::Read, &mut order)?;
        let what = Checkpointed::new(&given, named::names_of(names)?)?;
        let regions = what.regions(given.regions());
        let stream = order.stream();
        patience.spend(py, |until| {
            let mut call = until.of(&core.engine).on(stream);
            if let Some(error) = within_error {
                call = call.within_error(error);
            }
            call.checkpoint(version.0, &regions)
        })
    }

    /// Restores `version` into `arrays`, one array after the other, and counts it as consumed. `stream` is a CUDA stream whose work
    /// comes before. Work given to any stream afterwards sees the bytes. Raises `TimedOutError` if the restore takes longer than
    /// `timeout` seconds: the arrays are as they were. Until `restore` returns, no other thread may free the memory of a tensor, as
    /// `set_` and `resize_` do.
    ///
    /// `restore` compares only the number of bytes. Without arrays, it returns new NumPy arrays of the types and shapes that were
    /// checkpointed: a dict by names if the arrays have names, else a list, or the array if there is only one. More than 64 arrays
    /// without names come back as one array of bytes.
    #[pyo3(signature = (version, *arrays, stream = None, timeout = None))]
    fn restore<'py>(
        &self,
        py: Python<'py>,
        version: Number,
        arrays: &Bound<'py, PyTuple>,
        stream: Option<&Bound<'py, PyAny>>,
        timeout: Option<f64>,
    ) -> Answer<Option<Bound<'py, PyAny>>> {
        if arrays.is_empty() {
            return self.restore_new(py, version.0, stream, timeout).map(Some);
        }
        self.restore_into(py, version.0, arrays, stream, timeout)?;
        Ok(None)
    }

    /// Lends room in the fastest tier for an array of this `shape` and element type `dtype`. The program writes the array and commits
    /// it as `version`: see `ProduceSlot`. Raises `TimedOutError` if there is no room for `timeout` seconds.
    #[pyo3(signature = (version, shape, dtype, timeout = None))]
    fn produce(
        &self,
        py: Python<'_>,
        version: Number,
        shape: &Bound<'_, PyAny>,
        dtype: &Bound<'_, PyAny>,
        timeout: Option<f64>,
    ) -> Answer<ProduceSlot> {
        let patience = Timeout::new(timeout)?;
        let core = self.core()?;
        let layout = Layout::of(shape, DType::of(dtype)?)?;
        let (version, bytes) = (version.0, layout.bytes());
        let slot = patience.spend(py, |until| Slot::produce(&core, version, bytes, until));
        Ok(ProduceSlot::new(slot?, layout, version))
    }

    /// Lends the cached copy of `version` as a read-only array: see `ConsumeSlot`. Without a `shape` the array is flat, and without a
    /// `dtype` its elements are bytes (uint8). Raises `TimedOutError` if the call takes longer than `timeout` seconds.
    #[pyo3(signature = (version, shape = None, dtype = None, timeout = None))]
    fn consume(
        &self,
        py: Python<'_>,
        version: Number,
        shape: Option<&Bound<'_, PyAny>>,
        dtype: Option<&Bound<'_, PyAny>>,
        timeout: Option<f64>,
    ) -> Answer<ConsumeSlot> {
        let patience = Timeout::new(timeout)?;
        let (version, core) = (version.0, self.core()?);
        let size = py.detach(|| core.engine.restore_size(version))?;
        let layout = Layout::held(py, (version, size), shape, dtype)?;
        let slot = patience.spend(py, |until| Slot::consume(&core, version, until));
        Ok(ConsumeSlot::new(slot?, layout, version))
    }

    /// Tells the engine the `versions` that the program will restore, in this order, after all versions hinted before.
    ///
    /// Hints may come at any time, in parts, and may name versions that are not written yet. Hints are advice: wrong, missing and
    /// late hints cost time, never correctness.
    fn hint(&self, py: Python<'_>, versions: &Bound<'_, PyAny>) -> Answer {
        let order = patience::all_of(py, versions)?;
        self.detached(py, |engine| engine.hint(order))
    }

    /// Tells the engine the `versions` that the program will restore before all versions hinted so far. A program that stores and
    /// restores more versions on its way hints them when they are near, as hinted versions keep room for themselves.
    fn hint_next(&self, py: Python<'_>, versions: &Bound<'_, PyAny>) -> Answer {
        let order = patience::all_of(py, versions)?;
        self.detached(py, |engine| engine.hints().prepend(order))
    }

    /// Withdraws the hints of `versions`, or all hints given so far. Later hints count. If an engine has several users, each names
    /// the versions that it hinted.
    #[pyo3(signature = (versions = None))]
    fn forget_hints(&self, py: Python<'_>, versions: Option<&Bound<'_, PyAny>>) -> Answer {
        let versions = versions.map(|versions| patience::all_of(py, versions));
        let versions = versions.transpose()?;
        self.detached(py, |engine| match &versions {
            Some(versions) => engine.hints().forget(versions),
            None => engine.hints().clear(),
        })
    }

    /// Reserves `count` consecutive numbers for new versions, and returns them as a range: above all numbers that versions of this
    /// engine have or had, that hints name, and that other calls returned. So the users of one engine never share a number.
    fn reserve<'py>(&self, py: Python<'py>, count: u64) -> Answer<Bound<'py, PyAny>> {
        let reserved = self.tried(py, |engine| engine.reserve(count))?;
        let range = py.import("builtins")?.getattr("range")?;
        Ok(range.call1((reserved.start, reserved.end))?)
    }

    /// Begins prefetching. Without this call, the first restore begins it.
    fn prefetch_start(&self, py: Python<'_>) -> Answer {
        self.detached(py, |engine| engine.hints().prefetch_start())
    }

    /// Discards `version`, whether it was restored or not.
    fn discard(&self, py: Python<'_>, version: Number) -> Answer {
        self.tried(py, |engine| engine.discard(version.0))
    }

    /// Waits until every version taken in lies on the lowest tier. If that tier outlives the engine, the versions are then durable.
    ///
    /// Raises `TimedOutError` after `timeout` seconds: the versions are still on their way then. Ctrl-C ends the wait, too.
    #[pyo3(signature = (timeout = None))]
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> Answer {
        let (patience, core) = (Timeout::new(timeout)?, self.core()?);
        patience.spend(py, |until| core.wait(until))
    }

    /// Returns the regions of `version` in their order: the name and the number of bytes of each.
    fn regions(&self, py: Python<'_>, version: Number) -> Answer<Vec<(String, u64)>> {
        let regions = self.tried(py, |engine| engine.regions(version.0))?;
        let regions = regions.into_iter();
        Ok(regions.map(|info| (info.name, info.length)).collect())
    }

    /// Returns the regions of `version` in their order: name, element type, shape and number of bytes of each. The type is `None` for
    /// a region of plain bytes.
    fn layout(&self, py: Python<'_>, version: Number) -> Answer<Vec<Described>> {
        let regions = self.tried(py, |engine| engine.regions(version.0))?;
        Ok(described(&regions))
    }

    /// Restores some regions of `version`. `regions` maps their names to arrays, which have the types and shapes that were
    /// checkpointed, or are flat bytes. The version stays as it is: held, and not consumed. `stream` and `timeout` are those of
    /// `restore`.
    #[pyo3(signature = (version, regions, *, stream = None, timeout = None))]
    fn restore_regions(
        &self,
        py: Python<'_>,
        version: Number,
        regions: &Bound<'_, PyAny>,
        stream: Option<&Bound<'_, PyAny>>,
        timeout: Option<f64>,
    ) -> Answer {
        let patience = Timeout::new(timeout)?;
        let (version, core) = (version.0, self.core()?);
        let (names, arrays) = parts(regions)?;
        let mut order = order::behind(&core.streams, stream)?;
        let mut targets = Arrays::of(&arrays, Use::Write, &mut order)?;
        let layout = py.detach(|| core.engine.regions(version))?;
        agree(version, &layout, (&names, &targets))?;
        let regions = names.iter().map(String::as_str);
        let mut regions: Vec<(&str, RegionMut<'_>)> = regions.zip(targets.regions_mut()).collect();
        let stream = order.stream();
        patience.spend(py, |until| {
            let call = until.of(&core.engine).on(stream);
            call.restore_regions(version, &mut regions)
        })
    }

    /// Reads regions of the piece that `rank` has of `version` from the `external` directory of the group. `regions` maps their names
    /// to arrays in main memory. The directory has the regions once the version is durable on all ranks.
    fn restore_rank(
        &self,
        py: Python<'_>,
        version: Number,
        rank: u32,
        regions: &Bound<'_, PyAny>,
    ) -> Answer {
        let (version, core) = (version.0, self.core()?);
        let (names, arrays) = parts(regions)?;
        let mut order = order::behind(&core.streams, None)?;
        let mut targets = Arrays::of(&arrays, Use::Write, &mut order)?;
        let piece = py.detach(|| core.engine.piece(version, Some(rank)));
        let piece = piece.map_err(|error| match error {
            Error::Storage(error) => error.into(),
            error => Raised::from(error),
        })?;
        agree(version, piece.layout(), (&names, &targets))?;
        let mut regions: Vec<(&str, &mut [u8])> = Vec::new();
        for (name, target) in names.iter().zip(targets.regions_mut()) {
            match target {
                RegionMut::Bytes(bytes) => regions.push((name, bytes)),
                _ => {
                    let text = "another rank's regions come to main memory: pass arrays there";
                    return Err(Failure::argument(text).into());
                }
            }
        }
        Ok(py.detach(|| read_regions(&piece, &mut regions))?)
    }

    /// Makes the `redundancy` of the ranks' versions on their nodes. If the group cannot send in the background, such as an MPI without
    /// `MPI_THREAD_MULTIPLE`, all ranks call `protect` at about the same time; `wait` does the same. Else `protect` waits for the
    /// redundancy that the engine makes in the background.
    fn protect(&self, py: Python<'_>) -> Answer {
        self.tried(py, tierflow_engine::Engine::protect)
    }

    /// Waits until `version` lies on the lowest tier, as `wait` does for all versions, for `timeout` seconds at most.
    #[pyo3(signature = (version, timeout = None))]
    fn wait_version(&self, py: Python<'_>, version: Number, timeout: Option<f64>) -> Answer {
        let (patience, core) = (Timeout::new(timeout)?, self.core()?);
        patience.spend(py, |until| until.of(&core.engine).wait_version(version.0))
    }

    /// Returns true if the whole `version` lies on the lowest tier. If that tier outlives the engine, the version is durable.
    fn is_durable(&self, py: Python<'_>, version: Number) -> Answer<bool> {
        self.detached(py, |engine| engine.is_durable(version.0))
    }

    /// Prepares for the end of the job in `seconds`: makes the newest version durable that can be durable by then, or `version` if it
    /// is given. Returns a `Suspension`, which tells the version.
    #[pyo3(signature = (seconds, version = None))]
    fn suspend(&self, py: Python<'_>, seconds: f64, version: Option<Number>) -> Answer<Suspension> {
        Suspension::begin(py, self, seconds, version.map(|version| version.0))
    }

    /// Returns the seconds until `version` is durable if the job is suspended now; `None` while nothing was measured.
    fn time_to_durable(&self, py: Python<'_>, version: Number) -> Answer<Option<f64>> {
        let time = self.tried(py, |engine| engine.time_to_durable(version.0))?;
        Ok(time.map(|time| time.as_secs_f64()))
    }

    /// Returns the newest version held; with `before`, the newest of a smaller number than `before`. Returns `None` if there is none.
    #[pyo3(signature = (before = None))]
    fn latest(&self, py: Python<'_>, before: Option<Number>) -> Answer<Option<Version>> {
        let before = before.map(|version| version.0);
        self.detached(py, |engine| engine.latest(before))
    }

    /// Returns the versions held, in ascending order.
    fn versions(&self, py: Python<'_>) -> Answer<Vec<Version>> {
        self.detached(py, |engine| engine.versions())
    }

    /// Returns the bytes of `version`. Arrays to restore it to have as many bytes in all.
    fn restore_size(&self, py: Python<'_>, version: Number) -> Answer<u64> {
        self.tried(py, |engine| engine.restore_size(version.0))
    }

    /// Returns a sentence for each part of the storage that outlives the engine that is known to be damaged, unreadable or unusable.
    fn damage(&self, py: Python<'_>) -> Answer<Vec<String>> {
        let damage = self.detached(py, tierflow_engine::Engine::damage)?;
        Ok(damage.iter().map(ToString::to_string).collect())
    }

    /// Returns a sentence for each version that was found lost when the engine was opened, as more nodes failed than `redundancy`
    /// bears. The sentence says why.
    fn losses(&self, py: Python<'_>) -> Answer<Vec<String>> {
        let losses = self.detached(py, |engine| engine.reports().losses)?;
        let line = |gone: &LostVersion| format!("version {}: {}", gone.version, gone.why);
        Ok(losses.iter().map(line).collect())
    }

    /// Limits the device cache to its first `bytes` bytes: gives the other memory back to the device, or takes it again. Returns the
    /// bytes that the cache may use now, which are never more than it was built with. Raises `TimedOutError` if it takes longer than
    /// `timeout` seconds to empty the memory.
    #[pyo3(signature = (bytes, timeout = 60.0))]
    fn resize_device_cache(&self, py: Python<'_>, bytes: Bytes, timeout: f64) -> Answer<u64> {
        self.resize(py, Cache::Device, &bytes, timeout)
    }

    /// Does for the host cache what `resize_device_cache` does for the device cache, with the same `bytes` and `timeout`.
    #[pyo3(signature = (bytes, timeout = 60.0))]
    fn resize_host_cache(&self, py: Python<'_>, bytes: Bytes, timeout: f64) -> Answer<u64> {
        self.resize(py, Cache::Host, &bytes, timeout)
    }

    /// Returns the measurements so far as a dictionary, which a notebook shows as tables. Times are in seconds.
    fn metrics<'py>(&self, py: Python<'py>) -> Answer<Bound<'py, PyAny>> {
        let measured = self.detached(py, tierflow_engine::Engine::metrics)?;
        Ok(metrics::shown(py, &measured)?)
    }

    /// Returns sentences about the calls that blocked the program: their causes, the transfers that they waited for, and their share
    /// of the run.
    fn explain(&self, py: Python<'_>) -> Answer<Vec<String>> {
        self.detached(py, |engine| engine.metrics().explain())
    }

    /// Returns the measurements in the text format of OpenMetrics, which Prometheus reads.
    fn open_metrics(&self, py: Python<'_>) -> Answer<String> {
        self.detached(py, |engine| engine.metrics().open_metrics())
    }

    /// Returns the JSON document that the file of `statistics=` would have now: the measurements, the damage and the losses.
    fn statistics(&self, py: Python<'_>) -> Answer<String> {
        let core = self.core()?;
        Ok(py.detach(|| core.statistics()))
    }

    /// Writes the time line that `timeline=` asked for to the file `path`, in the Chrome trace format, which Perfetto opens.
    fn write_timeline(&self, py: Python<'_>, path: PathBuf) -> Answer {
        let failed = |error| Failure::file(&path, &error);
        self.tried(py, |engine| engine.write_timeline(&path).map_err(failed))
    }

    /// Ends the engine, its transfers and its history. If versions outlive the engine, `close` waits until they are durable: as long
    /// as bytes get to storage, and `closing_patience` after the last. `close` does not wait for versions that `suspend` gave up. If
    /// it raises an exception, the engine stays open: correct the cause, and close the engine again. Slots that are still lent stay
    /// valid, and the last of them ends the engine. A second `close` does nothing.
    ///
    /// An engine that is never closed waits as long when its last reference is dropped or the interpreter ends. A `ResourceWarning`
    /// names the versions that are lost then.
    fn close(&self, py: Python<'_>) -> Answer {
        match self.closed()? {
            true => Ok(()),
            false => self.close_within(py, Timeout(self.core()?.closing_patience())),
        }
    }

    /// True if the engine was closed.
    #[getter]
    fn closed(&self) -> Answer<bool> {
        self.at_home()?;
        Ok(self.core.read().is_none())
    }

    /// The engine's rank and the number of ranks: `(0, 1)` without a group.
    #[getter]
    fn group(&self) -> (u32, u32) {
        self.group
    }

    /// The place where all ranks' versions outlive the engine: `external`, or else `node_local`; `None` if the engine has neither. A
    /// directory is a path, and an object store is its URL as a text.
    #[getter]
    fn directory(&self) -> Option<PathOrUrl> {
        let directory = self.directory.as_ref()?;
        Some(match Place::of(directory) {
            Ok(Place::Url(url)) => PathOrUrl::Url(url),
            Ok(Place::Directory(path)) => PathOrUrl::Path(path),
            Err(_) => PathOrUrl::Path(directory.clone()),
        })
    }

    /// "keep", or "discard" if the engine discards a version once it was restored.
    #[getter]
    fn after_restore(&self) -> Answer<&'static str> {
        Ok(match self.core()?.engine.after_restore() {
            AfterRestore::Keep => "keep",
            AfterRestore::Discard => "discard",
        })
    }

    /// The device of the fastest memory: "host", or a GPU such as "cuda:0".
    #[getter]
    fn device(&self) -> Answer<String> {
        let core = self.core()?;
        let info = core.device.info();
        Ok(match info.kind {
            Kind::Cuda => format!("cuda:{}", info.ordinal),
            _ => "host".to_owned(),
        })
    }

    fn __enter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    /// Closes the engine, however long that takes. If the block raised an exception, waits as long as bytes get to storage, and
    /// `closing_patience` after the last, and ends the engine for good: a `ResourceWarning` names the versions that are lost.
    #[pyo3(signature = (kind, error, trace))]
    fn __exit__(
        &self,
        py: Python<'_>,
        kind: &Bound<'_, PyAny>,
        error: &Bound<'_, PyAny>,
        trace: &Bound<'_, PyAny>,
    ) -> Answer<bool> {
        let _ = (error, trace);
        match kind.is_none() {
            true => self.close_within(py, Timeout::new(None)?)?,
            false => self.end(py)?,
        }
        Ok(false)
    }
}
