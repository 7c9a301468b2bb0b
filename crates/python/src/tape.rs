//! The class `Tape`: states that a compiled program of JAX saves in its forward pass and loads in its backward pass.
//!
//! A *run* is one forward pass. The states of a run are a stack: the backward pass loads the last one first. `begin` returns the run's
//! number to the program, which passes it to the other calls. On a GPU, `save` and `load` do not read that number, as the processor would
//! have to wait for it: calls come in the order of the device's one stream, and no pass is interrupted by a pass of another run.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use tierflow_bind::{PerProcess, Span};
use tierflow_device::{Memory, Place, ReadLoan, Stream};
use tierflow_engine::{Error, Version};

use crate::core::SharedEngine;
use crate::engine::Engine;
use crate::errors::{Answer as Returned, Number};
use crate::ffi::copies::{self, Wait};
use crate::ffi::detached::detached;
use crate::ffi::streams::adopted;
use crate::ffi::xla::{self, Answer, Call};

/// States begin at multiples of this many bytes.
const ALIGNMENT: usize = 64;

/// The tapes by the numbers that programs have. A program may outlive its tape. A fork has none of its parent's.
static TAPES: PerProcess<Mutex<HashMap<u64, Weak<Inner>>>> = PerProcess::new();
static NEXT: AtomicU64 = AtomicU64::new(1);

/// States of compiled programs of JAX in `engine`, as versions with numbers from `first` on. See `tierflow.jax`.
///
/// `clear`, the end of a `with` block, and dropping the tape discard the states that no backward pass loaded. JAX's caches of programs
/// delay the drop.
#[pyclass(frozen, module = "tierflow")]
pub(crate) struct Tape {
    /// `Some` until the tape is dropped.
    inner: Option<Arc<Inner>>,
    id: u64,
}

impl Tape {
    fn inner(&self) -> &Inner {
        match &self.inner {
            Some(inner) => inner,
            None => unreachable!("only dropping takes it"),
        }
    }
}

/// The part of a tape that calls of programs use.
pub(crate) struct Inner {
    core: SharedEngine,
    runs: Mutex<TapeRuns>,
}

/// The runs of a tape, by number.
#[derive(Default)]
struct TapeRuns {
    next: Version,
    last: u32,
    runs: BTreeMap<u32, Run>,
    /// The run in its forward pass, as `begin` set it. `save` uses it on a GPU.
    forward: u32,
    /// The run in its backward pass, as `rewind` set it. `load` uses it on a GPU.
    back: u32,
}

/// The states of one forward pass.
#[derive(Default)]
struct Run {
    /// The states that are not loaded yet, oldest first.
    states: Vec<Version>,
    /// Number of states that were loaded.
    loaded: usize,
    /// True if the last load failed: the program did not reach its end.
    failed: bool,
}

#[pymethods]
impl Tape {
    #[new]
    #[pyo3(signature = (engine, first = Number(0)), text_signature = "(engine, first=0)")]
    fn new(engine: &Engine, first: Number) -> Returned<Self> {
        let runs = TapeRuns {
            next: first.0,
            ..TapeRuns::default()
        };
        let inner = Arc::new(Inner {
            core: engine.core()?,
            runs: Mutex::new(runs),
        });
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        TAPES.get().lock().insert(id, Arc::downgrade(&inner));
        Ok(Self {
            inner: Some(inner),
            id,
        })
    }

    /// The tape's number, which programs have.
    #[getter]
    fn id(&self) -> u64 {
        self.id
    }

    /// Returns the number of states that were saved and are not loaded yet.
    fn __len__(&self) -> usize {
        let runs = self.inner().runs.lock();
        runs.runs.values().map(|run| run.states.len()).sum()
    }

    /// Discards the states of forward passes that had no backward pass. Wait for those forward passes before.
    fn clear(&self, py: Python<'_>) -> Returned {
        let inner = self.inner();
        Ok(py.detach(|| inner.clear())?)
    }

    fn __enter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    /// Calls `clear`, however the block ended. Wait in the block for programs that use the tape.
    #[pyo3(signature = (*_arguments))]
    fn __exit__(&self, py: Python<'_>, _arguments: &Bound<'_, PyTuple>) -> Returned<bool> {
        self.clear(py)?;
        Ok(false)
    }

    /// Returns the handlers by name for a platform of JAX: GPUs if `on_gpu` is true, else the processor.
    #[staticmethod]
    fn handlers<'py>(py: Python<'py>, on_gpu: bool) -> PyResult<Bound<'py, PyDict>> {
        let handlers = PyDict::new(py);
        for (name, plain, gpu) in xla::HANDLERS {
            let handler = if on_gpu { *gpu } else { *plain };
            handlers.set_item(format!("tierflow_{name}"), xla::capsule(py, handler)?)?;
        }
        Ok(handlers)
    }
}

impl Drop for Tape {
    fn drop(&mut self) {
        TAPES.get().lock().remove(&self.id);
        let inner = &mut self.inner;
        detached(&mut || {
            // Dropping the last reference to the engine ends it, so this thread is detached.
            let Some(inner) = inner.take() else { return };
            // A fork has no states, and a thread that the fork does not have may hold the locks.
            if inner.core.other_process().is_none() {
                let _nobody_is_told = inner.clear();
            }
        });
    }
}

/// Finds the tape of a call and lets it answer.
pub(crate) fn with_tape(
    call: &Call,
    answer: fn(&Inner, &Call, &CopyStream<'_>) -> Answer,
) -> Answer {
    let tape = TAPES.get().lock().get(&call.tape).and_then(Weak::upgrade);
    let tape =
        tape.ok_or("the tape is gone: keep it for as long as programs run that were made with it")?;
    let core = &tape.core;
    if call.stream.is_some() && !core.is_cuda() {
        return Err(
            "the engine keeps plain memory, and JAX runs on a GPU: build it with device=\"cuda\""
                .to_owned(),
        );
    }
    let copy_stream = CopyStream::new(core, call.stream)?;
    answer(&tape, call, &copy_stream)
}

/// The stream of copies between the engine and a program's arrays: the program's own on a GPU, else one that is waited for at once.
pub(crate) enum CopyStream<'core> {
    Ordered(Arc<Stream>),
    AtOnce(tierflow_bind::Borrowed<'core>),
}

impl<'core> CopyStream<'core> {
    fn new(core: &'core SharedEngine, stream: Option<u64>) -> Result<Self, String> {
        let copy_stream = match stream {
            Some(handle) => adopted(&core.streams, handle.max(1)).map(Self::Ordered),
            None => core.streams.own().map(Self::AtOnce),
        };
        copy_stream.map_err(said)
    }

    fn by(&self) -> (&Stream, Wait) {
        match self {
            Self::Ordered(stream) => (stream, Wait::No),
            Self::AtOnce(stream) => (stream, Wait::Yes),
        }
    }

    fn ordered(&self) -> Option<&Stream> {
        match self {
            Self::Ordered(stream) => Some(stream),
            Self::AtOnce(_) => None,
        }
    }
}

fn said(error: impl std::fmt::Display) -> String {
    error.to_string()
}

impl Inner {
    fn memory(&self, span: Span, copy_stream: &CopyStream<'_>) -> Result<Memory, String> {
        let place = match copy_stream.ordered() {
            Some(_) => Place::Device,
            None => Place::Host,
        };
        span.memory(&self.core.device, place).map_err(said)
    }

    /// Reads the number of a run. On a GPU the processor waits for it.
    fn run_of(&self, span: Option<&Span>, copy_stream: &CopyStream<'_>) -> Result<u32, String> {
        let span = *span.ok_or("a call of Tierflow's is given the number of its run")?;
        let number = xla::host_number(span)?;
        if copy_stream.ordered().is_none() {
            return Ok(copies::number(number));
        }
        let memory = self.memory(span, copy_stream)?;
        let mut bytes = [0; 4];
        let loan = memory.lend(0..4).map_err(said)?;
        copy_stream.by().0.read(&loan, &mut bytes).map_err(said)?;
        Ok(u32::from_ne_bytes(bytes))
    }

    /// Discards the states that are not loaded yet, as [`discard`](Self::discard) does.
    fn clear(&self) -> tierflow_engine::Result<()> {
        let runs = std::mem::take(&mut self.runs.lock().runs);
        self.discard(runs.into_values())
    }

    /// Discards the states of runs whose backward pass will not come. An error does not stop it, and the first one is returned. A state that
    /// the engine does not have is already discarded.
    fn discard(&self, runs: impl IntoIterator<Item = Run>) -> tierflow_engine::Result<()> {
        let mut outcome = Ok(());
        for version in runs.into_iter().flat_map(|run| run.states) {
            match self.core.engine.discard(version) {
                Err(Error::Unknown { .. } | Error::Discarded { .. }) => {}
                discarded => outcome = outcome.and(discarded),
            }
        }
        outcome
    }

    /// Begins a forward pass: writes the new run's number to the program, and discards the states of runs whose backward pass failed.
    pub(crate) fn begin(&self, call: &Call, copy_stream: &CopyStream<'_>) -> Answer {
        let (run, failed) = {
            let mut runs = self.runs.lock();
            runs.last = runs.last.wrapping_add(1);
            let run = runs.last;
            runs.forward = run;
            let (failed, others) = std::mem::take(&mut runs.runs)
                .into_iter()
                .partition::<BTreeMap<_, _>, _>(|(_, run)| run.failed);
            runs.runs = others;
            runs.runs.insert(run, Run::default());
            (run, failed)
        };
        // The failed program has reported its error already.
        let _reported = self.discard(failed.into_values());
        let span = *call
            .results
            .first()
            .ok_or("the number of a run is a result")?;
        let number = xla::host_number(span)?;
        if copy_stream.ordered().is_none() {
            copies::set_number(number, run);
            return Ok(());
        }
        let memory = self.memory(span, copy_stream)?;
        let mut loan = memory.lend_mut(0..4).map_err(said)?;
        copy_stream
            .by()
            .0
            .write(&run.to_ne_bytes(), &mut loan)
            .map_err(said)
    }

    pub(crate) fn save(&self, call: &Call, copy_stream: &CopyStream<'_>) -> Answer {
        let run = match copy_stream.ordered() {
            Some(_) => self.runs.lock().forward,
            None => self.run_of(call.arguments.first(), copy_stream)?,
        };
        let saved = self.save_state(call, copy_stream);
        let version = match saved {
            Ok(version) => version,
            Err(error) => {
                // The program ends here, so no later call names the run.
                let run = self.runs.lock().runs.remove(&run);
                let _the_save_failed_first = self.discard(run);
                return Err(error);
            }
        };
        if let Some(run) = self.runs.lock().runs.get_mut(&run) {
            run.states.push(version);
            return Ok(());
        }
        let _gone = self.core.engine.discard(version);
        Err("a state is saved in a run that was not begun, or that was cleared: wait for a program before the tape is cleared".to_owned())
    }

    fn save_state(&self, call: &Call, copy_stream: &CopyStream<'_>) -> Result<Version, String> {
        let arrays = call.arguments.get(1..).unwrap_or_default();
        let (places, size) = laid_out(arrays);
        let version = {
            let mut runs = self.runs.lock();
            let version = runs.next;
            runs.next += 1;
            version
        };
        let slot = self
            .core
            .engine
            .call()
            .produce(version, size)
            .map_err(said)?;
        let copied = arrays.iter().zip(places).try_for_each(|(span, at)| {
            if span.bytes() == 0 {
                return Ok(());
            }
            let array = self.memory(*span, copy_stream)?;
            copies::fill(copy_stream.by(), &slot, at, &array).map_err(said)
        });
        if let Err(failed) = copied {
            // Copies that were queued before still write to the slot.
            if let Some(stream) = copy_stream.ordered() {
                slot.give_up_after(stream).map_err(said)?;
            }
            return Err(failed);
        }
        match copy_stream.ordered() {
            Some(stream) => slot.commit_after(stream).map_err(said)?,
            None => slot.commit(),
        }
        Ok(version)
    }

    /// Begins a backward pass: hints the states of the run, last one first, and begins prefetching.
    pub(crate) fn rewind(&self, call: &Call, copy_stream: &CopyStream<'_>) -> Answer {
        let run = self.run_of(call.arguments.first(), copy_stream)?;
        let hints = {
            let mut runs = self.runs.lock();
            runs.back = run;
            let whole = runs.runs.get(&run).filter(|run| run.loaded == 0);
            let whole = whole
                .ok_or("a backward pass begins that already ran, or whose states were cleared: run the forward pass again")?;
            let hints: Vec<Version> = whole.states.iter().rev().copied().collect();
            if hints.is_empty() {
                runs.runs.remove(&run);
            }
            hints
        };
        self.core.engine.hint(hints);
        self.core.engine.hints().prefetch_start();
        Ok(())
    }

    pub(crate) fn load(&self, call: &Call, copy_stream: &CopyStream<'_>) -> Answer {
        let run = match copy_stream.ordered() {
            Some(_) => self.runs.lock().back,
            None => self.run_of(call.arguments.first(), copy_stream)?,
        };
        let version = {
            let runs = self.runs.lock();
            let newest = runs.runs.get(&run).and_then(|run| run.states.last());
            *newest.ok_or("more states are loaded than were saved")?
        };
        let loaded = self.load_state(version, call, copy_stream);
        {
            let mut runs = self.runs.lock();
            if let Some(its) = runs.runs.get_mut(&run) {
                if loaded.is_ok() {
                    its.states.pop();
                    its.loaded += 1;
                }
                its.failed = loaded.is_err();
                if its.states.is_empty() {
                    runs.runs.remove(&run);
                }
            }
        }
        loaded?;
        // An engine with `after_restore="discard"` has discarded the version already.
        let _gone = self.core.engine.discard(version);
        Ok(())
    }

    /// Copies a state to the arrays of a call. If that fails, the version stays unconsumed.
    fn load_state(&self, version: Version, call: &Call, copy_stream: &CopyStream<'_>) -> Answer {
        let arrays = call.results.get(1..).unwrap_or_default();
        let (places, size) = laid_out(arrays);
        let slot = self.core.engine.call().consume(version).map_err(said)?;
        let copied = self.copied(&slot, arrays, &places, size, copy_stream);
        match copy_stream.ordered() {
            Some(stream) if copied.is_ok() => slot.finish_after(stream).map_err(said)?,
            Some(stream) => slot.give_back_after(stream).map_err(said)?,
            None if copied.is_ok() => drop(slot),
            None => slot.give_back(),
        }
        copied
    }

    fn copied(
        &self,
        slot: &ReadLoan,
        arrays: &[Span],
        places: &[usize],
        size: usize,
        copy_stream: &CopyStream<'_>,
    ) -> Answer {
        if slot.len() != size {
            let held = slot.len();
            return Err(format!(
                "a state of {held} bytes is loaded as one of {size}"
            ));
        }
        for (span, at) in arrays.iter().zip(places) {
            if span.bytes() > 0 {
                let array = self.memory(*span, copy_stream)?;
                copies::read(copy_stream.by(), slot, *at, &array).map_err(said)?;
            }
        }
        Ok(())
    }
}

/// Returns the offset of each array in a state, and the bytes of the state. A state has at least one byte, as every version does.
fn laid_out(arrays: &[Span]) -> (Vec<usize>, usize) {
    let mut end = 0_usize;
    let places = arrays
        .iter()
        .map(|span| {
            let at = end.next_multiple_of(ALIGNMENT);
            end = at + span.bytes();
            at
        })
        .collect();
    (places, end.max(1))
}
