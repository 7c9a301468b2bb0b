//! A policy with stores of its own, and coordinated checkpoints to them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::papers::veloc::{Backend, Buffer};
use anyhow::{Result, ensure};
use tierflow_placement::stores::StorePolicy;
use tierflow_store::Storage;
use tierflow_transfer::volume::LocalStore;

use super::compare::Case;
use super::stores::StoreMachine;
use crate::random::fill;
use crate::threads::on_threads;

/// A policy with stores of its own.
pub(super) struct Rival {
    backend: Backend,
    external: Arc<dyn Storage>,
    chunk: usize,
}

/// The times of a checkpoint.
pub(super) struct Phases {
    /// Nanoseconds until the last byte was on a local store.
    pub(super) local: f64,
    /// Nanoseconds until the last byte was flushed.
    pub(super) whole: f64,
    /// Chunks that were written to the disk.
    pub(super) to_disk: f64,
}

impl Rival {
    pub(super) fn new(
        machine: &StoreMachine,
        case: &Case,
        policy: Box<dyn StorePolicy>,
    ) -> Result<Self> {
        let all = case.writers * case.chunks_each;
        // The ideal policy has room for everything.
        let in_memory = if policy.name() == "cache-only" {
            all
        } else {
            case.cache_chunks
        };
        let stores = vec![
            LocalStore {
                storage: machine.open_memory()?,
                calibration: machine.memory_calibration.clone(),
                chunks: in_memory,
            },
            LocalStore {
                storage: machine.open_disk()?,
                calibration: machine.disk_calibration.clone(),
                chunks: all,
            },
        ];
        let external = machine.open_external(case.times)?;
        let backend = Backend::start(stores, Arc::clone(&external), policy, machine.chunk)?;
        Ok(Self {
            backend,
            external,
            chunk: machine.chunk,
        })
    }

    /// Lets all writers write their shares of `data` at once.
    pub(super) fn checkpoint(&self, case: &Case, data: &[u8]) -> Result<Phases> {
        let before = (self.backend.flushed_bytes(), self.backend.written_bytes());
        let share = case.chunks_each * self.chunk;
        let began = Instant::now();
        on_threads(data.chunks(share).enumerate(), |(writer, bytes)| {
            self.backend.checkpoint(bytes, (writer * share) as u64)
        })?;
        let local = began.elapsed();
        self.backend.wait()?;
        let whole = began.elapsed();
        let flushed = self.backend.flushed_bytes() - before.0;
        ensure!(
            flushed == data.len() as u64,
            "{flushed} of {} bytes were flushed",
            data.len()
        );
        let to_disk = (self.backend.written_bytes()[1] - before.1[1]) / self.chunk as u64;
        let nanoseconds = |time: Duration| time.as_nanos() as f64;
        Ok(Phases {
            local: nanoseconds(local),
            whole: nanoseconds(whole),
            to_disk: to_disk as f64,
        })
    }

    /// Compares the external storage with the bytes that were written last.
    ///
    /// # Errors
    /// An error that names the first chunk that differs.
    pub(super) fn is_whole(&self, data: &[u8]) -> Result<()> {
        let mut seen = Buffer::new(self.chunk, PAGE);
        for (at, wanted) in data.chunks(self.chunk).enumerate() {
            self.external
                .read_at((at * self.chunk) as u64, seen.bytes_mut())?;
            ensure!(seen.bytes() == wanted, "chunk {at} is wrong");
        }
        Ok(())
    }
}

/// Alignment for direct I/O, in bytes.
const PAGE: usize = 4096;

/// Makes `len` bytes, each different from its neighbours and from the byte at the same offset of the next chunk.
pub(super) fn data(len: usize) -> Buffer {
    let mut data = Buffer::new(len, PAGE);
    fill(data.bytes_mut(), 0);
    data
}
