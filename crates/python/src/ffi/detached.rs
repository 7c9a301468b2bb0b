//! Work without the interpreter.

use pyo3::prelude::*;

/// Calls `run`, which may wait, and detaches this thread from the interpreter meanwhile if it is attached.
pub(crate) fn detached(run: &mut (dyn FnMut() + Send)) {
    let mut run = Some(run);
    let mut once = || {
        if let Some(run) = run.take() {
            run();
        }
    };
    // Once the interpreter ends, there is nothing to detach from.
    if Python::try_attach(|py| py.detach(&mut once)).is_none() {
        once();
    }
}
