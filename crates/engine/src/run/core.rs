//! The state that callers and workers share, and the dispatch of the plan's commands to them.

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
use super::waits::{self, EndedWait};
use crate::blocked::{BlockedTime, Cause};
use crate::plan::{
    Coding, Event, Executor, Piece, Place, Refusal, Ticket, TierId, Transfer, TransferId, World,
};
use crate::{Error, Result, Version};
use hashbrown::HashMap;
use std::collections::BTreeSet;
use std::sync::Arc;
use tierflow_device::{Device, Stream};
use tierflow_store::guarded;
use tierflow_sync::model::{
    AtomicBool, AtomicU64, AtomicUsize, JoinHandle, Mutex, Ordering, Sender,
};
use tierflow_sync::rank;

/// Carries out the plan's commands: hands transfers to workers, and answers to the calls that wait for them.
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
            let version = caller.why.and_then(|why| why.version);
            let by = waits::ended_by(version, &self.calls.ended).filter(|_| !at_once);
            let told = Reply {
                answer,
                at_once,
                may_wake: caller.may_wake,
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
        if is_discarded {
            let all = (0..self.tiers.len()).filter_map(|tier| durable(&tier));
            all.for_each(|durable| durable.forget(version));
        }
        if tier.0 + 1 == self.tiers.len() {
            let above = (0..tier.0).filter_map(|tier| durable(&tier));
            above.for_each(|durable| durable.drop_unfit(version));
        }
    }
}

/// The resizes of the caches so far.
#[derive(Debug, Default)]
pub(super) struct ResizeState {
    /// The tiers that were resized.
    pub(super) tiers: BTreeSet<usize>,
    /// By tier, all bytes of its memory, which are more than its limit: the resize to that limit timed out, and copies may lie beyond it.
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
    /// The queue of the workers that copy into the second tier, if that is memory. [`EngineCore::tell_copied`] has them handle queued
    /// events. `None` once the engine stops.
    pub(super) planner: Mutex<Option<Sender<Task>>, { rank::LEAF }>,
    /// Number of calls that ask the plan now.
    pub(super) asking: AtomicUsize,
    /// The number of the next call.
    pub(super) tickets: AtomicU64,
    /// Idle contexts for callers' copies. A call takes one and puts it back.
    #[expect(
        clippy::vec_box,
        reason = "a context is large, and is taken out for each copy"
    )]
    pub(super) contexts: Mutex<Vec<Box<TierContext>>>,
    /// Handles of the workers, and of the threads that go on with work whose callers may have stopped waiting.
    pub(super) detached: Mutex<Vec<JoinHandle<()>>>,
    /// Lookups on storage that calls with deadlines wait for.
    pub(super) lookups: Mutex<Lookups>,
    /// True once the engine ends: workers start nothing any more.
    stopping: AtomicBool,
    /// Number of copies that threads of the engine make now.
    copying: AtomicUsize,
    pub(crate) blocked: BlockedTime,
    pub(crate) recorder: Recorder,
    /// Number of versions that hints named.
    pub(crate) hinted: AtomicU64,
    /// Locked while a list of hints is handed to the plan.
    pub(crate) hinting: Mutex<(), { rank::CALL }>,
    /// The first number above all that [`EngineCore::reserve`] returned. Locked before the plan.
    pub(crate) reserved: Mutex<Version, { rank::CALL }>,
    /// Versions without bytes.
    pub(crate) empties: Arc<EmptyCheckpoints>,
    /// The names and types of the versions' regions.
    pub(crate) layouts: Arc<Layouts>,
    /// Locked while a cache is resized.
    pub(super) resized: Mutex<ResizeState, { rank::CALL }>,
    /// Work that the application's streams still do on slots that it has given back.
    pub(crate) pending: Pending,
    /// The requests for housekeeping.
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
        // Workers that copy into memory wait for no disk, so the plan's events may wait for them.
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

    /// Hands one event to the plan, and carries out the commands that follow.
    pub(super) fn handle(&self, core: &mut PlanState, event: Event) {
        self.handle_all(core, self.now_ns(), std::iter::once(event));
    }

    /// Hands events of one moment, `now_ns` on the plan's clock, to the plan together, and carries out the commands that follow.
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

    /// Copies a version from the granted places into `sink`, and decodes it if it is stored encoded.
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

    /// Returns true if some place of the grant lies on storage, where a copy may take any time.
    pub(crate) fn reaches_storage(&self, grant: &Grant) -> bool {
        let is_storage = |place: &Place| {
            let tier = self.tiers.get(place.tier.0);
            tier.is_some_and(|tier| !tier.medium.is_memory())
        };
        let mut bases = grant.bases.iter().flatten();
        grant.pieces.iter().any(|piece| is_storage(&piece.place))
            || bases.any(|(_, place)| is_storage(place))
    }

    /// Returns the cause to which the time of a caller's copy is charged.
    pub(crate) fn cause_of_copy(&self, grant: &Grant) -> Cause {
        match self.reaches_storage(grant) {
            true => Cause::Storage,
            false => Cause::Copy,
        }
    }

    /// Tells the durable tiers among these pieces that a caller's own copy has ended, so that no version waits behind it any more. Drops
    /// the copy there unless it `is_wanted`: it came too late.
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

    /// Returns the damage of a version that the plan does not know, if a durable tier has a damaged copy.
    pub(crate) fn damage_of(&self, version: Version) -> Option<tierflow_store::Error> {
        let durable = self.tiers.iter().filter_map(|tier| tier.medium.durable());
        durable
            .filter_map(|durable| durable.vault().piece(version).err())
            .find(|error| matches!(error, tierflow_store::Error::Damaged { .. }))
    }

    /// Cancels the transfers that no worker began, and removes given-up copies. Called once the workers are gone.
    pub(crate) fn clear_up(&self) {
        let ids: Vec<_> = self.lock().calls.carried.keys().copied().collect();
        for id in ids {
            self.carried(id, Err(TransferError::CANCELLED), false);
        }
        // The application will not read the versions that it hinted. Hints of versions that it never wrote stay: they may be millions, and
        // they delay nothing.
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

    /// Returns true once the application has asked for a checkpoint. Until then, the versions that were found stay where they are.
    pub(crate) fn has_begun(&self) -> bool {
        self.lock().plan().has_begun()
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    /// Runs a copy on a thread of the engine, and counts it while it runs, as storage may keep it from ending. A panic of `copy` becomes an
    /// error, and the thread lives on.
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

    /// Stops the engine: no task is started any more, each transfer stops when it next looks at its flag, and the workers end as their
    /// queues close.
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
