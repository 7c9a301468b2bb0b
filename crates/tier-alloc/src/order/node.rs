//! The line of a machine, as files that are locked while their owner lives.
//!
//! ```text
//! $XDG_RUNTIME_DIR/tierflow-pin/     0700, ours
//!     line                           locked for the microseconds in which somebody joins
//!     00000000000000000017           a ticket: locked by its owner until its turn is over
//!     00000000000000000018           waits for 17
//! ```
//!
//! A ticket's number is one more than the highest there is. Its owner holds a lock on the file
//! (`flock`, which the kernel takes back when the process dies, however it dies), and waits until it
//! can lock each ticket that was there before its own, the latest first: mostly there is one. A
//! ticket that can be locked is over, or its owner is dead. Numbers only rise while anybody waits,
//! so nobody is overtaken, and waits go from higher to lower numbers only, so nobody waits in a
//! circle.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::PathBuf;
use std::time::Instant;

use crate::directory::{self, Locked, is_free, poll};
use crate::workers::Stop;

/// Where the line of this user lies.
pub(super) fn default_directory() -> PathBuf {
    directory::of_user("pin")
}

/// A directory that is a line.
#[derive(Debug)]
pub(crate) struct NodeLine {
    directory: PathBuf,
}

impl NodeLine {
    /// Makes the directory if there is none. An error says why it cannot be used.
    pub(super) fn open(directory: PathBuf) -> Result<Self, String> {
        directory::open(&directory)?;
        let line = Self { directory };
        line.file("line")
            .map_err(|error| format!("{}: {error}", line.directory.display()))?;
        Ok(line)
    }

    /// Opens a file of the line, and makes it if there is none.
    fn file(&self, name: &str) -> io::Result<File> {
        directory::file(&self.directory.join(name))
    }

    /// Takes a ticket behind all there are.
    pub(super) fn join(&self, deadline: Instant, stop: &Stop) -> io::Result<Ticket> {
        let line = Locked::wait(self.file("line")?, deadline, stop)?;
        let before = self.tickets()?;
        let number = before.last().map_or(0, |last| last + 1);
        let path = self.directory.join(name(number));
        let file = directory::new_file(&path)?;
        file.lock()?;
        // Opened while nobody can join or be mistaken for somebody else.
        let before = before
            .into_iter()
            .filter_map(|number| Before::open(self.directory.join(name(number))));
        let ticket = Ticket {
            before: before.collect(),
            held: Locked::held(file),
            path,
        };
        drop(line);
        Ok(ticket)
    }

    /// The numbers of all tickets, sorted.
    fn tickets(&self) -> io::Result<Vec<u64>> {
        let mut numbers: Vec<u64> = std::fs::read_dir(&self.directory)?
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
            .collect();
        numbers.sort_unstable();
        Ok(numbers)
    }
}

fn name(number: u64) -> String {
    format!("{number:020}")
}

/// A ticket that was there before.
#[derive(Debug)]
struct Before {
    file: File,
    path: PathBuf,
}

impl Before {
    /// `None` if it is over already.
    fn open(path: PathBuf) -> Option<Self> {
        let file = OpenOptions::new().read(true).open(&path).ok()?;
        Some(Self { file, path })
    }

    fn is_over(&self) -> bool {
        if !is_free(self.file.try_lock_shared()) {
            return false;
        }
        let _ = self.file.unlock();
        // Its owner has removed it, or is dead. The name is not in use again: whoever comes later
        // has a number above ours.
        let _ = std::fs::remove_file(&self.path);
        true
    }
}

/// A ticket of ours. Its turn is over when it is dropped.
#[derive(Debug)]
pub(crate) struct Ticket {
    /// From the lowest number to the highest.
    before: Vec<Before>,
    path: PathBuf,
    // Last: a ticket that others see unlocked is gone.
    held: Locked,
}

impl Ticket {
    /// Waits until all tickets before are over. Whether they are: not after the deadline, or a
    /// stop.
    pub(super) fn wait(&mut self, deadline: Instant, stop: &Stop) -> bool {
        while let Some(last) = self.before.last() {
            if !poll(deadline, stop, || last.is_over()) {
                return false;
            }
            self.before.pop();
        }
        true
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if !self.held.home().is_here() {
            return;
        }
        // One that stays behind is unlocked, and the next to come removes it.
        let _ = std::fs::remove_file(&self.path);
    }
}

#[cfg(test)]
#[path = "node_tests.rs"]
mod tests;
