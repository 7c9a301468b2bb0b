//! An engine whose drop releases the interpreter meanwhile.

use std::mem::ManuallyDrop;
use std::ops::Deref;

use pyo3::prelude::*;
use tierflow_engine::Engine;

/// An engine that detaches from the interpreter while it is dropped, as that waits for its workers.
pub(crate) struct DetachedEngine(ManuallyDrop<Engine>);

impl DetachedEngine {
    pub(crate) fn new(engine: Engine) -> Self {
        Self(ManuallyDrop::new(engine))
    }
}

impl Deref for DetachedEngine {
    type Target = Engine;

    fn deref(&self) -> &Engine {
        &self.0
    }
}

impl Drop for DetachedEngine {
    fn drop(&mut self) {
        // SAFETY: taken once, as what is dropped is not used any more.
        let engine = unsafe { ManuallyDrop::take(&mut self.0) };
        detached(|| drop(engine));
    }
}

/// Detaches from the interpreter, if this thread is attached, while something is dropped that may wait.
pub(crate) fn detached(drop: impl FnOnce() + Send) {
    let mut drop = Some(drop);
    let mut run = || {
        if let Some(drop) = drop.take() {
            drop();
        }
    };
    // At the interpreter's end there is nothing to detach from.
    if Python::try_attach(|py| py.detach(&mut run)).is_none() {
        run();
    }
}
