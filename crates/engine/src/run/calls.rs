//! Calls to the plan that may have to wait: until they are answered, or no longer than their callers want.

use super::core::{Answer, Clerk, Core, Later, Shared};
use super::job::Task;
use super::recorder::Stall;
use super::sync::{JoinHandle, Receiver, Sender, bounded};
use super::worker::Direction;
use crate::Version;
use crate::plan::{Event, Ticket, TierId, World};
use std::time::{Duration, Instant};

impl Shared {
    /// Asks the plan and sleeps until it answers, or until the deadline: there is no answer then. The ticket names the call
    /// in the report that follows.
    pub(crate) fn ask(
        &self,
        deadline: Option<Instant>,
        event: impl FnOnce(Ticket) -> Event,
    ) -> (Ticket, Option<Answer>) {
        let (ticket, answer) = self.put(event);
        let answer = match answer {
            Ok(answer) => Some(answer),
            Err(later) => self.sleep(ticket, &later, deadline),
        };
        (ticket, answer)
    }

    /// Waits until a version has reached the lowest tier, is gone, or cannot get there, or until the deadline.
    pub(crate) fn ask_about(&self, version: Version, deadline: Option<Instant>) -> Option<Answer> {
        let (ticket, later) = {
            let mut core = self.core.lock();
            if core.is_over(version) {
                return Some(Answer::Done(Ok(())));
            }
            // What failed is tried again by this, too.
            let (ticket, answer) = self.put_in(&mut core, |ticket| Event::Wait { ticket });
            match answer {
                Ok(answer) => return Some(answer),
                Err(later) => {
                    core.desk.awaited.push((version, ticket));
                    (ticket, later)
                }
            }
        };
        self.sleep(ticket, &later, deadline)
    }

    pub(super) fn sleep(
        &self,
        ticket: Ticket,
        (later, why): &Later,
        deadline: Option<Instant>,
    ) -> Option<Answer> {
        let begun = Instant::now();
        let answer = match deadline {
            // The sender lives in `sleeping` until it has sent: without one, nobody will answer.
            None => later.recv().ok(),
            Some(deadline) => later.recv_deadline(deadline).ok(),
        };
        self.recorder.slept(*why, begun);
        match answer {
            None => self.give_up(ticket, later),
            answer => answer,
        }
    }

    /// The workers that carry into a tier from above, or out of it upwards.
    pub(super) fn crew(&self, direction: Direction, tier: TierId) -> Option<Sender<Task>> {
        let core = self.core.lock();
        core.desk.queues.get(&(direction, tier.0)).cloned()
    }

    /// The threads that are left to themselves end with the engine, if they can.
    pub(super) fn keep_thread(&self, thread: JoinHandle<()>) {
        let mut detached = self.detached.lock();
        detached.retain(|thread| !thread.is_finished());
        detached.push(thread);
    }

    /// Those that are not over.
    pub(crate) fn take_threads(&self) -> Vec<JoinHandle<()>> {
        std::mem::take(&mut self.detached.lock())
    }

    /// The caller waits no longer: its answer, if it came at the last moment.
    fn give_up(&self, ticket: Ticket, later: &Receiver<Answer>) -> Option<Answer> {
        let mut core = self.core.lock();
        core.desk.sleeping.remove(&ticket);
        if let Ok(answer) = later.recv_timeout(Duration::ZERO) {
            return Some(answer);
        }
        self.handle(&mut core, Event::Abandon { ticket }, None);
        None
    }

    /// Puts a question to the plan: its answer, or where that will appear and why not at once.
    fn put(&self, event: impl FnOnce(Ticket) -> Event) -> (Ticket, Result<Answer, Later>) {
        self.put_in(&mut self.core.lock(), event)
    }

    pub(super) fn put_in(
        &self,
        core: &mut Core,
        event: impl FnOnce(Ticket) -> Event,
    ) -> (Ticket, Result<Answer, Later>) {
        let ticket = core.world.ticket();
        let event = event(ticket);
        let why = Stall::of(&event);
        let answer = match self.handle(core, event, Some(ticket)) {
            Some(answer) => Ok(answer),
            None => {
                let (sender, receiver) = bounded(1);
                core.desk.sleeping.insert(ticket, sender);
                Err((receiver, why))
            }
        };
        (ticket, answer)
    }
}

impl Clerk<'_> {
    /// Answers those of whose versions nothing more is to be waited for; the plan would let them wait for the others, too.
    pub(super) fn tell_those_who_await(&mut self, now: u64, world: &mut World) {
        let mut at = 0;
        while let Some((version, ticket)) = self.desk.awaited.get(at).copied() {
            let plan = world.plan();
            let is_over = plan.is_settled(version) || plan.size_of(version).is_none();
            let is_told = !self.desk.sleeping.contains_key(&ticket);
            if !is_over && !is_told {
                at += 1;
                continue;
            }
            self.desk.awaited.swap_remove(at);
            if !is_told {
                self.tell(ticket, Answer::Done(Ok(())));
                let abandoned = world.tell(now, Event::Abandon { ticket }, self);
                debug_assert_eq!(abandoned, Ok(()), "it was not answered");
            }
        }
    }
}
