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
use tierflow_engine::{AfterRestore, Cache, RegionMut, Version, read_regions};
use tierflow_store::{LostVersion, Place};

use self::named::{Checkpointed, agree, parts};
use crate::array::{Arrays, Use};
use crate::core::SharedEngine;
use crate::dtype::DType;
use crate::errors::{Answer, Number};
use crate::options::{self, Bytes};
use crate::patience::{self, Timeout};
use crate::slot::{ConsumeSlot, Layout, ProduceSlot};
use crate::suspending::Suspension;
use crate::{metrics, order};

/// A directory, or an object store: a path of Python's would make one slash of a URL's two.
#[derive(IntoPyObject)]
enum PathOrUrl {
    Path(PathBuf),
    Url(String),
}

#[doc = include_str!("engine.md")]
#[pyclass(frozen, subclass, weakref, module = "tierflow")]
pub(crate) struct Engine {
    core: RwLock<Option<SharedEngine>>,
    /// The process that built it.
    process: OwnerProcess,
    /// Its rank, and the number of ranks.
    group: (u32, u32),
    /// Where all ranks' pieces lie.
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

    /// Takes in the bytes of `arrays`, one after the other, as `version`. Returns when they are copied: the arrays may be
    /// changed at once. Until then, no other thread may give the memory of a tensor up, as by `set_` or `resize_`.
    ///
    /// Arrays on a GPU are copied after the work that their framework has given its current stream, and that was given to
    /// `stream`. `TimedOutError` if there is no room, or storage hangs, for `timeout` seconds.
    ///
    /// `names`, one for each array, let `restore_regions` bring them back alone, and are found in files. Element types and shapes
    /// are kept with the arrays.
    ///
    /// `within_error` lets the values of this version come back changed by at most so much, in the unit of the values, in place of the
    /// bounds of `compress`. Arrays without a bound there come back as they were.
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

    /// Brings `version` back into `arrays`, one after the other, and counts it as consumed. Work given to any stream
    /// afterwards sees the bytes. `TimedOutError` if it takes longer than `timeout` seconds: the arrays are as they were. Until it
    /// returns, no other thread may give the memory of a tensor up, as by `set_` or `resize_`.
    ///
    /// Only the number of bytes is compared. Without arrays, returns new ones of NumPy's, of the types and shapes that were
    /// checkpointed: a dict by names if they have some, else a list, or the array if there is one. More than 64 arrays without
    /// names come back as one of bytes.
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

    /// Lends room in the fastest tier for an array of this `shape` and element type `dtype`, to be written and committed as `version`: see
    /// `ProduceSlot`. `TimedOutError` if there is none for `timeout` seconds.
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

    /// Lends the cached copy of `version` as a read-only array: see `ConsumeSlot`. Without a `shape` it is flat, and without a
    /// `dtype` its elements are bytes (uint8). `TimedOutError` if it takes longer than `timeout` seconds.
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

    /// Tells which versions will be restored, in this order, after those hinted before.
    ///
    /// Hints may come at any time, in parts, and name versions not written yet. They are advice: wrong, missing and late ones
    /// cost time, never correctness.
    fn hint(&self, py: Python<'_>, versions: &Bound<'_, PyAny>) -> Answer {
        let order = patience::all_of(py, versions)?;
        self.detached(py, |engine| engine.hint(order))
    }

    /// Tells which versions will be restored before all that are hinted: a program that comes to store and restore some more on its
    /// way hints them when they are near, as hinted versions keep room for themselves.
    fn hint_next(&self, py: Python<'_>, versions: &Bound<'_, PyAny>) -> Answer {
        let order = patience::all_of(py, versions)?;
        self.detached(py, |engine| engine.hints().prepend(order))
    }

    /// Withdraws the hints of `versions`, or all hints given so far. Hints given after this count. Several users of one engine
    /// each name the versions that they hinted.
    #[pyo3(signature = (versions = None))]
    fn forget_hints(&self, py: Python<'_>, versions: Option<&Bound<'_, PyAny>>) -> Answer {
        let versions = versions.map(|versions| patience::all_of(py, versions));
        let versions = versions.transpose()?;
        self.detached(py, |engine| match &versions {
            Some(versions) => engine.hints().forget(versions),
            None => engine.hints().clear(),
        })
    }

    /// Reserves `count` consecutive numbers for new versions, as a range: above all that versions of this engine have or had,
    /// that hints name, and that other calls returned. So several users of one engine choose numbers that never meet.
    fn reserve<'py>(&self, py: Python<'py>, count: u64) -> Answer<Bound<'py, PyAny>> {
        let reserved = self.tried(py, |engine| engine.reserve(count))?;
        let range = py.import("builtins")?.getattr("range")?;
        Ok(range.call1((reserved.start, reserved.end))?)
    }

    /// Lets prefetching begin, before the first restore does.
    fn prefetch_start(&self, py: Python<'_>) -> Answer {
        self.detached(py, |engine| engine.hints().prefetch_start())
    }

    /// Gives `version` up, restored or not.
    fn discard(&self, py: Python<'_>, version: Number) -> Answer {
        self.tried(py, |engine| engine.discard(version.0))
    }

    /// Waits until every version taken in lies on the lowest tier: where that outlives the engine, they are there to stay.
    ///
    /// `timeout` is in seconds; when it is over, `TimedOutError`, and the versions are still on their way. Ctrl-C ends the wait,
    /// too.
    #[pyo3(signature = (timeout = None))]
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> Answer {
        let (patience, core) = (Timeout::new(timeout)?, self.core()?);
        patience.spend(py, |until| core.wait(until))
    }

    /// The names of the regions of `version`, and their bytes, in their order.
    fn regions(&self, py: Python<'_>, version: Number) -> Answer<Vec<(String, u64)>> {
        let regions = self.tried(py, |engine| engine.regions(version.0))?;
        let regions = regions.into_iter();
        Ok(regions.map(|info| (info.name, info.length)).collect())
    }

    /// The regions of `version` in their order: name, element type, shape and bytes of each. The type is `None` for bytes.
    fn layout(&self, py: Python<'_>, version: Number) -> Answer<Vec<Described>> {
        let regions = self.tried(py, |engine| engine.regions(version.0))?;
        Ok(described(&regions))
    }

    /// Brings these regions of `version` back, by a mapping of names to arrays, which have the types and shapes that were checkpointed,
    /// or are flat bytes. The version stays as it is: held, and not consumed. `stream` and `timeout` are those of `restore`.
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

    /// Brings regions of another rank's piece of `version` into arrays in main memory, from the `external` directory of the group: it
    /// has them once the version is durable on all ranks.
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
        let piece = py.detach(|| core.engine.piece(version, Some(rank)))?;
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

    /// Lets the ranks keep each other's `redundancy` of what lies on their nodes, where MPI is for the application's calls alone:
    /// all ranks call it at about the same time. `wait` does the same. In the background elsewhere: waits for that.
    fn protect(&self, py: Python<'_>) -> Answer {
        self.tried(py, tierflow_engine::Engine::protect)
    }

    /// Waits until `version` lies on the lowest tier, as `wait` does for all, for `timeout` seconds at most.
    #[pyo3(signature = (version, timeout = None))]
    fn wait_version(&self, py: Python<'_>, version: Number, timeout: Option<f64>) -> Answer {
        let (patience, core) = (Timeout::new(timeout)?, self.core()?);
        patience.spend(py, |until| until.of(&core.engine).wait_version(version.0))
    }

    /// Whether `version` lies on the lowest tier, whole: where that outlives the engine, it is there to stay.
    fn is_durable(&self, py: Python<'_>, version: Number) -> Answer<bool> {
        self.detached(py, |engine| engine.is_durable(version.0))
    }

    /// The job is preempted in `seconds`: the newest version that can be durable by then becomes so; see `Suspension`.
    #[pyo3(signature = (seconds, version = None))]
    fn suspend(&self, py: Python<'_>, seconds: f64, version: Option<Number>) -> Answer<Suspension> {
        Suspension::begin(py, self, seconds, version.map(|version| version.0))
    }

    /// Seconds until `version` is durable if the job is suspended now; `None` while nothing was measured.
    fn time_to_durable(&self, py: Python<'_>, version: Number) -> Answer<Option<f64>> {
        let time = self.tried(py, |engine| engine.time_to_durable(version.0))?;
        Ok(time.map(|time| time.as_secs_f64()))
    }

    /// The newest version held; with `before`, the newest of a smaller number than that. `None` if there is none.
    #[pyo3(signature = (before = None))]
    fn latest(&self, py: Python<'_>, before: Option<Number>) -> Answer<Option<Version>> {
        let before = before.map(|version| version.0);
        self.detached(py, |engine| engine.latest(before))
    }

    /// The versions held, in ascending order.
    fn versions(&self, py: Python<'_>) -> Answer<Vec<Version>> {
        self.detached(py, |engine| engine.versions())
    }

    /// Bytes of `version`: what the arrays that it is restored to must add up to.
    fn restore_size(&self, py: Python<'_>, version: Number) -> Answer<u64> {
        self.tried(py, |engine| engine.restore_size(version.0))
    }

    /// What is known to be damaged, unreadable or unusable of the storage that outlives the engine, in words.
    fn damage(&self, py: Python<'_>) -> Answer<Vec<String>> {
        let damage = self.detached(py, tierflow_engine::Engine::damage)?;
        Ok(damage.iter().map(ToString::to_string).collect())
    }

    /// The versions that were lost with nodes when the engine was opened, as more failed than `redundancy` bears, and why.
    fn losses(&self, py: Python<'_>) -> Answer<Vec<String>> {
        let losses = self.detached(py, |engine| engine.reports().losses)?;
        let line = |gone: &LostVersion| format!("version {}: {}", gone.version, gone.why);
        Ok(losses.iter().map(line).collect())
    }

    /// Leaves the device cache its first `bytes` bytes and gives the other memory back to the device, or takes it again. Returns the
    /// bytes that it may use now, which are never more than it was built with.
    /// `TimedOutError` if emptying it takes longer than `timeout` seconds.
    #[pyo3(signature = (bytes, timeout = 60.0))]
    fn resize_device_cache(&self, py: Python<'_>, bytes: Bytes, timeout: f64) -> Answer<u64> {
        self.resize(py, Cache::Device, &bytes, timeout)
    }

    /// Does for the host cache what `resize_device_cache` does for the device cache, with the same `bytes` and `timeout`.
    #[pyo3(signature = (bytes, timeout = 60.0))]
    fn resize_host_cache(&self, py: Python<'_>, bytes: Bytes, timeout: f64) -> Answer<u64> {
        self.resize(py, Cache::Host, &bytes, timeout)
    }

    /// What was measured so far: a dictionary, which a notebook shows as tables. Times are in seconds.
    fn metrics<'py>(&self, py: Python<'py>) -> Answer<Bound<'py, PyAny>> {
        let measured = self.detached(py, tierflow_engine::Engine::metrics)?;
        Ok(metrics::shown(py, &measured)?)
    }

    /// Says in sentences for what calls blocked the program, what that waited for in turn, and which share of the run it was.
    fn explain(&self, py: Python<'_>) -> Answer<Vec<String>> {
        self.detached(py, |engine| engine.metrics().explain())
    }

    /// Returns the measurements in the text format of OpenMetrics, which Prometheus reads.
    fn open_metrics(&self, py: Python<'_>) -> Answer<String> {
        self.detached(py, |engine| engine.metrics().open_metrics())
    }

    /// Returns what was measured, what cannot be read and what was lost, as a JSON document: the file of `statistics=`, now.
    fn statistics(&self, py: Python<'_>) -> Answer<String> {
        let core = self.core()?;
        Ok(py.detach(|| core.statistics()))
    }

    /// Writes the time line that `timeline=` asked for into the file `path`, in the Chrome trace format, which Perfetto opens.
    fn write_timeline(&self, py: Python<'_>, path: PathBuf) -> Answer {
        let failed = |error| Failure::file(&path, &error);
        self.tried(py, |engine| engine.write_timeline(&path).map_err(failed))
    }

    /// Ends the engine, its transfers and its history. Where versions are to outlive it, waits until they are there to stay: as
    /// long as bytes get to storage, and `closing_patience` after the last. What `suspend` gave up is not waited for. If that raises something, the engine stays open: see to
    /// what is wrong, and close it again. Slots that are still lent stay good, and the last of them ends it. Closing again does nothing.
    ///
    /// An engine that is never closed waits as long when it goes, or the interpreter ends, and a `ResourceWarning` names the versions
    /// that are lost then.
    fn close(&self, py: Python<'_>) -> Answer {
        match self.closed()? {
            true => Ok(()),
            false => self.close_within(py, Timeout(self.core()?.closing_patience())),
        }
    }

    /// Whether it was closed.
    #[getter]
    fn closed(&self) -> Answer<bool> {
        self.at_home()?;
        Ok(self.core.read().is_none())
    }

    /// Its rank and the number of ranks: `(0, 1)` without a group.
    #[getter]
    fn group(&self) -> (u32, u32) {
        self.group
    }

    /// Where the versions outlive it, of all ranks: `external`, or else `node_local`; `None` if they do not. A path, or the URL of an
    /// object store as a text.
    #[getter]
    fn directory(&self) -> Option<PathOrUrl> {
        let directory = self.directory.as_ref()?;
        Some(match Place::of(directory) {
            Ok(Place::Url(url)) => PathOrUrl::Url(url),
            Ok(Place::Directory(path)) => PathOrUrl::Path(path),
            Err(_) => PathOrUrl::Path(directory.clone()),
        })
    }

    /// "keep", or "discard" if a version is gone once it was restored.
    #[getter]
    fn after_restore(&self) -> Answer<&'static str> {
        Ok(match self.core()?.engine.after_restore() {
            AfterRestore::Keep => "keep",
            AfterRestore::Discard => "discard",
        })
    }

    /// Where its fastest memory is: "host", or "cuda:0".
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

    /// Closes the engine, however long that takes. If the block raised something, waits as long as bytes get to storage, and
    /// `closing_patience` after the last, and ends the engine for good: a `ResourceWarning` names the versions that are lost by that.
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
