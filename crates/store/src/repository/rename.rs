//! Renames files. No file loses its name to another one, except for notes that replace older notes.

use super::directory::Directory;
use super::quota::Purpose;
use crate::file::{File, within_limit};
use crate::{Error, Result};
use rustix::fs::{self, AtFlags, Mode, OFlags, RenameFlags};
use rustix::io::{Errno, retry_on_intr};
use std::os::fd::OwnedFd;

impl Directory {
    /// Gives a file a new name that no file has. Returns true if it has the name now.
    pub(crate) fn rename(&self, from: &str, to: &str) -> bool {
        self.try_rename(from, to).is_ok()
    }

    fn try_rename(&self, from: &str, to: &str) -> rustix::io::Result<()> {
        let renamed = self.faults.rename();
        renamed.and_then(|()| self.rename_to_free(from, to))
    }

    /// Gives a file of unknown content the name `aside`. Only one such file is kept: if another file has that name already, `name`
    /// is removed. After any other failure the file keeps its name.
    pub(crate) fn put_aside(&self, name: &str, aside: &str) -> Result<()> {
        match self.try_rename(name, aside) {
            // If the file does not exist, its name is free, too.
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(Errno::EXIST) => self.remove(name),
            Err(source) => Err(self.failed("putting aside", name, source)),
        }
    }

    /// Renames a file without replacing another. If the file system cannot do both in one step, another process could take the name
    /// between the check and the rename; the lock of the rank prevents that.
    fn rename_to_free(&self, from: &str, to: &str) -> rustix::io::Result<()> {
        let (old, new) = (&*self.descriptor, &*self.descriptor);
        let rename = || fs::renameat_with(old, from, new, to, RenameFlags::NOREPLACE);
        match self.faults.rename_with_flags().and_then(|()| rename()) {
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {}
            renamed => return renamed,
        }
        // A link never gives a name to two files.
        match fs::linkat(old, from, new, to, AtFlags::empty()) {
            Ok(()) => self.end_link(from, to),
            // An earlier attempt made the link, or its answer was lost.
            Err(Errno::EXIST) if self.are_one_file(from, to) => self.end_link(from, to),
            Err(Errno::PERM | Errno::NOSYS | Errno::OPNOTSUPP | Errno::MLINK) => {
                match fs::statat(new, to, AtFlags::SYMLINK_NOFOLLOW) {
                    Err(Errno::NOENT) => fs::renameat(old, from, new, to),
                    Ok(_) => Err(Errno::EXIST),
                    Err(source) => Err(source),
                }
            }
            Err(source) => Err(source),
        }
    }

    /// Removes the old name of a file that also has the new one. If that fails and the file still has both names, removes the new
    /// name instead. If that fails, too, the next attempt completes the rename.
    fn end_link(&self, from: &str, to: &str) -> rustix::io::Result<()> {
        match self.unlink(from) {
            // A removal that was sent twice answers that the name is gone.
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            // The last name of a file is never removed.
            Err(source) if self.are_one_file(from, to) => {
                let _ended_by_the_next_try = self.unlink(to);
                Err(source)
            }
            Err(source) => Err(source),
        }
    }

    /// Returns true if two names belong to one file.
    fn are_one_file(&self, one: &str, other: &str) -> bool {
        let stat = |name: &str| fs::statat(&*self.descriptor, name, AtFlags::SYMLINK_NOFOLLOW);
        let identity = |name: &str| stat(name).map(|stat| (stat.st_dev, stat.st_ino));
        matches!((identity(one), identity(other)), (Ok(a), Ok(b)) if a == b && one != other)
    }

    fn unlink(&self, name: &str) -> rustix::io::Result<()> {
        let unlink = || fs::unlinkat(&*self.descriptor, name, AtFlags::empty());
        let kept = self.faults.keep(&self.path, name);
        kept.and_then(|()| unlink())
    }

    /// Gives `from`, whose bytes are durable, the name `to`, which no file may have. The new name is durable when this returns.
    pub(crate) fn publish(&self, from: &str, to: &str) -> Result<()> {
        self.faults.wait(&self.path);
        let renamed = self.faults.rename();
        match renamed.and_then(|()| self.rename_to_free(from, to)) {
            Ok(()) => self.sync(),
            Err(Errno::EXIST) => Err(Error::Refused {
                path: self.path.join(to),
                why: "another process wrote it",
            }),
            Err(source) => Err(self.failed("renaming", from, source)),
        }
    }

    /// Publishes a file like [`publish`](Self::publish), and replaces the file that has the name. After an error, the name belongs
    /// to the old file, unless the error says that it belongs to the new one. The latter happens only on a file system that cannot
    /// exchange the names of two files.
    pub(crate) fn publish_over(&self, from: &str, to: &str) -> Result<()> {
        let (old, new) = (&*self.descriptor, &*self.descriptor);
        let exchange = || {
            self.faults.rename_with_flags()?;
            fs::renameat_with(old, from, new, to, RenameFlags::EXCHANGE)
        };
        let replace = || match exchange() {
            Err(Errno::NOENT) => self.rename_to_free(from, to).map(|()| None),
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
                fs::renameat(old, from, new, to).map(|()| Some(false))
            }
            exchanged => exchanged.map(|()| Some(true)),
        };
        let faults = self.faults.rename().and_then(|()| self.faults.remove());
        let replaced = self.counted(to);
        let had_one = faults.and_then(|()| replace());
        let had_one = had_one.map_err(|source| self.failed("renaming", from, source))?;
        if had_one == Some(false) {
            self.give(replaced);
        }
        self.faults.wait(&self.path);
        let Err(error) = self.sync() else {
            if had_one == Some(true) {
                let _left_to_recovery = self.remove(from);
            }
            return Ok(());
        };
        let undone = match had_one {
            Some(true) => exchange(),
            Some(false) => Err(Errno::OPNOTSUPP),
            None => self.rename_to_free(to, from),
        };
        undone.map_err(|source| Error::File {
            doing: "synchronising failed and the new file stays: renaming back",
            path: self.path.join(to),
            source,
        })?;
        Err(error)
    }

    /// Replaces the file `name` by one with these bytes. The change need not be durable.
    pub(crate) fn replace(&self, name: &str, bytes: &[u8]) -> Result<()> {
        let (new, _) = self.write_new(name, bytes)?;
        let old = self.counted(name);
        fs::renameat(&*self.descriptor, &*new, &*self.descriptor, name)
            .map_err(|source| self.failed("renaming", &new, source))?;
        self.give(old);
        Ok(())
    }

    /// Replaces a file like [`replace`](Self::replace), durably: at any crash, either the old file or the new one is there.
    pub(crate) fn replace_durably(&self, name: &str, bytes: &[u8]) -> Result<()> {
        let (new, file) = self.write_new(name, bytes)?;
        self.sync_file(&new, &File::new(file))?;
        self.publish_over(&new, name)
    }

    /// Writes a file with these bytes under a name derived from `name`.
    fn write_new(&self, name: &str, bytes: &[u8]) -> Result<(String, OwnedFd)> {
        let new = format!("{name}.new");
        self.claim(bytes.len() as u64, Purpose::Upkeep)?;
        // The file may be left from a call that a kill ended; its bytes are truncated.
        self.give(self.counted(&new));
        let written = self.write_claimed(&new, bytes);
        let file = written.inspect_err(|_| {
            let _gone = fs::unlinkat(&*self.descriptor, &*new, AtFlags::empty());
            self.give(bytes.len() as u64);
        })?;
        Ok((new, file))
    }

    fn write_claimed(&self, new: &str, bytes: &[u8]) -> Result<OwnedFd> {
        let flags =
            OFlags::CREATE | OFlags::TRUNC | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let make = || fs::openat(&*self.descriptor, new, flags, Mode::RUSR | Mode::WUSR);
        let file = self.faults.make().and_then(|()| make());
        let file = file.map_err(|source| self.failed("making", new, source))?;
        let mut rest = bytes;
        while !rest.is_empty() {
            let within = within_limit(bytes.len() as u64);
            let written = within.and_then(|()| retry_on_intr(|| rustix::io::write(&file, rest)));
            let written = written.map_err(|source| self.failed("writing", new, source))?;
            rest = rest.get(written..).unwrap_or_default();
        }
        Ok(file)
    }
}

#[cfg(all(test, feature = "testing"))]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;
    use crate::faulty::Faults;
    use crate::repository::quota::Quota;
    use std::sync::Arc;
    use std::sync::atomic::Ordering;

    /// The limit of two blocks suffices for the old note and the new one, but not for a third.
    #[test]
    fn a_note_that_could_not_be_written_takes_no_room() {
        let home = tempfile::tempdir().unwrap();
        let faults = Arc::<Faults>::default();
        let quota = Some(Arc::new(Quota::new(8192)));
        let directory = Directory::open(home.path(), true, Arc::clone(&faults)).unwrap();
        let directory = directory.within(quota);
        directory.replace("note", &[1; 100]).unwrap();
        for _ in 0..3 {
            faults.full.store(true, Ordering::Relaxed);
            assert!(directory.replace("note", &[2; 100]).is_err());
            faults.full.store(false, Ordering::Relaxed);
        }
        directory.replace("note", &[3; 100]).unwrap();
        assert_eq!(std::fs::read(home.path().join("note")).unwrap(), [3; 100]);
    }

    /// Opens a directory without support for renames with flags, as on NFS. The directory holds a file "old" of one byte.
    fn without_flags(home: &std::path::Path) -> (Directory, Arc<Faults>) {
        let faults = Arc::<Faults>::default();
        faults.renames_are_plain.store(true, Ordering::Relaxed);
        let directory = Directory::open(home, true, Arc::clone(&faults)).unwrap();
        std::fs::write(home.join("old"), [1]).unwrap();
        (directory, faults)
    }

    fn names(directory: &Directory) -> Vec<String> {
        let mut names = directory.names().unwrap();
        names.retain(|name| !name.starts_with('.'));
        names
    }

    #[test]
    fn a_file_that_keeps_its_old_name_gets_no_second_one() {
        let home = tempfile::tempdir().unwrap();
        let (directory, faults) = without_flags(home.path());
        faults.keep_file(Some(&directory.path().join("old")));
        let published = directory.publish("old", "new");
        assert!(
            matches!(published, Err(Error::File { .. })),
            "{published:?}"
        );
        assert_eq!(names(&directory), ["old"]);
        faults.keep_file(None);
        directory.publish("old", "new").unwrap();
        assert_eq!(names(&directory), ["new"]);
        assert_eq!(std::fs::read(home.path().join("new")).unwrap(), [1]);
        // Another file of the new name stays.
        std::fs::write(home.path().join("old"), [2]).unwrap();
        let published = directory.publish("old", "new");
        assert!(
            matches!(published, Err(Error::Refused { .. })),
            "{published:?}"
        );
        assert_eq!(names(&directory), ["new", "old"]);
        assert_eq!(std::fs::read(home.path().join("new")).unwrap(), [1]);
    }

    /// A file has two names if an answer was lost, or if the process was killed between the two steps.
    #[test]
    fn a_rename_that_was_half_done_is_ended_by_the_next_try() {
        let home = tempfile::tempdir().unwrap();
        let (directory, _faults) = without_flags(home.path());
        let path = |name: &str| home.path().join(name);
        std::fs::hard_link(path("old"), path("new")).unwrap();
        directory.publish("old", "new").unwrap();
        assert_eq!(names(&directory), ["new"]);
        assert_eq!(std::fs::read(path("new")).unwrap(), [1]);
    }
}
