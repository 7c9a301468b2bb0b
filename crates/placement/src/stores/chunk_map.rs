//! The map of a volume's chunks. Each chunk is on the store that a policy chose when the chunk was written.

use std::collections::BTreeMap;
use std::ops::Range;

use super::{Backlog, Store, StoreId, StorePolicy, StoreState, StoreWrite};

/// Consecutive bytes of one store.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Extent {
    /// The store.
    pub store: StoreId,
    /// The first byte on the store.
    pub offset: u64,
    /// Number of bytes.
    pub bytes: u64,
}

/// An extent that is being written.
#[derive(Clone, Copy, Debug)]
pub struct Placed {
    /// The place to write the bytes to.
    pub extent: Extent,
    /// The first chunk, and the number of chunks that were placed: 0 if the extent is in a chunk that stays where it is.
    chunks: (u64, u64),
    /// The write that was begun; `None` if there is no such store.
    write: Option<StoreWrite>,
}

/// The map of a volume: a flat range of bytes, in chunks of one size, over several stores.
///
/// The policy chooses the store of a chunk when the chunk is first written, and again whenever all of the chunk is
/// overwritten. The volume is as large as its stores together, so a chunk keeps its slot and no other chunk has to make room.
#[derive(Debug)]
pub struct ChunkMap {
    chunk_size: u64,
    stores: Vec<Slots>,
    policy: Box<dyn StorePolicy>,
    /// The places of written chunks, by the chunks' numbers.
    chunks: Vec<Option<Chunk>>,
    /// Time for which a store that failed is not chosen, in nanoseconds.
    pause_ns: u64,
}

/// A chunk that has a place.
#[derive(Clone, Copy, Debug)]
struct Chunk {
    store: StoreId,
    slot: u64,
    /// True if another call than the one that placed the chunk wrote to it.
    is_shared: bool,
}

/// A store and its free slots, each of one chunk.
#[derive(Debug)]
struct Slots {
    store: Store,
    /// Runs of free slots: the first slot of each, and the number of slots.
    free: BTreeMap<u64, u64>,
    failed_ns: Option<u64>,
}

impl Slots {
    fn new(store: Store) -> Self {
        let slots = store.capacity() as u64;
        Self {
            store,
            free: (slots > 0).then_some((0, slots)).into_iter().collect(),
            failed_ns: None,
        }
    }

    /// Takes `wanted` consecutive slots, or the longest free run if none is that long. Returns the first slot and their number.
    fn take(&mut self, wanted: u64) -> Option<(u64, u64)> {
        let fits = self.free.iter().find(|(_, slots)| **slots >= wanted);
        let most = || self.free.iter().max_by_key(|(_, slots)| **slots);
        let (&first, &slots) = fits.or_else(most)?;
        self.free.remove(&first);
        let taken = slots.min(wanted);
        if slots > taken {
            self.free.insert(first + taken, slots - taken);
        }
        self.store
            .add_chunks(usize::try_from(taken).unwrap_or(usize::MAX));
        Some((first, taken))
    }

    fn give_back(&mut self, slot: u64) {
        let (mut first, mut slots) = (slot, 1);
        if let Some((&before, &length)) = self.free.range(..slot).next_back()
            && before + length == slot
        {
            (first, slots) = (before, length + 1);
        }
        slots += self.free.remove(&(slot + 1)).unwrap_or_default();
        self.free.insert(first, slots);
        self.store.remove_chunk();
    }

    /// Returns the store as a policy sees it. A full store counts as out of use, so that no policy waits for it: nothing makes
    /// room here.
    fn state(&self, is_barred: bool) -> StoreState<'_> {
        let mut state = self.store.state();
        state.has_room &= !is_barred;
        state.is_out_of_use = !state.has_room;
        state
    }
}

impl ChunkMap {
    /// Makes the map of an unwritten volume over these stores. A store that failed is not chosen for `pause_ns` nanoseconds if
    /// another store has room.
    #[must_use]
    pub fn new(
        chunk_size: u64,
        stores: Vec<Store>,
        policy: Box<dyn StorePolicy>,
        pause_ns: u64,
    ) -> Self {
        Self {
            chunk_size: chunk_size.max(1),
            stores: stores.into_iter().map(Slots::new).collect(),
            policy,
            chunks: Vec::new(),
            pause_ns,
        }
    }

    /// Returns the bytes of the volume.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let chunks = self.stores.iter();
        let chunks = chunks.map(|slots| slots.store.capacity() as u64);
        let chunks = chunks.fold(0, u64::saturating_add);
        chunks.saturating_mul(self.chunk_size)
    }

    /// Places the first of these bytes: as many as are consecutive on one store. Stores in `refused` are not chosen. The caller
    /// ends the write by [`written`](Self::written) or [`failed`](Self::failed), and places the other bytes next. No other call may
    /// read or write these bytes meanwhile. Returns `None` if there is no room, or `bytes` is empty or beyond the volume.
    ///
    /// All chunks that `bytes` cover give their slots back first, also those that are not placed yet: their old bytes are gone.
    pub fn place(&mut self, now_ns: u64, bytes: Range<u64>, refused: &[StoreId]) -> Option<Placed> {
        if bytes.is_empty() || bytes.end > self.bytes() {
            return None;
        }
        let first = bytes.start / self.chunk_size;
        let behind = bytes.end.div_ceil(self.chunk_size);
        let movable = (first..behind).take_while(|chunk| self.is_movable(*chunk, &bytes));
        let movable = movable.count() as u64;
        let within = bytes.start % self.chunk_size;
        if movable == 0 {
            let chunk = self.chunk_mut(first)?.as_mut()?;
            chunk.is_shared = true;
            let (store, slot) = (chunk.store, chunk.slot);
            let extent = Extent {
                store,
                offset: slot * self.chunk_size + within,
                bytes: (self.chunk_size - within).min(bytes.end - bytes.start),
            };
            return Some(self.begun(now_ns, extent, (first, 0)));
        }
        // The chunks keep their places if no store has room, even with the slots of these chunks.
        let has_room = |at: usize, slots: &Slots| {
            let is_there = |chunk| self.lies(chunk).is_some_and(|(store, _)| store.0 == at);
            slots.store.has_room() || (first..first + movable).any(is_there)
        };
        let mut stores = self.stores.iter().enumerate();
        if !stores.any(|(at, slots)| !refused.contains(&StoreId(at)) && has_room(at, slots)) {
            return None;
        }
        (first..first + movable).for_each(|chunk| self.forget(chunk));
        let store = self.choose(now_ns, bytes.end - bytes.start, refused)?;
        let (slot, taken) = self.stores.get_mut(store.0)?.take(movable)?;
        let last = usize::try_from(first + taken).ok()?;
        if self.chunks.len() < last {
            self.chunks.resize(last, None);
        }
        for (chunk, slot) in (first..first + taken).zip(slot..) {
            if let Some(chunk) = self.chunk_mut(chunk) {
                let is_shared = false;
                *chunk = Some(Chunk {
                    store,
                    slot,
                    is_shared,
                });
            }
        }
        let extent = Extent {
            store,
            offset: slot * self.chunk_size + within,
            bytes: (taken * self.chunk_size - within).min(bytes.end - bytes.start),
        };
        Some(self.begun(now_ns, extent, (first, taken)))
    }

    fn begun(&mut self, now_ns: u64, extent: Extent, chunks: (u64, u64)) -> Placed {
        let slots = self.stores.get_mut(extent.store.0);
        Placed {
            extent,
            chunks,
            write: slots.map(|slots| slots.store.begin_write(now_ns, 0)),
        }
    }

    /// Notes that an extent was written.
    pub fn written(&mut self, now_ns: u64, placed: &Placed) {
        let Extent { store, bytes, .. } = placed.extent;
        if let Some((slots, write)) = self.stores.get_mut(store.0).zip(placed.write) {
            slots.store.end_write(now_ns, write, Some(bytes));
            slots.failed_ns = None;
        }
    }

    /// Notes that an extent could not be written. The chunks that were placed with it lose their places, except chunks of which
    /// another call wrote a part meanwhile.
    pub fn failed(&mut self, now_ns: u64, placed: &Placed) {
        let (first, count) = placed.chunks;
        for chunk in first..first + count {
            let known = self.chunk_mut(chunk).and_then(|chunk| *chunk);
            if known.is_some_and(|chunk| !chunk.is_shared) {
                self.forget(chunk);
            }
        }
        let slots = self.stores.get_mut(placed.extent.store.0);
        if let Some((slots, write)) = slots.zip(placed.write) {
            slots.store.end_write(now_ns, write, None);
            slots.failed_ns = Some(now_ns);
        }
    }

    /// Returns true if this write placed its chunks, so that they may be placed on another store if the write fails.
    #[must_use]
    pub fn is_placed(placed: &Placed) -> bool {
        placed.chunks.1 > 0
    }

    /// Returns the place of the first of these bytes: of as many as are consecutive on one store.
    ///
    /// # Errors
    /// The number of bytes at the beginning of the range that were never written, if there are any.
    pub fn find(&self, bytes: &Range<u64>) -> Result<Extent, u64> {
        let first = bytes.start / self.chunk_size;
        let within = bytes.start % self.chunk_size;
        let behind = bytes.end.div_ceil(self.chunk_size);
        let length = |chunks: u64| {
            let end = (first + chunks).saturating_mul(self.chunk_size);
            end.min(bytes.end) - bytes.start
        };
        let Some((store, slot)) = self.lies(first) else {
            let unwritten = (first..behind).take_while(|chunk| self.lies(*chunk).is_none());
            return Err(length(unwritten.count() as u64));
        };
        let beside = (first..behind).zip(slot..);
        let beside = beside.take_while(|(chunk, slot)| self.lies(*chunk) == Some((store, *slot)));
        Ok(Extent {
            store,
            offset: slot * self.chunk_size + within,
            bytes: length(beside.count() as u64),
        })
    }

    /// Returns the number of chunks on each store.
    #[must_use]
    pub fn chunks(&self) -> Vec<usize> {
        let stores = self.stores.iter();
        stores.map(|slots| slots.store.chunks()).collect()
    }

    fn lies(&self, chunk: u64) -> Option<(StoreId, u64)> {
        let chunk = usize::try_from(chunk).ok()?;
        let chunk = self.chunks.get(chunk)?.as_ref()?;
        Some((chunk.store, chunk.slot))
    }

    fn chunk_mut(&mut self, chunk: u64) -> Option<&mut Option<Chunk>> {
        self.chunks.get_mut(usize::try_from(chunk).ok()?)
    }

    /// Returns true if the chunk has no place, or these bytes cover all of it.
    fn is_movable(&self, chunk: u64, bytes: &Range<u64>) -> bool {
        let all = chunk * self.chunk_size..(chunk + 1) * self.chunk_size;
        self.lies(chunk).is_none() || (bytes.start <= all.start && all.end <= bytes.end)
    }

    fn forget(&mut self, chunk: u64) {
        let known = self.chunk_mut(chunk).and_then(Option::take);
        if let Some(Chunk { store, slot, .. }) = known
            && let Some(slots) = self.stores.get_mut(store.0)
        {
            slots.give_back(slot);
        }
    }

    /// Returns the store for `bytes` more bytes: one that works, or else one that failed less than `pause_ns` ago.
    fn choose(&self, now_ns: u64, bytes: u64, refused: &[StoreId]) -> Option<StoreId> {
        let rests = |slots: &Slots| {
            let failed = slots.failed_ns;
            failed.is_some_and(|failed| now_ns < failed.saturating_add(self.pause_ns))
        };
        let backlog = Backlog {
            flush_bandwidth: 0.0,
            chunk_size: self.chunk_size,
            to_write: bytes,
            own: bytes,
        };
        [true, false].into_iter().find_map(|spares| {
            let states: Vec<_> = (0..)
                .zip(&self.stores)
                .map(|(at, slots)| {
                    let is_barred = refused.contains(&StoreId(at)) || spares && rests(slots);
                    slots.state(is_barred)
                })
                .collect();
            // A policy may ask to wait for a flush. No flush comes here, so any store with room is taken instead.
            let has_room = |at: &usize| states.get(*at).is_some_and(|state| state.has_room);
            let any = || (0..states.len()).find(has_room);
            let chosen = self.policy.choose(&states, backlog).filter(has_room);
            chosen.or_else(any).map(StoreId)
        })
    }
}
