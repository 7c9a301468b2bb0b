//! Pinning in turn: one process at a time (HiPC'22 §IV-A, "serialized registration").

use std::fs::{File, OpenOptions};
use std::path::Path;
use std::sync::Arc;

use tierflow_sync::{Mutex, rank};

use crate::directory::{SHORTEST_PAUSE, is_free, poll_unless};
use crate::error::{Error, Result};
use crate::workers::Stop;

/// A file that lets one of several processes pin at a time: HiPC'22's serialized registration (§IV-A).
///
/// The processes name the same file. A turn is a lock of it, which ends with its process, too. Off by default: turns pay where the
/// driver pins slower for several processes than for one. `experiments run alloc-serial` measures that on a machine.
#[derive(Clone, Debug)]
pub struct PinTurns(Arc<Mutex<File, { rank::ARENA }>>);

impl PinTurns {
    /// Opens the file, and makes it where there is none.
    ///
    /// # Errors
    ///
    /// [`Error::Turns`] if it cannot be opened for writing.
    pub fn open(path: &Path) -> Result<Self> {
        let mut options = OpenOptions::new();
        let opened = options.write(true).create(true).truncate(false).open(path);
        let file = opened.map_err(|error| Error::Turns {
            path: path.to_owned(),
            reason: error.to_string(),
        })?;
        Ok(Self(Arc::new(Mutex::new(file))))
    }

    /// Does `work` in this process's turn. A file system without locks has no turns: then it is done at once.
    pub fn take<T>(&self, work: impl FnOnce() -> T) -> T {
        // Threads of one process share the file's lock, so they take turns here first.
        let file = self.0.lock();
        let turn = file.lock();
        let done = work();
        if turn.is_ok() {
            // The lock ends with the file at the latest.
            let _ = file.unlock();
        }
        done
    }

    /// Does `work` in this process's turn, as [`take`](Self::take) does; returns `None` without doing it if the thread is
    /// to end before the turn comes. The turn is asked for and asked for again, because a wait in the kernel could not be
    /// ended.
    pub(super) fn take_unless<T>(&self, stop: &Stop, work: impl FnOnce() -> T) -> Option<T> {
        let gives_up = || stop.is_set();
        let file = poll_unless(gives_up, SHORTEST_PAUSE, || self.0.try_lock())?;
        poll_unless(gives_up, SHORTEST_PAUSE, || {
            is_free(file.try_lock()).then_some(())
        })?;
        let done = work();
        // A file system without locks refuses this, too; otherwise the lock ends with the file at the latest.
        let _ = file.unlock();
        drop(file);
        // A process that waits looks at least once before this thread asks for the next turn.
        std::thread::sleep(2 * SHORTEST_PAUSE);
        Some(done)
    }
}
