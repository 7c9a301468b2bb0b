//! Files that are written from their starts to their ends beside their places, and take these once they are whole.

use crate::{Error, Result};
use rustix::fs::{FallocateFlags, OFlags, fallocate};
use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Bytes of a write past the page cache.
const WRITE: usize = 4 << 20;
/// What direct I/O asks of addresses.
const BLOCK: usize = 4096;

/// A file on its way to its place. Given up, it is removed. Long ones are written past the page cache, where the file system has
/// that: so the disk writes while the next bytes are made, and nothing is left to be waited for at the end.
#[derive(Debug)]
pub(crate) struct Fresh {
    path: PathBuf,
    part: PathBuf,
    file: File,
    /// The same file past the page cache, once there is enough for a write.
    direct: Option<File>,
    /// What is not written yet: the first `filled` bytes from a multiple of [`BLOCK`] on.
    memory: Vec<u8>,
    filled: usize,
    written: u64,
    is_published: bool,
}

impl Fresh {
    /// `bytes`: about how many will come.
    pub(crate) fn new(path: &Path, bytes: u64) -> Result<Self> {
        let mut part = path.as_os_str().to_owned();
        part.push(".part");
        let part = PathBuf::from(part);
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(true);
        let file = options.open(&part).map_err(Error::io(&part))?;
        if bytes >= WRITE as u64 {
            // Space that is found later is as good.
            let _found = fallocate(&file, FallocateFlags::KEEP_SIZE, 0, bytes);
        }
        Ok(Self {
            path: path.to_owned(),
            part,
            file,
            direct: None,
            memory: Vec::new(),
            filled: 0,
            written: 0,
            is_published: false,
        })
    }

    fn buffer(&mut self) -> &mut [u8] {
        if self.memory.is_empty() {
            self.memory = vec![0; WRITE + BLOCK];
        }
        let start = self.memory.as_ptr().align_offset(BLOCK);
        self.memory
            .get_mut(start..start + WRITE)
            .unwrap_or_default()
    }

    pub(crate) fn append(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            let filled = self.filled;
            let room = self.buffer().get_mut(filled..).unwrap_or_default();
            let length = room.len().min(bytes.len());
            let (now, later) = bytes.split_at(length);
            if let Some(room) = room.get_mut(..length) {
                room.copy_from_slice(now);
            }
            self.filled += length;
            bytes = later;
            if self.filled == WRITE {
                if self.written == 0 {
                    let flags = OFlags::DIRECT.bits().cast_signed();
                    let mut options = File::options();
                    let options = options.write(true).custom_flags(flags);
                    self.direct = options.open(&self.part).ok();
                }
                self.write()?;
            }
        }
        Ok(())
    }

    /// Writes what the buffer has.
    fn write(&mut self) -> Result<()> {
        let start = self.memory.as_ptr().align_offset(BLOCK);
        let bytes = self.memory.get(start..start + self.filled);
        let (bytes, at) = (bytes.unwrap_or_default(), self.written);
        let direct = self.direct.take();
        // Some file systems take the flag for direct I/O and refuse the I/O.
        let direct =
            direct.filter(|file| bytes.len() == WRITE && file.write_all_at(bytes, at).is_ok());
        if direct.is_none() {
            let written = self.file.write_all_at(bytes, at);
            written.map_err(Error::io(&self.part))?;
        }
        self.direct = direct;
        self.written += self.filled as u64;
        self.filled = 0;
        Ok(())
    }

    /// Lets it take its place, once it is on the disk.
    pub(crate) fn publish(mut self) -> Result<()> {
        if self.filled > 0 {
            self.write()?;
        }
        self.file.sync_all().map_err(Error::io(&self.part))?;
        std::fs::rename(&self.part, &self.path).map_err(Error::io(&self.path))?;
        self.is_published = true;
        match self.path.parent() {
            Some(folder) => {
                let synced = File::open(folder).and_then(|folder| folder.sync_all());
                synced.map_err(Error::io(folder))
            }
            None => Ok(()),
        }
    }
}

impl Drop for Fresh {
    fn drop(&mut self) {
        if !self.is_published {
            // The next one of this name takes its place.
            let _left = std::fs::remove_file(&self.part);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_appended_is_there_when_it_is_published_and_not_before() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("file");
        for length in [0, 1, BLOCK, WRITE - 1, WRITE, 2 * WRITE + 5] {
            let bytes: Vec<u8> = (0..length).map(|at| (at * 31 + at / 977) as u8).collect();
            let mut fresh = Fresh::new(&path, length as u64).unwrap();
            for piece in bytes.chunks(1_000_003) {
                fresh.append(piece).unwrap();
            }
            assert!(!path.exists());
            fresh.publish().unwrap();
            assert!(std::fs::read(&path).unwrap() == bytes);
            std::fs::remove_file(&path).unwrap();
        }
        let mut fresh = Fresh::new(&path, 3).unwrap();
        fresh.append(b"abc").unwrap();
        drop(fresh);
        assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 0);
    }
}
