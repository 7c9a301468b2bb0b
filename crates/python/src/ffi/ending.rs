//! An engine whose end holds nobody up.

use std::mem::ManuallyDrop;
use std::ops::Deref;

use pyo3::prelude::*;
use tierflow_engine::Engine;

/// An engine that lets go of the interpreter while it ends, which waits for its workers.
pub(crate) struct Ending(ManuallyDrop<Engine>);

impl Ending {
    pub(crate) fn new(engine: Engine) -> Self {
        Self(ManuallyDrop::new(engine))
    }
}

impl Deref for Ending {
    type Target = Engine;

    fn deref(&self) -> &Engine {
        &self.0
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        // SAFETY: taken once, as what is dropped is not used any more.
        let engine = unsafe { ManuallyDrop::take(&mut self.0) };
        detached(|| drop(engine));
    }
}

/// Lets go of the interpreter, if this thread has it, while something is dropped that may wait.
pub(crate) fn detached(drop: impl FnOnce() + Send) {
    let mut drop = Some(drop);
    let mut run = || {
        if let Some(drop) = drop.take() {
            drop();
        }
    };
    // At the interpreter's end there is nothing to let go of.
    if Python::try_attach(|py| py.detach(&mut run)).is_none() {
        run();
    }
}
