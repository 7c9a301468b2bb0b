#![doc = include_str!("../README.md")]
//!
//! # How it is laid out
//!
//! Classes: `engine` has `Engine`; `slot` has the slots that `produce` and `consume` return; `repository` reads versions without an
//! engine; `schedule` chooses the states to store and the states to compute again; `suspending` makes a version durable before a job is
//! preempted; `tape` keeps states of JAX's programs.
//!
//! Functions: `array` finds the bytes of an argument, by the protocols of `ffi`: the buffer protocol, DLPack, and
//! `__cuda_array_interface__`. `order` chooses the CUDA stream on which a call copies. `patience` limits how long a call waits. `tree`
//! takes trees of arrays apart. The exceptions, the tables of the metrics and the modules for one framework are written in Python, in
//! `tierflow/`.
//!
//! # Invariants
//!
//! - A call holds the arrays that it reads or writes, and detaches from the interpreter while it may wait.
//! - A lent slot is given back when its last user is gone, on any thread.
//! - No lock is held while Python is called: a thread that waits for the lock may hold the interpreter.
//! - A fork of the process touches nothing of the engine but the number of its process.
//!
//! **Deliberately absent.** The module links to no CUDA, NumPy or framework. The module's only state is the table of tapes by the numbers
//! that XLA's programs know, and the list of array types whose exchange functions are known.
#![deny(unsafe_code)]

mod array;
mod core;
mod dtype;
mod engine;
mod errors;
mod ffi;
mod gather;
mod group;
mod logging;
mod metrics;
mod options;
mod order;
mod patience;
mod pool;
mod repository;
mod schedule;
mod slot;
mod suspending;
mod tape;
mod tree;

/// The part of the package `tierflow` that is written in Rust.
#[pyo3::pymodule(gil_used = false)]
mod _tierflow {
    use pyo3::prelude::*;

    #[pymodule_export]
    use crate::engine::Engine;
    #[pymodule_export]
    use crate::gather::gather;
    #[pymodule_export]
    use crate::group::words_of_redundancy;
    #[pymodule_export]
    use crate::options::number_of_bytes;
    #[pymodule_export]
    use crate::pool::HostPool;
    #[pymodule_export]
    use crate::repository::Repository;
    #[pymodule_export]
    use crate::schedule::{Machine, Schedule};
    #[pymodule_export]
    use crate::slot::{ConsumeSlot, ProduceSlot};
    #[pymodule_export]
    use crate::suspending::{Notice, Suspension};
    #[pymodule_export]
    use crate::tape::Tape;
    #[pymodule_export]
    use crate::tree::{descriptors, flatten};

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        let end = wrap_pyfunction!(crate::core::end_of_process, module)?;
        // `atexit` calls the function that was registered last first: `logging`, imported before, ends after the engines.
        module.py().import("logging")?;
        let at_exit = module.py().import("atexit")?;
        at_exit.call_method1("register", (end,))?;
        Ok(())
    }

    #[pymodule_export]
    #[expect(non_upper_case_globals, reason = "Python's name for it")]
    const __version__: &str = env!("CARGO_PKG_VERSION");
}
