use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};
use tierflow_placement::stores::{Store, StoreId, StorePolicy};
use tierflow_store::Storage;
use tierflow_transfer::volume::LocalStore;

use super::buffer::is_aligned;
use super::state::{Answer, BackendState};
use super::{Buffer, ChunkPlacement, Error, Event, ProducerId, Result, Statistics, flush};

/// How a [`Backend`] behaves.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Options {
    /// Bytes of a chunk: 64 MiB unless you say otherwise, as in the paper.
    pub chunk_size: usize,
    /// Flush threads, at most: 16 unless you say otherwise.
    pub most_flushes: NonZeroUsize,
    /// How long a flush thread without work stays: 100 ms unless you say otherwise.
    pub idle: Duration,
    /// How long the external storage is left alone after it failed: 100 ms unless you say otherwise.
    pub pause: Duration,
    /// Bytes per second at which flushes are taken to run until the first one has ended, if that is known.
    pub flush_bandwidth: Option<u64>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            chunk_size: 64 << 20,
            most_flushes: NonZeroUsize::MIN.saturating_add(15),
            idle: Duration::from_millis(100),
            pause: Duration::from_millis(100),
            flush_bandwidth: None,
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

    /// The same with so many flush threads at most.
    #[must_use]
    pub fn most_flushes(mut self, most: NonZeroUsize) -> Self {
        self.most_flushes = most;
        self
    }

    /// The same with flushes taken to run at so many bytes per second at first.
    #[must_use]
    pub fn flush_bandwidth(mut self, bytes_per_second: u64) -> Self {
        self.flush_bandwidth = Some(bytes_per_second);
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
        let mut plan = ChunkPlacement::new(chunk_size as u64, described.collect(), policy)?
            .with_most_flushes(options.most_flushes);
        if let Some(bandwidth) = options.flush_bandwidth {
            plan = plan.with_flush_bandwidth(bandwidth as f64)?;
        }
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
    /// [`Error::TimedOut`] with the reason of the last failure, if there was one.
    pub fn wait(&self, patience: Duration) -> Result<()> {
        let deadline = Instant::now() + patience;
        let mut state = self.shared.state.lock();
        while state.plan.stores().iter().any(|store| store.chunks() > 0) {
            let late = self.shared.answered.wait_until(&mut state, deadline);
            if late.timed_out() && Instant::now() >= deadline {
                let chunks: usize = state.plan.stores().iter().map(Store::chunks).sum();
                return Err(timed_out("flushing", patience, &state, chunks));
            }
        }
        Ok(())
    }

    /// A store that failed works again, and is used from now on. They are counted from 0, the fastest first.
    ///
    /// # Errors
    /// [`Error::Placement`] if there is no such store.
    pub fn store_back(&self, store: usize) -> Result<()> {
        let mut state = self.shared.state.lock();
        let store = StoreId(store);
        state.handle(Event::StoreBack { store })?;
        self.shared.notify(&mut state)
    }

    /// Returns the statistics so far.
    pub fn statistics(&self) -> Statistics {
        self.shared.state.lock().plan.statistics().clone()
    }

    /// How fast flushes have been lately, all together, in bytes per second.
    pub fn flush_bandwidth(&self) -> Option<f64> {
        self.shared.state.lock().plan.flush_bandwidth().get()
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
    /// [`Error::TimedOut`] if some chunk found no place, and chunks before it are kept;
    /// [`Error::Store`] if no local store works and the external one refuses, too.
    pub fn checkpoint(&mut self, bytes: &[u8], target: u64, patience: Duration) -> Result<()> {
        let deadline = Instant::now() + patience;
        self.announce(bytes.len() as u64)?;
        let mut at = target;
        let mut written = Ok(());
        for chunk in bytes.chunks(self.shared.options.chunk_size) {
            written = self.write(chunk, at, deadline, patience);
            if written.is_err() {
                // The chunks behind it will not be asked for.
                self.announce(0)?;
                break;
            }
            at += chunk.len() as u64;
        }
        written
    }

    fn announce(&self, bytes: u64) -> Result<()> {
        let mut state = self.shared.state.lock();
        let producer = self.id;
        state.handle(Event::Announced { producer, bytes })?;
        self.shared.notify(&mut state)
    }

    /// Algorithm 1, one chunk.
    fn write(
        &self,
        bytes: &[u8],
        target: u64,
        deadline: Instant,
        patience: Duration,
    ) -> Result<()> {
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
        loop {
            let answer = self.answer(&mut state, deadline, patience)?;
            let Answer::Write { chunk, store, slot } = answer else {
                drop(state);
                self.shared.external.write_at(target, aligned)?;
                return Ok(());
            };
            let offset = slot as u64 * self.shared.options.chunk_size as u64;
            let written = MutexGuard::unlocked(&mut state, || {
                self.shared.stores[store.0].write_at(offset, aligned)
            });
            match written {
                Ok(()) => {
                    state.handle(Event::ChunkWritten { chunk })?;
                    return self.shared.notify(&mut state);
                }
                Err(error) => {
                    state.last_failure = Some(error.to_string());
                    state.write_failed(self.id, chunk)?;
                    self.shared.notify(&mut state)?;
                }
            }
        }
    }

    fn answer(
        &self,
        state: &mut MutexGuard<'_, BackendState>,
        deadline: Instant,
        patience: Duration,
    ) -> Result<Answer> {
        loop {
            if let Some(answer) = state.answer(self.id) {
                return Ok(answer);
            }
            let late = self.shared.answered.wait_until(state, deadline);
            if late.timed_out() && Instant::now() >= deadline {
                // The answer may have come just before the deadline.
                if let Some(answer) = state.answer(self.id) {
                    return Ok(answer);
                }
                state.handle(Event::AskWithdrawn { producer: self.id })?;
                let waiting = state.plan.waiting();
                return Err(timed_out("room on a local store", patience, state, waiting));
            }
        }
    }
}

impl BackendShared {
    pub(crate) fn lock(&self) -> MutexGuard<'_, BackendState> {
        self.state.lock()
    }

    /// After the plan has handled an event: wakes the threads that wait, and starts as many flush threads as there is work
    /// for.
    pub(crate) fn notify(self: &Arc<Self>, state: &mut BackendState) -> Result<()> {
        self.answered.notify_all();
        for _ in 0..state.to_flush.len().min(state.idle) {
            self.to_flush.notify_one();
        }
        while !state.stopping
            && state.flushers < self.options.most_flushes.get()
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

fn timed_out(doing: &'static str, patience: Duration, state: &BackendState, left: usize) -> Error {
    let why = match &state.last_failure {
        Some(failure) => failure.clone(),
        None => "no store has failed".to_owned(),
    };
    Error::TimedOut {
        doing,
        patience,
        why: format!("{left} left; {why}"),
    }
}
