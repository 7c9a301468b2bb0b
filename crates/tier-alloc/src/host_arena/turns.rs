//! Pinning in turn: one process at a time (HiPC'22 §IV-A, "serialized registration").

use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use tierflow_sync::{Mutex, rank};

use crate::directory::{SHORTEST_PAUSE, is_free, poll_unless};
use crate::error::{Error, Result};
use crate::workers::Stop;

/// A file that lets one of several processes pin at a time: HiPC'22's serialized registration (§IV-A).
///
/// The processes name the same file. A turn is a lock of the file, which also ends with its process. An arena has no turns by default:
/// they pay if the driver pins slower for several processes than for one. `experiments run alloc-serial` measures that on a machine.
#[derive(Clone, Debug)]
pub struct PinTurns(Arc<Mutex<File, { rank::ARENA }>>);

impl PinTurns {
    /// Opens the file, and makes it if there is none.
    ///
    /// # Errors
    ///
    /// [`Error::Turns`] if the file cannot be opened for writing.
    pub fn open(path: &Path) -> Result<Self> {
        let mut options = OpenOptions::new();
        let opened = options.write(true).create(true).truncate(false).open(path);
        let file = opened.map_err(|error| Error::Turns {
            path: path.to_owned(),
            reason: error.to_string(),
        })?;
        Ok(Self(Arc::new(Mutex::new(file))))
    }

    /// Waits for this process's turn, and does `work` in it. A file system without locks has no turns: then `work` is done at
    /// once.
    pub fn take<T>(&self, work: impl FnOnce() -> T) -> T {
        // Threads of one process share the file's lock, so they take turns here first.
        let file = self.0.lock();
        let turn = loop {
            match file.lock() {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                turn => break turn,
            }
        };
        let done = work();
        if turn.is_ok() {
            // The lock ends with the file at the latest.
            let _ = file.unlock();
        }
        done
    }

    /// Does `work` in this process's turn, as [`take`](Self::take) does. Returns `None` without doing it if the thread is to
    /// end before the turn comes. Tries to take the lock again and again, because `stop` could not end a wait in the kernel.
    pub(super) fn take_unless<T>(&self, stop: &Stop, work: impl FnOnce() -> T) -> Option<T> {
        let gives_up = || stop.is_set();
        let file = poll_unless(gives_up, SHORTEST_PAUSE, || self.0.try_lock())?;
        poll_unless(gives_up, SHORTEST_PAUSE, || {
            is_free(file.try_lock()).then_some(())
        })?;
        let done = work();
        // A file system without locks refuses this too. Otherwise the lock ends with the file at the latest.
        let _ = file.unlock();
        drop(file);
        // A waiting process tries at least once before this thread tries to take the next turn.
        std::thread::sleep(2 * SHORTEST_PAUSE);
        Some(done)
    }
}
