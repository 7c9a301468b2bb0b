//! One run: a queue of moments, and what happens at each.

use crate::client::{CallKind, Client, Doing, Flight, Job};
use crate::hardware::Hardware;
use crate::network::{Direction, FlowId, Network};
use crate::outcome::Outcome;
use crate::recorder::Recorder;
use crate::workload::Op;
use crate::{Error, Result};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use tierflow_engine::plan::{Command, Event, Refusal, Ticket, TierId, TransferFailure};

/// Something that happens at a moment known beforehand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Wake {
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

pub(super) struct Run<'a> {
    hardware: &'a Hardware,
    clients: Vec<Client<'a>>,
    groups: Vec<Group>,
    group: usize,
    queue: BinaryHeap<Reverse<(u64, u64, Wake)>>,
    queued: u64,
    now: u64,
    /// GPUs whose application goes on now.
    ready: VecDeque<usize>,
    at_barrier: usize,
    dirty: Vec<usize>,
    commands: Vec<Command>,
    checks: bool,
    events: u64,
    recorder: Option<Recorder<'a>>,
}

impl<'a> Run<'a> {
    pub(super) fn new(
        hardware: &'a Hardware,
        clients: Vec<Client<'a>>,
        checks: bool,
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
            at_barrier: 0,
            dirty: Vec::new(),
            commands: Vec::new(),
            checks,
            events: 0,
            recorder,
        }
    }

    pub(super) fn run(mut self) -> Result<Outcome> {
        loop {
            while let Some(gpu) = self.ready.pop_front() {
                self.go_on(gpu)?;
            }
            self.share_links();
            let Some(Reverse((now, ..))) = self.queue.peek().copied() else {
                break;
            };
            self.now = now;
            while let Some(Reverse((at, _, wake))) = self.queue.peek().copied()
                && at == now
            {
                self.queue.pop();
                self.wake(wake)?;
            }
        }
        self.outcome()
    }

    fn outcome(self) -> Result<Outcome> {
        let mut clients = Vec::new();
        for (gpu, mut client) in self.clients.into_iter().enumerate() {
            if client.doing != Doing::Done {
                let reason = format!("nothing is under way, but {:?}", client.doing);
                return Err(Error::Defect { gpu, reason });
            }
            let check = client.plan.check();
            check.map_err(|violation| Error::violation(gpu, violation))?;
            client.outcome.statistics = client.plan.statistics();
            clients.push(client.outcome);
        }
        Ok(Outcome {
            clients,
            events: self.events,
        })
    }

    fn at(&mut self, time: u64, wake: Wake) {
        self.queued += 1;
        self.queue.push(Reverse((time, self.queued, wake)));
    }

    fn wake(&mut self, wake: Wake) -> Result<()> {
        match wake {
            Wake::Computed(gpu) => {
                self.clients[gpu].doing = Doing::Ready;
                self.ready.push_back(gpu);
                Ok(())
            }
            Wake::Begin(gpu, job) => {
                self.begin(gpu, job);
                Ok(())
            }
            Wake::Flows(group, shared) if self.groups[group].shared == shared => {
                while let Some(flow) = self.groups[group].network.ended(self.now) {
                    self.touch(group).network.remove(flow);
                    if let Some((gpu, job)) = self.groups[group].owners.remove(&flow) {
                        self.landed(gpu, job)?;
                    }
                }
                Ok(())
            }
            Wake::Flows(..) => Ok(()),
        }
    }

    /// A group whose flows are about to change.
    fn touch(&mut self, group: usize) -> &mut Group {
        if !self.groups[group].dirty {
            self.groups[group].dirty = true;
            self.dirty.push(group);
        }
        &mut self.groups[group]
    }

    fn share_links(&mut self) {
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

    /// The application's ops, until one takes time.
    fn go_on(&mut self, gpu: usize) -> Result<()> {
        let now = self.now;
        while self.clients[gpu].doing == Doing::Ready {
            let client = &mut self.clients[gpu];
            let Some(op) = client.next_op() else {
                client.doing = Doing::Done;
                client.outcome.elapsed_ns = now;
                return Ok(());
            };
            match *op {
                Op::Compute(0) => {}
                Op::Compute(ns) => {
                    client.doing = Doing::Computing;
                    self.at(now.saturating_add(ns), Wake::Computed(gpu));
                }
                Op::Checkpoint { version, bytes } => {
                    let ticket = client.call(CallKind::Checkpoint { version, bytes }, now);
                    let size = bytes;
                    self.tell(
                        gpu,
                        Event::Checkpoint {
                            ticket,
                            version,
                            size,
                        },
                    )?;
                }
                Op::Restore(version) => {
                    client.measure_distance();
                    client.outcome.restored += client.plan.size_of(version).unwrap_or(0);
                    let ticket = client.call(CallKind::Restore(version), now);
                    self.tell(gpu, Event::Restore { ticket, version })?;
                }
                Op::Drop(version) => {
                    let ticket = client.call(CallKind::Drop(version), now);
                    self.tell(gpu, Event::Drop { ticket, version })?;
                }
                Op::Hint(ref versions) => {
                    let versions = versions.clone();
                    self.tell(gpu, Event::Hint { versions })?;
                }
                Op::PrefetchStart => self.tell(gpu, Event::PrefetchStart)?,
                Op::Wait => {
                    let ticket = client.call(CallKind::Wait, now);
                    self.tell(gpu, Event::Wait { ticket })?;
                }
                Op::Barrier => {
                    client.doing = Doing::AtBarrier { since: now };
                    self.at_barrier += 1;
                    if self.at_barrier == self.clients.len() {
                        self.at_barrier = 0;
                        for (gpu, client) in self.clients.iter_mut().enumerate() {
                            if let (Some(recorder), Doing::AtBarrier { since }) =
                                (&mut self.recorder, client.doing)
                            {
                                recorder.left_barrier(gpu, since, now);
                            }
                            client.leave_barrier(now);
                            self.ready.push_back(gpu);
                        }
                        return Ok(());
                    }
                }
            }
        }
        Ok(())
    }

    /// Tells a plan what happened, and does what it says.
    fn tell(&mut self, gpu: usize, event: Event) -> Result<()> {
        let mut events = VecDeque::from([event]);
        while let Some(event) = events.pop_front() {
            self.events += 1;
            let mut commands = std::mem::take(&mut self.commands);
            let plan = &mut self.clients[gpu].plan;
            plan.handle(event, &mut commands);
            if let Some(recorder) = &mut self.recorder {
                recorder.evicted(gpu, &plan.take_evictions(), self.now);
            }
            if self.checks {
                let check = plan.check();
                check.map_err(|violation| Error::violation(gpu, violation))?;
            }
            for command in commands.drain(..) {
                events.extend(self.obey(gpu, command)?);
            }
            self.commands = commands;
        }
        Ok(())
    }

    /// Does what a plan says; returns what it is to be told at once.
    fn obey(&mut self, gpu: usize, command: Command) -> Result<Option<Event>> {
        let now = self.now;
        match command {
            Command::Write { ticket, place, .. } => {
                self.clients[gpu].grant(place.tier, now);
                let flight = Flight::of_caller(&place, Direction::Down, now);
                self.launch(gpu, Job::Write(ticket), flight);
            }
            Command::Read { ticket, place, .. } => {
                self.clients[gpu].grant(place.tier, now);
                let flight = Flight::of_caller(&place, Direction::Up, now);
                self.launch(gpu, Job::Read(ticket), flight);
            }
            Command::Transfer {
                id,
                version,
                from,
                to,
                ..
            } => {
                let (job, flight) = (Job::Transfer(id), Flight::between(&from, &to, now));
                if let Some(recorder) = &mut self.recorder {
                    recorder.started(gpu, job, version, &flight);
                }
                self.launch(gpu, job, flight);
            }
            Command::Cancel { id } => {
                let job = Job::Transfer(id);
                if let Some(flight) = self.clients[gpu].flights.remove(&job) {
                    if let Some(recorder) = &mut self.recorder {
                        recorder.ended(gpu, job, &flight, false, now);
                    }
                    if let Some(flow) = flight.flow {
                        let group = self.touch(gpu / self.group);
                        group.owners.remove(&flow);
                        group.network.remove(flow);
                    }
                    let why = TransferFailure::Cancelled;
                    return Ok(Some(Event::TransferFailed { id, why }));
                }
            }
            // No workload sets limits.
            Command::Released { .. } => {}
            Command::Drop { .. } => {}
            Command::Finish { ticket, result } => self.finish(gpu, ticket, result)?,
        }
        Ok(None)
    }

    fn finish(&mut self, gpu: usize, ticket: Ticket, result: Result<(), Refusal>) -> Result<()> {
        let Doing::Calling(call) = self.clients[gpu].doing else {
            return Ok(());
        };
        match result {
            Ok(()) if call.ticket == ticket => self.returned(gpu),
            Ok(()) => {}
            Err(Refusal::Stalled { copies }) => {
                let lowest = TierId(self.hardware.tiers.len() - 1);
                return Err(Error::Stalled {
                    gpu,
                    copies,
                    lowest,
                });
            }
            Err(refusal) => {
                let version = call.kind.version();
                return Err(Error::Refused {
                    gpu,
                    version,
                    refusal,
                });
            }
        }
        Ok(())
    }

    fn returned(&mut self, gpu: usize) {
        if let (Some(recorder), Doing::Calling(call)) =
            (&mut self.recorder, &self.clients[gpu].doing)
        {
            recorder.returned(gpu, call, self.now);
        }
        self.clients[gpu].returned(self.now);
        self.ready.push_back(gpu);
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

    fn begin(&mut self, gpu: usize, job: Job) {
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

    fn landed(&mut self, gpu: usize, job: Job) -> Result<()> {
        let Some(flight) = self.clients[gpu].flights.remove(&job) else {
            return Ok(());
        };
        if let Some(recorder) = &mut self.recorder {
            recorder.ended(gpu, job, &flight, true, self.now);
        }
        let ok = true;
        match job {
            Job::Write(ticket) => {
                self.tell(gpu, Event::Written { ticket, ok })?;
                self.returned(gpu);
            }
            Job::Read(ticket) => {
                self.tell(gpu, Event::Read { ticket, ok })?;
                self.returned(gpu);
            }
            Job::Transfer(id) => {
                let elapsed_ns = self.clients[gpu].arrive(&flight, self.now);
                let done = Event::TransferDone {
                    id,
                    elapsed_ns,
                    stored: None,
                };
                self.tell(gpu, done)?;
            }
        }
        Ok(())
    }
}
