//! A directory that belongs to the user, for files that the user's processes on a machine share.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::workers::Stop;
use tierflow_device::OwnerProcess;

/// Shortest and longest time between two tries to take a lock. The first tries come often, as turns are short.
pub(crate) const SHORTEST_PAUSE: Duration = Duration::from_micros(50);
const LONGEST_PAUSE: Duration = Duration::from_millis(1);

/// Returns the folder of this user's files for `purpose`. The folder is in the directory that the system makes for a user's
/// sessions, or in the directory for temporary files. The environment may name the session directory of another user (after
/// `su`), so its owner is checked.
pub(crate) fn of_user(purpose: &str) -> PathBuf {
    let user = rustix::process::getuid().as_raw();
    let given = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let usual = PathBuf::from(format!("/run/user/{user}"));
    of_user_below(purpose, given.into_iter().chain([usual]))
}

/// Returns the folder in the first directory of `sessions` that belongs to this user, or else in the one for temporary
/// files.
fn of_user_below(purpose: &str, mut sessions: impl Iterator<Item = PathBuf>) -> PathBuf {
    let user = rustix::process::getuid().as_raw();
    let is_own = |directory: &PathBuf| {
        let found = directory.metadata();
        found.is_ok_and(|found| found.is_dir() && found.uid() == user)
    };
    match sessions.find(is_own) {
        Some(directory) => directory.join(format!("tierflow-{purpose}")),
        None => std::env::temp_dir().join(format!("tierflow-{purpose}-{user}")),
    }
}

/// Makes the directory if there is none. An error says why it cannot be used.
pub(crate) fn open(directory: &Path) -> Result<(), String> {
    let why = |what: &str| format!("{} {what}", directory.display());
    match DirBuilder::new().mode(0o700).create(directory) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(why(&format!("cannot be made: {error}"))),
    }
    // A link is not followed: where every user may create files, a link may lead anywhere.
    let found = directory
        .symlink_metadata()
        .map_err(|error| why(&format!("cannot be looked at: {error}")))?;
    if !found.is_dir() {
        return Err(why("is not a directory"));
    }
    if found.uid() != rustix::process::getuid().as_raw() {
        return Err(why("belongs to another user: name another one"));
    }
    if found.mode() & 0o077 != 0 {
        return Err(why("is open to others: chmod 700 it"));
    }
    Ok(())
}

/// Opens a file, and makes it if there is none. The system closes the file when the process runs another program, like
/// all files that Rust opens.
pub(crate) fn file(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)
}

/// Makes a file. Fails if there is one of this name.
pub(crate) fn new_file(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
}

/// A file that is locked until this value is dropped, or the process ends in any way.
#[derive(Debug)]
pub(crate) struct LockedFile {
    pub(crate) file: File,
    owner: OwnerProcess,
}

impl LockedFile {
    /// Wraps a file that this process has locked.
    pub(crate) fn held(file: File) -> Self {
        let owner = OwnerProcess::default();
        Self { file, owner }
    }

    /// Waits for the lock until `deadline`, or until `stop` is set. Tries again and again, because `stop` could not end a
    /// wait in the kernel.
    pub(crate) fn wait(file: File, deadline: Instant, stop: &Stop) -> io::Result<Self> {
        if poll(deadline, stop, || is_free(file.try_lock())) {
            return Ok(Self::held(file));
        }
        Err(io::Error::from(io::ErrorKind::TimedOut))
    }
}

impl Drop for LockedFile {
    fn drop(&mut self) {
        // Closing the file without unlocking it would leave it locked while a child that was forked meanwhile lives. A
        // child does not unlock, as it would unlock its parent's file.
        if self.owner.is_current() {
            let _ = self.file.unlock();
        }
    }
}

/// Returns true if the lock was free. A file system without locks counts as free, as there is nothing to wait for.
pub(crate) fn is_free(tried: Result<(), TryLockError>) -> bool {
    !matches!(tried, Err(TryLockError::WouldBlock))
}

/// Calls `done` until it returns true. Returns false at the deadline, or once the thread is to end.
pub(crate) fn poll(deadline: Instant, stop: &Stop, mut done: impl FnMut() -> bool) -> bool {
    let ask = || done().then_some(());
    poll_unless(
        || stop.is_set() || Instant::now() >= deadline,
        LONGEST_PAUSE,
        ask,
    )
    .is_some()
}

/// Calls `ask` until there is an answer, with at most `longest` between two calls. Returns `None` once `gives_up` returns
/// true.
pub(crate) fn poll_unless<T>(
    gives_up: impl Fn() -> bool,
    longest: Duration,
    mut ask: impl FnMut() -> Option<T>,
) -> Option<T> {
    let begun = Instant::now();
    loop {
        if let Some(answer) = ask() {
            return Some(answer);
        }
        if gives_up() {
            return None;
        }
        std::thread::sleep((begun.elapsed() / 16).clamp(SHORTEST_PAUSE, longest));
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests fail by panicking")]
mod tests {
    use super::*;

    /// Makes a directory of another user. Returns its parent, which is removed when dropped, and its path.
    fn of_another_user() -> (tempfile::TempDir, PathBuf) {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("theirs");
        DirBuilder::new().mode(0o700).create(&path).unwrap();
        match std::os::unix::fs::chown(&path, Some(12_345), None) {
            Ok(()) => (home, path),
            // Only the system's administrator may give directories away; `/usr` is the administrator's.
            Err(_) => (home, PathBuf::from("/usr")),
        }
    }

    #[test]
    fn a_directory_that_another_user_made_is_refused_by_name() {
        let (_home, path) = of_another_user();
        let refused = open(&path).unwrap_err();
        assert_eq!(
            refused,
            format!(
                "{} belongs to another user: name another one",
                path.display()
            )
        );
    }

    #[test]
    fn the_runtime_directory_of_another_user_is_not_this_users() {
        let (home, theirs) = of_another_user();
        let user = rustix::process::getuid().as_raw();
        let own = of_user_below("pool", [theirs, home.path().to_owned()].into_iter());
        assert_eq!(own, home.path().join("tierflow-pool"));
        let none = of_user_below("pool", std::iter::empty());
        assert!(none.ends_with(format!("tierflow-pool-{user}")), "{none:?}");
    }
}
