//! The plan's lock, and the queue of events for the thread that holds it.
//!
//! A caller that finds the lock free takes it, and hands its event to the plan. Any other caller queues its event, and the holder of the
//! lock hands all queued events to the plan together. With many callers, the lock is taken once for many events, and no thread sleeps for
//! the lock only to report something. Callers that the plan answered are woken once the lock is free again: waking a thread takes as long
//! as the decision that it waits for.

use super::call_table::{PendingAnswer, PlanState, Reply, Waiter, WakeList};
use super::core::EngineCore;
use super::job::Task;
use super::waits::WaitInfo;
use crate::blocked::{Cause, spend_on};
use crate::plan::{Event, Piece, Ticket};
use std::ops::{Deref, DerefMut};
use tierflow_sync::model::{
    MutexGuard, Ordering, Receiver, ReplySender, Sender, answer, fence, unbounded,
};
use tierflow_sync::rank;

/// Polls before a caller sleeps: about 8 µs. Sleeping and waking take 5 to 35 µs (virtual machine). Longer polls keep a core
/// from the thread that is to answer.
const LOOKS: u32 = if cfg!(shuttle) { 1 } else { 24 };

/// Time that a sleeping thread takes to wake, in ns. The plan's work after a call takes 20 to 200 µs on a processor whose caches are cold,
/// so a call whose copy took longer than this hands that work to a worker. Times mean nothing to a model: there, no call hands it on.
const WAKING_NS: u64 = if cfg!(shuttle) { u64::MAX } else { 35_000 };

/// An event, with the ticket and the waiter of the call if that waits for an answer.
#[derive(Debug)]
pub(super) struct QueuedEvent {
    pub(super) event: Event,
    pub(super) caller: Option<(Ticket, Waiter)>,
}

/// Events for the plan, which their threads queued while another thread held its lock.
#[derive(Debug)]
pub(super) struct EventQueue {
    sender: Sender<QueuedEvent>,
    receiver: Receiver<QueuedEvent>,
}

impl Default for EventQueue {
    fn default() -> Self {
        let (sender, receiver) = unbounded();
        Self { sender, receiver }
    }
}

impl EventQueue {
    fn put(&self, put: QueuedEvent) {
        // The queue has both ends, so a send cannot fail.
        let _ = self.sender.send(put);
    }

    fn is_empty(&self) -> bool {
        self.receiver.is_empty()
    }

    fn take(&self) -> Vec<QueuedEvent> {
        let there = 0..self.receiver.len();
        there.map_while(|_| self.receiver.try_recv().ok()).collect()
    }
}

/// The plan's lock, held. The plan has handled all events that were queued before. Fields are dropped in this order: the lock
/// opens, callers wake, and the events that were queued meanwhile are handled.
pub(crate) struct PlanGuard<'a> {
    core: MutexGuard<'a, PlanState, { rank::PLAN }>,
    woken: WakeList,
    _rest: DrainOnDrop<'a>,
}

struct DrainOnDrop<'a>(&'a EngineCore);

impl Drop for DrainOnDrop<'_> {
    fn drop(&mut self) {
        self.0.serve();
    }
}

impl Drop for PlanGuard<'_> {
    fn drop(&mut self) {
        self.woken = std::mem::take(&mut self.core.calls.woken);
    }
}

impl Deref for PlanGuard<'_> {
    type Target = PlanState;

    fn deref(&self) -> &PlanState {
        &self.core
    }
}

impl DerefMut for PlanGuard<'_> {
    fn deref_mut(&mut self) -> &mut PlanState {
        &mut self.core
    }
}

impl EngineCore {
    /// Locks the plan, once the lock is free, and hands it the queued events.
    pub(crate) fn lock(&self) -> PlanGuard<'_> {
        let core = match self.core.is_locked() {
            true => spend_on(Cause::Lock, || self.core.lock()),
            false => self.core.lock(),
        };
        self.held(core)
    }

    /// Locks the plan if the lock is free, and hands it the queued events.
    pub(super) fn try_lock(&self) -> Option<PlanGuard<'_>> {
        Some(self.held(self.core.try_lock()?))
    }

    fn held<'a>(&'a self, core: MutexGuard<'a, PlanState, { rank::PLAN }>) -> PlanGuard<'a> {
        let mut held = PlanGuard {
            core,
            woken: WakeList::default(),
            _rest: DrainOnDrop(self),
        };
        self.hear(&mut held);
        held
    }

    /// Tells the plan an event whose caller waits for no answer. The plan has handled it when it is asked next.
    pub(crate) fn tell(&self, event: Event) {
        self.tell_at(self.now_ns(), event);
    }

    /// As [`tell`](Self::tell), for an event that happened just now, at `at_ns`. Saves a reading of the clock, which takes some 60 ns.
    pub(crate) fn tell_at(&self, at_ns: u64, event: Event) {
        self.tell_with(at_ns, event, Vec::new());
    }

    /// As [`tell_at`](Self::tell_at), and gives a list of the plan back to it if the lock is free.
    fn tell_with(&self, at_ns: u64, event: Event, list: Vec<Piece>) {
        if let Some(mut core) = self.try_lock() {
            self.handle_all(&mut core, at_ns, [event]);
            return core.world.plan_mut().give_back(list);
        }
        let caller = None;
        self.events.put(QueuedEvent { event, caller });
        self.serve();
    }

    /// As [`tell_at`](Self::tell_at), for the end of a copy from or to these places that took `took_ns`. After a long copy, queues the
    /// event, and a worker hands it to the plan unless a call does so first. A call that asks the plan now may wait for this end, so then
    /// this thread does it.
    pub(crate) fn tell_copied(&self, at_ns: u64, took_ns: u64, event: Event, places: Vec<Piece>) {
        if took_ns < WAKING_NS {
            return self.tell_with(at_ns, event, places);
        }
        let planner = self.planner.lock();
        let Some(workers) = planner.as_ref() else {
            drop(planner);
            return self.tell_with(at_ns, event, places);
        };
        let caller = None;
        self.events.put(QueuedEvent { event, caller });
        fence(Ordering::SeqCst);
        if self.asking.load(Ordering::Relaxed) == 0 {
            // The workers receive tasks as long as this sender exists.
            let _ = workers.send(Task::Plan);
        } else {
            drop(planner);
            self.serve();
        }
    }

    /// Returns the number of a new call.
    pub(super) fn ticket(&self) -> Ticket {
        Ticket(self.tickets.fetch_add(1, Ordering::Relaxed))
    }

    /// Queues a question to the plan, whose lock another thread has. Looks for the answer for about 8 µs, and returns where it will appear.
    pub(super) fn put(
        &self,
        ticket: Ticket,
        event: Event,
        bytes: u64,
        may_wake: bool,
    ) -> PendingAnswer {
        let why = WaitInfo::of(&event, bytes);
        let (later, answering) = later(ticket, why, self.now_ns());
        let waiter = Waiter {
            answering,
            may_wake,
            why,
            since: 0,
            heard_ns: 0,
        };
        let caller = Some((ticket, waiter));
        self.events.put(QueuedEvent { event, caller });
        // A call that waits for flushes sleeps in any case.
        let looks = match later.why {
            Some(WaitInfo {
                cause: Cause::Flushes,
                ..
            }) => 0,
            _ => LOOKS,
        };
        for look in 0..=looks {
            if self.serve() || later.answer.is_there() {
                break;
            }
            (0..look).for_each(|_| std::hint::spin_loop());
        }
        later
    }

    /// Hands the queued events to the plan, unless another thread has the lock: that thread does so when it unlocks. Returns true if this
    /// thread handed some over.
    pub(super) fn serve(&self) -> bool {
        let mut is_heard = false;
        // Either the thread that queued an event finds the lock free, or the holder of the lock finds the event.
        fence(Ordering::SeqCst);
        while !self.events.is_empty() {
            let Some(mut core) = self.core.try_lock() else {
                break;
            };
            self.hear(&mut core);
            let woken = std::mem::take(&mut core.calls.woken);
            drop(core);
            drop(woken);
            is_heard = true;
            fence(Ordering::SeqCst);
        }
        is_heard
    }

    fn hear(&self, core: &mut PlanState) {
        core.calls.turn += 1;
        if self.events.is_empty() {
            return;
        }
        let put = self.events.take();
        let (since, heard_ns) = (core.calls.turn, self.now_ns());
        let mut events = Vec::with_capacity(put.len());
        for QueuedEvent { event, caller } in put {
            if let Some((ticket, waiter)) = caller {
                let waiter = Waiter {
                    since,
                    heard_ns,
                    ..waiter
                };
                core.calls.sleeping.insert(ticket, waiter);
            }
            events.push(event);
        }
        self.handle_all(core, heard_ns, events);
    }
}

/// Returns the end that receives the answer to a question of this moment, and the end that sends it.
pub(super) fn later(
    ticket: Ticket,
    why: Option<WaitInfo>,
    since_ns: u64,
) -> (PendingAnswer, ReplySender<Reply>) {
    let (answering, answer) = answer();
    let later = PendingAnswer {
        ticket,
        answer,
        why,
        since_ns,
    };
    (later, answering)
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::{Ordering, WAKING_NS, unbounded};
    use crate::plan::Event;
    use crate::{Engine, Tier};
    use std::time::{Duration, Instant};
    use tierflow_device::{Choice, open};

    #[test]
    fn a_worker_has_the_plan_hear_of_the_end_of_a_long_copy() {
        let device = open(Choice::Host).unwrap();
        let engine = Engine::builder(&device).device_cache(1 << 20);
        let engine = engine.tier(Tier::host(1 << 20)).build().unwrap();
        let shared = &engine.shared;
        let hint = || Event::Hint { versions: vec![7] };
        // Nobody else takes the lock.
        shared.tell_copied(shared.now_ns(), WAKING_NS, hint(), Vec::new());
        let since = Instant::now();
        while !shared.events.is_empty() && since.elapsed() < Duration::from_secs(10) {
            std::thread::yield_now();
        }
        assert!(shared.events.is_empty());
        assert_eq!(shared.lock().plan().hinted().count(), 1);
    }

    #[test]
    fn a_call_that_waits_for_the_end_of_a_copy_waits_for_no_worker() {
        let device = open(Choice::Host).unwrap();
        let engine = Engine::builder(&device).device_cache(1 << 20);
        let engine = engine.tier(Tier::host(1 << 20)).build().unwrap();
        let shared = &engine.shared;
        // A call asks, and the workers are gone.
        shared.asking.fetch_add(1, Ordering::Relaxed);
        let workers = shared.planner.lock().take().unwrap();
        let (deaf, _nobody) = unbounded();
        *shared.planner.lock() = Some(deaf);
        let versions = vec![7];
        let hint = Event::Hint { versions };
        shared.tell_copied(shared.now_ns(), WAKING_NS, hint, Vec::new());
        assert!(shared.events.is_empty());
        shared.asking.fetch_sub(1, Ordering::Relaxed);
        *shared.planner.lock() = Some(workers);
    }
}
