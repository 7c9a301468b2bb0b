//! The plan behind its lock, and the way of its commands to callers and workers.

use super::Stage;
use super::call_table::{Answer, CallTable, Grant, LinkQueues, PlanState, Reply, WakeList};
use super::commits;
use super::context::{Pieces, TierContext, TransferError};
use super::detached::Lookups;
use super::durable_tier::DroppedCopy;
use super::empty_checkpoints::EmptyCheckpoints;
use super::housekeeping::Housekeeping;
use super::job::{Direction, Job, Task};
use super::layouts::Layouts;
use super::medium::TierState;
use super::pending::Pending;
use super::plan_lock::EventQueue;
use super::recorder::Recorder;
use super::regions::TargetRegions;
use super::waits::EndedWait;
use crate::blocked::{BlockedTime, Cause};
use crate::plan::{
    Coding, Event, Executor, Piece, Place, Refusal, Ticket, TierId, Transfer, TransferId, World,
};
use crate::{Error, Result, Version};
use hashbrown::HashMap;
use std::sync::Arc;
use tierflow_device::{Device, Stream};
use tierflow_store::guarded;
use tierflow_sync::model::{
    AtomicBool, AtomicU64, AtomicUsize, JoinHandle, Mutex, Ordering, Sender,
};
use tierflow_sync::rank;

/// Does what the plan says: hands transfers to workers, and answers to those who wait for them.
struct CommandDispatcher<'a> {
    now_ns: u64,
    calls: &'a mut CallTable,
    tiers: &'a [TierState],
}

impl CommandDispatcher<'_> {
    fn tell(&mut self, ticket: Ticket, answer: Answer) {
        if let Some((own, mine)) = &mut self.calls.own
            && *own == ticket
        {
            *mine = Some(answer);
        } else if let Some(caller) = self.calls.sleeping.remove(&ticket) {
            let at_once = caller.since == self.calls.turn;
            let by = self.calls.ended.as_deref().filter(|_| !at_once);
            let told = Reply {
                answer,
                at_once,
                heard_ns: caller.heard_ns,
                answered_ns: self.now_ns.max(caller.heard_ns),
                ended_by: by.map(|job| job.transfer.id.0),
                others: WakeList::default(),
            };
            if let Some(info) = caller.why.filter(|_| !at_once) {
                let wait = EndedWait {
                    info,
                    since_ns: told.heard_ns,
                    until_ns: told.answered_ns,
                    by,
                };
                self.calls.waits.add(wait, self.tiers);
            }
            self.calls.woken.push(caller.answering, told);
        }
    }
}

impl Executor for CommandDispatcher<'_> {
    fn write(&mut self, ticket: Ticket, version: Version, pieces: Vec<Piece>) {
        let tier = pieces
            .first()
            .and_then(|piece| self.tiers.get(piece.place.tier.0));
        if let Some(durable) = tier.and_then(|tier| tier.medium.durable()) {
            durable.expect(version);
        }
        let bases = None;
        self.tell(ticket, Answer::Copy(Grant { pieces, bases }));
    }

    fn read(&mut self, ticket: Ticket, _: Version, pieces: Vec<Piece>, coding: Coding) {
        let bases = match coding {
            Coding::Decode { bases } => Some(bases),
            Coding::Plain | Coding::Stored { .. } | Coding::Encode { .. } => None,
        };
        self.tell(ticket, Answer::Copy(Grant { pieces, bases }));
    }

    fn transfer(&mut self, transfer: Transfer) {
        let from = transfer.from.iter().map(|piece| piece.place.tier).max();
        let to = transfer.to.first().map(|piece| piece.place.tier);
        let way = match (from, to) {
            (Some(from), Some(to)) if from < to => (Direction::Down, to.0),
            (Some(from), _) => (Direction::Up, from.0),
            (None, _) => return,
        };
        let Some(queue) = self.calls.links.queues.get(&way) else {
            return;
        };
        let (direction, tier) = way;
        let commits = self.calls.links.commits.get(&tier);
        let commits = commits.filter(|_| {
            direction == Direction::Down && commits::may_be_committed(self.tiers, &transfer)
        });
        let tier = self.tiers.get(tier);
        if let (Direction::Down, Some(durable)) = (direction, tier.and_then(|t| t.medium.durable()))
        {
            durable.expect(transfer.version);
        }
        let turn = self.calls.encodings;
        self.calls.encodings += u64::from(matches!(transfer.coding, Coding::Encode { .. }));
        let job = Arc::new(Job::new(transfer, turn, self.now_ns));
        let carried = Arc::clone(&job);
        self.calls.carried.insert(job.transfer.id, carried);
        match commits {
            Some(commits) => commits.put(job),
            // The workers leave only when this sender is dropped.
            None => drop(queue.send(Task::Transfer(job))),
        }
    }

    fn cancel(&mut self, id: TransferId) {
        if let Some(job) = self.calls.carried.get(&id) {
            job.cancelled.store(true, Ordering::Relaxed);
        }
    }

    fn answer(&mut self, ticket: Ticket, answer: std::result::Result<(), Refusal>) {
        self.tell(ticket, Answer::Done(answer));
    }

    fn released(&mut self, tier: TierId, bytes: u64) {
        if let Some(waiting) = &self.calls.resizing {
            waiting.released(tier, bytes);
        }
        for link in &self.calls.notices {
            link.released(tier, bytes);
        }
    }

    fn removed(&mut self, version: Version, tier: TierId, bytes: u64, is_discarded: bool) {
        let durable =
            |tier: &'_ usize| self.tiers.get(*tier).and_then(|tier| tier.medium.durable());
        let dropped = DroppedCopy {
            bytes,
            is_discarded,
            ..DroppedCopy::default()
        };
        if let Some(durable) = durable(&tier.0) {
            durable.drop_copy(version, dropped);
        }
        if tier.0 + 1 == self.tiers.len() {
            let above = (0..tier.0).filter_map(|tier| durable(&tier));
            above.for_each(|durable| durable.drop_unfit(version));
        }
    }
}

/// Changes of the caches' sizes so far.
#[derive(Debug, Default)]
pub(super) struct ResizeState {
    /// True once a cache was resized.
    pub(super) is: bool,
    /// Bytes of memory that tiers have beyond their limits: who wanted them back lost patience, and copies may lie there.
    pub(super) owed: HashMap<usize, u64>,
}

/// State that callers and workers share.
pub(crate) struct EngineCore {
    pub(crate) device: Device,
    pub(crate) tiers: Vec<TierState>,
    /// The stage that encodes versions for lower tiers.
    pub(crate) stage: Option<Box<dyn Stage>>,
    pub(super) core: Mutex<PlanState, { rank::PLAN }>,
    pub(super) events: EventQueue,
    /// To the workers that have the plan hear of queued events, until they leave: they copy into the second tier, if it is memory.
    pub(super) planner: Mutex<Option<Sender<Task>>, { rank::LEAF }>,
    /// Calls that ask the plan now.
    pub(super) asking: AtomicUsize,
    /// The number of the next call.
    pub(super) tickets: AtomicU64,
    /// Contexts of callers, taken for the time of a call.
    #[expect(
        clippy::vec_box,
        reason = "a context is large, and is taken out for each copy"
    )]
    pub(super) contexts: Mutex<Vec<Box<TierContext>>>,
    /// Workers, and threads that do what their callers may have stopped waiting for.
    pub(super) detached: Mutex<Vec<JoinHandle<()>>>,
    /// Versions that calls with deadlines look for on storage.
    pub(super) lookups: Mutex<Lookups>,
    /// The engine goes: workers start nothing any more.
    stopping: AtomicBool,
    /// Copies that threads of the engine make at the moment.
    copying: AtomicUsize,
    pub(crate) blocked: BlockedTime,
    pub(crate) recorder: Recorder,
    /// Versions that hints named.
    pub(crate) hinted: AtomicU64,
    /// Locked while a list of hints is handed over.
    pub(crate) hinting: Mutex<(), { rank::CALL }>,
    /// The end of the numbers that were reserved. Locked before the plan.
    pub(crate) reserved: Mutex<Version, { rank::CALL }>,
    /// Versions without bytes.
    pub(crate) empties: Arc<EmptyCheckpoints>,
    /// The names of regions.
    pub(crate) layouts: Arc<Layouts>,
    /// Locked while a cache is resized.
    pub(super) resized: Mutex<ResizeState, { rank::CALL }>,
    /// Work of streams on slots that were given back.
    pub(crate) pending: Pending,
    /// Kept versions that are to go.
    pub(super) housekeeping: Arc<Housekeeping>,
}

/// The parts of an engine that the builder makes.
pub(crate) struct EngineParts {
    pub(crate) device: Device,
    pub(crate) tiers: Vec<TierState>,
    pub(crate) stage: Option<Box<dyn Stage>>,
    pub(crate) world: World,
    pub(crate) links: LinkQueues,
    /// The context of the first call.
    pub(crate) context: TierContext,
    pub(crate) recorder: Recorder,
    pub(crate) empties: Arc<EmptyCheckpoints>,
    pub(crate) layouts: Arc<Layouts>,
}

impl EngineCore {
    pub(crate) fn new(parts: EngineParts) -> Self {
        let EngineParts {
            device,
            tiers,
            stage,
            world,
            links,
            context,
            recorder,
            empties,
            layouts,
        } = parts;
        let contexts = Mutex::new(vec![Box::new(context)]);
        // No disk holds these workers up.
        let is_memory = tiers.get(1).is_some_and(|tier| tier.medium.is_memory());
        let planner = links.queues.get(&(Direction::Down, 1));
        let planner = planner.filter(|_| is_memory).cloned();
        Self {
            device,
            tiers,
            stage,
            planner: Mutex::new(planner),
            core: Mutex::new(PlanState::new(world, links)),
            events: EventQueue::default(),
            asking: AtomicUsize::new(0),
            tickets: AtomicU64::new(1),
            contexts,
            detached: Mutex::default(),
            lookups: Mutex::default(),
            stopping: AtomicBool::new(false),
            copying: AtomicUsize::new(0),
            blocked: BlockedTime::new(recorder.clock),
            recorder,
            hinted: AtomicU64::new(0),
            hinting: Mutex::new(()),
            reserved: Mutex::new(0),
            empties,
            layouts,
            resized: Mutex::default(),
            pending: Pending::default(),
            housekeeping: Arc::default(),
        }
    }

    /// Hands one event to the plan and its commands to whom they concern.
    pub(super) fn handle(&self, core: &mut PlanState, event: Event) {
        self.handle_all(core, self.now_ns(), std::iter::once(event));
    }

    /// Hands events of one moment, on the plan's clock, on together.
    pub(super) fn handle_all(
        &self,
        core: &mut PlanState,
        now_ns: u64,
        events: impl IntoIterator<Item = Event>,
    ) {
        let PlanState { world, calls } = core;
        let mut dispatcher = CommandDispatcher {
            now_ns,
            calls,
            tiers: &self.tiers,
        };
        let told = world.tell_all(now_ns, events, &mut dispatcher);
        debug_assert_eq!(told, Ok(()), "the engine reports what is");
        if self.recorder.is_recording() {
            let name = |tier| {
                self.tiers
                    .get(tier)
                    .map_or("tier", |tier: &TierState| tier.kind.name())
            };
            let evictions = world.plan_mut().take_evictions();
            self.recorder.evicted(&evictions, name);
        }
        for link in &mut calls.notices {
            link.look(world.plan().free(link.tier()));
        }
    }

    /// Reads a version from where it lies, whatever it lies there as.
    pub(crate) fn copy_out(
        &self,
        context: &mut TierContext,
        version: Version,
        Grant { pieces, bases }: &Grant,
        sink: &mut TargetRegions<'_, '_>,
        stream: Option<&Stream>,
    ) -> Result<()> {
        match (bases, pieces.as_slice()) {
            (Some(bases), [piece]) => {
                let chain = (version, &piece.place, bases.as_slice());
                let size = self.lock().plan().size_of(version);
                let size = size.unwrap_or_else(|| sink.len());
                let stage = self.stage.as_ref().ok_or(Error::Internal {
                    what: "a difference where none are made",
                })?;
                let read = stage.read(context, &self.tiers, chain, size, sink, stream);
                read.inspect_err(|error| context.note_stored(chain, error))
            }
            (_, pieces) => context.read(self, sink, Pieces { version, pieces }, stream),
        }
    }

    /// Returns true if some of these places lie in storage, which may take any time.
    pub(crate) fn reaches_storage(&self, grant: &Grant) -> bool {
        let is_storage = |place: &Place| {
            let tier = self.tiers.get(place.tier.0);
            tier.is_some_and(|tier| !tier.medium.is_memory())
        };
        let mut bases = grant.bases.iter().flatten();
        grant.pieces.iter().any(|piece| is_storage(&piece.place))
            || bases.any(|(_, place)| is_storage(place))
    }

    /// Returns the name of the time of a caller's copy.
    pub(crate) fn cause_of_copy(&self, grant: &Grant) -> Cause {
        match self.reaches_storage(grant) {
            true => Cause::Storage,
            false => Cause::Copy,
        }
    }

    /// A caller's copy to a tier that it reached itself ended, and holds nothing up any more. What came too late is not kept.
    pub(crate) fn end_write(&self, version: Version, pieces: &[Piece], is_wanted: bool) {
        let tiers = pieces
            .iter()
            .filter_map(|piece| self.tiers.get(piece.place.tier.0));
        for durable in tiers.filter_map(|tier| tier.medium.durable()) {
            durable.end(version, false);
            if !is_wanted {
                let dropped = DroppedCopy {
                    bytes: pieces.iter().map(|piece| piece.place.size).sum(),
                    is_discarded: true,
                    ..DroppedCopy::default()
                };
                durable.drop_copy(version, dropped);
            }
        }
    }

    /// Returns the damage of a version that the plan does not know, if it lies on some tier.
    pub(crate) fn damage_of(&self, version: Version) -> Option<tierflow_store::Error> {
        let durable = self.tiers.iter().filter_map(|tier| tier.medium.durable());
        durable
            .filter_map(|durable| durable.vault().piece(version).err())
            .find(|error| matches!(error, tierflow_store::Error::Damaged { .. }))
    }

    /// The workers are gone, and what they had not begun with them: what is left to give up and to remove.
    pub(crate) fn clear_up(&self) {
        let ids: Vec<_> = self.lock().calls.carried.keys().copied().collect();
        for id in ids {
            self.carried(id, Err(TransferError::CANCELLED), false);
        }
        // The application will not read the versions that it hinted. Those that it never wrote may be millions, and hold nothing up.
        let held: Vec<_> = self.lock().plan().versions().collect();
        self.forget_hints(Some(&held));
        let durable = || self.tiers.iter().filter_map(|tier| tier.medium.durable());
        if self.has_begun() {
            durable().for_each(|durable| durable.look_again());
            self.housekeep(true);
        }
        for durable in durable() {
            // The next engine finds the versions that are still there, and can give them up.
            let _still_there = durable.remove_dropped();
        }
    }

    /// Whether the application asked for a checkpoint: before that, the versions that were found stay where they are.
    pub(crate) fn has_begun(&self) -> bool {
        self.lock().plan().has_begun()
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    /// Runs a copy on a thread of the engine. Storage may keep it from ending. Its panic is an error, and the thread lives on.
    pub(super) fn count_copy<T>(&self, copy: impl FnOnce() -> T) -> Result<T> {
        self.copying.fetch_add(1, Ordering::Relaxed);
        let result = guarded("copying a version", || Ok(copy()));
        self.copying.fetch_sub(1, Ordering::Relaxed);
        Ok(result?)
    }

    /// Returns true while a thread of the engine makes a copy.
    pub(crate) fn is_copying(&self) -> bool {
        self.copying.load(Ordering::Relaxed) > 0
    }

    /// Starts nothing any more, stops every transfer at its next look at its flag, and lets the workers go.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
        *self.planner.lock() = None;
        let mut core = self.lock();
        let calls = &mut core.calls;
        calls
            .carried
            .values()
            .for_each(|job| job.cancelled.store(true, Ordering::Relaxed));
        calls.links = LinkQueues::default();
        self.housekeeping.close();
        let durable = self.tiers.iter().filter_map(|tier| tier.medium.durable());
        durable.for_each(|durable| durable.close());
        if let Some(stage) = &self.stage {
            stage.close();
        }
        calls.notices.clear();
    }
}
