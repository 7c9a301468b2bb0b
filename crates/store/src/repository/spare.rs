//! Files of large pieces that were given up, to be written over: a file system takes a third longer to write to a new file
//! than to one whose blocks it has found before, and gives blocks back no faster.
//!
//! A spare has a name that no reader looks for and that the next process removes before it writes. A reader of a file
//! holds a shared lock on it, so what is still read is never written over.

use super::directory::Directory;
use crate::Result;
use crate::file::File;
use std::sync::atomic::{AtomicU64, Ordering};
use tierflow_sync::{Mutex, MutexGuard, rank};

/// No more spares are kept.
const MOST: usize = 2;

/// The spares of one rank.
#[derive(Debug)]
pub(crate) struct SpareFiles {
    /// Counts the files that were retired.
    retired: AtomicU64,
    /// No spare is kept.
    is_limited: bool,
    directory: Directory,
    /// Names and sizes.
    names: Mutex<Vec<(String, u64)>, { rank::PACKER }>,
}

impl SpareFiles {
    pub(crate) fn new(directory: Directory, is_limited: bool) -> Self {
        Self {
            retired: AtomicU64::new(0),
            is_limited,
            directory,
            names: Mutex::default(),
        }
    }

    fn names(&self) -> MutexGuard<'_, Vec<(String, u64)>, { rank::PACKER }> {
        self.names.lock()
    }

    /// Returns a name for a file without readers. It is not that under which a piece of the file's number is written: another
    /// thread may be writing one.
    pub(super) fn next_name(&self) -> String {
        let number = self.retired.fetch_add(1, Ordering::Relaxed);
        format!("x{number:020}.tmp")
    }

    /// Takes the name of a file of `size` bytes away from its readers. What is returned is for [`put`](Self::put), once the
    /// directory was synchronised; `None` where there are enough spares, and the file was removed.
    pub(super) fn retire(
        &self,
        published: &str,
        unpublished: &str,
        size: u64,
    ) -> Result<Option<FreedFile>> {
        let is_wanted = size > 0 && !self.is_limited && self.names().len() < MOST;
        if !is_wanted || !self.directory.rename(published, unpublished) {
            self.directory.remove(published)?;
            return Ok(None);
        }
        Ok(Some(FreedFile(unpublished.to_owned(), size)))
    }

    /// Lets a file be written over: that it lost its name will last.
    pub(super) fn put(&self, FreedFile(name, size): FreedFile) {
        let mut names = self.names();
        if names.len() < MOST {
            names.push((name, size));
        } else {
            let _left_to_recovery = self.directory.remove(&name);
        }
    }

    /// Gives the space of a file back that must not be written over.
    pub(super) fn discard(&self, FreedFile(name, _): FreedFile) {
        let _left_to_recovery = self.directory.remove(&name);
    }

    /// A file of about `size` bytes to write over, under the name `name`; `None` if there is none, and a new one may be made.
    pub(super) fn take(&self, name: &str, size: u64) -> Option<File> {
        let fits = |has: u64| (size..=size + size / 4).contains(&has);
        let found = {
            let mut names = self.names();
            let at = names.iter().position(|(_, has)| fits(*has));
            at.map(|at| names.swap_remove(at))
        };
        let (spare, _) = found?;
        let file = self.directory.write_over(&spare);
        let file = file.filter(|_| self.directory.rename(&spare, name));
        if file.is_none() {
            let _left_to_recovery = self.directory.remove(&spare);
        }
        file
    }

    /// Gives the space of all spares back.
    pub(super) fn clear(&self) {
        for (name, _) in self.names().drain(..) {
            let _left_to_recovery = self.directory.remove(&name);
        }
    }
}

/// A file without its name.
#[derive(Debug)]
pub(super) struct FreedFile(String, u64);

impl Drop for SpareFiles {
    fn drop(&mut self) {
        self.clear();
    }
}
