//! The state that producers and flush threads share under the lock: the plan, and the places of chunks.

use std::collections::{HashMap, VecDeque};
use std::time::Instant;

use tierflow_placement::stores::StoreId;

use super::{ChunkId, ChunkPlacement, Command, Event, PlacementError, ProducerId};

/// The place that the plan gave to a producer's chunk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Assignment {
    pub(crate) chunk: ChunkId,
    pub(crate) store: StoreId,
    pub(crate) slot: usize,
}

/// The place of a chunk, and its place in the external storage.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chunk {
    pub(crate) store: StoreId,
    pub(crate) slot: usize,
    pub(crate) bytes: u64,
    /// In the external storage.
    pub(crate) target: u64,
}

#[derive(Debug)]
pub(crate) struct BackendState {
    pub(crate) plan: ChunkPlacement,
    start: Instant,
    commands: Vec<Command>,
    /// Producers that wait, and where their chunk goes in the external storage.
    targets: HashMap<ProducerId, (u64, u64)>,
    assignments: HashMap<ProducerId, Assignment>,
    chunks: HashMap<ChunkId, Chunk>,
    /// Places that are free, for each store.
    free: Vec<Vec<usize>>,
    pub(crate) to_flush: VecDeque<ChunkId>,
    pub(crate) flushers: usize,
    pub(crate) idle: usize,
    /// Flush threads that were started and have not looked for work yet.
    pub(crate) coming: usize,
    pub(crate) stopping: bool,
    /// The error of the store or the external storage that failed last.
    pub(crate) failure: Option<tierflow_store::Error>,
}

impl BackendState {
    pub(crate) fn new(plan: ChunkPlacement) -> Self {
        let stores = plan.stores().iter();
        let free = stores.map(|store| (0..store.capacity()).rev().collect());
        Self {
            free: free.collect(),
            plan,
            start: Instant::now(),
            commands: Vec::new(),
            targets: HashMap::new(),
            assignments: HashMap::new(),
            chunks: HashMap::new(),
            to_flush: VecDeque::new(),
            flushers: 0,
            idle: 0,
            coming: 0,
            stopping: false,
            failure: None,
        }
    }

    pub(crate) fn ask(
        &mut self,
        producer: ProducerId,
        bytes: u64,
        target: u64,
    ) -> Result<(), PlacementError> {
        self.targets.insert(producer, (bytes, target));
        self.handle(Event::ChunkAsked { producer, bytes })
    }

    /// Takes the place for this producer's chunk, if there is one.
    pub(crate) fn assignment(&mut self, producer: ProducerId) -> Option<Assignment> {
        self.assignments.remove(&producer)
    }

    /// Returns the error of a store that failed.
    pub(crate) fn check(&self) -> Result<(), tierflow_store::Error> {
        self.failure.clone().map_or(Ok(()), Err)
    }

    pub(crate) fn chunk(&self, chunk: ChunkId) -> Option<Chunk> {
        self.chunks.get(&chunk).copied()
    }

    /// A chunk is on the external storage: its place is free.
    pub(crate) fn flushed(&mut self, id: ChunkId) -> Result<(), PlacementError> {
        if let Some(chunk) = self.chunks.remove(&id) {
            self.free[chunk.store.0].push(chunk.slot);
        }
        self.handle(Event::ChunkFlushed { chunk: id })
    }

    /// Passes an event to the plan, and keeps its commands for the producers and flush threads that they are for.
    pub(crate) fn handle(&mut self, event: Event) -> Result<(), PlacementError> {
        let now = u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let mut commands = std::mem::take(&mut self.commands);
        let handled = self.plan.handle(now, event, &mut commands);
        for command in commands.drain(..) {
            match command {
                Command::Write {
                    producer,
                    chunk,
                    store,
                } => self.assign(producer, chunk, store),
                Command::Flush { chunk, .. } => self.to_flush.push_back(chunk),
            }
        }
        self.commands = commands;
        handled
    }

    fn assign(&mut self, producer: ProducerId, chunk: ChunkId, store: StoreId) {
        // The plan assigns no more chunks than there are places, and only to producers that asked.
        let slot = self.free[store.0].pop();
        let asked = self.targets.remove(&producer);
        debug_assert!(slot.is_some() && asked.is_some(), "{producer} {store}");
        if let (Some(slot), Some((bytes, target))) = (slot, asked) {
            self.chunks.insert(
                chunk,
                Chunk {
                    store,
                    slot,
                    bytes,
                    target,
                },
            );
            self.assignments
                .insert(producer, Assignment { chunk, store, slot });
        }
    }
}
