//! The class `Tape`: states that a compiled program of JAX saves in its forward pass, and loads in its backward pass.
//!
//! A *run* is one forward pass. Its states are a stack: the backward pass takes the last one first. Programs name a run by a number
//! that one call returns and the others are given. On a GPU that number is not read by each call, as the processor would have to wait
//! for it: calls come in the order of the device's one stream, and a pass of a run is not interrupted by another's.

use std::collections::HashMap;
use std::collections::btree_map::{BTreeMap, Entry};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Weak};

use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use tierflow_bind::Span;
use tierflow_device::{Memory, Place, Stream};
use tierflow_engine::{Error, Version};

use crate::core::Core;
use crate::engine::Engine;
use crate::errors::{Answer as Returned, Number};
use crate::ffi::copies::{self, Wait};
use crate::ffi::detached::detached;
use crate::ffi::streams::adopted;
use crate::ffi::xla::{self, Answer, Call};

/// States begin at multiples of this many bytes.
const ALIGNMENT: usize = 64;

/// Tapes by the numbers by which programs name them, as programs may outlive them.
static TAPES: LazyLock<Mutex<HashMap<u64, Weak<Inner>>>> = LazyLock::new(Mutex::default);
static NEXT: AtomicU64 = AtomicU64::new(1);

/// States of compiled programs of JAX, in an engine, which numbers them from `first` on. See `tierflow.jax`.
#[pyclass(frozen, module = "tierflow")]
pub(crate) struct Tape {
    /// There until it is dropped.
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

/// A tape, as programs name it.
pub(crate) struct Inner {
    core: Core,
    runs: Mutex<Runs>,
}

#[derive(Default)]
struct Runs {
    next: Version,
    last: u32,
    stacks: BTreeMap<u32, Vec<Version>>,
    /// On a GPU: the run in its forward pass, and the one in its backward pass.
    forward: u32,
    back: u32,
}

#[pymethods]
impl Tape {
    #[new]
    #[pyo3(signature = (engine, first = Number(0)), text_signature = "(engine, first=0)")]
    fn new(engine: &Engine, first: Number) -> Returned<Self> {
        let runs = Runs {
            next: first.0,
            ..Runs::default()
        };
        let inner = Arc::new(Inner {
            core: engine.core()?,
            runs: Mutex::new(runs),
        });
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        TAPES.lock().insert(id, Arc::downgrade(&inner));
        Ok(Self {
            inner: Some(inner),
            id,
        })
    }

    /// The number by which programs name it.
    #[getter]
    fn id(&self) -> u64 {
        self.id
    }

    /// States that were saved and not loaded yet.
    fn __len__(&self) -> usize {
        self.inner().runs.lock().stacks.values().map(Vec::len).sum()
    }

    /// Discards states that will not be loaded: of forward passes without a backward pass. Wait for those passes before.
    fn clear(&self, py: Python<'_>) -> Returned {
        let stacks = std::mem::take(&mut self.inner().runs.lock().stacks);
        let mut outcome = Ok(());
        for version in stacks.into_values().flatten() {
            match py.detach(|| self.inner().core.engine.discard(version)) {
                // It was given up before.
                Err(Error::Unknown { .. } | Error::Discarded { .. }) => {}
                discarded => outcome = outcome.and(discarded),
            }
        }
        Ok(outcome?)
    }

    /// The handlers, by name, of a platform of JAX's: its GPUs if `on_gpu`, else the processor.
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
        TAPES.lock().remove(&self.id);
        // The last one to have the engine ends it.
        let inner = &mut self.inner;
        detached(&mut || drop(inner.take()));
    }
}

/// Has the tape of a call answer it.
pub(crate) fn with_tape(call: &Call, answer: fn(&Inner, &Call, &Way<'_>) -> Answer) -> Answer {
    let tape = TAPES.lock().get(&call.tape).and_then(Weak::upgrade);
    let tape =
        tape.ok_or("the tape is gone: keep it for as long as programs run that were made with it")?;
    let core = &tape.core;
    if call.stream.is_some() && !core.is_cuda() {
        return Err(
            "the engine keeps plain memory, and JAX runs on a GPU: build it with device=\"cuda\""
                .to_owned(),
        );
    }
    let way = Way::new(core, call.stream)?;
    answer(&tape, call, &way)
}

/// How bytes are copied between the engine and a program's arrays.
pub(crate) enum Way<'core> {
    Ordered(Arc<Stream>),
    AtOnce(tierflow_bind::Borrowed<'core>),
}

impl<'core> Way<'core> {
    fn new(core: &'core Core, stream: Option<u64>) -> Result<Self, String> {
        let way = match stream {
            Some(handle) => adopted(&core.streams, handle.max(1)).map(Self::Ordered),
            None => core.streams.own().map(Self::AtOnce),
        };
        way.map_err(said)
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
    fn memory(&self, span: Span, way: &Way<'_>) -> Result<Memory, String> {
        let place = match way.ordered() {
            Some(_) => Place::Device,
            None => Place::Host,
        };
        span.memory(&self.core.device, place).map_err(said)
    }

    /// Reads the number of a run, for which the processor waits.
    fn run_of(&self, span: Option<&Span>, way: &Way<'_>) -> Result<u32, String> {
        let span = *span.ok_or("a call of Tierflow's is given the number of its run")?;
        let number = xla::host_number(span)?;
        if way.ordered().is_none() {
            return Ok(copies::number(number));
        }
        let memory = self.memory(span, way)?;
        let mut bytes = [0; 4];
        let loan = memory.lend(0..4).map_err(said)?;
        way.by().0.read(&loan, &mut bytes).map_err(said)?;
        Ok(u32::from_ne_bytes(bytes))
    }

    /// A forward pass begins: returns the run's number.
    pub(crate) fn begin(&self, call: &Call, way: &Way<'_>) -> Answer {
        let run = {
            let mut runs = self.runs.lock();
            runs.last = runs.last.wrapping_add(1);
            let run = runs.last;
            runs.forward = run;
            runs.stacks.insert(run, Vec::new());
            run
        };
        let span = *call
            .results
            .first()
            .ok_or("the number of a run is a result")?;
        let number = xla::host_number(span)?;
        if way.ordered().is_none() {
            copies::set_number(number, run);
            return Ok(());
        }
        let memory = self.memory(span, way)?;
        let mut loan = memory.lend_mut(0..4).map_err(said)?;
        way.by()
            .0
            .write(&run.to_ne_bytes(), &mut loan)
            .map_err(said)
    }

    pub(crate) fn save(&self, call: &Call, way: &Way<'_>) -> Answer {
        let run = match way.ordered() {
            Some(_) => self.runs.lock().forward,
            None => self.run_of(call.arguments.first(), way)?,
        };
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
            let array = self.memory(*span, way)?;
            copies::fill(way.by(), &slot, at, &array).map_err(said)
        });
        if let Err(failed) = copied {
            // Copies that were queued before still write there.
            if let Some(stream) = way.ordered() {
                slot.give_up_after(stream).map_err(said)?;
            }
            return Err(failed);
        }
        match way.ordered() {
            Some(stream) => slot.commit_after(stream).map_err(said)?,
            None => slot.commit(),
        }
        let mut runs = self.runs.lock();
        let stack = runs.stacks.get_mut(&run);
        stack
            .ok_or("a state is saved in a run that was not begun")?
            .push(version);
        Ok(())
    }

    /// A backward pass begins.
    pub(crate) fn rewind(&self, call: &Call, way: &Way<'_>) -> Answer {
        let run = self.run_of(call.arguments.first(), way)?;
        let hints = {
            let mut runs = self.runs.lock();
            runs.back = run;
            let stack = runs.stacks.get(&run);
            let stack = stack
                .ok_or("a backward pass begins that already ran, or whose states were cleared: run the forward pass again")?;
            stack.iter().rev().copied().collect::<Vec<_>>()
        };
        self.core.engine.hint(hints);
        self.core.engine.prefetch_start();
        Ok(())
    }

    pub(crate) fn load(&self, call: &Call, way: &Way<'_>) -> Answer {
        let run = match way.ordered() {
            Some(_) => self.runs.lock().back,
            None => self.run_of(call.arguments.first(), way)?,
        };
        let version = {
            let runs = self.runs.lock();
            let stack = runs.stacks.get(&run);
            let last = stack.and_then(|stack| stack.last().copied());
            last.ok_or("more states are loaded than were saved")?
        };
        let arrays = call.results.get(1..).unwrap_or_default();
        let (places, size) = laid_out(arrays);
        let engine = &self.core.engine;
        let slot = engine.call().consume(version).map_err(said)?;
        let copied = match slot.len() == size {
            true => arrays.iter().zip(places).try_for_each(|(span, at)| {
                if span.bytes() == 0 {
                    return Ok(());
                }
                let array = self.memory(*span, way)?;
                copies::read(way.by(), &slot, at, &array).map_err(said)
            }),
            false => Err(format!(
                "a state of {} bytes is loaded as one of {size}",
                slot.len()
            )),
        };
        if let Err(failed) = copied {
            // Copies that were queued before still read there, and the state is not consumed.
            match way.ordered() {
                Some(stream) => slot.give_back_after(stream).map_err(said)?,
                None => slot.give_back(),
            }
            return Err(failed);
        }
        match way.ordered() {
            Some(stream) => slot.finish_after(stream).map_err(said)?,
            None => drop(slot),
        }
        // A state that failed to load stays on the tape, for `clear`.
        let mut runs = self.runs.lock();
        if let Entry::Occupied(mut stack) = runs.stacks.entry(run) {
            stack.get_mut().pop_if(|state| *state == version);
            if stack.get().is_empty() {
                stack.remove();
            }
        }
        drop(runs);
        // An engine may discard what was restored, too.
        let _gone = engine.discard(version);
        Ok(())
    }
}

/// Where each array lies, and how many bytes that takes; at least one, as there are no versions without.
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
