use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Instant;

use anyhow::{Context, Result};
use parking_lot::{Condvar, Mutex, MutexGuard};
use tierflow_placement::stores::{Store, StorePolicy};
use tierflow_store::{Error as StoreError, Storage};
use tierflow_transfer::volume::LocalStore;

use super::{Buffer, Chunk, ChunkFlush, ChunkPlacement, ChunkWrite};

/// Number of flush threads.
const FLUSHERS: usize = 16;

/// Local stores in front of an external one, and the threads that flush. Dropping the backend waits for running flushes, and forgets
/// the flushes that have not begun.
#[derive(Debug)]
pub struct Backend {
    shared: Arc<BackendShared>,
    producers: AtomicU64,
    flushers: Vec<JoinHandle<()>>,
}

#[derive(Debug)]
struct BackendShared {
    stores: Vec<Arc<dyn Storage>>,
    external: Arc<dyn Storage>,
    chunk_size: usize,
    began: Instant,
    state: Mutex<BackendState>,
    /// Notified when a producer got a place, a flush ended, or a storage failed.
    answered: Condvar,
    /// Notified when there may be a flush to start, or the threads have to end.
    to_flush: Condvar,
}

#[derive(Debug)]
struct BackendState {
    plan: ChunkPlacement,
    /// Chunks that have a place and whose producers have not begun to write, by producer.
    assigned: HashMap<u64, ChunkWrite>,
    /// Started flushes that no thread has taken yet.
    to_flush: VecDeque<ChunkFlush>,
    /// Number of flushes that have started and not ended.
    flushes: usize,
    is_stopping: bool,
    /// The error of the storage that failed.
    failure: Option<StoreError>,
}

impl Backend {
    /// Makes a backend over these stores, the fastest first, in chunks of `chunk_size` bytes, a multiple of the storages' alignments.
    ///
    /// # Errors
    /// An error if no store that the policy may use holds a chunk.
    pub fn start(
        stores: Vec<LocalStore>,
        external: Arc<dyn Storage>,
        policy: Box<dyn StorePolicy>,
        chunk_size: usize,
    ) -> Result<Self> {
        let described = stores.iter();
        let described = described.map(|store| Store::new(store.calibration.clone(), store.chunks));
        let plan = ChunkPlacement::new(chunk_size as u64, described.collect(), policy)?;
        let shared = Arc::new(BackendShared {
            stores: stores.into_iter().map(|store| store.storage).collect(),
            external,
            chunk_size,
            began: Instant::now(),
            state: Mutex::new(BackendState {
                plan,
                assigned: HashMap::new(),
                to_flush: VecDeque::new(),
                flushes: 0,
                is_stopping: false,
                failure: None,
            }),
            answered: Condvar::new(),
            to_flush: Condvar::new(),
        });
        let mut backend = Self {
            shared,
            producers: AtomicU64::new(0),
            flushers: Vec::new(),
        };
        for _ in 0..FLUSHERS {
            let shared = Arc::clone(&backend.shared);
            let thread = std::thread::Builder::new().name("tierflow-flush".to_owned());
            let flusher = thread.spawn(move || shared.flush_chunks());
            let flusher = flusher.context("a flush thread cannot be started")?;
            backend.flushers.push(flusher);
        }
        Ok(backend)
    }

    /// Writes a checkpoint to local stores, chunk by chunk, and returns when its last byte is there. Flushes write the checkpoint to offset
    /// `target` of the external storage. Address, length and target of `bytes` must be multiples of the storages' alignments.
    ///
    /// # Errors
    /// An error if a store or the external storage failed, for this checkpoint or another one.
    pub fn checkpoint(&self, bytes: &[u8], target: u64) -> Result<()> {
        let producer = self.producers.fetch_add(1, Ordering::Relaxed);
        let announced = bytes.len() as u64;
        let announced = |state: &mut BackendState, _| state.plan.announce(producer, announced);
        drop(self.shared.change(announced));
        let mut at = target;
        for chunk in bytes.chunks(self.shared.chunk_size) {
            self.shared.write(producer, chunk, at)?;
            at += chunk.len() as u64;
        }
        Ok(())
    }

    /// Waits until everything that was written is on the external storage.
    ///
    /// # Errors
    /// An error if a flush failed.
    pub fn wait(&self) -> Result<()> {
        let mut state = self.shared.state.lock();
        while !state.plan.is_flushed() {
            state.check()?;
            self.shared.answered.wait(&mut state);
        }
        Ok(())
    }

    /// Returns the bytes that were written to each local store so far.
    pub fn written_bytes(&self) -> Vec<u64> {
        self.shared.state.lock().plan.written_bytes().to_vec()
    }

    /// Returns the bytes that reached the external storage so far.
    pub fn flushed_bytes(&self) -> u64 {
        self.shared.state.lock().plan.flushed_bytes()
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        self.shared.state.lock().is_stopping = true;
        self.shared.to_flush.notify_all();
        for flusher in self.flushers.drain(..) {
            // No caller waits for a thread that panicked.
            let _ = flusher.join();
        }
    }
}

impl BackendShared {
    /// Changes the state, then gives places to producers and starts flushes as far as the new state allows.
    fn change(&self, change: impl FnOnce(&mut BackendState, u64)) -> MutexGuard<'_, BackendState> {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        let now = self.now_ns();
        change(state, now);
        while let Some(writing) = state.plan.next_write(now) {
            state.assigned.insert(writing.chunk.producer, writing);
        }
        self.answered.notify_all();
        while state.flushes < FLUSHERS
            && let Some(flushing) = state.plan.next_flush(now)
        {
            state.flushes += 1;
            state.to_flush.push_back(flushing);
            self.to_flush.notify_one();
        }
        guard
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Writes one chunk (Algorithm 1).
    fn write(&self, producer: u64, bytes: &[u8], target: u64) -> Result<()> {
        let mut state =
            self.change(|state, _| state.plan.ask(producer, bytes.len() as u64, target));
        let writing = loop {
            state.check()?;
            if let Some(writing) = state.assigned.remove(&producer) {
                break writing;
            }
            self.answered.wait(&mut state);
        };
        drop(state);
        let store = &self.stores[writing.chunk.store];
        if let Err(error) = store.write_at(self.offset(writing.chunk), bytes) {
            self.fail(error.clone());
            return Err(error.into());
        }
        drop(self.change(|state, now| state.plan.written(now, writing)));
        Ok(())
    }

    /// Flushes chunks on one thread (Algorithm 3).
    fn flush_chunks(&self) {
        let alignments = self.stores.iter().map(|store| store.alignment());
        let alignment = alignments.fold(self.external.alignment(), usize::max);
        // A thread allocates its buffer at its first flush.
        let mut buffer = None;
        let mut state = self.state.lock();
        while !state.is_stopping {
            let Some(flushing) = state.to_flush.pop_front() else {
                self.to_flush.wait(&mut state);
                continue;
            };
            drop(state);
            let buffer = buffer.get_or_insert_with(|| Buffer::new(self.chunk_size, alignment));
            if let Err(error) = self.flush(flushing.chunk, buffer) {
                return self.fail(error);
            }
            state = self.change(|state, now| {
                state.flushes -= 1;
                state.plan.flushed(now, flushing);
            });
        }
    }

    fn flush(&self, chunk: Chunk, buffer: &mut Buffer) -> Result<(), StoreError> {
        let bytes = &mut buffer.bytes_mut()[..chunk.bytes as usize];
        self.stores[chunk.store].read_at(self.offset(chunk), bytes)?;
        self.external.write_at(chunk.target, bytes)
    }

    /// Returns the first byte of a chunk on its local store.
    fn offset(&self, chunk: Chunk) -> u64 {
        (chunk.slot * self.chunk_size) as u64
    }

    /// Notes that a storage failed. All waiting callers get this error.
    fn fail(&self, error: StoreError) {
        self.state.lock().failure = Some(error);
        self.answered.notify_all();
    }
}

impl BackendState {
    fn check(&self) -> Result<(), StoreError> {
        self.failure.clone().map_or(Ok(()), Err)
    }
}
