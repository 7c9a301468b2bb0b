//! The plan behind its lock, and the way of its commands to callers and workers.

use super::job::Job;
use super::keeper::Link;
use super::lane::Lane;
use super::media::Tier;
use super::pending::Pending;
use super::recorder::{Recorder, Stall, Stalled};
use super::resize::{Resized, Waiting};
use super::stage::Stage;
use super::sync::{AtomicBool, Mutex, Ordering, Receiver, Sender, bounded};
use super::worker::{Direction, Queue};
use crate::metrics::CallCounter;
use crate::plan::{
    Coding, Command, Event, Place, Plan, Refusal, Stored, Ticket, TierId, TransferFailure,
    TransferId,
};
use crate::{Error, Result, Version};
use hashbrown::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tierflow_device::Device;
use tierflow_tier_alloc::Gate;

/// A place to copy to or from.
#[derive(Debug)]
pub(crate) struct Grant {
    pub(crate) place: Place,
    /// If the bytes there are a difference: where those are that it builds upon, nearest first.
    pub(crate) bases: Option<Vec<(Version, Place)>>,
}

/// The plan's answer to one call.
#[derive(Debug)]
pub(crate) enum Answer {
    /// Copy the regions to, or from, this place, then report.
    Copy(Grant),
    /// Nothing to copy.
    Done(std::result::Result<(), Refusal>),
}

/// Where an answer will appear, and what the caller waits for.
type Later = (Receiver<Answer>, Option<Stalled>);

/// Where transfers go: (direction, tier) to its workers.
pub(crate) type Queues = HashMap<(Direction, usize), Queue>;

/// What the lock protects.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) plan: Plan,
    /// Callers that sleep until their answer comes.
    sleeping: HashMap<Ticket, Sender<Answer>>,
    /// Transfers that workers have, with the flag that stops them.
    carried: HashMap<TransferId, Arc<AtomicBool>>,
    next_ticket: u64,
    commands: Vec<Command>,
    /// Where transfers go: (direction, tier) to its workers.
    queues: Queues,
    /// Who keeps the host cache within its share of a pool.
    pub(super) link: Option<Link>,
    /// The last failure of a transfer: why a tier takes no more.
    pub(crate) last_failure: Option<Arc<Error>>,
    /// Who waits for a tier to be emptied.
    pub(super) resizing: Option<Waiting>,
    /// Who gives memory back to peers.
    pub(super) guests: Option<super::guests::Link>,
}

impl Core {
    fn new(plan: Plan, queues: Queues) -> Self {
        Self {
            plan,
            sleeping: HashMap::new(),
            carried: HashMap::new(),
            next_ticket: 0,
            commands: Vec::new(),
            queues,
            link: None,
            last_failure: None,
            resizing: None,
            guests: None,
        }
    }
}

/// What callers and workers share.
pub(crate) struct Shared {
    pub(crate) device: Device,
    pub(crate) tiers: Vec<Tier>,
    /// What makes differences of what leaves the fastest tier, if anything does.
    pub(crate) stage: Option<Stage>,
    pub(crate) core: Mutex<Core>,
    /// Lanes of callers, taken for the time of a call.
    lanes: Mutex<Vec<Lane>>,
    /// The engine goes: workers start nothing any more.
    stopping: AtomicBool,
    pub(crate) checkpoints: CallCounter,
    pub(crate) restores: CallCounter,
    pub(crate) produced: CallCounter,
    pub(crate) consumed: CallCounter,
    pub(crate) recorder: Recorder,
    /// Locked while a cache is resized.
    pub(super) resized: Mutex<Resized>,
    /// What streams still do on slots that were given back.
    pub(crate) pending: Pending,
}

impl Shared {
    pub(crate) fn new(
        device: Device,
        (tiers, stage): (Vec<Tier>, Option<Stage>),
        plan: Plan,
        queues: Queues,
        lane: Lane,
        recorder: Recorder,
    ) -> Self {
        let lanes = Mutex::new(vec![lane]);
        Self {
            device,
            tiers,
            stage,
            core: Mutex::new(Core::new(plan, queues)),
            lanes,
            stopping: AtomicBool::new(false),
            checkpoints: CallCounter::default(),
            restores: CallCounter::default(),
            produced: CallCounter::default(),
            consumed: CallCounter::default(),
            recorder,
            resized: Mutex::default(),
            pending: Pending::default(),
        }
    }

    /// Tells the plan something that nobody waits for.
    pub(crate) fn tell(&self, event: Event) {
        let mut core = self.core.lock();
        self.handle(&mut core, event, None);
    }

    /// Asks the plan and sleeps until it answers. The ticket names the call in the report that follows.
    pub(crate) fn ask(&self, event: impl FnOnce(Ticket) -> Event) -> (Ticket, Answer) {
        let (ticket, answer) = self.put(event);
        let answer = answer.unwrap_or_else(|(later, why)| {
            let begun = Instant::now();
            // The sender lives in `sleeping` until it has sent.
            let answer = later.recv().unwrap_or(Answer::Done(Err(Refusal::NoRoom)));
            self.recorder.slept(why, begun);
            answer
        });
        (ticket, answer)
    }

    /// Asks the plan what it answers without a copy, and sleeps so long at most. `None` if that was not enough.
    pub(crate) fn ask_for(
        &self,
        patience: Duration,
        event: impl FnOnce(Ticket) -> Event,
    ) -> Option<Answer> {
        let (ticket, answer) = self.put(event);
        answer.map_or_else(
            |(later, why)| {
                let begun = Instant::now();
                let answer = later.recv_timeout(patience).ok();
                self.recorder.slept(why, begun);
                if answer.is_none() {
                    self.core.lock().sleeping.remove(&ticket);
                }
                answer
            },
            Some,
        )
    }

    /// Puts a question to the plan: its answer, or where that will appear and why not at once.
    fn put(
        &self,
        event: impl FnOnce(Ticket) -> Event,
    ) -> (Ticket, std::result::Result<Answer, Later>) {
        let mut core = self.core.lock();
        let ticket = Ticket(core.next_ticket);
        core.next_ticket += 1;
        let event = event(ticket);
        let why = Stall::of(&event);
        let answer = match self.handle(&mut core, event, Some(ticket)) {
            Some(answer) => Ok(answer),
            None => {
                let (sender, receiver) = bounded(1);
                core.sleeping.insert(ticket, sender);
                Err((receiver, why))
            }
        };
        (ticket, answer)
    }

    /// Hands one event to the plan and its commands to whom they concern. Returns the answer for `own`, if there is one.
    pub(super) fn handle(
        &self,
        core: &mut Core,
        event: Event,
        own: Option<Ticket>,
    ) -> Option<Answer> {
        let mut commands = std::mem::take(&mut core.commands);
        core.plan.handle(event, &mut commands);
        debug_assert_eq!(core.plan.check(), Ok(()), "after {commands:?}");
        let mut mine = None;
        for command in commands.drain(..) {
            let (ticket, answer) = match command {
                Command::Transfer {
                    id,
                    version,
                    from,
                    to,
                    coding,
                } => {
                    self.carry(core, (id, version), (from, to), coding);
                    continue;
                }
                Command::Cancel { id } => {
                    if let Some(flag) = core.carried.get(&id) {
                        flag.store(true, Ordering::Relaxed);
                    }
                    continue;
                }
                Command::Write { ticket, place, .. } => {
                    (ticket, Answer::Copy(Grant { place, bases: None }))
                }
                Command::Read {
                    ticket,
                    place,
                    coding,
                    ..
                } => {
                    let bases = match coding {
                        Coding::Decode { bases } => Some(bases),
                        Coding::Plain | Coding::Stored { .. } | Coding::Encode { .. } => None,
                    };
                    (ticket, Answer::Copy(Grant { place, bases }))
                }
                Command::Drop { version, place } => {
                    let tier = self.tiers.get(place.tier.0);
                    if let Some(kept) = tier.and_then(|tier| tier.media.kept()) {
                        kept.drop_copy(version, place.size);
                    }
                    continue;
                }
                Command::Released { tier, bytes } => {
                    if let Some(guests) = &core.guests {
                        guests.released(tier, bytes);
                    }
                    if let Some(waiting) = &core.resizing {
                        waiting.released(tier, bytes);
                    }
                    if let Some(link) = &core.link {
                        link.released(tier, bytes);
                    }
                    continue;
                }
                Command::Finish { ticket, result } => (ticket, Answer::Done(result)),
            };
            if Some(ticket) == own {
                mine = Some(answer);
            } else if let Some(caller) = core.sleeping.remove(&ticket) {
                // A caller sleeps until it has its answer, so the other end is there.
                let _ = caller.send(answer);
            }
        }
        core.commands = commands;
        if self.recorder.is_recording() {
            let name = |tier| self.tiers.get(tier).map_or("tier", |tier: &Tier| tier.name);
            self.recorder.evicted(&core.plan.take_evictions(), name);
        }
        if let Some(link) = &mut core.link {
            link.look(core.plan.free(link.tier()));
        }
        mine
    }

    /// Gives a transfer to the workers of its tier.
    fn carry(
        &self,
        core: &mut Core,
        (id, version): (TransferId, Version),
        (from, to): (Place, Place),
        coding: Coding,
    ) {
        let queue = if from.tier < to.tier {
            (Direction::Down, from.tier.0)
        } else {
            (Direction::Up, to.tier.0)
        };
        let is_whole = |place: Place| {
            let tier = self.tiers.get(place.tier.0);
            tier.is_some_and(|tier| tier.media.kept().is_some())
        };
        if let Some(queue) = core.queues.get(&queue) {
            let is_plain = matches!(coding, Coding::Plain | Coding::Stored { .. });
            let in_parts = queue.workers > 1 && is_plain && !is_whole(from) && !is_whole(to);
            let way = Arc::clone(&queue.way);
            let job = Arc::new(Job::new((id, version), (from, to), coding, way, in_parts));
            core.carried.insert(id, Arc::clone(&job.cancelled));
            queue.carry(&job);
        }
    }

    /// A worker reports how a transfer ended.
    pub(super) fn carried(
        &self,
        id: TransferId,
        outcome: std::result::Result<(Duration, Option<Stored>), (TransferFailure, Option<Error>)>,
    ) {
        let mut core = self.core.lock();
        core.carried.remove(&id);
        let event = match outcome {
            Ok((elapsed, stored)) => Event::TransferDone {
                id,
                elapsed_ns: u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX),
                stored,
            },
            Err((why, error)) => {
                if let Some(error) = error {
                    core.last_failure = Some(Arc::new(error));
                }
                Event::TransferFailed { id, why }
            }
        };
        self.handle(&mut core, event, None);
    }

    /// What makes a version that the plan does not know unreadable, if it lies on some tier.
    pub(crate) fn damage_of(&self, version: Version) -> Option<tierflow_store::Error> {
        let kept = self.tiers.iter().filter_map(|tier| tier.media.kept());
        kept.filter_map(|kept| kept.vault().piece(version).err())
            .find(|error| matches!(error, tierflow_store::Error::Damaged { .. }))
    }

    /// A version reached `tier`: gives up those that are not to be kept any more, and removes what was given up.
    pub(crate) fn housekeep(&self, tier: TierId) {
        let lowest = self.tiers.len() - 1;
        let kept = self.tiers.get(tier.0).and_then(|tier| tier.media.kept());
        if let Some(kept) = kept.filter(|_| tier.0 == lowest) {
            for version in kept.outlived() {
                let drop = |ticket| Event::Drop { ticket, version };
                // It may be gone already.
                let _answered_at_once = self.ask(drop);
            }
        }
        let kept = self.tiers.iter().filter_map(|tier| tier.media.kept());
        kept.for_each(|kept| kept.tidy());
    }

    /// The workers are gone: what is left to give up and to remove.
    pub(crate) fn clear_up(&self) {
        let kept = || self.tiers.iter().filter_map(|tier| tier.media.kept());
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
        core.carried
            .values()
            .for_each(|flag| flag.store(true, Ordering::Relaxed));
        core.queues.clear();
        core.guests = None;
        core.link = None;
    }

    /// Runs `copy` with a lane of the caller's own, ahead of the pinning of host memory, which stalls every copy.
    pub(crate) fn with_lane<T>(&self, copy: impl FnOnce(&mut Lane) -> Result<T>) -> Result<T> {
        let _first: Vec<_> = self
            .tiers
            .iter()
            .filter_map(|tier| tier.media.gate())
            .map(Gate::enter)
            .collect();
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
