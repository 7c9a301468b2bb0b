use std::collections::{BTreeMap, BTreeSet, VecDeque};

use tierflow_placement::stores::{FlushBandwidth, Store, StoreId, StorePolicy, StoreWrite};

use super::{ChunkId, Command, Event, PlacementError, ProducerId, Statistics};

mod assign;
mod flush;

#[derive(Clone, Copy, Debug)]
struct Waiting {
    producer: ProducerId,
    bytes: u64,
    since_ns: u64,
}

/// A chunk that was assigned, and its progress.
#[derive(Clone, Copy, Debug)]
struct Assigned {
    producer: ProducerId,
    store: StoreId,
    bytes: u64,
    phase: Phase,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    Writing(StoreWrite),
    Written,
    Flushing {
        /// The totals of all flushes, and of the store's, when it started.
        started: [f64; 2],
    },
}

/// Assigns local stores to producers and starts flushes (the active backend of IPDPS'19, Algorithms 1
/// to 3).
///
/// Producers are served in the order in which they asked: one that has to wait is passed by none.
/// No producer waits forever as long as writes and flushes end: where the policy would wait though nothing
/// is on any store, so that no flush will ever finish, the chunk goes to the fastest store with room.
/// The paper assumes away that case.
#[derive(Debug)]
pub struct ChunkPlacement {
    chunk_size: u64,
    stores: Vec<Store>,
    policy: Box<dyn StorePolicy>,
    most_flushes: usize,
    queue: VecDeque<Waiting>,
    /// Producers that wait or write.
    busy: BTreeSet<ProducerId>,
    /// Bytes that producers have announced and not asked for yet; no entries of 0.
    announced: BTreeMap<ProducerId, u64>,
    /// Bytes waited for and announced, all together.
    to_write: u64,
    chunks: BTreeMap<ChunkId, Assigned>,
    /// For each store: chunks, and how many were to be flushed before them.
    to_flush: Vec<VecDeque<(u64, ChunkId)>>,
    /// How many chunks were to be flushed so far.
    came: u64,
    flushes: usize,
    next: u64,
    bandwidth: FlushBandwidth,
    statistics: Statistics,
}

/// Flushes in the moving average.
const WINDOW: usize = 32;

impl ChunkPlacement {
    /// Makes the state for chunks of `chunk_size` bytes over these stores, the fastest first. Each chunk that
    /// was written is flushed at once, however many are.
    ///
    /// # Errors
    /// [`NoChunkSize`](PlacementError::NoChunkSize), or [`NoStore`](PlacementError::NoStore) if no store
    /// that the policy may use holds a chunk.
    pub fn new(
        chunk_size: u64,
        stores: Vec<Store>,
        policy: Box<dyn StorePolicy>,
    ) -> Result<Self, PlacementError> {
        if chunk_size == 0 {
            return Err(PlacementError::NoChunkSize);
        }
        if stores[policy.usable(stores.len())]
            .iter()
            .all(|store| store.capacity() == 0)
        {
            let policy = policy.name();
            return Err(PlacementError::NoStore { policy });
        }
        let statistics = Statistics {
            written_bytes: vec![0; stores.len()],
            ..Statistics::default()
        };
        Ok(Self {
            chunk_size,
            to_flush: vec![VecDeque::new(); stores.len()],
            came: 0,
            stores,
            policy,
            most_flushes: usize::MAX,
            queue: VecDeque::new(),
            busy: BTreeSet::new(),
            announced: BTreeMap::new(),
            to_write: 0,
            chunks: BTreeMap::new(),
            flushes: 0,
            next: 0,
            bandwidth: FlushBandwidth::new(WINDOW),
            statistics,
        })
    }

    /// Flushes no more than `most` chunks at once, but at least one.
    #[must_use]
    pub fn with_most_flushes(mut self, most: usize) -> Self {
        self.most_flushes = most.max(1);
        self
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
    ) -> Result<(), PlacementError> {
        match event {
            Event::Announced { producer, bytes } => self.announce(producer, bytes),
            Event::ChunkAsked { producer, bytes } => self.ask(now_ns, producer, bytes)?,
            Event::ChunkWritten { chunk } => self.written(now_ns, chunk)?,
            Event::ChunkFlushed { chunk } => self.flushed(now_ns, chunk)?,
        }
        self.assign(now_ns, commands);
        self.flush(now_ns, commands);
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

    /// Returns the statistics so far.
    pub fn statistics(&self) -> &Statistics {
        &self.statistics
    }

    /// Replaces what a producer has announced.
    fn announce(&mut self, producer: ProducerId, bytes: u64) {
        let before = if bytes > 0 {
            self.announced.insert(producer, bytes)
        } else {
            self.announced.remove(&producer)
        };
        let others = self.to_write.saturating_sub(before.unwrap_or_default());
        self.to_write = others.saturating_add(bytes);
    }

    fn ask(&mut self, now: u64, producer: ProducerId, bytes: u64) -> Result<(), PlacementError> {
        if !(1..=self.chunk_size).contains(&bytes) {
            return Err(PlacementError::BadChunk {
                producer,
                bytes,
                most: self.chunk_size,
            });
        }
        if !self.busy.insert(producer) {
            return Err(PlacementError::Busy(producer));
        }
        self.statistics.asked_bytes += bytes;
        let announced = self.announced(producer);
        self.announce(producer, announced.saturating_sub(bytes));
        self.to_write = self.to_write.saturating_add(bytes);
        self.queue.push_back(Waiting {
            producer,
            bytes,
            since_ns: now,
        });
        Ok(())
    }

    fn announced(&self, producer: ProducerId) -> u64 {
        let announced = self.announced.get(&producer);
        announced.copied().unwrap_or_default()
    }

    fn written(&mut self, now: u64, id: ChunkId) -> Result<(), PlacementError> {
        let (chunk, write) = self.being_written(id)?;
        if let Some(chunk) = self.chunks.get_mut(&id) {
            chunk.phase = Phase::Written;
        }
        self.busy.remove(&chunk.producer);
        self.stores[chunk.store.0].end_write(now, write, Some(chunk.bytes));
        self.statistics.written_bytes[chunk.store.0] += chunk.bytes;
        self.is_to_flush(id, chunk.store);
        Ok(())
    }

    fn flushed(&mut self, now: u64, id: ChunkId) -> Result<(), PlacementError> {
        let (chunk, started) = self.being_flushed(id)?;
        self.chunks.remove(&id);
        self.stores[chunk.store.0].remove_chunk();
        self.statistics.flushed_bytes += chunk.bytes;
        let bandwidths = [
            &mut self.bandwidth,
            self.stores[chunk.store.0].flushes_mut(),
        ];
        for (bandwidth, started) in bandwidths.into_iter().zip(started) {
            bandwidth.ended(now, started, chunk.bytes);
        }
        self.flushes -= 1;
        Ok(())
    }

    fn being_written(&self, id: ChunkId) -> Result<(Assigned, StoreWrite), PlacementError> {
        match self.chunks.get(&id) {
            Some(chunk) => match chunk.phase {
                Phase::Writing(write) => Ok((*chunk, write)),
                _ => Err(PlacementError::NotWriting(id)),
            },
            None => Err(PlacementError::NotWriting(id)),
        }
    }

    fn being_flushed(&self, id: ChunkId) -> Result<(Assigned, [f64; 2]), PlacementError> {
        match self.chunks.get(&id) {
            Some(chunk) => match chunk.phase {
                Phase::Flushing { started } => Ok((*chunk, started)),
                _ => Err(PlacementError::NotFlushing(id)),
            },
            None => Err(PlacementError::NotFlushing(id)),
        }
    }
}
