//! A run: the ops of applications, and the events of their plans.

use super::machine::{GpuExecutor, Machine, SimEvent};
use crate::client::{AppState, CallKind, CopyId};
use crate::outcome::Outcome;
use crate::workload::Op;
use crate::{Error, Result};
use std::collections::VecDeque;
use tierflow_plan::{Event, Ticket, World};

pub(super) struct Run<'a> {
    /// The plan of each GPU.
    worlds: Vec<World>,
    machine: Machine<'a>,
    at_barrier: usize,
    checks: bool,
    events: u64,
}

impl<'a> Run<'a> {
    pub(super) fn new(worlds: Vec<World>, machine: Machine<'a>, checks: bool) -> Self {
        Self {
            worlds,
            machine,
            at_barrier: 0,
            checks,
            events: 0,
        }
    }

    pub(super) fn run(mut self) -> Result<Outcome> {
        loop {
            while let Some(gpu) = self.machine.ready.pop_front() {
                self.advance(gpu)?;
            }
            self.machine.share_links();
            let Some(now) = self.machine.next_moment() else {
                break;
            };
            self.machine.now = now;
            while let Some(event) = self.machine.next_event() {
                self.handle(event)?;
            }
        }
        self.outcome()
    }

    fn outcome(self) -> Result<Outcome> {
        let mut clients = Vec::new();
        for (gpu, (mut client, world)) in self
            .machine
            .clients
            .into_iter()
            .zip(self.worlds)
            .enumerate()
        {
            if client.state != AppState::Done {
                let reason = format!("nothing is under way, but {:?}", client.state);
                return Err(Error::Defect { gpu, reason });
            }
            let check = world.plan().check();
            check.map_err(|violation| Error::defect(gpu, violation))?;
            client.outcome.statistics = world.plan().statistics();
            clients.push(client.outcome);
        }
        Ok(Outcome {
            clients,
            events: self.events,
        })
    }

    fn handle(&mut self, event: SimEvent) -> Result<()> {
        match event {
            SimEvent::Computed(gpu) => {
                self.machine.clients[gpu].state = AppState::Ready;
                self.machine.ready.push_back(gpu);
            }
            SimEvent::Begin(gpu, copy) => self.machine.begin(gpu, copy),
            SimEvent::Flows(group, shared) => {
                while let Some((gpu, copy)) = self.machine.next_ended(group, shared) {
                    self.landed(gpu, copy)?;
                }
            }
        }
        Ok(())
    }

    fn landed(&mut self, gpu: usize, copy: CopyId) -> Result<()> {
        let Some(event) = self.machine.landed(gpu, copy) else {
            return Ok(());
        };
        self.tell(gpu, event)?;
        if matches!(copy, CopyId::Call(..)) {
            self.machine.returned(gpu);
        }
        Ok(())
    }

    /// Runs the application's ops until one takes time.
    fn advance(&mut self, gpu: usize) -> Result<()> {
        let now = self.machine.now;
        while self.machine.clients[gpu].state == AppState::Ready {
            let client = &mut self.machine.clients[gpu];
            let Some(op) = client.next_op() else {
                client.state = AppState::Done;
                client.outcome.elapsed_ns = now;
                return Ok(());
            };
            match *op {
                Op::Compute(0) => {}
                Op::Compute(ns) => {
                    client.state = AppState::Computing;
                    self.machine
                        .at(now.saturating_add(ns), SimEvent::Computed(gpu));
                }
                Op::Checkpoint { version, bytes } => {
                    let ticket = self.call(gpu, CallKind::Checkpoint { version, bytes });
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
                    let plan = self.worlds[gpu].plan();
                    client.measure_distance(plan);
                    client.outcome.restored += plan.size_of(version).unwrap_or(0);
                    let ticket = self.call(gpu, CallKind::Restore(version));
                    self.tell(gpu, Event::Restore { ticket, version })?;
                }
                Op::Drop(version) => {
                    let ticket = self.call(gpu, CallKind::Drop(version));
                    self.tell(gpu, Event::Drop { ticket, version })?;
                }
                Op::Hint(ref versions) => {
                    let versions = versions.clone();
                    self.tell(gpu, Event::Hint { versions })?;
                }
                Op::HintNext(ref versions) => {
                    let versions = versions.clone();
                    self.tell(gpu, Event::HintNext { versions })?;
                }
                Op::ForgetHints(ref versions) => {
                    let versions = versions.clone();
                    self.tell(gpu, Event::ForgetHints { versions })?;
                }
                Op::PrefetchStart => self.tell(gpu, Event::PrefetchStart)?,
                Op::Wait => {
                    let ticket = self.call(gpu, CallKind::Wait);
                    self.tell(
                        gpu,
                        Event::Wait {
                            ticket,
                            version: None,
                        },
                    )?;
                }
                Op::Barrier => {
                    client.state = AppState::AtBarrier { since: now };
                    self.enter_barrier();
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn call(&mut self, gpu: usize, kind: CallKind) -> Ticket {
        let ticket = self.worlds[gpu].ticket();
        self.machine.clients[gpu].call(ticket, kind, self.machine.now);
        ticket
    }

    /// Counts one more GPU at the barrier. With the last one, all go on.
    fn enter_barrier(&mut self) {
        let machine = &mut self.machine;
        self.at_barrier += 1;
        if self.at_barrier < machine.clients.len() {
            return;
        }
        self.at_barrier = 0;
        for (gpu, client) in machine.clients.iter_mut().enumerate() {
            if let (Some(recorder), AppState::AtBarrier { since }) =
                (&mut machine.recorder, client.state)
            {
                recorder.left_barrier(gpu, since, machine.now);
            }
            client.leave_barrier(machine.now);
            machine.ready.push_back(gpu);
        }
    }

    /// Tells a plan an event, and then the events that follow from it at once.
    fn tell(&mut self, gpu: usize, event: Event) -> Result<()> {
        let world = &mut self.worlds[gpu];
        let now = self.machine.now;
        let mut executor = GpuExecutor {
            machine: &mut self.machine,
            gpu,
            events: VecDeque::from([event]),
            refused: Ok(()),
        };
        while let Some(event) = executor.events.pop_front() {
            self.events += 1;
            let told = world.tell(now, event, &mut executor);
            told.map_err(|misuse| Error::defect(gpu, misuse))?;
            if let Some(recorder) = &mut executor.machine.recorder {
                recorder.evicted(gpu, &world.plan_mut().take_evictions(), now);
            }
            if self.checks {
                let check = world.plan().check();
                check.map_err(|violation| Error::defect(gpu, violation))?;
            }
        }
        executor.refused
    }
}
