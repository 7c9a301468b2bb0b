//! An engine as Python's calls use it.

use std::ops::Deref;
use std::sync::Arc;

use pyo3::prelude::*;
use tierflow_bind::{Door, EngineHandle, Failure, Options};

use crate::errors;
use crate::ffi::detached::detached;
use crate::logging;
use crate::order::Order;
use crate::patience::watched;

/// An engine and what its calls share.
#[derive(Clone)]
pub(crate) struct Core(Arc<EngineHandle>);

impl Deref for Core {
    type Target = EngineHandle;

    fn deref(&self) -> &EngineHandle {
        &self.0
    }
}

impl Core {
    pub(crate) fn open(py: Python<'_>, options: Options) -> PyResult<Self> {
        let door = Door {
            detached,
            lost,
            ranks_meet_at_end: true,
            ..Door::default()
        };
        logging::follow_level(py)?;
        let opened = py.detach(|| EngineHandle::open(options, door));
        opened
            .map(Self)
            .map_err(|failure| errors::failed(py, &failure))
    }

    /// The owner that slots share.
    pub(crate) fn handle(&self) -> &Arc<EngineHandle> {
        &self.0
    }

    pub(crate) fn order(&self, stream: Option<&Bound<'_, PyAny>>) -> PyResult<Order<'_>> {
        Order::new(&self.streams, stream)
    }
}

/// Tells which versions were lost with an engine that nobody closed, wherever its last user lets go of it.
fn lost(failure: &Failure) {
    let told = Python::try_attach(|py| {
        // An object may go while an exception is on its way.
        let on_its_way = PyErr::take(py);
        errors::warn(py, failure);
        if let Some(error) = on_its_way {
            error.restore(py);
        }
    });
    if told.is_none() {
        eprintln!("tierflow: {failure}");
    }
}

/// Ends the engines that are still there when the interpreter ends, and warns of what is lost by that.
#[pyfunction]
pub(crate) fn end_of_process(py: Python<'_>) -> PyResult<()> {
    let ((), raised) =
        watched(|interrupt| py.detach(|| tierflow_bind::end_of_process(Some(interrupt))));
    raised.map_or(Ok(()), Err)
}
