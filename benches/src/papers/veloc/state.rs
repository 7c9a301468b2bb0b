//! The state that producers and flush threads share under the lock: the plan, and the places of chunks.

use std::collections::{HashMap, VecDeque};
use std::time::Instant;

use tierflow_placement::stores::StoreId;

use super::{ChunkId, ChunkPlacement, Command, Event, PlacementError, ProducerId};

/// The plan's answer to a producer.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Answer {
    Write {
        chunk: ChunkId,
        store: StoreId,
        slot: usize,
    },
    /// To the external storage itself.
    Bypass,
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
    answers: HashMap<ProducerId, Answer>,
    chunks: HashMap<ChunkId, Chunk>,
    /// Places that are free, for each store.
    free: Vec<Vec<usize>>,
    pub(crate) to_flush: VecDeque<ChunkId>,
    pub(crate) flushers: usize,
    pub(crate) idle: usize,
    /// Flush threads that were started and have not looked for work yet.
    pub(crate) coming: usize,
    pub(crate) stopping: bool,
    /// Why a store or the external storage refused last.
    pub(crate) last_failure: Option<String>,
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
            answers: HashMap::new(),
            chunks: HashMap::new(),
            to_flush: VecDeque::new(),
            flushers: 0,
            idle: 0,
            coming: 0,
            stopping: false,
            last_failure: None,
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

    /// Takes the plan's answer to this producer, if there is one.
    pub(crate) fn answer(&mut self, producer: ProducerId) -> Option<Answer> {
        self.answers.remove(&producer)
    }

    pub(crate) fn chunk(&self, chunk: ChunkId) -> Option<Chunk> {
        self.chunks.get(&chunk).copied()
    }

    /// A chunk could not be written: its producer waits again, for another store.
    pub(crate) fn write_failed(
        &mut self,
        producer: ProducerId,
        id: ChunkId,
    ) -> Result<(), PlacementError> {
        if let Some(chunk) = self.remove(id) {
            self.targets.insert(producer, (chunk.bytes, chunk.target));
        }
        self.handle(Event::WriteFailed { chunk: id })
    }

    /// A chunk is on the external storage: its place is free.
    pub(crate) fn flushed(&mut self, id: ChunkId) -> Result<(), PlacementError> {
        self.remove(id);
        self.handle(Event::ChunkFlushed { chunk: id })
    }

    fn remove(&mut self, id: ChunkId) -> Option<Chunk> {
        let chunk = self.chunks.remove(&id)?;
        self.free[chunk.store.0].push(chunk.slot);
        Some(chunk)
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
                Command::Bypass { producer, .. } => {
                    self.targets.remove(&producer);
                    self.answers.insert(producer, Answer::Bypass);
                }
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
            self.answers
                .insert(producer, Answer::Write { chunk, store, slot });
        }
    }
}
