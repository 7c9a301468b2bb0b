//! One policy with stores of its own, and coordinated checkpoints to them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use tierflow_local_stores::placement::StorePolicy;
use tierflow_local_stores::{Backend, LocalStore};
use tierflow_store::Storage;

use super::compare::Case;
use super::stores::Machine;

const PATIENCE: Duration = Duration::from_secs(120);

/// A policy with stores of its own.
pub(super) struct Rival {
    backend: Backend,
    external: Arc<dyn Storage>,
    chunk: usize,
}

/// What a checkpoint took.
pub(super) struct Took {
    /// Nanoseconds until the last byte was on a local store.
    pub(super) local: f64,
    /// Nanoseconds until the last byte was flushed.
    pub(super) whole: f64,
    /// Chunks that were written to the disk.
    pub(super) to_disk: f64,
}

impl Rival {
    pub(super) fn new(
        machine: &Machine,
        case: &Case,
        policy: Box<dyn StorePolicy>,
    ) -> Result<Self> {
        let all = case.writers * case.chunks_each;
        // The ideal has room for everything.
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
        let options = machine.options.clone();
        let backend = Backend::start(stores, Arc::clone(&external), policy, options)?;
        Ok(Self {
            backend,
            external,
            chunk: machine.chunk(),
        })
    }

    /// All writers at once.
    pub(super) fn checkpoint(&self, case: &Case, data: &[u8]) -> Result<Took> {
        let before = self.backend.statistics();
        let share = case.chunks_each * self.chunk;
        let began = Instant::now();
        let written: tierflow_local_stores::Result<()> = std::thread::scope(|scope| {
            let writers: Vec<_> = data
                .chunks(share)
                .enumerate()
                .map(|(writer, bytes)| {
                    let mut producer = self.backend.producer();
                    let target = (writer * share) as u64;
                    scope.spawn(move || producer.checkpoint(bytes, target, PATIENCE))
                })
                .collect();
            let mut ends = writers.into_iter().map(|writer| match writer.join() {
                Ok(written) => written,
                Err(panic) => std::panic::resume_unwind(panic),
            });
            ends.try_for_each(|end| end)
        });
        written?;
        let local = began.elapsed();
        self.backend.wait(PATIENCE)?;
        let whole = began.elapsed();
        let after = self.backend.statistics();
        let flushed = after.flushed_bytes - before.flushed_bytes;
        ensure!(
            flushed == data.len() as u64 && after.bypassed_bytes == 0 && after.withdrawn_bytes == 0,
            "{flushed} of {} bytes were flushed",
            data.len()
        );
        let to_disk = (after.written_bytes[1] - before.written_bytes[1]) / self.chunk as u64;
        let nanoseconds = |time: Duration| time.as_nanos() as f64;
        Ok(Took {
            local: nanoseconds(local),
            whole: nanoseconds(whole),
            to_disk: to_disk as f64,
        })
    }

    /// That the external storage holds what was written.
    pub(super) fn is_whole(&self, data: &[u8]) -> Result<()> {
        let mut seen = Data::new(self.chunk);
        for (at, wanted) in data.chunks(self.chunk).enumerate() {
            self.external
                .read_at((at * self.chunk) as u64, seen.bytes_mut())?;
            ensure!(seen.bytes() == wanted, "chunk {at} is wrong");
        }
        Ok(())
    }
}

/// Bytes at an address that direct I/O takes.
pub(super) struct Data {
    memory: Vec<u8>,
    start: usize,
    len: usize,
}

const PAGE: usize = 4096;

impl Data {
    /// So many bytes, each different from its neighbours and from its like in the next chunk.
    pub(super) fn new(len: usize) -> Self {
        let mut memory = vec![0; len + PAGE];
        let start = memory.as_ptr().align_offset(PAGE).min(PAGE);
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        for word in memory[start..start + len].chunks_mut(8) {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            word.copy_from_slice(&state.to_le_bytes()[..word.len()]);
        }
        Self { memory, start, len }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.len]
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.len]
    }
}
