//! A function that copies many arrays into one by one call.

use std::ops::Range;
use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyTuple;
use tierflow_bind::{CallMemory, Failure, Order};

use crate::array::{Arrays, Use};
use crate::engine::Engine;
use crate::errors::{Answer, Raised};
use crate::ffi::copies::{self, Wait};
use crate::ffi::dlpack::{CPU, CUDA};
use crate::ffi::exchange::Api;
use crate::order;
use crate::slot::{LentSlot, ProduceSlot};

/// Copies the bytes of `arrays` to their `offsets` in `into`, a slot of `engine` or an array. The caller chooses offsets so that no two
/// arrays share a byte there. A conjugation or negation that PyTorch has deferred is not done.
///
/// Arrays on a GPU are copied in the order of `stream`, or of their framework's current stream, without waiting: the caller changes
/// neither them nor `into` until the stream has done the copies. If one of the arrays, or an array `into`, is in main memory, or if there
/// is no `stream` and the framework names none, all are copied when `gather` returns.
#[pyfunction]
#[pyo3(signature = (engine, into, arrays, offsets, *, stream = None))]
pub(crate) fn gather<'py>(
    engine: &Bound<'py, Engine>,
    into: &Bound<'py, PyAny>,
    arrays: &Bound<'py, PyTuple>,
    offsets: Vec<usize>,
    stream: Option<&Bound<'py, PyAny>>,
) -> Answer {
    let py = engine.py();
    if offsets.len() != arrays.len() {
        let text = format!(
            "there are {} offsets of {} arrays",
            offsets.len(),
            arrays.len()
        );
        return Err(Failure::argument(&text).into());
    }
    let core = engine.get().core()?;
    let mut order = order::behind(&core.streams, stream)?;
    let target = Target::of(into, &mut order)?;
    let (own, (mut parts, mut others)) = (
        target.addresses(),
        (Vec::with_capacity(offsets.len()), Vec::new()),
    );
    let mut on_device = true;
    let mut add = |at, memory: &CallMemory| {
        on_device &= memory.is_on_device();
        let (begin, bytes) = (memory.span().address(), memory.span().bytes() as u64);
        if begin < own.end && own.start < begin.saturating_add(bytes) {
            let text = "an array shares memory with what it is copied to".to_owned();
            return Err(Raised::array(text));
        }
        parts.push((at, memory.lendable(&core.device)?));
        Ok(())
    };
    for (array, at) in arrays.iter().zip(offsets) {
        if let Some(memory) = plain(&array, &mut order)? {
            add(at, &memory)?;
            continue;
        }
        let other = Arrays::of(&PyTuple::new(py, [&array])?, Use::Read, &mut order)?;
        other.each(|memory| add(at, memory))?;
        others.push(other);
    }
    if let Target::Array(array) = &target {
        on_device &= array.are_on_device();
    }
    let (lent, whole) = match &target {
        Target::Slot(lent) => (lent.slot.produced(), None),
        Target::Array(array) => (None, array.memory(&core.device)?),
    };
    let copied = py.detach(|| {
        let stream = order.choose()?;
        let by = (&**stream, Wait::on(stream, on_device));
        match (lent, &whole) {
            (Some(slot), _) => copies::gather(by, &parts, slot),
            (_, Some(array)) => copies::gather(by, &parts, &array.lend_mut(0..array.len())?),
            (None, None) => Ok(()),
        }
    });
    drop((order, others));
    Ok(copied?)
}

/// The target of the copies. A slot knows the parts in which its host memory was pinned; an array over its bytes does not.
enum Target {
    Slot(Arc<LentSlot>),
    Array(Arrays),
}

impl Target {
    fn of(into: &Bound<'_, PyAny>, order: &mut Order<'_>) -> Answer<Self> {
        if let Ok(slot) = into.cast::<ProduceSlot>() {
            return Ok(Self::Slot(slot.get().lent()?));
        }
        let array = PyTuple::new(into.py(), [into])?;
        Ok(Self::Array(Arrays::of(&array, Use::Write, order)?))
    }

    fn addresses(&self) -> Range<u64> {
        let (begin, bytes) = match self {
            Self::Slot(lent) => (lent.address(), lent.layout().bytes()),
            Self::Array(array) => array.span(),
        };
        begin..begin.saturating_add(bytes as u64)
    }
}

/// Returns the memory of a contiguous tensor by the C exchange API, the fastest way to it. Returns `None` for all other arrays.
fn plain(array: &Bound<'_, PyAny>, order: &mut Order<'_>) -> Answer<Option<CallMemory>> {
    let py = array.py();
    let Some(api) = Api::of(array) else {
        return Ok(None);
    };
    match api.contiguous(array) {
        Some((span, device)) if device.kind == CPU => Ok(Some(CallMemory::on_host(span))),
        Some((span, device)) if device.kind == CUDA && is_own(order, device.number) => {
            order::after(py, order, api.stream(py, device)?)?;
            Ok(Some(CallMemory::on_device(span, order.device())?))
        }
        _ => Ok(None),
    }
}

/// Returns true if the engine's device is the GPU of this number.
fn is_own(order: &Order<'_>, number: i32) -> bool {
    order.is_cuda() && usize::try_from(number) == Ok(order.device().info().ordinal)
}
