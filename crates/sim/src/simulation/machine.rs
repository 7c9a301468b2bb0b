//! The simulated machine: the event queue, the links, and the copies under way.

use crate::client::{AppState, CallKind, Client, CopyId, Flight};
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

/// An event of the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum SimEvent {
    /// A GPU's application has computed.
    Computed(usize),
    /// The latency of a GPU's copy is over.
    Begin(usize, CopyId),
    /// The next flow of a group ends. Outdated if the group's links were shared again since the time of this number.
    Flows(usize, u64),
}

/// A group of GPUs that share links, directly or through others.
#[derive(Debug)]
struct Group {
    network: Network,
    owners: BTreeMap<FlowId, (usize, CopyId)>,
    shared: u64,
    /// True if flows came or went since the links were shared.
    dirty: bool,
}

pub(super) struct Machine<'a> {
    hardware: &'a Hardware,
    pub(super) clients: Vec<Client<'a>>,
    groups: Vec<Group>,
    group: usize,
    queue: BinaryHeap<Reverse<(u64, u64, SimEvent)>>,
    queued: u64,
    pub(super) now: u64,
    /// GPUs whose applications go on now.
    pub(super) ready: VecDeque<usize>,
    dirty: Vec<usize>,
    pub(super) recorder: Option<Recorder<'a>>,
}

impl<'a> Machine<'a> {
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

    pub(super) fn at(&mut self, time: u64, event: SimEvent) {
        self.queued += 1;
        self.queue.push(Reverse((time, self.queued, event)));
    }

    /// Returns the time of the next event.
    pub(super) fn next_moment(&self) -> Option<u64> {
        self.queue.peek().map(|Reverse((at, ..))| *at)
    }

    /// Takes the next event of this moment.
    pub(super) fn next_event(&mut self) -> Option<SimEvent> {
        if self.next_moment() != Some(self.now) {
            return None;
        }
        self.queue.pop().map(|Reverse((.., event))| event)
    }

    /// Takes the next ended copy of a group, in the order of their starts; `None` if the links were shared again after time
    /// number `shared`.
    pub(super) fn next_ended(&mut self, group: usize, shared: u64) -> Option<(usize, CopyId)> {
        let (now, of) = (self.now, &mut self.groups[group]);
        let flow = of.network.ended(now).filter(|_| of.shared == shared)?;
        let of = self.touch(group);
        of.network.remove(flow);
        of.owners.remove(&flow)
    }

    /// Marks a group whose flows are about to change.
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
                self.at(next, SimEvent::Flows(group, shared));
            }
        }
    }

    fn launch(&mut self, gpu: usize, copy: CopyId, flight: Flight) {
        let begins = self.now.saturating_add(flight.latency_ns(self.hardware));
        self.clients[gpu].flights.insert(copy, flight);
        if begins > self.now {
            self.at(begins, SimEvent::Begin(gpu, copy));
        } else {
            self.begin(gpu, copy);
        }
    }

    pub(super) fn begin(&mut self, gpu: usize, copy: CopyId) {
        let (group, within) = (gpu / self.group, gpu % self.group);
        self.touch(group);
        // A copy that was cancelled meanwhile is gone.
        let Some(flight) = self.clients[gpu].flights.get_mut(&copy) else {
            return;
        };
        let Group {
            network, owners, ..
        } = &mut self.groups[group];
        let flow = network.start(within, flight.hops.clone(), flight.direction, flight.bytes);
        flight.flow = Some(flow);
        owners.insert(flow, (gpu, copy));
    }

    /// Ends a copy. Returns the event for the plan, or `None` while a call has other copies under way.
    pub(super) fn landed(&mut self, gpu: usize, copy: CopyId) -> Option<Event> {
        let flight = self.clients[gpu].flights.remove(&copy)?;
        if let Some(recorder) = &mut self.recorder {
            recorder.ended(gpu, copy, &flight, true, self.now);
        }
        let ok = true;
        match copy {
            CopyId::Call(ticket, _) => match self.clients[gpu].copied()? {
                CallKind::Checkpoint { .. } => Some(Event::Written { ticket, ok }),
                _ => Some(Event::Read { ticket, ok }),
            },
            CopyId::Transfer(id) => Some(Event::TransferDone { id, stored: None }),
        }
    }

    /// Lets a call return to its application.
    pub(super) fn returned(&mut self, gpu: usize) {
        if let (Some(recorder), AppState::Calling(call)) =
            (&mut self.recorder, &self.clients[gpu].state)
        {
            recorder.returned(gpu, call, self.now);
        }
        self.clients[gpu].returned(self.now);
        self.ready.push_back(gpu);
    }
}

/// Carries out the commands of one GPU's plan.
pub(super) struct GpuExecutor<'s, 'a> {
    pub(super) machine: &'s mut Machine<'a>,
    pub(super) gpu: usize,
    /// Events for the plan once its commands are carried out.
    pub(super) events: VecDeque<Event>,
    /// The first refusal.
    pub(super) refused: Result<()>,
}

impl GpuExecutor<'_, '_> {
    fn grant(&mut self, ticket: Ticket, pieces: &[Piece], direction: Direction) {
        let flights = Flight::of_caller(pieces, direction, self.machine.now);
        if let Some((&slowest, _)) = flights.last_key_value() {
            let now = self.machine.now;
            self.machine.clients[self.gpu].grant(flights.len(), slowest, now);
        }
        for (tier, flight) in flights {
            let copy = CopyId::Call(ticket, tier);
            self.machine.launch(self.gpu, copy, flight);
        }
    }
}

impl Executor for GpuExecutor<'_, '_> {
    fn write(&mut self, ticket: Ticket, _: Version, pieces: Vec<Piece>) {
        self.machine.clients[self.gpu].outcome.checkpoint_pieces += pieces.len() as u64;
        self.grant(ticket, &pieces, Direction::Down);
    }

    fn read(&mut self, ticket: Ticket, _: Version, pieces: Vec<Piece>, _: Coding) {
        self.machine.clients[self.gpu].outcome.restore_pieces += pieces.len() as u64;
        self.grant(ticket, &pieces, Direction::Up);
    }

    fn transfer(&mut self, transfer: Transfer) {
        let Some(flight) = Flight::between(&transfer, self.machine.now) else {
            let (id, stored) = (transfer.id, None);
            self.events.push_back(Event::TransferDone { id, stored });
            return;
        };
        let copy = CopyId::Transfer(transfer.id);
        if let Some(recorder) = &mut self.machine.recorder {
            recorder.started(self.gpu, copy, transfer.version, &flight);
        }
        self.machine.launch(self.gpu, copy, flight);
    }

    fn cancel(&mut self, id: TransferId) {
        let copy = CopyId::Transfer(id);
        let Some(flight) = self.machine.clients[self.gpu].flights.remove(&copy) else {
            return;
        };
        let now = self.machine.now;
        if let Some(recorder) = &mut self.machine.recorder {
            recorder.ended(self.gpu, copy, &flight, false, now);
        }
        if let Some(flow) = flight.flow {
            let group = self.machine.touch(self.gpu / self.machine.group);
            group.owners.remove(&flow);
            group.network.remove(flow);
        }
        let why = TransferFailure::Cancelled;
        self.events.push_back(Event::TransferFailed { id, why });
    }

    fn answer(&mut self, ticket: Ticket, answer: Result<(), Refusal>) {
        let gpu = self.gpu;
        let AppState::Calling(call) = self.machine.clients[gpu].state else {
            return;
        };
        if call.ticket != ticket {
            return;
        }
        let error = match answer {
            Ok(()) => return self.machine.returned(gpu),
            Err(Refusal::Stalled { versions }) => Error::Stalled {
                gpu,
                versions,
                lowest: TierId(self.machine.hardware.tiers.len() - 1),
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
