//! Threads that end with their arena.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle, park_timeout};
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use tierflow_device::OwnerProcess;

/// The flag that ends the threads. A thread checks it between two pieces of work.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stop(Arc<AtomicBool>);

impl Stop {
    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Sleeps for `time`, or until the thread is to end. Only threads of [`Workers`] may call this, as others are not woken.
    pub(crate) fn sleep(&self, time: Duration) {
        let begun = Instant::now();
        while !self.is_set() {
            let Some(left) = time.checked_sub(begun.elapsed()) else {
                return;
            };
            park_timeout(left);
        }
    }
}

/// Running threads. Dropping the value tells them to stop, wakes those that [sleep](Stop::sleep), and waits until all have
/// ended. In a child process, dropping it does nothing, as the child has none of the threads.
#[derive(Debug, Default)]
pub(crate) struct Workers {
    stop: Stop,
    handles: Vec<JoinHandle<()>>,
    owner: OwnerProcess,
}

impl Workers {
    pub(crate) fn stop(&self) -> Stop {
        self.stop.clone()
    }

    pub(crate) fn spawn(&mut self, name: &str, work: impl FnOnce() + Send + 'static) -> Result<()> {
        let spawned = Builder::new().name(name.to_owned()).spawn(work);
        self.handles.push(spawned.map_err(|error| Error::Thread {
            reason: error.to_string(),
        })?);
        Ok(())
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        if !self.owner.is_current() {
            std::mem::forget(std::mem::take(&mut self.handles));
            return;
        }
        self.stop.0.store(true, Ordering::Relaxed);
        for handle in &self.handles {
            handle.thread().unpark();
        }
        for handle in self.handles.drain(..) {
            // A thread that panicked has said so on standard error and ended its watermark.
            let _ = handle.join();
        }
    }
}
