//! The plan behind its lock, and the way of its commands to callers and workers.

use super::Stage;
use super::bypass::Crews;
use super::capacity::Link;
use super::empties::Empties;
use super::job::{Job, Task};
use super::lane::Lane;
use super::layouts::Layouts;
use super::medium::{Medium, Tier};
use super::pending::Pending;
use super::recorder::{Recorder, Stalled};
use super::regions::{Sink, Source};
use super::resize::{Resized, Waiting};
use super::sync::{AtomicBool, JoinHandle, Mutex, Ordering, Receiver, Sender};
use super::worker::Direction;
use crate::metrics::CallCounter;
use crate::plan::{
    Coding, Event, Executor, Piece, Place, Plan, Refusal, Ticket, TierId, Transfer,
    TransferFailure, TransferId, World,
};
use crate::{Error, Result, Version};
use hashbrown::HashMap;
use std::sync::Arc;
use std::time::Instant;
use tierflow_device::{Device, Stream};
use tierflow_store::container::RegionInfo;
use tierflow_tier_alloc::Gate;

/// Places to copy to or from.
#[derive(Debug)]
pub(crate) struct Grant {
    /// In the order of the version's bytes.
    pub(crate) pieces: Vec<Piece>,
    /// If the bytes there are a difference: where those are that it builds upon, nearest first.
    pub(crate) bases: Option<Vec<(Version, Place)>>,
}

/// The plan's answer to one call.
#[derive(Debug)]
pub(crate) enum Answer {
    /// Copy the regions to, or from, these places, then report.
    Copy(Grant),
    /// The call is done, or refused.
    Done(std::result::Result<(), Refusal>),
}

/// Where an answer will appear, and what the caller waits for.
pub(super) type Later = (Receiver<Answer>, Option<Stalled>);

/// The ways into a tier from above, and out of it upwards.
pub(crate) type Queues = HashMap<(Direction, usize), Sender<Task>>;

/// What the lock protects.
#[derive(Debug)]
pub(crate) struct Core {
    pub(super) world: World,
    pub(super) desk: Desk,
}

/// Who waits for what.
#[derive(Debug)]
pub(super) struct Desk {
    /// Callers that sleep until their answer comes.
    pub(super) sleeping: HashMap<Ticket, Sender<Answer>>,
    /// Transfers that workers have, with the flag that stops them.
    pub(super) carried: HashMap<TransferId, Arc<AtomicBool>>,
    /// Where transfers go: to the workers of their way.
    pub(super) queues: Queues,
    /// Who keeps tiers as large as others let them be.
    pub(super) links: Vec<Link>,
    /// The last failure of a transfer: why a tier takes no more.
    pub(super) last_failure: Option<Arc<Error>>,
    /// Who waits for a tier to be emptied.
    pub(super) resizing: Option<Waiting>,
    /// Callers of which each waits for one version.
    pub(super) awaited: Vec<(Version, Ticket)>,
}

impl Core {
    fn new(world: World, queues: Queues) -> Self {
        let desk = Desk {
            sleeping: HashMap::new(),
            carried: HashMap::new(),
            queues,
            links: Vec::new(),
            last_failure: None,
            resizing: None,
            awaited: Vec::new(),
        };
        Self { world, desk }
    }

    pub(crate) fn plan(&self) -> &Plan {
        self.world.plan()
    }

    /// Whether nobody has to wait any longer for a version to reach the lowest tier.
    pub(super) fn is_over(&self, version: Version) -> bool {
        self.plan().is_settled(version) || self.plan().size_of(version).is_none()
    }

    pub(crate) fn last_failure(&self) -> Option<Arc<Error>> {
        self.desk.last_failure.clone()
    }
}

/// Does what the plan says: hands transfers to workers, and answers to those who wait for them.
pub(super) struct Clerk<'a> {
    pub(super) desk: &'a mut Desk,
    tiers: &'a [Tier],
    /// The call that is being made, and its answer, if it has one.
    own: Option<Ticket>,
    mine: Option<Answer>,
}

impl Clerk<'_> {
    pub(super) fn tell(&mut self, ticket: Ticket, answer: Answer) {
        if Some(ticket) == self.own {
            self.mine = Some(answer);
        } else if let Some(caller) = self.desk.sleeping.remove(&ticket) {
            // A caller that sleeps hears its answer, or gave up just now and will ask for it.
            let _ = caller.send(answer);
        }
    }
}

impl Executor for Clerk<'_> {
    fn write(&mut self, ticket: Ticket, version: Version, pieces: Vec<Piece>) {
        let tier = pieces
            .first()
            .and_then(|piece| self.tiers.get(piece.place.tier.0));
        if let Some(kept) = tier.and_then(|tier| tier.medium.kept()) {
            kept.expect(version);
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
        if let Some(queue) = self.desk.queues.get(&way) {
            if let (Direction::Down, to) = way
                && let Some(kept) = self.tiers.get(to).and_then(|tier| tier.medium.kept())
            {
                kept.expect(transfer.version);
            }
            let cancelled = Arc::<AtomicBool>::default();
            let carried = Arc::clone(&cancelled);
            self.desk.carried.insert(transfer.id, carried);
            // The workers leave only when this sender is dropped.
            let _ = queue.send(Task::Transfer(Arc::new(Job {
                transfer,
                cancelled,
            })));
        }
    }

    fn cancel(&mut self, id: TransferId) {
        if let Some(flag) = self.desk.carried.get(&id) {
            flag.store(true, Ordering::Relaxed);
        }
    }

    fn answer(&mut self, ticket: Ticket, answer: std::result::Result<(), Refusal>) {
        self.tell(ticket, Answer::Done(answer));
    }

    fn released(&mut self, tier: TierId, bytes: u64) {
        if let Some(waiting) = &self.desk.resizing {
            waiting.released(tier, bytes);
        }
        for link in &self.desk.links {
            link.released(tier, bytes);
        }
    }

    fn removed(&mut self, version: Version, tier: TierId, bytes: u64) {
        let tier = self.tiers.get(tier.0);
        if let Some(kept) = tier.and_then(|tier| tier.medium.kept()) {
            kept.drop_copy(version, bytes);
        }
    }
}

/// What callers and workers share.
pub(crate) struct Shared {
    pub(crate) device: Device,
    pub(crate) tiers: Vec<Tier>,
    /// What becomes of versions that leave the fastest tier, if anything does.
    pub(crate) stage: Option<Box<dyn Stage>>,
    pub(crate) core: Mutex<Core>,
    /// Lanes of callers, taken for the time of a call.
    lanes: Mutex<Vec<Lane>>,
    /// Threads that do what their callers may have stopped waiting for.
    pub(super) detached: Mutex<Vec<JoinHandle<()>>>,
    /// When the plan's clock began.
    pub(super) origin: Instant,
    /// The engine goes: workers start nothing any more.
    stopping: AtomicBool,
    pub(crate) checkpoints: CallCounter,
    pub(crate) restores: CallCounter,
    pub(crate) produced: CallCounter,
    pub(crate) consumed: CallCounter,
    pub(crate) recorder: Recorder,
    /// Locked while a list of hints is handed over.
    pub(crate) hinting: Mutex<()>,
    /// Versions without bytes.
    pub(crate) empties: Arc<Empties>,
    /// What regions are called.
    pub(crate) layouts: Arc<Layouts>,
    /// Locked while a cache is resized.
    pub(super) resized: Mutex<Resized>,
    /// What streams still do on slots that were given back.
    pub(crate) pending: Pending,
}

impl Shared {
    pub(crate) fn new(
        device: Device,
        (tiers, stage): (Vec<Tier>, Option<Box<dyn Stage>>),
        world: World,
        queues: Queues,
        lane: Lane,
        recorder: Recorder,
        (empties, layouts): (Arc<Empties>, Arc<Layouts>),
    ) -> Self {
        let lanes = Mutex::new(vec![lane]);
        Self {
            device,
            tiers,
            stage,
            core: Mutex::new(Core::new(world, queues)),
            origin: Instant::now(),
            lanes,
            detached: Mutex::default(),
            stopping: AtomicBool::new(false),
            checkpoints: CallCounter::default(),
            restores: CallCounter::default(),
            produced: CallCounter::default(),
            consumed: CallCounter::default(),
            recorder,
            hinting: Mutex::new(()),
            empties,
            layouts,
            resized: Mutex::default(),
            pending: Pending::default(),
        }
    }

    /// A version is there anew, and its regions are called so.
    pub(crate) fn note_layout(&self, version: Version, layout: Option<Vec<RegionInfo>>) {
        if self.layouts.note(version, layout) {
            let core = self.core.lock();
            let plan = core.plan();
            self.layouts
                .retain(|version| plan.size_of(version).is_some());
        }
    }

    /// Whether any restore is expected.
    pub(crate) fn is_hinted(&self) -> bool {
        self.core.lock().world.plan().is_hinted()
    }

    /// Tells the plan something that nobody waits for.
    pub(crate) fn tell(&self, event: Event) {
        let mut core = self.core.lock();
        self.handle(&mut core, event, None);
    }

    /// Hands one event to the plan and its commands to whom they concern. Returns the answer for `own`, if there is one.
    pub(super) fn handle(
        &self,
        core: &mut Core,
        event: Event,
        own: Option<Ticket>,
    ) -> Option<Answer> {
        // These end no version's way, and others follow them.
        let may_end = !matches!(event, Event::Checkpoint { .. } | Event::Wait { .. });
        self.handle_all(core, std::iter::once(event), own, may_end)
    }

    /// Hands events on as one: those who wait for a version are looked for once, if these `may_end` their waiting.
    pub(super) fn handle_all(
        &self,
        core: &mut Core,
        events: impl Iterator<Item = Event>,
        own: Option<Ticket>,
        may_end: bool,
    ) -> Option<Answer> {
        let now = self.now_ns();
        let Core { world, desk } = core;
        let mut clerk = Clerk {
            desk,
            tiers: &self.tiers,
            own,
            mine: None,
        };
        for event in events {
            let told = world.tell(now, event, &mut clerk);
            debug_assert_eq!(told, Ok(()), "the engine reports what is");
        }
        if may_end {
            clerk.tell_those_who_await(now, world);
        }
        let mine = clerk.mine;
        if self.recorder.is_recording() {
            let name = |tier| {
                self.tiers
                    .get(tier)
                    .map_or("tier", |tier: &Tier| tier.kind.name())
            };
            let evictions = world.plan_mut().take_evictions();
            self.recorder.evicted(&evictions, name);
        }
        for link in &mut desk.links {
            link.look(world.plan().free(link.tier()));
        }
        mine
    }

    /// Writes a version to where the plan has room for it.
    pub(crate) fn copy_in(
        &self,
        lane: &mut Lane,
        source: &Source<'_, '_>,
        to: (Version, &[Piece]),
        stream: Option<&Stream>,
    ) -> Result<()> {
        let crews: Crews<'_> = &|way, tier| self.crew(way, tier);
        lane.write(source, (&self.tiers, crews), to, stream)
    }

    /// Reads a version from where it lies, whatever it lies there as.
    pub(crate) fn copy_out(
        &self,
        lane: &mut Lane,
        version: Version,
        Grant { pieces, bases }: &Grant,
        (sink, stream): (&mut Sink<'_, '_>, Option<&Stream>),
    ) -> Result<()> {
        match (bases, pieces.as_slice()) {
            (Some(bases), [piece]) => {
                let chain = (version, &piece.place, bases.as_slice());
                let size = self.core.lock().plan().size_of(version);
                let size = size.unwrap_or_else(|| sink.len());
                let stage = self.stage.as_ref().ok_or(Error::NoTier)?;
                stage.read(lane, &self.tiers, (chain, size), (sink, stream))
            }
            (_, pieces) => {
                let crews: Crews<'_> = &|way, tier| self.crew(way, tier);
                lane.read(sink, (&self.tiers, crews), (version, pieces), stream)
            }
        }
    }

    /// Whether some of these places lie in storage, which may take any time.
    pub(crate) fn reaches_storage(&self, grant: &Grant) -> bool {
        let bases = grant.bases.iter().flatten().map(|(_, place)| place);
        let mut places = grant.pieces.iter().map(|piece| &piece.place).chain(bases);
        places.any(|place| {
            let tier = self.tiers.get(place.tier.0);
            tier.is_some_and(|tier| matches!(tier.medium, Medium::Storage(_) | Medium::Kept(_)))
        })
    }

    /// A caller's copy to a tier that it reached itself ended, and holds nothing up any more. What came too late is not kept.
    pub(crate) fn end_write(&self, version: Version, pieces: &[Piece], is_wanted: bool) {
        let tiers = pieces
            .iter()
            .filter_map(|piece| self.tiers.get(piece.place.tier.0));
        for kept in tiers.filter_map(|tier| tier.medium.kept()) {
            kept.end(version, false);
            if !is_wanted {
                let bytes = pieces.iter().map(|piece| piece.place.size).sum();
                kept.drop_copy(version, bytes);
            }
        }
    }

    /// What makes a version that the plan does not know unreadable, if it lies on some tier.
    pub(crate) fn damage_of(&self, version: Version) -> Option<tierflow_store::Error> {
        let kept = self.tiers.iter().filter_map(|tier| tier.medium.kept());
        kept.filter_map(|kept| kept.vault().piece(version).err())
            .find(|error| matches!(error, tierflow_store::Error::Damaged { .. }))
    }

    /// A version reached `tier`: gives up those that are not to be kept any more, and removes what was given up.
    pub(crate) fn housekeep(&self, tier: TierId) {
        let lowest = self.tiers.len() - 1;
        let kept = self.tiers.get(tier.0).and_then(|tier| tier.medium.kept());
        if let Some(kept) = kept.filter(|_| tier.0 == lowest) {
            for version in kept.outlived() {
                let drop = |ticket| Event::Drop { ticket, version };
                // It may be gone already.
                let _answered_at_once = self.ask(None, drop);
            }
        }
        let kept = self.tiers.iter().filter_map(|tier| tier.medium.kept());
        kept.for_each(|kept| kept.tidy());
    }

    /// The workers are gone, and what they had not begun with them: what is left to give up and to remove.
    pub(crate) fn clear_up(&self) {
        let ids: Vec<_> = self.core.lock().desk.carried.keys().copied().collect();
        for id in ids {
            self.carried(id, Err((TransferFailure::Cancelled, None)));
        }
        let kept = || self.tiers.iter().filter_map(|tier| tier.medium.kept());
        kept().for_each(|kept| kept.look_again());
        self.housekeep(TierId(self.tiers.len() - 1));
        for kept in kept() {
            // What is still there is found, and can be given up, by the next engine.
            let _still_there = kept.remove_dropped();
        }
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    /// Starts nothing any more, stops every transfer at its next look at its flag, and lets the workers go.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
        let mut core = self.core.lock();
        let desk = &mut core.desk;
        desk.carried
            .values()
            .for_each(|flag| flag.store(true, Ordering::Relaxed));
        desk.queues.clear();
        let kept = self.tiers.iter().filter_map(|tier| tier.medium.kept());
        kept.for_each(|kept| kept.close());
        desk.links.clear();
    }

    /// Runs `copy` with a lane of the caller's own, ahead of the pinning of host memory, which stalls every copy.
    pub(crate) fn with_lane<T>(&self, copy: impl FnOnce(&mut Lane) -> Result<T>) -> Result<T> {
        let _first: Vec<_> = self
            .tiers
            .iter()
            .filter_map(|tier| tier.medium.gate())
            .map(Gate::enter)
            .collect();
        self.with_any_lane(copy)
    }

    /// Runs `copy` with a lane of the caller's own: with storage alone, which holds up nothing else, however long it takes.
    pub(crate) fn with_any_lane<T>(&self, copy: impl FnOnce(&mut Lane) -> Result<T>) -> Result<T> {
        let free = self.lanes.lock().pop();
        let mut lane = match free {
            Some(lane) => lane,
            None => Lane::with_stream(&self.device)?,
        };
        let result = copy(&mut lane);
        self.lanes.lock().push(lane);
        result
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared")
            .field("device", &self.device)
            .field("tiers", &self.tiers)
            .finish_non_exhaustive()
    }
}
