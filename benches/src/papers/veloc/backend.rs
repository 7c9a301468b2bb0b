use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};
use tierflow_placement::stores::{Store, StorePolicy};
use tierflow_store::Storage;
use tierflow_transfer::volume::LocalStore;

use super::buffer::is_aligned;
use super::state::{Assignment, BackendState};
use super::{Buffer, ChunkPlacement, Error, Event, ProducerId, Result, Statistics, flush};

/// How a [`Backend`] behaves.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Options {
    /// Bytes of a chunk: 64 MiB unless you say otherwise, as in the paper.
    pub chunk_size: usize,
    /// Flush threads, at most: 16 unless you say otherwise.
    pub most_flushes: usize,
    /// How long a flush thread without work stays: 100 ms unless you say otherwise.
    pub idle: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            chunk_size: 64 << 20,
            most_flushes: 16,
            idle: Duration::from_millis(100),
        }
    }
}

impl Options {
    /// The same with chunks of so many bytes.
    #[must_use]
    pub fn chunk_size(mut self, bytes: usize) -> Self {
        self.chunk_size = bytes;
        self
    }
}

/// Local stores in front of an external one, and the threads that flush. Dropping it waits for the
/// flushes that run, and forgets those that do not yet.
#[derive(Debug)]
pub struct Backend {
    shared: Arc<BackendShared>,
    next: AtomicU64,
}

/// Writes checkpoints, one at a time. Each thread that writes has one of its own.
#[derive(Debug)]
pub struct Producer<'a> {
    shared: &'a Arc<BackendShared>,
    id: ProducerId,
}

#[derive(Debug)]
pub(crate) struct BackendShared {
    pub(crate) stores: Vec<Arc<dyn Storage>>,
    pub(crate) external: Arc<dyn Storage>,
    pub(crate) options: Options,
    pub(crate) alignment: usize,
    state: Mutex<BackendState>,
    /// Producers have an answer, or a flush has ended.
    pub(crate) answered: Condvar,
    /// There is something to flush, or nothing more.
    pub(crate) to_flush: Condvar,
    flushers: Mutex<Vec<JoinHandle<()>>>,
}

impl Backend {
    /// A backend over these stores, the fastest first. It starts no thread before there is something to
    /// flush.
    ///
    /// # Errors
    /// [`Error::Placement`] if no store that the policy may use holds a chunk; [`Error::ChunkSize`].
    pub fn start(
        stores: Vec<LocalStore>,
        external: Arc<dyn Storage>,
        policy: Box<dyn StorePolicy>,
        options: Options,
    ) -> Result<Self> {
        let chunk_size = options.chunk_size;
        let storages = stores.iter().map(|store| &store.storage).chain([&external]);
        let alignment = storages
            .map(|storage| storage.alignment())
            .max()
            .unwrap_or(1);
        if !chunk_size.is_multiple_of(alignment) {
            return Err(Error::ChunkSize {
                chunk_size,
                alignment,
            });
        }
        let described = stores.iter();
        let described = described.map(|store| Store::new(store.calibration.clone(), store.chunks));
        let plan = ChunkPlacement::new(chunk_size as u64, described.collect(), policy)?
            .with_most_flushes(options.most_flushes);
        let shared = BackendShared {
            stores: stores.into_iter().map(|store| store.storage).collect(),
            external,
            options,
            alignment,
            state: Mutex::new(BackendState::new(plan)),
            answered: Condvar::new(),
            to_flush: Condvar::new(),
            flushers: Mutex::default(),
        };
        Ok(Self {
            shared: Arc::new(shared),
            next: AtomicU64::new(0),
        })
    }

    /// Returns one more producer.
    pub fn producer(&self) -> Producer<'_> {
        Producer {
            shared: &self.shared,
            id: ProducerId(self.next.fetch_add(1, Ordering::Relaxed)),
        }
    }

    /// Waits until everything that was written is on the external storage.
    ///
    /// # Errors
    /// [`Error::Store`] if a flush failed.
    pub fn wait(&self) -> Result<()> {
        let mut state = self.shared.state.lock();
        while state.plan.stores().iter().any(|store| store.chunks() > 0) {
            state.check()?;
            self.shared.answered.wait(&mut state);
        }
        Ok(())
    }

    /// Returns the statistics so far.
    pub fn statistics(&self) -> Statistics {
        self.shared.state.lock().plan.statistics().clone()
    }

    /// Flush threads that there are now.
    pub fn flush_threads(&self) -> usize {
        self.shared.state.lock().flushers
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        self.shared.state.lock().stopping = true;
        self.shared.to_flush.notify_all();
        // No thread is started from here on. Joined without the lock, which running threads may take.
        let flushers = std::mem::take(&mut *self.shared.flushers.lock());
        for flusher in flushers {
            // A thread that panicked has nothing that is waited for.
            let _ = flusher.join();
        }
    }
}

impl Producer<'_> {
    /// Writes a checkpoint to local stores, chunk by chunk, and returns when its last byte is on one. It
    /// will lie at `target` in the external storage, a multiple of the stores' alignment, and take up bytes there to
    /// the next such multiple. Bytes at an address that storage takes are written from where they are, others are
    /// copied first.
    ///
    /// # Errors
    /// [`Error::Store`] if a store or the external storage failed, for this producer or another one.
    pub fn checkpoint(&mut self, bytes: &[u8], target: u64) -> Result<()> {
        self.tell(Event::Announced {
            producer: self.id,
            bytes: bytes.len() as u64,
        })?;
        let mut at = target;
        for chunk in bytes.chunks(self.shared.options.chunk_size) {
            self.write(chunk, at)?;
            at += chunk.len() as u64;
        }
        Ok(())
    }

    fn tell(&self, event: Event) -> Result<()> {
        let mut state = self.shared.state.lock();
        state.handle(event)?;
        self.shared.notify(&mut state)
    }

    /// Algorithm 1, one chunk.
    fn write(&self, bytes: &[u8], target: u64) -> Result<()> {
        let alignment = self.shared.alignment;
        let copy;
        let aligned = if is_aligned(bytes, alignment) {
            bytes
        } else {
            let mut buffer = Buffer::new(bytes.len().next_multiple_of(alignment), alignment);
            buffer.bytes_mut()[..bytes.len()].copy_from_slice(bytes);
            copy = buffer;
            copy.bytes()
        };
        let mut state = self.shared.state.lock();
        state.ask(self.id, bytes.len() as u64, target)?;
        self.shared.notify(&mut state)?;
        let Assignment { chunk, store, slot } = loop {
            state.check()?;
            if let Some(assignment) = state.assignment(self.id) {
                break assignment;
            }
            self.shared.answered.wait(&mut state);
        };
        drop(state);
        let offset = slot as u64 * self.shared.options.chunk_size as u64;
        let written = self.shared.stores[store.0].write_at(offset, aligned);
        if let Err(error) = written {
            self.shared.fail(error.clone());
            return Err(error.into());
        }
        self.tell(Event::ChunkWritten { chunk })
    }
}

impl BackendShared {
    pub(crate) fn lock(&self) -> MutexGuard<'_, BackendState> {
        self.state.lock()
    }

    /// Notes that a store failed: everybody who waits gets this error.
    pub(crate) fn fail(&self, error: tierflow_store::Error) {
        self.state.lock().failure = Some(error);
        self.answered.notify_all();
    }

    /// After the plan has handled an event: wakes the threads that wait, and starts as many flush threads as there is work
    /// for.
    pub(crate) fn notify(self: &Arc<Self>, state: &mut BackendState) -> Result<()> {
        self.answered.notify_all();
        for _ in 0..state.to_flush.len().min(state.idle) {
            self.to_flush.notify_one();
        }
        while !state.stopping
            && state.flushers < self.options.most_flushes
            && state.to_flush.len() > state.idle + state.coming
        {
            let flusher = flush::spawn(self).map_err(Error::Thread)?;
            state.flushers += 1;
            state.coming += 1;
            let mut flushers = self.flushers.lock();
            // Threads that have ended need no handle.
            flushers.retain(|flusher| !flusher.is_finished());
            flushers.push(flusher);
        }
        Ok(())
    }
}
