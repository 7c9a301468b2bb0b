//! Storage that fails on demand, for tests that a user of [`Storage`] loses nothing.

use crate::{Error, Result, Storage};
use rustix::io::Errno;
use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tierflow_sync::Mutex;

thread_local! {
    /// The faults that options made on this thread get.
    static CURRENT: RefCell<Option<Arc<Faults>>> = const { RefCell::new(None) };
}

/// Returns the faults that options made on this thread get: none outside of [`Faults::during`].
pub(crate) fn current() -> Arc<Faults> {
    CURRENT.with_borrow(|faults| faults.clone().unwrap_or_default())
}

/// The faults that a test can cause. Any thread may switch them at any time.
#[derive(Debug, Default)]
pub struct Faults {
    /// True if every write fails with [`Error::Full`].
    pub full: AtomicBool,
    /// True if every write fails with an I/O error.
    pub writes_fail: AtomicBool,
    /// True if every read fails with an I/O error.
    pub reads_fail: AtomicBool,
    /// True while every read of bytes, names or file metadata waits.
    pub reads_hang: AtomicBool,
    /// True if every read of bytes, names or file metadata panics.
    pub reads_panic: AtomicBool,
    /// True if every read fails for want of descriptors.
    pub descriptors_lack: AtomicBool,
    /// True if every read of blocks returns a wrong first byte.
    pub reads_lie: AtomicBool,
    /// True if every write stops half-way and then fails.
    pub short_writes: AtomicBool,
    /// True if every synchronisation of a file fails with an I/O error.
    pub syncs_fail: AtomicBool,
    /// True while the next synchronisation of a file waits.
    pub sync_hangs: AtomicBool,
    /// True while a synchronisation waits because of `sync_hangs`.
    pub sync_waits: AtomicBool,
    /// True if every renaming fails as if the new name were on another file system.
    pub renames_fail: AtomicBool,
    /// Every so many-th call fails with an I/O error; 0 is never.
    pub every_nth: AtomicU64,
    /// Number of reads of bytes, names or file metadata that fail with an I/O error, after `good_reads` ones.
    pub bad_reads: AtomicU64,
    /// Number of reads that succeed before `bad_reads` ones fail.
    pub good_reads: AtomicU64,
    /// True if every removal or truncation of a file, and every renaming over another file, fails with an I/O error.
    pub removals_fail: AtomicBool,
    /// True while every such removal waits, once it is counted.
    pub removals_hang: AtomicBool,
    /// Removals, truncations and renamings over another file that were tried so far.
    pub removals: AtomicU64,
    /// Number of the first change of names or bytes that fails, counted from 1; all later ones fail, too. The I/O error leaves the
    /// files as if the process had been killed before that change. 0 is never.
    pub stops_at: AtomicU64,
    /// Changes of names or bytes that were tried so far.
    pub changes: AtomicU64,
    /// Files that were [held back](Self::hold) so far.
    pub held_back: AtomicU64,
    /// True if listings of directories lack the notes.
    pub(crate) lists_lack_notes: AtomicBool,
    /// True if the file system does not support flags of `renameat2`, as NFS.
    pub(crate) renames_are_plain: AtomicBool,
    calls: AtomicU64,
    held: Mutex<Option<PathBuf>>,
    unmarked: Mutex<Option<PathBuf>>,
    kept: Mutex<Option<PathBuf>>,
}

/// Returns true if `directory` is the chosen one or lies below it.
fn is_below(directory: &Path, chosen: &Mutex<Option<PathBuf>>) -> bool {
    let chosen = chosen.lock();
    let chosen = chosen.as_ref();
    chosen.is_some_and(|chosen| directory.starts_with(chosen))
}

fn choose(directory: Option<&Path>, chosen: &Mutex<Option<PathBuf>>) {
    let mut chosen = chosen.lock();
    *chosen = directory.map(Path::to_path_buf);
}

impl Faults {
    /// Calls `open`. The options that `open` makes on this thread get these faults, which affect all I/O of their repositories.
    pub fn during<R>(self: &Arc<Self>, open: impl FnOnce() -> R) -> R {
        let before = CURRENT.replace(Some(Arc::clone(self)));
        let opened = open();
        CURRENT.set(before);
        opened
    }

    /// Lets writes of run marks below this directory fail for want of space, until the next call.
    pub fn refuse_marks(&self, directory: Option<&Path>) {
        choose(directory, &self.unmarked);
    }

    /// Fails if marks in this directory are [refused](Self::refuse_marks).
    pub(crate) fn mark(&self, directory: &Path) -> std::result::Result<(), Errno> {
        match is_below(directory, &self.unmarked) {
            true => Err(Errno::NOSPC),
            false => Ok(()),
        }
    }

    /// Lets every removal of this file fail as if it were busy, until the next call.
    pub fn keep_file(&self, file: Option<&Path>) {
        choose(file, &self.kept);
    }

    /// Fails if the file is [kept](Self::keep_file).
    pub(crate) fn keep(&self, directory: &Path, name: &str) -> std::result::Result<(), Errno> {
        let kept = self.kept.lock();
        let is_kept = |kept: &Path| kept.parent() == Some(directory) && kept.ends_with(name);
        match kept.as_deref().is_some_and(is_kept) {
            true => Err(Errno::BUSY),
            false => Ok(()),
        }
    }

    /// Holds back files below this directory that are written and wait for their name, until the next call.
    pub fn hold(&self, directory: Option<&Path>) {
        choose(directory, &self.held);
    }

    /// Waits as long as files below this directory are [held back](Self::hold).
    pub(crate) fn wait(&self, directory: &Path) {
        if is_below(directory, &self.held) {
            self.held_back.fetch_add(1, Ordering::Relaxed);
        }
        while is_below(directory, &self.held) {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }

    /// Fails a write of `bytes` bytes at `offset`, or calls `write` with the number of bytes to write: whole blocks, fewer than
    /// `bytes` for a short write.
    pub(crate) fn write(
        &self,
        offset: u64,
        bytes: usize,
        block: usize,
        write: impl FnOnce(usize) -> Result<()>,
    ) -> Result<()> {
        let failed = || Error::Write {
            offset,
            bytes,
            source: Errno::IO,
        };
        if self.change().is_err() {
            return Err(failed());
        }
        if self.full.load(Ordering::Relaxed) {
            return Err(Error::Full {
                place: None,
                offset,
                bytes,
            });
        }
        if self.short_writes.load(Ordering::Relaxed) {
            write(bytes / 2 / block * block)?;
            return Err(failed());
        }
        if self.writes_fail.load(Ordering::Relaxed) || self.strikes() {
            return Err(failed());
        }
        write(bytes)
    }

    /// Fails or passes a change of names or bytes that needs no space.
    pub(crate) fn change(&self) -> std::result::Result<(), Errno> {
        let change = self.changes.fetch_add(1, Ordering::Relaxed) + 1;
        let stop = self.stops_at.load(Ordering::Relaxed);
        match stop > 0 && change >= stop {
            true => Err(Errno::IO),
            false => Ok(()),
        }
    }

    /// Fails or passes the removal or truncation of a file, or the renaming of another one over it.
    pub(crate) fn remove(&self) -> std::result::Result<(), Errno> {
        self.removals.fetch_add(1, Ordering::Relaxed);
        while self.removals_hang.load(Ordering::Relaxed) {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        match self.removals_fail.load(Ordering::Relaxed) {
            true => Err(Errno::IO),
            false => self.change(),
        }
    }

    /// Fails or passes the making of a file or a directory.
    pub(crate) fn make(&self) -> std::result::Result<(), Errno> {
        self.change()?;
        self.reserve()
    }

    /// Fails or passes the reservation of space.
    pub(crate) fn reserve(&self) -> std::result::Result<(), Errno> {
        match self.full.load(Ordering::Relaxed) {
            true => Err(Errno::NOSPC),
            false => Ok(()),
        }
    }

    /// Fails or passes the synchronisation of a file.
    pub(crate) fn sync(&self) -> std::result::Result<(), Errno> {
        let hangs = || self.sync_hangs.load(Ordering::Relaxed);
        if hangs() && !self.sync_waits.swap(true, Ordering::Relaxed) {
            while hangs() {
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            self.sync_waits.store(false, Ordering::Relaxed);
        }
        if self.syncs_fail.load(Ordering::Relaxed) || self.strikes() {
            return Err(Errno::IO);
        }
        Ok(())
    }

    /// Fails or passes a read.
    pub(crate) fn read(&self) -> std::result::Result<(), Errno> {
        self.look()?;
        if self.descriptors_lack.load(Ordering::Relaxed) {
            return Err(Errno::MFILE);
        }
        if self.reads_fail.load(Ordering::Relaxed) || self.strikes() {
            return Err(Errno::IO);
        }
        Ok(())
    }

    /// Fails or passes a read of names or file metadata.
    pub(crate) fn look(&self) -> std::result::Result<(), Errno> {
        let panics = self.reads_panic.load(Ordering::Relaxed);
        assert!(!panics, "a read panics");
        while self.reads_hang.load(Ordering::Relaxed) {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        let less = |count: u64| count.checked_sub(1);
        let take = |counter: &AtomicU64| {
            counter
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less)
                .is_ok()
        };
        if self.bad_reads.load(Ordering::Relaxed) > 0
            && !take(&self.good_reads)
            && take(&self.bad_reads)
        {
            return Err(Errno::IO);
        }
        Ok(())
    }

    /// Fails or passes the renaming of a file.
    pub(crate) fn rename(&self) -> std::result::Result<(), Errno> {
        self.change()?;
        if self.renames_fail.load(Ordering::Relaxed) {
            return Err(Errno::XDEV);
        }
        if self.strikes() {
            return Err(Errno::IO);
        }
        Ok(())
    }

    /// Returns true if the listing of a directory contains this name.
    pub(crate) fn shows(&self, name: &str) -> bool {
        !(self.lists_lack_notes.load(Ordering::Relaxed) && name.ends_with(".note"))
    }

    /// Fails or passes a renaming with flags.
    pub(crate) fn rename_with_flags(&self) -> std::result::Result<(), Errno> {
        match self.renames_are_plain.load(Ordering::Relaxed) {
            true => Err(Errno::INVAL),
            false => Ok(()),
        }
    }

    fn strikes(&self) -> bool {
        let call = self.calls.fetch_add(1, Ordering::Relaxed) + 1;
        let nth = self.every_nth.load(Ordering::Relaxed);
        nth > 0 && call.is_multiple_of(nth)
    }
}

/// Passes every call to `inner`, unless a fault is due.
#[derive(Debug)]
pub struct Faulty<S> {
    inner: S,
    faults: Arc<Faults>,
}

impl<S: Storage> Faulty<S> {
    /// Puts `faults` in front of `inner`.
    pub fn new(inner: S, faults: Arc<Faults>) -> Self {
        Self { inner, faults }
    }
}

impl<S: Storage> Storage for Faulty<S> {
    fn alignment(&self) -> usize {
        self.inner.alignment()
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let alignment = self.alignment();
        self.faults.write(offset, bytes.len(), alignment, |length| {
            self.inner.write_at(offset, &bytes[..length])
        })
    }

    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        self.faults.read().map_err(|source| Error::Read {
            offset,
            bytes: bytes.len(),
            source,
        })?;
        self.inner.read_at(offset, bytes)?;
        if self.faults.reads_lie.load(Ordering::Relaxed)
            && let Some(first) = bytes.first_mut()
        {
            *first = !*first;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Scratch;
    use std::sync::Arc;

    #[test]
    fn without_faults_it_conforms() {
        let directory = tempfile::tempdir().unwrap();
        let scratch = Scratch::open(directory.path()).unwrap();
        crate::conformance::run_all(&Faulty::new(scratch, Arc::default()));
    }

    #[test]
    fn faults_strike_when_switched_on() {
        let directory = tempfile::tempdir().unwrap();
        let faults = Arc::<Faults>::default();
        let faulty = Faulty::new(
            Scratch::open(directory.path()).unwrap(),
            Arc::clone(&faults),
        );
        faults.full.store(true, Ordering::Relaxed);
        assert!(matches!(faulty.write_at(0, &[]), Err(Error::Full { .. })));
        faults.full.store(false, Ordering::Relaxed);
        faults.every_nth.store(2, Ordering::Relaxed);
        assert!(faulty.write_at(0, &[]).is_ok());
        assert!(matches!(faulty.write_at(0, &[]), Err(Error::Write { .. })));
    }
}
