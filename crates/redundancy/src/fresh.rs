//! Files that are written from their starts to their ends beside their places, and take these once they are whole.

use crate::{Error, Result};
use rustix::fs::{FallocateFlags, OFlags, fallocate};
use std::collections::VecDeque;
use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::thread::{Builder, JoinHandle};

/// Bytes of a write past the page cache.
const WRITE: usize = 4 << 20;
/// What direct I/O asks of addresses.
const BLOCK: usize = 4096;
/// Writes that are under way at most while the next bytes are taken.
const AHEAD: usize = 3;

/// A file on its way to its place. Given up, it is removed. Long ones are written past the page cache, where the file system has
/// that, by threads of their own: so the disk writes while the next bytes are made, and nothing is left to be waited for at the end.
#[derive(Debug)]
pub(crate) struct Fresh {
    path: PathBuf,
    part: PathBuf,
    ways: Arc<Ways>,
    /// What is not written yet: the first `filled` bytes from a multiple of [`BLOCK`] on.
    memory: Vec<u8>,
    filled: usize,
    /// Bytes before those, and what is still writing some of them: the memory comes back.
    written: u64,
    under_way: VecDeque<JoinHandle<(Vec<u8>, std::io::Result<()>)>>,
    is_published: bool,
}

/// The ways into a file.
#[derive(Debug)]
struct Ways {
    plain: File,
    /// Past the page cache, for files that are that long.
    direct: OnceLock<Option<File>>,
}

impl Ways {
    /// Writes bytes that lie at a multiple of [`BLOCK`] to a multiple of [`WRITE`].
    fn write(&self, path: &Path, bytes: &[u8], at: u64) -> std::io::Result<()> {
        let direct = || {
            let flags = OFlags::DIRECT.bits().cast_signed();
            let mut options = File::options();
            options.write(true).custom_flags(flags).open(path).ok()
        };
        if bytes.len() == WRITE
            && let Some(direct) = self.direct.get_or_init(direct)
            // Some file systems take the flag for direct I/O and refuse the I/O.
            && direct.write_all_at(bytes, at).is_ok()
        {
            return Ok(());
        }
        self.plain.write_all_at(bytes, at)
    }
}

/// The first bytes of memory that direct I/O takes.
fn aligned(memory: &[u8]) -> usize {
    memory.as_ptr().align_offset(BLOCK)
}

impl Fresh {
    /// `bytes`: about how many will come.
    pub(crate) fn new(path: &Path, bytes: u64) -> Result<Self> {
        let mut part = path.as_os_str().to_owned();
        part.push(".part");
        let part = PathBuf::from(part);
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(true);
        let plain = options.open(&part).map_err(Error::io(&part))?;
        if bytes >= WRITE as u64 {
            // Space that is found later is as good; but writes that make a file longer wait for each other.
            let _found = fallocate(&plain, FallocateFlags::empty(), 0, bytes);
        }
        let direct = OnceLock::new();
        Ok(Self {
            path: path.to_owned(),
            part,
            ways: Arc::new(Ways { plain, direct }),
            memory: Vec::new(),
            filled: 0,
            written: 0,
            under_way: VecDeque::new(),
            is_published: false,
        })
    }

    pub(crate) fn append(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            if self.memory.is_empty() {
                self.memory = vec![0; WRITE + BLOCK];
            }
            let start = aligned(&self.memory);
            let room = self.memory.get_mut(start + self.filled..start + WRITE);
            let room = room.unwrap_or_default();
            let length = room.len().min(bytes.len());
            let (now, later) = bytes.split_at(length);
            if let Some(room) = room.get_mut(..length) {
                room.copy_from_slice(now);
            }
            self.filled += length;
            bytes = later;
            if self.filled == WRITE {
                self.hand_on()?;
            }
        }
        Ok(())
    }

    /// Has a full buffer written, once few others are.
    fn hand_on(&mut self) -> Result<()> {
        let next = match self.under_way.len() {
            AHEAD => self.finish_one()?,
            _ => Vec::new(),
        };
        let memory = std::mem::replace(&mut self.memory, next);
        let (ways, part, at) = (Arc::clone(&self.ways), self.part.clone(), self.written);
        let write = move || {
            let start = aligned(&memory);
            let bytes = memory.get(start..start + WRITE).unwrap_or_default();
            let written = ways.write(&part, bytes, at);
            (memory, written)
        };
        let builder = Builder::new().name("tierflow-write".to_owned());
        let writing = builder.spawn(write).map_err(Error::io("a thread"))?;
        self.under_way.push_back(writing);
        self.written += WRITE as u64;
        self.filled = 0;
        Ok(())
    }

    /// Waits for the write that began first. Its memory, none if there is no such write.
    fn finish_one(&mut self) -> Result<Vec<u8>> {
        let Some(writing) = self.under_way.pop_front() else {
            return Ok(Vec::new());
        };
        let panicked = |_panic| std::io::Error::other("a thread panicked");
        let (memory, written) = writing
            .join()
            .map_err(panicked)
            .map_err(Error::io(&self.part))?;
        written.map_err(Error::io(&self.part))?;
        Ok(memory)
    }

    /// Lets it take its place, once it is on the disk.
    pub(crate) fn publish(mut self) -> Result<()> {
        while !self.under_way.is_empty() {
            self.finish_one()?;
        }
        let start = aligned(&self.memory);
        let rest = self.memory.get(start..start + self.filled);
        let (plain, rest) = (&self.ways.plain, rest.unwrap_or_default());
        let written = plain
            .write_all_at(rest, self.written)
            .and_then(|()| plain.set_len(self.written + rest.len() as u64))
            .and_then(|()| plain.sync_all());
        written.map_err(Error::io(&self.part))?;
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
        for writing in self.under_way.drain(..) {
            let _given_up = writing.join();
        }
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
        for (length, expected) in [
            (0, 0),
            (1, 1),
            (BLOCK, 3),
            (WRITE - 1, WRITE),
            (WRITE, 0),
            (6 * WRITE + 5, 9 * WRITE),
        ] {
            let bytes: Vec<u8> = (0..length).map(|at| (at * 31 + at / 977) as u8).collect();
            let mut fresh = Fresh::new(&path, expected as u64).unwrap();
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
