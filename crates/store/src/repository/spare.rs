//! Files of large pieces that were given up, kept to be overwritten. A write to a new file takes a third longer than one to a file
//! whose blocks the file system has already allocated, and the file system frees blocks no faster.
//!
//! A spare file has a name that no reader looks for and that the next process removes before it writes. A reader holds a shared
//! lock on its file, so a file is never overwritten while it is read.

use super::directory::Directory;
use crate::Result;
use crate::file::File;
use std::sync::atomic::{AtomicU64, Ordering};
use tierflow_sync::{Mutex, MutexGuard, rank};

/// The most spare files that are kept.
const MOST: usize = 2;

/// The spare files of one rank.
#[derive(Debug)]
pub(crate) struct SpareFiles {
    /// Number of files that were retired.
    retired: AtomicU64,
    /// True if no spare file is kept.
    is_limited: bool,
    directory: Directory,
    /// Names of the spare files, and their sizes in bytes.
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

    /// Returns a name for a file without readers. The name differs from the temporary name of a piece of the same version, as
    /// another thread may be writing such a piece.
    pub(super) fn next_name(&self) -> String {
        let number = self.retired.fetch_add(1, Ordering::Relaxed);
        format!("x{number:020}.tmp")
    }

    /// Takes a file of `size` bytes away from its readers. Returns the file for [`put`](Self::put), after the directory was
    /// synchronised; `None` if there are enough spare files, and the file was removed.
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

    /// Lets a file be overwritten. The removal of its published name is durable.
    pub(super) fn put(&self, FreedFile(name, size): FreedFile) {
        let mut names = self.names();
        if names.len() < MOST {
            names.push((name, size));
        } else {
            let _left_to_recovery = self.directory.remove(&name);
        }
    }

    /// Removes a file that must not be overwritten.
    pub(super) fn discard(&self, FreedFile(name, _): FreedFile) {
        let _left_to_recovery = self.directory.remove(&name);
    }

    /// Returns a file of about `size` bytes to overwrite, under the name `name`; `None` if there is none, and the caller may make a
    /// new one.
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

    /// Removes all spare files.
    pub(super) fn clear(&self) {
        for (name, _) in self.names().drain(..) {
            let _left_to_recovery = self.directory.remove(&name);
        }
    }
}

/// A file that has lost its published name.
#[derive(Debug)]
pub(super) struct FreedFile(String, u64);

impl Drop for SpareFiles {
    fn drop(&mut self) {
        self.clear();
    }
}
