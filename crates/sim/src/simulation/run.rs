//! One run: what applications do, and what their plans are told.

use super::stage::{Hands, Stage, Wake};
use crate::client::{CallKind, Doing, Job};
use crate::outcome::Outcome;
use crate::workload::Op;
use crate::{Error, Result};
use std::collections::VecDeque;
use tierflow_plan::{Event, Ticket, World};

pub(super) struct Run<'a> {
    /// By GPU.
    worlds: Vec<World>,
    stage: Stage<'a>,
    at_barrier: usize,
    checks: bool,
    events: u64,
}

impl<'a> Run<'a> {
    pub(super) fn new(worlds: Vec<World>, stage: Stage<'a>, checks: bool) -> Self {
        Self {
            worlds,
            stage,
            at_barrier: 0,
            checks,
            events: 0,
        }
    }

    pub(super) fn run(mut self) -> Result<Outcome> {
        loop {
            while let Some(gpu) = self.stage.ready.pop_front() {
                self.go_on(gpu)?;
            }
            self.stage.share_links();
            let Some(now) = self.stage.next_moment() else {
                break;
            };
            self.stage.now = now;
            while let Some(wake) = self.stage.next_wake() {
                self.wake(wake)?;
            }
        }
        self.outcome()
    }

    fn outcome(self) -> Result<Outcome> {
        let mut clients = Vec::new();
        for (gpu, (mut client, world)) in
            self.stage.clients.into_iter().zip(self.worlds).enumerate()
        {
            if client.doing != Doing::Done {
                let reason = format!("nothing is under way, but {:?}", client.doing);
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

    fn wake(&mut self, wake: Wake) -> Result<()> {
        match wake {
            Wake::Computed(gpu) => {
                self.stage.clients[gpu].doing = Doing::Ready;
                self.stage.ready.push_back(gpu);
            }
            Wake::Begin(gpu, job) => self.stage.begin(gpu, job),
            Wake::Flows(group, shared) => {
                while let Some((gpu, job)) = self.stage.next_ended(group, shared) {
                    self.landed(gpu, job)?;
                }
            }
        }
        Ok(())
    }

    fn landed(&mut self, gpu: usize, job: Job) -> Result<()> {
        let Some(event) = self.stage.landed(gpu, job) else {
            return Ok(());
        };
        self.tell(gpu, event)?;
        if matches!(job, Job::Call(..)) {
            self.stage.returned(gpu);
        }
        Ok(())
    }

    /// The application's ops, until one takes time.
    fn go_on(&mut self, gpu: usize) -> Result<()> {
        let now = self.stage.now;
        while self.stage.clients[gpu].doing == Doing::Ready {
            let client = &mut self.stage.clients[gpu];
            let Some(op) = client.next_op() else {
                client.doing = Doing::Done;
                client.outcome.elapsed_ns = now;
                return Ok(());
            };
            match *op {
                Op::Compute(0) => {}
                Op::Compute(ns) => {
                    client.doing = Doing::Computing;
                    self.stage.at(now.saturating_add(ns), Wake::Computed(gpu));
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
                    client.doing = Doing::AtBarrier { since: now };
                    self.meet();
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn call(&mut self, gpu: usize, kind: CallKind) -> Ticket {
        let ticket = self.worlds[gpu].ticket();
        self.stage.clients[gpu].call(ticket, kind, self.stage.now);
        ticket
    }

    /// One more GPU is at the barrier; the last one lets all go on.
    fn meet(&mut self) {
        let stage = &mut self.stage;
        self.at_barrier += 1;
        if self.at_barrier < stage.clients.len() {
            return;
        }
        self.at_barrier = 0;
        for (gpu, client) in stage.clients.iter_mut().enumerate() {
            if let (Some(recorder), Doing::AtBarrier { since }) =
                (&mut stage.recorder, client.doing)
            {
                recorder.left_barrier(gpu, since, stage.now);
            }
            client.leave_barrier(stage.now);
            stage.ready.push_back(gpu);
        }
    }

    /// Tells a plan what happened, and then what follows from it at once.
    fn tell(&mut self, gpu: usize, event: Event) -> Result<()> {
        let world = &mut self.worlds[gpu];
        let now = self.stage.now;
        let mut hands = Hands {
            stage: &mut self.stage,
            gpu,
            to_tell: VecDeque::from([event]),
            refused: Ok(()),
        };
        while let Some(event) = hands.to_tell.pop_front() {
            self.events += 1;
            let told = world.tell(now, event, &mut hands);
            told.map_err(|misuse| Error::defect(gpu, misuse))?;
            if let Some(recorder) = &mut hands.stage.recorder {
                recorder.evicted(gpu, &world.plan_mut().take_evictions(), now);
            }
            if self.checks {
                let check = world.plan().check();
                check.map_err(|violation| Error::defect(gpu, violation))?;
            }
        }
        hands.refused
    }
}
