//! Functions that the methods of `Engine` share.

use pyo3::prelude::*;
use tierflow_bind::{Failure, Status, Until};
use tierflow_engine::{Cache, Error};

use super::Engine;
use crate::core::SharedEngine;
use crate::errors::{self, Answer, Raised};
use crate::options::Bytes;
use crate::patience::{Timeout, raise_interrupt, watched};

impl Engine {
    pub(crate) fn core(&self) -> Answer<SharedEngine> {
        self.at_home()?;
        let core = self.core.read().clone();
        let closed = || Failure::new(Status::Closed, "the engine is closed: build another one");
        Ok(core.ok_or_else(closed)?)
    }

    /// Checks that this process built the engine. Called before a lock is taken: in a fork, a thread that the fork does not have may hold it.
    ///
    /// # Errors
    /// `ForkedError` in a fork.
    pub(super) fn at_home(&self) -> Answer {
        match self.process {
            owner if owner.is_current() => Ok(()),
            owner => Err(Error::OtherProcess { owner: owner.id() }.into()),
        }
    }

    /// Closes the engine if it is open. If that fails, the engine stays open.
    pub(super) fn close_within(&self, py: Python<'_>, patience: Timeout) -> Answer {
        if !self.closed()? {
            let core = self.core()?;
            patience.spend(py, |until| core.close(until))?;
            self.let_go();
        }
        Ok(())
    }

    /// Ends the engine although an exception is on its way, and warns of versions that are lost. Ctrl-C ends the wait.
    pub(super) fn end(&self, py: Python<'_>) -> Answer {
        if self.at_home().is_err() || self.closed()? {
            return Ok(());
        }
        let core = self.core()?;
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
        Ok(raised?)
    }

    /// Drops this object's reference to the engine. The engine ends when its last slot drops its own.
    fn let_go(&self) {
        let core = self.core.write().take();
        drop(core);
    }

    /// Calls `call` while this thread is detached from the interpreter.
    pub(crate) fn detached<T: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&tierflow_engine::Engine) -> T + Send,
    ) -> Answer<T> {
        let core = self.core()?;
        let done = py.detach(|| call(&core.engine));
        raise_interrupt()?;
        Ok(done)
    }

    /// Calls `call`, which may fail, while this thread is detached from the interpreter.
    pub(crate) fn tried<T: Send, E: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&tierflow_engine::Engine) -> Result<T, E> + Send,
    ) -> Answer<T>
    where
        Raised: From<E>,
    {
        Ok(self.detached(py, call)??)
    }

    /// Changes the number of bytes that a cache may use, and returns the new number.
    pub(super) fn resize(
        &self,
        py: Python<'_>,
        cache: Cache,
        bytes: &Bytes,
        timeout: f64,
    ) -> Answer<u64> {
        let (patience, core) = (Timeout::new(Some(timeout))?, self.core()?);
        let bytes = usize::try_from(bytes.0).unwrap_or(usize::MAX);
        patience.spend(py, |until| until.of(&core.engine).resize(cache, bytes))
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        let core = self.core.get_mut().take();
        if !self.process.is_current() {
            // The engine is the parent's.
            std::mem::forget(core);
        }
    }
}
