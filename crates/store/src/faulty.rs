//! Storage that fails on demand: how a user of [`Storage`] is shown to lose nothing.

use crate::{Error, Result, Storage};
use rustix::io::Errno;
use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tierflow_sync::Mutex;

thread_local! {
    /// The faults of options that this thread makes.
    static CURRENT: RefCell<Option<Arc<Faults>>> = const { RefCell::new(None) };
}

/// Returns the faults of options that this thread makes: none unless it is within [`Faults::during`].
pub(crate) fn current() -> Arc<Faults> {
    CURRENT.with_borrow(|faults| faults.clone().unwrap_or_default())
}

/// The faults to be had, switched at any time from any thread.
#[derive(Debug, Default)]
pub struct Faults {
    /// Every write says that the storage is full.
    pub full: AtomicBool,
    /// Every write fails with an I/O error.
    pub writes_fail: AtomicBool,
    /// Every read fails with an I/O error.
    pub reads_fail: AtomicBool,
    /// Every read, of bytes, names or what is known of a file, waits until this is false.
    pub reads_hang: AtomicBool,
    /// Every read, of bytes, names or what is known of a file, panics.
    pub reads_panic: AtomicBool,
    /// Every read finds that the process has no descriptor left.
    pub descriptors_lack: AtomicBool,
    /// Everything read from blocks has another first byte than was written.
    pub reads_lie: AtomicBool,
    /// Every write stops half-way and says that it failed.
    pub short_writes: AtomicBool,
    /// Bytes are not made to last: every synchronisation of a file fails with an I/O error.
    pub syncs_fail: AtomicBool,
    /// The next synchronisation of a file waits until this is false.
    pub sync_hangs: AtomicBool,
    /// A synchronisation waits for that.
    pub sync_waits: AtomicBool,
    /// Every renaming says that the new name is on another file system.
    pub renames_fail: AtomicBool,
    /// Every n-th call fails with an I/O error; 0 is never.
    pub every_nth: AtomicU64,
    /// So many reads, of bytes, names or what is known of a file, fail with an I/O error, ...
    pub bad_reads: AtomicU64,
    /// ... after so many more that do not.
    pub good_reads: AtomicU64,
    /// Every removal of a file, every cut and every renaming over another file fails with an I/O error.
    pub removals_fail: AtomicBool,
    /// Every one of these, once it is counted, waits until this is false.
    pub removals_hang: AtomicBool,
    /// The removals, cuts and renamings over another file that were tried so far.
    pub removals: AtomicU64,
    /// The change of names or bytes of this number, counted from 1, fails with an I/O error, and so does every later one: the
    /// process could as well have been killed before it. 0 is never.
    pub stops_at: AtomicU64,
    /// The changes of names or bytes that were tried so far.
    pub changes: AtomicU64,
    /// The files that were [held back](Self::hold) so far.
    pub held_back: AtomicU64,
    /// A directory that is read does not show its notes.
    pub(crate) lists_lack_notes: AtomicBool,
    /// The file system knows no renaming with flags, as NFS.
    pub(crate) renames_are_plain: AtomicBool,
    calls: AtomicU64,
    held: Mutex<Option<PathBuf>>,
    unmarked: Mutex<Option<PathBuf>>,
    kept: Mutex<Option<PathBuf>>,
}

/// Returns true if a directory lies below the one that is chosen.
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
    /// Puts the faults in front of all I/O of the repositories that `open` opens with options that it makes on this thread.
    pub fn during<R>(self: &Arc<Self>, open: impl FnOnce() -> R) -> R {
        let before = CURRENT.replace(Some(Arc::clone(self)));
        let opened = open();
        CURRENT.set(before);
        opened
    }

    /// Refuses the marks of runs below this directory, for want of space, until this is called again.
    pub fn refuse_marks(&self, directory: Option<&Path>) {
        choose(directory, &self.unmarked);
    }

    /// Fails or lets a mark be left in a directory.
    pub(crate) fn mark(&self, directory: &Path) -> std::result::Result<(), Errno> {
        match is_below(directory, &self.unmarked) {
            true => Err(Errno::NOSPC),
            false => Ok(()),
        }
    }

    /// Fails every removal of this file, as of one that is busy, until this is called again.
    pub fn keep_file(&self, file: Option<&Path>) {
        choose(file, &self.kept);
    }

    /// Fails the removal of a file, or lets it pass.
    pub(crate) fn keep(&self, directory: &Path, name: &str) -> std::result::Result<(), Errno> {
        let kept = self.kept.lock();
        let is_kept = |kept: &Path| kept.parent() == Some(directory) && kept.ends_with(name);
        match kept.as_deref().is_some_and(is_kept) {
            true => Err(Errno::BUSY),
            false => Ok(()),
        }
    }

    /// Holds files back that are written below this directory and have a name to get, until this is called again.
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

    /// Fails a write of so many `bytes` at `offset`, or lets it pass; `write` writes the first so many of them, whole blocks.
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

    /// Fails a change of names or bytes that needs no space, or lets it pass.
    pub(crate) fn change(&self) -> std::result::Result<(), Errno> {
        let change = self.changes.fetch_add(1, Ordering::Relaxed) + 1;
        let stop = self.stops_at.load(Ordering::Relaxed);
        match stop > 0 && change >= stop {
            true => Err(Errno::IO),
            false => Ok(()),
        }
    }

    /// Fails the removal of a file, its cut, or the renaming of another one over it, or lets it pass.
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

    /// Fails the making of a file or a directory, or lets it pass.
    pub(crate) fn make(&self) -> std::result::Result<(), Errno> {
        self.change()?;
        self.reserve()
    }

    /// Fails when space is set aside, or lets it pass.
    pub(crate) fn reserve(&self) -> std::result::Result<(), Errno> {
        match self.full.load(Ordering::Relaxed) {
            true => Err(Errno::NOSPC),
            false => Ok(()),
        }
    }

    /// Fails the synchronisation of a file, or lets it pass.
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

    /// Fails a read, or lets it pass.
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

    /// Fails a look at names and files, or lets it pass.
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

    /// Fails the renaming of a file, or lets it pass.
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

    /// Returns true if a name is shown by a directory that is read.
    pub(crate) fn shows(&self, name: &str) -> bool {
        !(self.lists_lack_notes.load(Ordering::Relaxed) && name.ends_with(".note"))
    }

    /// Fails a renaming that has flags, or lets it pass.
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

/// Hands every call on to `inner`, unless a fault strikes.
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
