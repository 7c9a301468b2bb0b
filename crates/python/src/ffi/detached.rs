//! Work without the interpreter.

use pyo3::prelude::*;

/// Detaches from the interpreter, if this thread is attached, while something runs that may wait.
pub(crate) fn detached(run: &mut (dyn FnMut() + Send)) {
    let mut run = Some(run);
    let mut once = || {
        if let Some(run) = run.take() {
            run();
        }
    };
    // At the interpreter's end there is nothing to detach from.
    if Python::try_attach(|py| py.detach(&mut once)).is_none() {
        once();
    }
}
