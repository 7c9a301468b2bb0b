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
//!
//! Locks are asked for and asked for again rather than waited for, because a wait in the kernel
//! could not be ended when the arena is.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::workers::Stop;

/// Between two looks at a lock: often at first, as turns are short, and then less.
const SHORTEST: Duration = Duration::from_micros(50);
const LONGEST: Duration = Duration::from_millis(1);

/// Where the line of this user lies: in the directory that the system makes for a user's sessions,
/// or in the one for temporary files.
pub(super) fn default_directory() -> PathBuf {
    let user = rustix::process::getuid().as_raw();
    let given = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let usual = || Some(PathBuf::from(format!("/run/user/{user}")));
    match given.or_else(usual).filter(|directory| directory.is_dir()) {
        Some(directory) => directory.join("tierflow-pin"),
        None => std::env::temp_dir().join(format!("tierflow-pin-{user}")),
    }
}

/// A directory that is a line.
#[derive(Debug)]
pub(crate) struct NodeLine {
    directory: PathBuf,
}

impl NodeLine {
    /// Makes the directory if there is none. An error says why it cannot be used.
    pub(super) fn open(directory: PathBuf) -> Result<Self, String> {
        let why = |what: &str| format!("{} {what}", directory.display());
        match DirBuilder::new().mode(0o700).create(&directory) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(why(&format!("cannot be made: {error}"))),
        }
        // Not followed: where anybody may make names, a link may lead anywhere.
        let found = directory
            .symlink_metadata()
            .map_err(|error| why(&format!("cannot be looked at: {error}")))?;
        if !found.is_dir() {
            return Err(why("is not a directory"));
        }
        if found.uid() != rustix::process::getuid().as_raw() {
            return Err(why("belongs to another user"));
        }
        if found.mode() & 0o077 != 0 {
            return Err(why("is open to others: chmod 700 it"));
        }
        let line = Self { directory };
        line.file("line")
            .map_err(|error| format!("{}: {error}", line.directory.display()))?;
        Ok(line)
    }

    /// Opens a file of the line, and makes it if there is none. Closed when the process runs
    /// another program, as all of Rust's files are.
    fn file(&self, name: &str) -> io::Result<File> {
        OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(self.directory.join(name))
    }

    /// Takes a ticket behind all there are.
    pub(super) fn join(&self, deadline: Instant, stop: &Stop) -> io::Result<Ticket> {
        let line = Locked::wait(self.file("line")?, deadline, stop)?;
        let before = self.tickets()?;
        let number = before.last().map_or(0, |last| last + 1);
        let path = self.directory.join(name(number));
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)?;
        file.lock()?;
        // Opened while nobody can join or be mistaken for somebody else.
        let before = before
            .into_iter()
            .filter_map(|number| Before::open(self.directory.join(name(number))));
        let ticket = Ticket {
            before: before.collect(),
            _held: Locked(file),
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

/// A file that is locked until this is dropped.
#[derive(Debug)]
struct Locked(File);

impl Locked {
    fn wait(file: File, deadline: Instant, stop: &Stop) -> io::Result<Self> {
        if poll(deadline, stop, || is_free(file.try_lock())) {
            return Ok(Self(file));
        }
        Err(io::Error::from(io::ErrorKind::TimedOut))
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        // Closing alone would leave it locked as long as a child that was forked meanwhile lives.
        let _ = self.0.unlock();
    }
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
    _held: Locked,
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
        // One that stays behind is unlocked, and the next to come removes it.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Whether a lock was to be had. A file system without locks orders nobody.
fn is_free(tried: Result<(), TryLockError>) -> bool {
    !matches!(tried, Err(TryLockError::WouldBlock))
}

fn poll(deadline: Instant, stop: &Stop, mut done: impl FnMut() -> bool) -> bool {
    let begun = Instant::now();
    loop {
        if done() {
            return true;
        }
        let now = Instant::now();
        if stop.is_set() || now >= deadline {
            return false;
        }
        std::thread::sleep(((now - begun) / 16).clamp(SHORTEST, LONGEST));
    }
}

#[cfg(test)]
#[path = "node_tests.rs"]
mod tests;
