//! What the methods of `Engine` share.

use std::time::Duration;

use pyo3::prelude::*;
use tierflow_bind::Until;
use tierflow_engine::Cache;

use super::Engine;
use crate::core::Core;
use crate::errors::{self, OrRaise};
use crate::options::{self, Bytes};
use crate::patience::{Patience, watched};

impl Engine {
    pub(crate) fn core(&self, py: Python<'_>) -> PyResult<Core> {
        self.at_home(py)?;
        let core = self.core.read().clone();
        core.ok_or_else(|| errors::closed(py, "the engine is closed: build another one"))
    }

    /// Before anything is locked: a thread that a fork does not have may hold it.
    pub(super) fn at_home(&self, py: Python<'_>) -> PyResult<()> {
        if self.process == std::process::id() {
            return Ok(());
        }
        Err(errors::forked(py, self.process))
    }

    /// Closes the engine, if that is not done yet. If it fails, the engine stays open.
    pub(super) fn close_within(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        if self.is_closed(py)? {
            return Ok(());
        }
        let core = self.core(py)?;
        Patience::new(py, timeout)?.spend(py, |until| core.close(until))?;
        self.let_go();
        Ok(())
    }

    /// Ends the engine though an exception is on its way, and warns of what is lost by that. Ctrl-C shortens it.
    pub(super) fn end(&self, py: Python<'_>) -> PyResult<()> {
        if self.at_home(py).is_err() || self.is_closed(py)? {
            return Ok(());
        }
        let core = self.core(py)?;
        let (ended, raised) = watched(|interrupt| {
            let until = Until {
                patience: core.closing_patience(),
                interrupt: Some(interrupt),
            };
            py.detach(|| core.end(until))
        });
        self.let_go();
        if let Err(error) = ended {
            errors::warn(py, &error.into());
        }
        raised.map_or(Ok(()), Err)
    }

    pub(super) fn is_closed(&self, py: Python<'_>) -> PyResult<bool> {
        self.at_home(py)?;
        Ok(self.core.read().is_none())
    }

    /// The engine ends with its last slot.
    fn let_go(&self) {
        let core = self.core.write().take();
        drop(core);
    }

    /// Does `call` without the interpreter.
    pub(crate) fn detached<T: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&tierflow_engine::Engine) -> T + Send,
    ) -> PyResult<T> {
        let core = self.core(py)?;
        let answer = py.detach(|| call(&core.engine));
        Ok(answer)
    }

    /// Changes the bytes that a cache may use, and returns how many these are then.
    pub(super) fn resize(
        &self,
        py: Python<'_>,
        cache: Cache,
        bytes: &Bytes,
        timeout: f64,
    ) -> PyResult<u64> {
        let patience = options::duration(py, Some(timeout))?.unwrap_or(Duration::MAX);
        let bytes = bytes.to_usize();
        self.detached(py, |engine| engine.resize(cache, bytes, patience))?
            .or_raise(py)
    }

    /// Waits for something, and looks for Ctrl-C meanwhile.
    pub(super) fn patiently(
        &self,
        py: Python<'_>,
        timeout: Option<f64>,
        wait: impl FnOnce(&Core, Until<'_>) -> tierflow_engine::Result<()> + Send,
    ) -> PyResult<()> {
        let patience = Patience::new(py, timeout)?;
        let core = self.core(py)?;
        patience.spend(py, |until| wait(&core, until))
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        let Some(core) = self.core.get_mut().take() else {
            return;
        };
        if self.process == std::process::id() {
            drop(core);
        } else {
            // It is the parent's.
            std::mem::forget(core);
        }
    }
}
