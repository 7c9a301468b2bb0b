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
    /// Number of bytes.
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
    /// The arguments to end this flush with: of the bandwidth of all flushes, and of the store's.
    started: [f64; 2],
}

/// A producer that waits for a place.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    producer: u64,
    bytes: u64,
    target: u64,
}

/// The assignment of local stores to producers, and the choice of the chunks to flush. All times are nanoseconds after some fixed time;
/// time that runs backwards counts as standing still.
///
/// Producers are served in the order in which they asked, and none passes one that waits. No producer waits for ever, as long as writes
/// and flushes end. If the policy would wait although no chunk is on any store, no flush would ever end; then the chunk goes to the
/// fastest store with room. The paper assumes that this case does not happen.
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
    /// Chunks to flush by store, each with its number in the order of writes.
    to_flush: Vec<VecDeque<(u64, Chunk)>>,
    /// Number of chunks that entered `to_flush` so far.
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
    /// An error if no store that the policy may use holds a chunk.
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

    /// Announces that a producer will ask for chunks of `bytes` bytes altogether. The number replaces the producer's earlier announcement.
    /// Announcements are optional, and let `ShortestWait` look ahead.
    pub fn announce(&mut self, producer: u64, bytes: u64) {
        self.announced.insert(producer, bytes);
        self.announced.retain(|_, bytes| *bytes > 0);
    }

    /// Asks for a place for a producer's next chunk (Algorithm 1, line 6), whose offset in the external storage is `target`.
    pub fn ask(&mut self, producer: u64, bytes: u64, target: u64) {
        let announced = self.announced(producer);
        self.announce(producer, announced.saturating_sub(bytes));
        self.waiting.push_back(Waiting {
            producer,
            bytes,
            target,
        });
    }

    /// Serves the producer that has waited longest. Returns `None` if no producer waits, or this one has to wait longer (Algorithm 2).
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

    /// Notes that a chunk is on its local store (Algorithm 1, lines 9 and 10).
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

    /// Notes that a chunk is on the external storage, and frees its place on the local store.
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

    /// Returns the local stores.
    pub fn stores(&self) -> &[Store] {
        &self.stores
    }

    /// Returns the bandwidth of the last flushes.
    pub fn flush_bandwidth(&self) -> &FlushBandwidth {
        &self.bandwidth
    }

    /// Returns the bytes that were written to each local store so far.
    pub fn written_bytes(&self) -> &[u64] {
        &self.written_bytes
    }

    /// Returns the bytes that reached the external storage so far.
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

    /// Returns the bytes that producers wait to write, or have announced.
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
        // A chunk on a store will be flushed. The policy is asked again then.
        if !self.is_flushed() {
            return None;
        }
        let predicted = |&store: &usize| states[store].calibration.throughput(1);
        let usable = self.policy.usable(states.len());
        let usable = usable.filter(|&store| states[store].has_room);
        usable.max_by(|a, b| predicted(a).total_cmp(&predicted(b)))
    }

    /// Returns the store whose first chunk is the next to be flushed.
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
