//! The plan's lock, and the way of events to who holds it.
//!
//! A caller that finds the lock open hands its event on itself. The others leave theirs where the holder of the lock finds them, who
//! hands all that came meanwhile to the plan together: with many callers the lock is taken once for many of them, and no thread
//! sleeps for it that only has something to tell. Callers that the plan answers are woken once the lock is open again: to wake a
//! thread takes as long as to decide what it waits for.

use super::core::Shared;
use super::desk::{Caller, Core, Later, Told, Woken};
use super::recorder::{Stall, Stalled};
use super::sync::{Answering, MutexGuard, Ordering, Receiver, Sender, answer, fence, unbounded};
use crate::plan::{Event, Ticket};
use std::ops::{Deref, DerefMut};

/// How often a caller looks for its answer, or for the lock, before it sleeps: for 8 µs in all, of the 5 to 35 that it
/// takes to sleep and to be woken (both measured on a virtual machine). Who looks longer keeps a core from who is to answer.
const LOOKS: u32 = if cfg!(shuttle) { 1 } else { 24 };

/// An event, and who waits for the answer.
#[derive(Debug)]
pub(super) struct Put {
    pub(super) event: Event,
    pub(super) caller: Option<(Ticket, Answering<Told>)>,
}

/// Events that the plan has not heard of yet.
#[derive(Debug)]
pub(super) struct Tray {
    sender: Sender<Put>,
    receiver: Receiver<Put>,
}

impl Default for Tray {
    fn default() -> Self {
        let (sender, receiver) = unbounded();
        Self { sender, receiver }
    }
}

impl Tray {
    fn put(&self, put: Put) {
        // Both ends are here.
        let _ = self.sender.send(put);
    }

    fn is_empty(&self) -> bool {
        self.receiver.is_empty()
    }

    fn take(&self) -> Vec<Put> {
        let there = 0..self.receiver.len();
        there.map_while(|_| self.receiver.try_recv().ok()).collect()
    }
}

/// The lock, held: the plan has heard of all that was put before. Its fields are dropped in this order: the lock opens, callers are
/// woken, and what was put meanwhile is heard.
pub(crate) struct Locked<'a> {
    core: MutexGuard<'a, Core>,
    woken: Woken,
    _rest: Rest<'a>,
}

struct Rest<'a>(&'a Shared);

impl Drop for Rest<'_> {
    fn drop(&mut self) {
        self.0.serve();
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        self.woken = std::mem::take(&mut self.core.desk.woken);
    }
}

impl Deref for Locked<'_> {
    type Target = Core;

    fn deref(&self) -> &Core {
        &self.core
    }
}

impl DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut Core {
        &mut self.core
    }
}

impl Shared {
    /// Waits for the lock.
    pub(crate) fn lock(&self) -> Locked<'_> {
        self.held(self.core.lock())
    }

    /// The lock, if it is open.
    pub(super) fn try_lock(&self) -> Option<Locked<'_>> {
        Some(self.held(self.core.try_lock()?))
    }

    fn held<'a>(&'a self, core: MutexGuard<'a, Core>) -> Locked<'a> {
        let mut held = Locked {
            core,
            woken: Woken::default(),
            _rest: Rest(self),
        };
        self.hear(&mut held);
        held
    }

    /// Tells the plan something whose caller waits for no answer. The plan has heard of it when it is asked next.
    pub(crate) fn tell(&self, event: Event) {
        if let Some(mut core) = self.try_lock() {
            return self.handle(&mut core, event);
        }
        let caller = None;
        self.tray.put(Put { event, caller });
        self.serve();
    }

    /// The number of a call.
    pub(super) fn ticket(&self) -> Ticket {
        Ticket(self.tickets.fetch_add(1, Ordering::Relaxed))
    }

    /// Puts a question to the plan, whose lock another thread has.
    pub(super) fn put(&self, ticket: Ticket, event: Event) -> Later {
        let (later, answering) = later(ticket, Stall::of(&event));
        let caller = Some((ticket, answering));
        self.tray.put(Put { event, caller });
        // Who waits for flushes sleeps in any case.
        let looks = match later.why {
            Some((Stall::Flushes, ..)) => 0,
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

    /// Has the plan hear of what was put, unless another thread has the lock, which does so before it is free. Returns whether it did.
    fn serve(&self) -> bool {
        let mut is_heard = false;
        // Who put something sees the lock taken, or who has it sees what was put.
        fence(Ordering::SeqCst);
        while !self.tray.is_empty() {
            let Some(mut core) = self.core.try_lock() else {
                break;
            };
            self.hear(&mut core);
            let woken = std::mem::take(&mut core.desk.woken);
            drop(core);
            drop(woken);
            is_heard = true;
            fence(Ordering::SeqCst);
        }
        is_heard
    }

    fn hear(&self, core: &mut Core) {
        core.desk.turn += 1;
        if self.tray.is_empty() {
            return;
        }
        let put = self.tray.take();
        let since = core.desk.turn;
        let mut events = Vec::with_capacity(put.len());
        for Put { event, caller } in put {
            if let Some((ticket, answering)) = caller {
                let caller = Caller { answering, since };
                core.desk.sleeping.insert(ticket, caller);
            }
            events.push(event);
        }
        self.handle_all(core, events);
    }
}

/// Where the answer to a question will appear, and the end that sends it.
pub(super) fn later(ticket: Ticket, why: Option<Stalled>) -> (Later, Answering<Told>) {
    let (answering, answer) = answer();
    let later = Later {
        ticket,
        answer,
        why,
    };
    (later, answering)
}
