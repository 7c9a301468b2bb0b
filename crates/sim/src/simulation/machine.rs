//! What the plans of a run act upon: a queue of moments, the links, and what is under way.

use crate::client::{CallKind, Client, Doing, Flight, Job};
use crate::hardware::Hardware;
use crate::network::{Direction, FlowId, Network};
use crate::recorder::Recorder;
use crate::{Error, Result};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use tierflow_plan::{
    Coding, Event, Executor, Piece, Refusal, Ticket, TierId, Transfer, TransferFailure, TransferId,
    Version,
};

/// Something that happens at a moment known beforehand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Wake {
    /// A GPU has computed.
    Computed(usize),
    /// The latency of a GPU's copy is over.
    Begin(usize, Job),
    /// The next flow of a group ends, if nothing happened to the group since it was shared for the `n`-th time.
    Flows(usize, u64),
}

/// GPUs that share links, directly or by way of others.
#[derive(Debug)]
struct Group {
    network: Network,
    owners: BTreeMap<FlowId, (usize, Job)>,
    shared: u64,
    /// Flows came or went since the links were shared.
    dirty: bool,
}

pub(super) struct Stage<'a> {
    hardware: &'a Hardware,
    pub(super) clients: Vec<Client<'a>>,
    groups: Vec<Group>,
    group: usize,
    queue: BinaryHeap<Reverse<(u64, u64, Wake)>>,
    queued: u64,
    pub(super) now: u64,
    /// GPUs whose application goes on now.
    pub(super) ready: VecDeque<usize>,
    dirty: Vec<usize>,
    pub(super) recorder: Option<Recorder<'a>>,
}

impl<'a> Stage<'a> {
    pub(super) fn new(
        hardware: &'a Hardware,
        clients: Vec<Client<'a>>,
        recorder: Option<Recorder<'a>>,
    ) -> Self {
        let group = hardware.group();
        let groups = (0..clients.len()).step_by(group).map(|first| Group {
            network: Network::new(hardware, group.min(clients.len() - first)),
            owners: BTreeMap::new(),
            shared: 0,
            dirty: false,
        });
        Self {
            hardware,
            groups: groups.collect(),
            group,
            queue: BinaryHeap::new(),
            queued: 0,
            now: 0,
            ready: (0..clients.len()).collect(),
            clients,
            dirty: Vec::new(),
            recorder,
        }
    }

    pub(super) fn at(&mut self, time: u64, wake: Wake) {
        self.queued += 1;
        self.queue.push(Reverse((time, self.queued, wake)));
    }

    /// When the next moment of the queue is.
    pub(super) fn next_moment(&self) -> Option<u64> {
        self.queue.peek().map(|Reverse((at, ..))| *at)
    }

    /// The next of what happens now.
    pub(super) fn next_wake(&mut self) -> Option<Wake> {
        if self.next_moment() != Some(self.now) {
            return None;
        }
        self.queue.pop().map(|Reverse((.., wake))| wake)
    }

    /// The next of a group's copies that has ended, in the order of their starts; nothing if the links were shared anew
    /// since the `shared`-th time.
    pub(super) fn next_ended(&mut self, group: usize, shared: u64) -> Option<(usize, Job)> {
        let (now, of) = (self.now, &mut self.groups[group]);
        let flow = of.network.ended(now).filter(|_| of.shared == shared)?;
        let of = self.touch(group);
        of.network.remove(flow);
        of.owners.remove(&flow)
    }

    /// A group whose flows are about to change.
    fn touch(&mut self, group: usize) -> &mut Group {
        if !self.groups[group].dirty {
            self.groups[group].dirty = true;
            self.dirty.push(group);
        }
        &mut self.groups[group]
    }

    pub(super) fn share_links(&mut self) {
        for group in std::mem::take(&mut self.dirty) {
            let Group {
                network,
                shared,
                dirty,
                ..
            } = &mut self.groups[group];
            *dirty = false;
            *shared += 1;
            network.share(self.now);
            let shared = *shared;
            if let Some(next) = network.next_end() {
                self.at(next, Wake::Flows(group, shared));
            }
        }
    }

    fn launch(&mut self, gpu: usize, job: Job, flight: Flight) {
        let begins = self.now.saturating_add(flight.latency_ns(self.hardware));
        self.clients[gpu].flights.insert(job, flight);
        if begins > self.now {
            self.at(begins, Wake::Begin(gpu, job));
        } else {
            self.begin(gpu, job);
        }
    }

    pub(super) fn begin(&mut self, gpu: usize, job: Job) {
        let (group, within) = (gpu / self.group, gpu % self.group);
        self.touch(group);
        // A copy that was cancelled meanwhile is not there any more.
        let Some(flight) = self.clients[gpu].flights.get_mut(&job) else {
            return;
        };
        let Group {
            network, owners, ..
        } = &mut self.groups[group];
        let flow = network.start(within, flight.hops.clone(), flight.direction, flight.bytes);
        flight.flow = Some(flow);
        owners.insert(flow, (gpu, job));
    }

    /// A copy has arrived. Returns what the plan is to be told: of a call, once all of its copies have arrived.
    pub(super) fn landed(&mut self, gpu: usize, job: Job) -> Option<Event> {
        let flight = self.clients[gpu].flights.remove(&job)?;
        if let Some(recorder) = &mut self.recorder {
            recorder.ended(gpu, job, &flight, true, self.now);
        }
        let ok = true;
        match job {
            Job::Call(ticket, _) => match self.clients[gpu].copied()? {
                CallKind::Checkpoint { .. } => Some(Event::Written { ticket, ok }),
                _ => Some(Event::Read { ticket, ok }),
            },
            Job::Transfer(id) => Some(Event::TransferDone { id, stored: None }),
        }
    }

    /// A call returns to its application.
    pub(super) fn returned(&mut self, gpu: usize) {
        if let (Some(recorder), Doing::Calling(call)) =
            (&mut self.recorder, &self.clients[gpu].doing)
        {
            recorder.returned(gpu, call, self.now);
        }
        self.clients[gpu].returned(self.now);
        self.ready.push_back(gpu);
    }
}

/// Carries out what the plan of one GPU says.
pub(super) struct Hands<'s, 'a> {
    pub(super) stage: &'s mut Stage<'a>,
    pub(super) gpu: usize,
    /// What the plan is to be told when its commands are obeyed.
    pub(super) to_tell: VecDeque<Event>,
    /// The first call that was refused.
    pub(super) refused: Result<()>,
}

impl Hands<'_, '_> {
    fn grant(&mut self, ticket: Ticket, pieces: &[Piece], direction: Direction) {
        let flights = Flight::of_caller(pieces, direction, self.stage.now);
        if let Some((&slowest, _)) = flights.last_key_value() {
            let now = self.stage.now;
            self.stage.clients[self.gpu].grant(flights.len(), slowest, now);
        }
        for (tier, flight) in flights {
            let job = Job::Call(ticket, tier);
            self.stage.launch(self.gpu, job, flight);
        }
    }
}

impl Executor for Hands<'_, '_> {
    fn write(&mut self, ticket: Ticket, _: Version, pieces: Vec<Piece>) {
        self.grant(ticket, &pieces, Direction::Down);
    }

    fn read(&mut self, ticket: Ticket, _: Version, pieces: Vec<Piece>, _: Coding) {
        self.grant(ticket, &pieces, Direction::Up);
    }

    fn transfer(&mut self, transfer: Transfer) {
        let Some(flight) = Flight::between(&transfer, self.stage.now) else {
            let (id, stored) = (transfer.id, None);
            self.to_tell.push_back(Event::TransferDone { id, stored });
            return;
        };
        let job = Job::Transfer(transfer.id);
        if let Some(recorder) = &mut self.stage.recorder {
            recorder.started(self.gpu, job, transfer.version, &flight);
        }
        self.stage.launch(self.gpu, job, flight);
    }

    fn cancel(&mut self, id: TransferId) {
        let job = Job::Transfer(id);
        let Some(flight) = self.stage.clients[self.gpu].flights.remove(&job) else {
            return;
        };
        let now = self.stage.now;
        if let Some(recorder) = &mut self.stage.recorder {
            recorder.ended(self.gpu, job, &flight, false, now);
        }
        if let Some(flow) = flight.flow {
            let group = self.stage.touch(self.gpu / self.stage.group);
            group.owners.remove(&flow);
            group.network.remove(flow);
        }
        let why = TransferFailure::Cancelled;
        self.to_tell.push_back(Event::TransferFailed { id, why });
    }

    fn answer(&mut self, ticket: Ticket, answer: Result<(), Refusal>) {
        let gpu = self.gpu;
        let Doing::Calling(call) = self.stage.clients[gpu].doing else {
            return;
        };
        if call.ticket != ticket {
            return;
        }
        let error = match answer {
            Ok(()) => return self.stage.returned(gpu),
            Err(Refusal::Stalled { versions }) => Error::Stalled {
                gpu,
                versions,
                lowest: TierId(self.stage.hardware.tiers.len() - 1),
            },
            Err(refusal) => Error::Refused {
                gpu,
                version: call.kind.version(),
                refusal,
            },
        };
        if self.refused.is_ok() {
            self.refused = Err(error);
        }
    }
}
