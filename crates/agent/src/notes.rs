//! Lists in files that outlive a process, in a directory of this user.

use crate::{Error, Result};
use rustix::fs::{self, Mode, OFlags};
use rustix::io::Errno;
use serde::{Serialize, de::DeserializeOwned};
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The most bytes of a list.
const LIMIT: u64 = 64 << 20;

/// An open directory with lists.
#[derive(Debug)]
pub(crate) struct Folder {
    pub(crate) descriptor: OwnedFd,
    pub(crate) path: PathBuf,
}

impl Folder {
    pub(crate) fn open(path: &Path, flags: OFlags) -> std::result::Result<Self, Errno> {
        let flags = flags | OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        Ok(Self {
            descriptor: fs::open(path, flags, Mode::empty())?,
            path: path.to_path_buf(),
        })
    }

    /// Reads the list of a name. Returns an empty list if there is no file.
    pub(crate) fn read<T: DeserializeOwned>(&self, name: &str) -> Result<Vec<T>> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let file = match fs::openat(&self.descriptor, name, flags, Mode::empty()) {
            Ok(file) => std::fs::File::from(file),
            Err(Errno::NOENT) => return Ok(Vec::new()),
            Err(Errno::LOOP) => return Err(self.refused(name, "it is a symbolic link")),
            Err(source) => return Err(self.failed("opening", name, source)),
        };
        let failed = |source| self.failed_io("reading", name, source);
        if file.metadata().map_err(failed)?.uid() != me() {
            return Err(self.refused(name, "it belongs to another user"));
        }
        let mut bytes = Vec::new();
        file.take(LIMIT).read_to_end(&mut bytes).map_err(failed)?;
        let list = serde_json::from_slice(&bytes);
        list.map_err(|_| self.refused(name, "it is no note of an agent"))
    }

    /// Writes a list under a name, durably.
    pub(crate) fn write(&self, name: &str, list: &(impl Serialize + ?Sized)) -> Result<()> {
        let new = &format!("{name}.tmp");
        let bytes =
            serde_json::to_vec(list).map_err(|_| Error::Protocol("a note cannot be written"))?;
        let length = bytes.len();
        if length as u64 > LIMIT {
            let why = format!("it would have {length} bytes, and no more than {LIMIT} are read");
            return Err(self.failed_io("writing", name, std::io::Error::other(why)));
        }
        let flags =
            OFlags::CREATE | OFlags::TRUNC | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = fs::openat(&self.descriptor, new, flags, Mode::RUSR | Mode::WUSR)
            .map_err(|source| self.failed("making", new, source))?;
        let mut file = std::fs::File::from(file);
        let written = file.write_all(&bytes).and_then(|()| file.sync_all());
        written.map_err(|source| self.failed_io("writing", new, source))?;
        fs::renameat(&self.descriptor, new, &self.descriptor, name)
            .and_then(|()| fs::fsync(&self.descriptor))
            .map_err(|source| self.failed("renaming", new, source))
    }

    /// Sets a file's time to now. Makes an empty file if there is none.
    pub(crate) fn touch(&self, name: &str) -> Result<()> {
        let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let now = fs::Timespec {
            tv_sec: 0,
            tv_nsec: fs::UTIME_NOW,
        };
        let now = fs::Timestamps {
            last_access: now,
            last_modification: now,
        };
        let made = fs::openat(&self.descriptor, name, flags, Mode::RUSR | Mode::WUSR);
        made.and_then(|file| fs::futimens(file, &now))
            .map_err(|source| self.failed("making", name, source))
    }

    fn refused(&self, name: &str, why: &'static str) -> Error {
        let path = self.path.join(name);
        Error::Refused { path, why }
    }

    pub(crate) fn failed(&self, doing: &'static str, name: &str, source: Errno) -> Error {
        self.failed_io(doing, name, source.into())
    }

    fn failed_io(&self, doing: &'static str, name: &str, source: std::io::Error) -> Error {
        Error::File {
            doing,
            path: self.path.join(name),
            source,
        }
    }
}

/// Returns the effective user of this process.
pub(crate) fn me() -> u32 {
    rustix::process::geteuid().as_raw()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A note that is too long to be read again is not written, and the note before it stays.
    #[test]
    fn what_is_written_can_be_read() {
        let home = tempfile::tempdir().unwrap();
        let folder = Folder::open(home.path(), OFlags::empty()).unwrap();
        folder.write("note", &["short"]).unwrap();
        // Two quotes, and the brackets.
        let longest = "x".repeat(LIMIT as usize - 4);
        let longer = format!("{longest}x");
        assert!(folder.write("note", &[&longer]).is_err());
        assert_eq!(folder.read::<String>("note").unwrap(), ["short"]);
        folder.write("note", &[&longest]).unwrap();
        assert_eq!(folder.read::<String>("note").unwrap(), [longest]);
    }
}
