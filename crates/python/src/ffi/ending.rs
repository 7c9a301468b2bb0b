//! An engine whose end holds nobody up.

use std::mem::ManuallyDrop;
use std::ops::Deref;

use tierflow_engine::Engine;

use crate::core::detached;

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
