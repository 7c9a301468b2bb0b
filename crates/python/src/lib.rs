#![doc = include_str!("../README.md")]
//!
//! # How it is laid out
//!
//! `engine` is the class `Engine`, `slot` the classes of `produce` and `consume`, `repository` what is read without an engine, `schedule` what is stored and what is computed again. `array` finds out what an argument is
//! and where its bytes lie, by the protocols that `ffi` speaks: the buffer protocol, DLPack, and
//! `__cuda_array_interface__`. `order` chooses the CUDA stream on which a call copies, `patience` how long it waits, `suspending` what
//! is durable when a job is preempted, `tree` what a tree of arrays consists of. What is only Python (the
//! exceptions, the table of the metrics, what is made for one framework) is Python, in `tierflow/`.
//!
//! # What always holds
//!
//! - A call holds what it reads or writes, and lets go of the interpreter while it may wait.
//! - A lent slot is given back when its last user is gone, on whatever thread.
//! - No lock is held while Python is called: a thread that waits for the lock may hold the interpreter.
//! - In a fork of the process, nothing of the engine is touched but its number of the process.
//!
//! **What is deliberately absent.** No link to CUDA, NumPy or any framework; no state of the module
//! but the numbers by which programs of XLA know their tapes, and the types of arrays whose exchange functions are known.
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

/// The part of `tierflow` that is made of Rust.
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
        // Imported first, it ends last.
        module.py().import("logging")?;
        let at_exit = module.py().import("atexit")?;
        at_exit.call_method1("register", (end,))?;
        Ok(())
    }

    #[pymodule_export]
    #[expect(non_upper_case_globals, reason = "Python's name for it")]
    const __version__: &str = env!("CARGO_PKG_VERSION");
}
