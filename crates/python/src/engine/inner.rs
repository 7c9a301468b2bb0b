//! What the methods of `Engine` share.

use std::sync::Arc;

use pyo3::prelude::*;
use tierflow_engine::Within;

use super::Engine;
use crate::core::Core;
use crate::errors::{self, OrRaise};
use crate::patience::Patience;

impl Engine {
    pub(crate) fn core(&self, py: Python<'_>) -> PyResult<Arc<Core>> {
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

    pub(super) fn end(&self, py: Python<'_>) -> PyResult<()> {
        self.at_home(py)?;
        let core = self.core.write().take();
        drop(core);
        Ok(())
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

    /// Waits for something, and looks for Ctrl-C in between.
    pub(super) fn patiently(
        &self,
        py: Python<'_>,
        timeout: Option<f64>,
        mut wait: impl FnMut(Within<'_>) -> tierflow_engine::Result<()> + Send,
    ) -> PyResult<()> {
        let patience = Patience::new(py, timeout)?;
        // Not held from slice to slice: another thread may close the engine.
        patience.spend(py, |py, patience| {
            self.detached(py, |engine| wait(patience.of(engine)))
        })
    }

    /// Makes redundancy with the other ranks in this call, if it is made in calls alone: also after `done` failed, as the other
    /// ranks wait for it.
    pub(super) fn protect_after(&self, py: Python<'_>, done: PyResult<()>) -> PyResult<()> {
        let protected = self.detached(py, |engine| match engine.is_driven() {
            true => engine.protect(),
            false => Ok(()),
        });
        done?;
        protected?.or_raise(py)
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
