use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::num::NonZeroUsize;

use super::clock::Started;
use super::{BackendError, Backlog, ChunkId, Command, Event, FlushBandwidth, ProducerId};
use super::{Statistics, Store, StoreId, StorePolicy};

#[derive(Clone, Copy, Debug)]
struct Waiting {
    producer: ProducerId,
    bytes: u64,
    since_ns: u64,
}

#[derive(Clone, Copy, Debug)]
struct Chunk {
    producer: ProducerId,
    store: StoreId,
    bytes: u64,
    phase: Phase,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    Writing(Started),
    Written,
    Flushing(Started),
}

/// Assigns local stores to producers and starts flushes (the active backend of IPDPS'19, Algorithms 1
/// to 3).
///
/// Producers are served in the order in which they asked: one that has to wait is passed by none.
/// Nobody waits forever as long as writes and flushes end: where the policy would wait though nothing
/// is on any store, so that no flush will ever finish, the chunk goes to the fastest store with room.
/// The paper assumes away that case.
#[derive(Debug)]
pub struct ActiveBackend {
    chunk_size: u64,
    stores: Vec<Store>,
    policy: Box<dyn StorePolicy>,
    most_flushes: usize,
    queue: VecDeque<Waiting>,
    /// Producers that wait or write.
    busy: BTreeSet<ProducerId>,
    chunks: BTreeMap<ChunkId, Chunk>,
    to_flush: VecDeque<ChunkId>,
    flushes: usize,
    next: u64,
    bandwidth: FlushBandwidth,
    statistics: Statistics,
}

/// Flushes that the moving average goes over.
const WINDOW: usize = 32;

impl ActiveBackend {
    /// A backend for chunks of `chunk_size` bytes over these stores, the fastest first. Each chunk that
    /// was written is flushed at once, however many are.
    ///
    /// # Errors
    /// [`NoChunkSize`](BackendError::NoChunkSize), or [`NoStore`](BackendError::NoStore) if no store
    /// that the policy may use holds a chunk.
    pub fn new(
        chunk_size: u64,
        stores: Vec<Store>,
        policy: Box<dyn StorePolicy>,
    ) -> Result<Self, BackendError> {
        if chunk_size == 0 {
            return Err(BackendError::NoChunkSize);
        }
        if stores[policy.usable(stores.len())]
            .iter()
            .all(|store| store.capacity == 0)
        {
            let policy = policy.name();
            return Err(BackendError::NoStore { policy });
        }
        let statistics = Statistics {
            written_bytes: vec![0; stores.len()],
            ..Statistics::default()
        };
        Ok(Self {
            chunk_size,
            stores,
            policy,
            most_flushes: usize::MAX,
            queue: VecDeque::new(),
            busy: BTreeSet::new(),
            chunks: BTreeMap::new(),
            to_flush: VecDeque::new(),
            flushes: 0,
            next: 0,
            bandwidth: FlushBandwidth::new(WINDOW),
            statistics,
        })
    }

    /// Flushes no more than `most` chunks at once.
    #[must_use]
    pub fn with_most_flushes(mut self, most: NonZeroUsize) -> Self {
        self.most_flushes = most.get();
        self
    }

    /// The average is over the last `flushes` flushes, instead of 32.
    #[must_use]
    pub fn with_window(mut self, flushes: NonZeroUsize) -> Self {
        self.bandwidth.set_window(flushes.get());
        self
    }

    /// Flushes count as this fast, in bytes per second, until the first has finished. Without it nothing is
    /// known then, and the first chunks may go to stores that are slower than waiting.
    ///
    /// # Errors
    /// [`BadBandwidth`](BackendError::BadBandwidth) if it is not above zero and finite.
    pub fn with_flush_bandwidth(mut self, bandwidth: f64) -> Result<Self, BackendError> {
        if !(bandwidth > 0.0 && bandwidth.is_finite()) {
            return Err(BackendError::BadBandwidth(bandwidth));
        }
        self.bandwidth.set_before(bandwidth);
        Ok(self)
    }

    /// Takes an event that happened `now_ns` nanoseconds after some fixed time, and appends what is to
    /// be done to `commands`. Times that run backwards count as standing still.
    ///
    /// # Errors
    /// When the event cannot have happened; nothing has changed then.
    pub fn handle(
        &mut self,
        now_ns: u64,
        event: Event,
        commands: &mut Vec<Command>,
    ) -> Result<(), BackendError> {
        match event {
            Event::ChunkAsked { producer, bytes } => self.ask(now_ns, producer, bytes)?,
            Event::AskWithdrawn { producer } => self.withdraw(producer)?,
            Event::ChunkWritten { chunk } => self.written(now_ns, chunk)?,
            Event::WriteFailed { chunk } => self.write_failed(now_ns, chunk)?,
            Event::StoreBack { store } => {
                let known = self.stores.get_mut(store.0);
                known.ok_or(BackendError::NoSuchStore(store))?.is_out_of_use = false;
            }
            Event::ChunkFlushed { chunk } => self.flushed(now_ns, chunk)?,
            Event::FlushFailed { chunk } => self.flush_failed(now_ns, chunk)?,
        }
        self.bandwidth.advance(now_ns);
        self.assign(now_ns, commands);
        self.flush(commands);
        Ok(())
    }

    /// The local stores.
    pub fn stores(&self) -> &[Store] {
        &self.stores
    }

    /// How many producers wait for a store.
    pub fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// How many chunks are being flushed.
    pub fn flushing(&self) -> usize {
        self.flushes
    }

    /// How fast flushes have been lately.
    pub fn flush_bandwidth(&self) -> &FlushBandwidth {
        &self.bandwidth
    }

    /// What happened so far.
    pub fn statistics(&self) -> &Statistics {
        &self.statistics
    }

    /// The policy's name.
    pub fn policy(&self) -> &'static str {
        self.policy.name()
    }

    fn ask(&mut self, now: u64, producer: ProducerId, bytes: u64) -> Result<(), BackendError> {
        if !(1..=self.chunk_size).contains(&bytes) {
            return Err(BackendError::BadChunk {
                producer,
                bytes,
                most: self.chunk_size,
            });
        }
        if !self.busy.insert(producer) {
            return Err(BackendError::Busy(producer));
        }
        self.statistics.asked_bytes += bytes;
        self.queue.push_back(Waiting {
            producer,
            bytes,
            since_ns: now,
        });
        Ok(())
    }

    fn withdraw(&mut self, producer: ProducerId) -> Result<(), BackendError> {
        let mut queue = self.queue.iter();
        let at = queue.position(|waiting| waiting.producer == producer);
        let waiting = at.and_then(|at| self.queue.remove(at));
        let waiting = waiting.ok_or(BackendError::DoesNotWait(producer))?;
        self.busy.remove(&producer);
        self.statistics.withdrawn_bytes += waiting.bytes;
        Ok(())
    }

    fn written(&mut self, now: u64, id: ChunkId) -> Result<(), BackendError> {
        let (chunk, started) = self.being_written(id)?;
        if let Some(chunk) = self.chunks.get_mut(&id) {
            chunk.phase = Phase::Written;
        }
        self.busy.remove(&chunk.producer);
        self.stores[chunk.store.0].write_ended(now, started, Some(chunk.bytes));
        self.statistics.written_bytes[chunk.store.0] += chunk.bytes;
        self.to_flush.push_back(id);
        Ok(())
    }

    fn write_failed(&mut self, now: u64, id: ChunkId) -> Result<(), BackendError> {
        let (chunk, started) = self.being_written(id)?;
        self.chunks.remove(&id);
        let store = &mut self.stores[chunk.store.0];
        store.write_ended(now, started, None);
        store.chunks -= 1;
        store.is_out_of_use = true;
        self.queue.push_front(Waiting {
            producer: chunk.producer,
            bytes: chunk.bytes,
            since_ns: now,
        });
        Ok(())
    }

    fn flushed(&mut self, now: u64, id: ChunkId) -> Result<(), BackendError> {
        let (chunk, started) = self.being_flushed(id)?;
        self.chunks.remove(&id);
        self.stores[chunk.store.0].chunks -= 1;
        self.flushes -= 1;
        self.statistics.flushed_bytes += chunk.bytes;
        self.bandwidth.advance(now);
        self.bandwidth.ended(started, Some(chunk.bytes));
        Ok(())
    }

    fn flush_failed(&mut self, now: u64, id: ChunkId) -> Result<(), BackendError> {
        let (_, started) = self.being_flushed(id)?;
        if let Some(chunk) = self.chunks.get_mut(&id) {
            chunk.phase = Phase::Written;
        }
        self.flushes -= 1;
        self.bandwidth.advance(now);
        self.bandwidth.ended(started, None);
        self.to_flush.push_back(id);
        Ok(())
    }

    fn being_written(&self, id: ChunkId) -> Result<(Chunk, Started), BackendError> {
        let chunk = self.chunks.get(&id).and_then(|chunk| match chunk.phase {
            Phase::Writing(started) => Some((*chunk, started)),
            _ => None,
        });
        chunk.ok_or(BackendError::NotWriting(id))
    }

    fn being_flushed(&self, id: ChunkId) -> Result<(Chunk, Started), BackendError> {
        match self.chunks.get(&id) {
            Some(chunk) => match chunk.phase {
                Phase::Flushing(started) => Ok((*chunk, started)),
                _ => Err(BackendError::NotFlushing(id)),
            },
            None => Err(BackendError::NotFlushing(id)),
        }
    }

    /// Algorithm 2.
    fn assign(&mut self, now: u64, commands: &mut Vec<Command>) {
        while let Some(&waiting) = self.queue.front() {
            let Waiting {
                producer, bytes, ..
            } = waiting;
            let command = if let Some(store) = self.store_for_next() {
                let chunk = ChunkId(self.next);
                self.next += 1;
                self.stores[store.0].chunks += 1;
                let phase = Phase::Writing(self.stores[store.0].write_started(now));
                self.chunks.insert(
                    chunk,
                    Chunk {
                        producer,
                        store,
                        bytes,
                        phase,
                    },
                );
                Command::Write {
                    producer,
                    chunk,
                    store,
                }
            } else if self.usable().all(|store| store.is_out_of_use) {
                self.busy.remove(&producer);
                self.statistics.bypassed_bytes += bytes;
                Command::Bypass { producer, bytes }
            } else {
                return;
            };
            self.queue.pop_front();
            self.statistics.waited_ns += u128::from(now.saturating_sub(waiting.since_ns));
            commands.push(command);
        }
    }

    fn usable(&self) -> impl Iterator<Item = &Store> {
        let usable = self.policy.usable(self.stores.len());
        let stores = self.stores[usable].iter();
        stores.filter(|store| store.capacity > 0)
    }

    fn store_for_next(&mut self) -> Option<StoreId> {
        let states: Vec<_> = self.stores.iter().map(Store::state).collect();
        let backlog = Backlog {
            flush_bandwidth: self.bandwidth.get().unwrap_or_default(),
            waiting: self.queue.len(),
        };
        let chosen = self.policy.choose(&states, backlog);
        if let Some(store) = chosen.filter(|&store| states[store].has_room) {
            return Some(StoreId(store));
        }
        // Something on a store will be flushed, and then we look again.
        if !self.chunks.is_empty() {
            return None;
        }
        let predicted = |&store: &usize| states[store].calibration.throughput(1);
        let usable = self.policy.usable(states.len());
        let fastest = usable
            .filter(|&store| states[store].has_room)
            .max_by(|a, b| predicted(a).total_cmp(&predicted(b)))?;
        self.statistics.forced += 1;
        Some(StoreId(fastest))
    }

    /// Algorithm 3, with I/O threads as they are needed.
    fn flush(&mut self, commands: &mut Vec<Command>) {
        while self.flushes < self.most_flushes
            && let Some(id) = self.to_flush.pop_front()
        {
            if let Some(chunk) = self.chunks.get_mut(&id) {
                self.flushes += 1;
                chunk.phase = Phase::Flushing(self.bandwidth.started());
                commands.push(Command::Flush {
                    chunk: id,
                    store: chunk.store,
                    bytes: chunk.bytes,
                });
            }
        }
    }
}
