//! Files that are written sequentially beside their paths, and renamed to their paths once they are whole and on the disk.

use crate::{Error, Result};
use rustix::fs::{FallocateFlags, OFlags, fallocate};
use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, channel, sync_channel};
use std::thread::{Builder, JoinHandle};
use tierflow_store::{sync_parent, within_limit};
use tierflow_sync::Mutex;

/// Bytes of a write with direct I/O.
const WRITE: usize = 4 << 20;
/// Alignment of memory for direct I/O, in bytes.
const BLOCK: usize = 4096;
/// Number of threads that write. With the block that is filled meanwhile, four blocks are in memory.
const WRITERS: usize = 3;

/// A file that replaces the one at its path when it is [published](Self::publish), and is removed if it is dropped before.
///
/// Threads write blocks of [`WRITE`] bytes, with direct I/O if the file system has it. So the disk writes several blocks while
/// the next bytes are made, and little is left to be synchronised at the end. The threads end with the value. A file shorter
/// than a block has no threads.
#[derive(Debug)]
pub(crate) struct AtomicFile {
    path: PathBuf,
    part: PathBuf,
    file: Arc<File>,
    /// Memory of the block that is being filled. The block starts at an address that is a multiple of [`BLOCK`].
    block: Vec<u8>,
    /// Bytes of the block that are filled.
    filled: usize,
    /// Bytes in the blocks before.
    written: u64,
    writers: Option<Writers>,
    is_published: bool,
}

/// The threads that write full blocks. Each thread ends at its first error.
#[derive(Debug)]
struct Writers {
    /// The channel of full blocks, with their offsets in the file.
    full: SyncSender<(u64, Vec<u8>)>,
    /// The channel of written blocks, to be filled again.
    empty: Receiver<Vec<u8>>,
    threads: Vec<JoinHandle<std::io::Result<()>>>,
}

impl Writers {
    fn start(path: &Path, file: &Arc<File>) -> std::io::Result<Self> {
        let flags = OFlags::DIRECT.bits().cast_signed();
        let mut options = File::options();
        let direct = options.write(true).custom_flags(flags).open(path);
        let direct = direct.ok().map(Arc::new);
        let (full, blocks) = sync_channel::<(u64, Vec<u8>)>(0);
        let (done, empty) = channel();
        let blocks = Arc::new(Mutex::<_>::new(blocks));
        let threads = (0..WRITERS).map(|_| {
            let (file, direct) = (Arc::clone(file), direct.clone());
            let (blocks, done) = (Arc::clone(&blocks), done.clone());
            let next = move || blocks.lock().recv();
            let write = move || {
                while let Ok((at, block)) = next() {
                    let start = aligned(&block);
                    let bytes = block.get(start..start + WRITE).unwrap_or_default();
                    // Some file systems accept the flag for direct I/O, and refuse the I/O itself.
                    let is_written = |direct: &Arc<File>| direct.write_all_at(bytes, at).is_ok();
                    if !direct.as_ref().is_some_and(is_written) {
                        file.write_all_at(bytes, at)?;
                    }
                    // Without a receiver, the block is not needed again.
                    let _dropped = done.send(block);
                }
                Ok(())
            };
            Builder::new()
                .name("tierflow-write".to_owned())
                .spawn(write)
        });
        Ok(Self {
            full,
            empty,
            threads: threads.collect::<std::io::Result<_>>()?,
        })
    }

    /// Waits until all blocks are written, or the threads have ended. Returns the first error.
    fn finish(self) -> std::io::Result<()> {
        drop(self.full);
        let panicked = |_panic| Err(std::io::Error::other("a thread panicked"));
        let ended = self.threads.into_iter().map(JoinHandle::join);
        let ended: Vec<_> = ended.map(|ended| ended.unwrap_or_else(panicked)).collect();
        ended.into_iter().collect()
    }
}

/// Returns the offset of the first byte whose address is a multiple of [`BLOCK`].
fn aligned(memory: &[u8]) -> usize {
    memory.as_ptr().align_offset(BLOCK)
}

impl AtomicFile {
    /// Creates the file beside its path. `bytes` is the expected length, which need not be exact.
    pub(crate) fn new(path: &Path, bytes: u64) -> Result<Self> {
        let mut part = path.as_os_str().to_owned();
        part.push(".part");
        let part = PathBuf::from(part);
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(true);
        let file = options.open(&part).map_err(Error::io(&part))?;
        if bytes >= WRITE as u64 {
            // If the space is not there now, the writes may still find it. The space is allocated at once, as each write that
            // makes the file longer costs more.
            let _found = within_limit(bytes)
                .and_then(|()| fallocate(&file, FallocateFlags::empty(), 0, bytes));
        }
        Ok(Self {
            path: path.to_owned(),
            part,
            file: Arc::new(file),
            block: Vec::new(),
            filled: 0,
            written: 0,
            writers: None,
            is_published: false,
        })
    }

    pub(crate) fn append(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            if self.block.is_empty() {
                self.block = vec![0; WRITE + BLOCK];
            }
            let start = aligned(&self.block);
            let room = self.block.get_mut(start + self.filled..start + WRITE);
            let room = room.unwrap_or_default();
            let (now, later) = bytes.split_at(room.len().min(bytes.len()));
            if let Some(room) = room.get_mut(..now.len()) {
                room.copy_from_slice(now);
            }
            self.filled += now.len();
            bytes = later;
            if self.filled == WRITE {
                self.write_block().map_err(Error::io(&self.part))?;
            }
        }
        Ok(())
    }

    /// Hands the full block to a writer, once a writer is idle.
    fn write_block(&mut self) -> std::io::Result<()> {
        within_limit(self.written + WRITE as u64)?;
        let writers = match self.writers.take() {
            Some(writers) => writers,
            None => Writers::start(&self.part, &self.file)?,
        };
        let full = (self.written, std::mem::take(&mut self.block));
        if writers.full.send(full).is_err() {
            return writers.finish();
        }
        self.block = writers.empty.try_recv().unwrap_or_default();
        self.writers = Some(writers);
        self.written += WRITE as u64;
        self.filled = 0;
        Ok(())
    }

    /// Renames the file to its path, once all of it is on the disk.
    pub(crate) fn publish(mut self) -> Result<()> {
        let write = |this: &mut Self| {
            this.writers.take().map_or(Ok(()), Writers::finish)?;
            let start = aligned(&this.block);
            let rest = this.block.get(start..start + this.filled);
            let rest = rest.unwrap_or_default();
            within_limit(this.written + rest.len() as u64)?;
            this.file.write_all_at(rest, this.written)?;
            this.file.set_len(this.written + rest.len() as u64)?;
            this.file.sync_all()
        };
        write(&mut self).map_err(Error::io(&self.part))?;
        std::fs::rename(&self.part, &self.path).map_err(Error::io(&self.path))?;
        self.is_published = true;
        sync_parent(&self.path).map_err(|error| Error::io(&self.path)(error.into()))
    }
}

impl Drop for AtomicFile {
    fn drop(&mut self) {
        // The writers must be done with the file before another file of this name is written.
        let _given_up = self.writers.take().map(Writers::finish);
        if !self.is_published {
            // If the file stays, the next file of this name overwrites it.
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
            let mut file = AtomicFile::new(&path, expected as u64).unwrap();
            for piece in bytes.chunks(1_000_003) {
                file.append(piece).unwrap();
            }
            assert!(!path.exists());
            file.publish().unwrap();
            assert!(std::fs::read(&path).unwrap() == bytes);
            std::fs::remove_file(&path).unwrap();
        }
        let mut file = AtomicFile::new(&path, 3).unwrap();
        file.append(b"abc").unwrap();
        drop(file);
        assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 0);
        // A mere name is one in the directory of the process, which is the crate's.
        let name = PathBuf::from(format!("published-{}.test", std::process::id()));
        let published = AtomicFile::new(&name, 3).unwrap().publish();
        std::fs::remove_file(&name).unwrap();
        published.unwrap();
    }
}
