//! The decisions of the active backend (IPDPS'19, Algorithms 2 and 3).

use std::collections::{BTreeMap, VecDeque};

use anyhow::{Result, ensure};
use tierflow_placement::stores::{
    Backlog, FlushBandwidth, FlushOrder, Store, StorePolicy, StoreWrite,
};

/// A chunk that has its place on a local store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// The number of the producer that asked.
    pub producer: u64,
    /// How many bytes.
    pub bytes: u64,
    /// The first byte in the external storage.
    pub target: u64,
    /// The store, counted from 0, the fastest first.
    pub store: usize,
    /// The place on the store, counted in chunks.
    pub slot: usize,
}

/// A chunk that its producer writes to its place, for [`ChunkPlacement::written`].
#[derive(Clone, Copy, Debug)]
pub struct ChunkWrite {
    /// The chunk.
    pub chunk: Chunk,
    write: StoreWrite,
}

/// A chunk that is copied to the external storage, for [`ChunkPlacement::flushed`].
#[derive(Clone, Copy, Debug)]
pub struct ChunkFlush {
    /// The chunk.
    pub chunk: Chunk,
    /// The totals of all flushes, and of the store's, when this one started.
    started: [f64; 2],
}

/// A producer that waits for a place.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    producer: u64,
    bytes: u64,
    target: u64,
}

/// Assigns local stores to producers and chooses what is flushed. All times are nanoseconds after some fixed time; those that run
/// backwards count as standing still.
///
/// Producers are served in the order in which they asked: one that has to wait is passed by none.
/// No producer waits forever as long as writes and flushes end: where the policy would wait though nothing
/// is on any store, so that no flush will ever finish, the chunk goes to the fastest store with room.
/// The paper assumes away that case.
#[derive(Debug)]
pub struct ChunkPlacement {
    chunk_size: u64,
    stores: Vec<Store>,
    /// Free slots of each store.
    free: Vec<Vec<usize>>,
    policy: Box<dyn StorePolicy>,
    waiting: VecDeque<Waiting>,
    /// Bytes that producers have announced and not asked for yet.
    announced: BTreeMap<u64, u64>,
    /// For each store: chunks, and how many were to be flushed before them.
    to_flush: Vec<VecDeque<(u64, Chunk)>>,
    /// How many chunks were to be flushed so far.
    came: u64,
    bandwidth: FlushBandwidth,
    written_bytes: Vec<u64>,
    flushed_bytes: u64,
}

/// Flushes in the moving average.
const WINDOW: usize = 32;

impl ChunkPlacement {
    /// Makes the state for chunks of `chunk_size` bytes at most over these stores, the fastest first.
    ///
    /// # Errors
    /// When no store that the policy may use holds a chunk.
    pub fn new(chunk_size: u64, stores: Vec<Store>, policy: Box<dyn StorePolicy>) -> Result<Self> {
        let mut usable = stores[policy.usable(stores.len())].iter();
        ensure!(
            usable.any(|store| store.capacity() > 0),
            "the policy {} has no store with room for one chunk: give it one",
            policy.name()
        );
        let slots = stores.iter().map(|store| (0..store.capacity()).rev());
        Ok(Self {
            chunk_size,
            free: slots.map(Iterator::collect).collect(),
            policy,
            waiting: VecDeque::new(),
            announced: BTreeMap::new(),
            to_flush: vec![VecDeque::new(); stores.len()],
            came: 0,
            bandwidth: FlushBandwidth::new(WINDOW),
            written_bytes: vec![0; stores.len()],
            flushed_bytes: 0,
            stores,
        })
    }

    /// A producer will ask for chunks of so many bytes altogether, the first of which it has not asked for yet. The number takes the
    /// place of what the producer announced before. It is optional, and lets `ShortestWait` look ahead.
    pub fn announce(&mut self, producer: u64, bytes: u64) {
        self.announced.insert(producer, bytes);
        self.announced.retain(|_, bytes| *bytes > 0);
    }

    /// A producer wants to write its next chunk (Algorithm 1, line 6), whose place in the external storage is `target`.
    pub fn ask(&mut self, producer: u64, bytes: u64, target: u64) {
        let announced = self.announced(producer);
        self.announce(producer, announced.saturating_sub(bytes));
        self.waiting.push_back(Waiting {
            producer,
            bytes,
            target,
        });
    }

    /// Serves the producer that waits longest; `None` if none waits, or it has to go on waiting (Algorithm 2).
    pub fn next_write(&mut self, now_ns: u64) -> Option<ChunkWrite> {
        let next = *self.waiting.front()?;
        let store = self.store_for(next)?;
        let slot = self.free[store].pop()?;
        self.waiting.pop_front();
        let announced = self.announced(next.producer);
        self.stores[store].add_chunks(1);
        Some(ChunkWrite {
            chunk: Chunk {
                producer: next.producer,
                bytes: next.bytes,
                target: next.target,
                store,
                slot,
            },
            write: self.stores[store].begin_write(now_ns, announced),
        })
    }

    /// A chunk is on its local store (Algorithm 1, lines 9 and 10).
    pub fn written(&mut self, now_ns: u64, writing: ChunkWrite) {
        let ChunkWrite { chunk, write } = writing;
        self.stores[chunk.store].end_write(now_ns, write, Some(chunk.bytes));
        self.written_bytes[chunk.store] += chunk.bytes;
        self.to_flush[chunk.store].push_back((self.came, chunk));
        self.came += 1;
    }

    /// Starts the next flush, if there is one to start (Algorithm 3).
    pub fn next_flush(&mut self, now_ns: u64) -> Option<ChunkFlush> {
        let store = self.next_to_flush()?;
        let (_, chunk) = self.to_flush[store].pop_front()?;
        let bandwidths = [&mut self.bandwidth, self.stores[store].flushes_mut()];
        let started = bandwidths.map(|bandwidth| bandwidth.started(now_ns));
        Some(ChunkFlush { chunk, started })
    }

    /// A chunk is on the external storage: its place on the local store is free.
    pub fn flushed(&mut self, now_ns: u64, flushing: ChunkFlush) {
        let ChunkFlush { chunk, started } = flushing;
        let store = &mut self.stores[chunk.store];
        store.remove_chunk();
        let bandwidths = [&mut self.bandwidth, store.flushes_mut()];
        for (bandwidth, started) in bandwidths.into_iter().zip(started) {
            bandwidth.ended(now_ns, started, chunk.bytes);
        }
        self.free[chunk.store].push(chunk.slot);
        self.flushed_bytes += chunk.bytes;
    }

    /// The local stores.
    pub fn stores(&self) -> &[Store] {
        &self.stores
    }

    /// How fast flushes have been lately.
    pub fn flush_bandwidth(&self) -> &FlushBandwidth {
        &self.bandwidth
    }

    /// Bytes that were written to each local store so far.
    pub fn written_bytes(&self) -> &[u64] {
        &self.written_bytes
    }

    /// Bytes that reached the external storage so far.
    pub fn flushed_bytes(&self) -> u64 {
        self.flushed_bytes
    }

    /// Returns true if every chunk that was written is on the external storage.
    pub fn is_flushed(&self) -> bool {
        self.stores.iter().all(|store| store.chunks() == 0)
    }

    fn announced(&self, producer: u64) -> u64 {
        let announced = self.announced.get(&producer);
        announced.copied().unwrap_or_default()
    }

    /// Bytes that producers wait to write, or have announced.
    fn to_write(&self) -> u64 {
        let waiting = self.waiting.iter().map(|waiting| waiting.bytes);
        waiting.chain(self.announced.values().copied()).sum()
    }

    fn store_for(&self, next: Waiting) -> Option<usize> {
        let states: Vec<_> = self.stores.iter().map(Store::state).collect();
        let backlog = Backlog {
            flush_bandwidth: self.bandwidth.get().unwrap_or_default(),
            chunk_size: self.chunk_size,
            to_write: self.to_write(),
            own: next.bytes + self.announced(next.producer),
        };
        let chosen = self.policy.choose(&states, backlog);
        if let Some(store) = chosen.filter(|&store| states[store].has_room) {
            return Some(store);
        }
        // Something on a store will be flushed, and then we look again.
        if !self.is_flushed() {
            return None;
        }
        let predicted = |&store: &usize| states[store].calibration.throughput(1);
        let usable = self.policy.usable(states.len());
        let usable = usable.filter(|&store| states[store].has_room);
        usable.max_by(|a, b| predicted(a).total_cmp(&predicted(b)))
    }

    /// The store whose first chunk is the next to be flushed.
    fn next_to_flush(&self) -> Option<usize> {
        let is_writing = self.to_write() > 0 || self.stores.iter().any(|store| store.writers() > 0);
        let last = match self.policy.flush_order() {
            FlushOrder::FastestStore if is_writing => {
                let holds = |store: &Store| store.chunks() > 0;
                self.stores.iter().position(holds)
            }
            _ => None,
        };
        let last = last.unwrap_or(self.stores.len());
        let waiting = self.to_flush.iter().enumerate();
        waiting
            .filter(|(at, _)| *at <= last || !self.stores[*at].has_room())
            .filter_map(|(at, chunks)| Some((chunks.front()?.0, at)))
            .min()
            .map(|(_, at)| at)
    }
}
