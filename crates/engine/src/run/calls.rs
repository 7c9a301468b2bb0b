//! Calls to the plan that may have to wait for its answer: until it comes, or as long as their callers want.

use super::call_table::{Answer, Grant, PendingAnswer, PlanState, Reply, Waiter};
use super::core::EngineCore;
use super::job::{Direction, Task};
use super::plan_lock::{PlanGuard, later};
use super::waits::WaitInfo;
use crate::Version;
use crate::blocked::{Cause, spend};
use crate::deadline::Deadline;
use crate::plan::{Event, Ticket, TierId};
use std::ops::Range;
use tierflow_plan::timeline::What;
use tierflow_sync::model::{AtomicUsize, JoinHandle, Ordering, Sender, fence};

/// Hints that the plan takes in at a time, while other calls wait. Each costs some 0.2 to 1.8 µs, so all take about a tenth of a
/// millisecond.
const HINTS: usize = 64;

impl EngineCore {
    /// Tells the plan that these versions will be restored, in this order, after those hinted before.
    pub(crate) fn hint(&self, versions: &[Version]) {
        let event = |versions| Event::Hint { versions };
        self.hint_pieces(versions.len(), versions.chunks(HINTS), event);
    }

    /// Tells the plan that these versions will be restored, in this order, before those hinted before.
    pub(crate) fn hint_next(&self, versions: &[Version]) {
        let event = |versions| Event::HintNext { versions };
        self.hint_pieces(versions.len(), versions.rchunks(HINTS), event);
    }

    fn hint_pieces<'a>(
        &self,
        count: usize,
        pieces: impl Iterator<Item = &'a [Version]>,
        event: impl Fn(Vec<Version>) -> Event,
    ) {
        self.hinted.fetch_add(count as u64, Ordering::Relaxed);
        // Lists that several threads hand over do not mix.
        let _one_list = self.hinting.lock();
        for piece in pieces {
            // Each piece is handed to the plan under a lock of its own. Queued events are handed over all at once under one lock,
            // so a long list would keep another caller waiting.
            let mut core = self.lock();
            self.handle(&mut core, event(piece.to_vec()));
        }
    }

    /// Withdraws the hints of these versions; `None` withdraws all.
    pub(crate) fn forget_hints(&self, versions: Option<&[Version]>) {
        let _one_list = self.hinting.lock();
        if let Some(versions) = versions {
            for piece in versions.chunks(HINTS) {
                let versions = piece.to_vec();
                self.tell(Event::ForgetHints { versions });
            }
            return;
        }
        loop {
            let versions: Vec<_> = self.lock().plan().hinted().take(HINTS).collect();
            if versions.is_empty() {
                return;
            }
            self.tell(Event::ForgetHints { versions });
        }
    }

    /// Returns `count` consecutive numbers above all that versions have or had, that hints name, and that were reserved before. `None` if
    /// so many are not left.
    pub(crate) fn reserve(&self, count: u64) -> Option<Range<Version>> {
        let mut reserved = self.reserved.lock();
        let first = self.lock().plan().unused()?.max(*reserved);
        *reserved = first.checked_add(count)?;
        Some(first..*reserved)
    }

    /// Asks the plan, just now, at `at_ns`, about a version of `bytes` bytes. Sleeps until the plan answers, or until the deadline: there
    /// is no answer then. The ticket names the call in the report that follows. `core`: the plan's lock, if the caller has it.
    pub(crate) fn ask(
        &self,
        core: Option<PlanGuard<'_>>,
        at_ns: u64,
        bytes: u64,
        deadline: Deadline<'_>,
        event: impl FnOnce(Ticket) -> Event,
    ) -> (Ticket, Option<Answer>) {
        let _asks = AskGuard::new(&self.asking);
        let ticket = self.ticket();
        let event = event(ticket);
        let may_wake = !deadline.has_interrupt();
        let later = match core.or_else(|| self.try_lock()) {
            Some(mut core) => match self.ask_in(&mut core, at_ns, ticket, event, bytes, may_wake) {
                Ok(answer) => return (ticket, Some(answer)),
                Err(later) => later,
            },
            None => self.put(ticket, event, bytes, may_wake),
        };
        (ticket, self.hear_answer(&later, deadline))
    }

    /// Asks the plan, whose lock this thread has. Returns the answer, or the end that will receive it. `may_wake`: see
    /// [`Waiter::may_wake`].
    pub(super) fn ask_in(
        &self,
        core: &mut PlanState,
        since_ns: u64,
        ticket: Ticket,
        event: Event,
        bytes: u64,
        may_wake: bool,
    ) -> Result<Answer, PendingAnswer> {
        let why = WaitInfo::of(&event, bytes);
        core.calls.own = Some((ticket, None));
        self.handle_all(core, since_ns, [event]);
        if let Some((_, Some(answer))) = core.calls.own.take() {
            return Ok(answer);
        }
        let (later, answering) = later(ticket, why, since_ns);
        // Turns are counted from 1, so no answer counts as one that was given in the caller's own turn.
        let caller = Waiter {
            answering,
            may_wake,
            why,
            since: 0,
            heard_ns: since_ns,
        };
        core.calls.sleeping.insert(ticket, caller);
        Err(later)
    }

    /// Sleeps until the answer comes, or until the deadline. The call keeps its place while its caller looks for interruptions.
    pub(super) fn hear_answer(
        &self,
        later: &PendingAnswer,
        deadline: Deadline<'_>,
    ) -> Option<Answer> {
        // The sender exists until it has sent. If it is gone without an answer, none will come.
        let (told, until_ns) = loop {
            match later.answer.recv(deadline.next_look()) {
                None if !later.answer.is_there() && self.goes_on(later, deadline) => {}
                // `give_up` charges its own wait for the lock, so the call's wait ends here.
                None => {
                    let until_ns = self.now_ns();
                    break (self.give_up(later), until_ns);
                }
                told => break (told, self.now_ns()),
            }
        };
        let Some(told) = told else {
            self.slept(later, later.since_ns, until_ns, None);
            return None;
        };
        // The plan may have heard of a suspension, and answered it, before the caller waits for it.
        let heard_ns = told.heard_ns.max(later.since_ns);
        let answered_ns = told.answered_ns.clamp(heard_ns, until_ns.max(heard_ns));
        spend(Cause::Lock, heard_ns - later.since_ns);
        if !told.at_once {
            self.slept(later, heard_ns, answered_ns, told.ended_by);
        }
        spend(Cause::WakeUp, until_ns.saturating_sub(answered_ns));
        drop(told.others);
        Some(told.answer)
    }

    /// Returns true if a call waits on. The interrupt of the deadline is the application's: if it panics, the call leaves the plan first.
    fn goes_on(&self, later: &PendingAnswer, deadline: Deadline<'_>) -> bool {
        let mut leave = LeaveOnPanic {
            shared: self,
            later,
            is_due: true,
        };
        let goes_on = deadline.goes_on();
        leave.is_due = false;
        goes_on
    }

    /// Records that a call slept for the plan's answer.
    fn slept(&self, later: &PendingAnswer, since_ns: u64, until_ns: u64, ended_by: Option<u64>) {
        let Some(why) = later.why else {
            return;
        };
        spend(why.cause, until_ns - since_ns);
        let what = What {
            name: why.cause.name(),
            version: why.version,
            bytes: why.bytes,
            flow: ended_by,
        };
        self.recorder.called(what, since_ns, until_ns);
    }

    /// Returns the queue of the workers that copy into a tier from above, or out of it upwards.
    pub(super) fn link_queue(&self, direction: Direction, tier: TierId) -> Option<Sender<Task>> {
        let core = self.lock();
        core.calls.links.queues.get(&(direction, tier.0)).cloned()
    }

    /// Keeps a thread until the end of the engine, which waits for it. A thread that starts another one keeps that before it ends.
    pub(crate) fn keep_thread(&self, thread: JoinHandle<()>) {
        let mut detached = self.detached.lock();
        detached.retain(|thread| !thread.is_finished());
        detached.push(thread);
    }

    /// Takes the kept threads.
    pub(crate) fn take_threads(&self) -> Vec<JoinHandle<()>> {
        std::mem::take(&mut self.detached.lock())
    }

    /// Ends the caller's wait. Returns the answer if one came at the last moment.
    fn give_up(&self, later: &PendingAnswer) -> Option<Reply> {
        let mut core = self.lock();
        if core.calls.sleeping.remove(&later.ticket).is_none() {
            // The answer was sent already. The reply arrives once the callers that were answered before are woken.
            drop(core);
            return later.answer.recv(None);
        }
        let ticket = later.ticket;
        self.handle(&mut core, Event::Abandon { ticket });
        None
    }
}

/// Counts a call that asks the plan. Meanwhile, no end of a copy is left to a worker: the call may wait for that end.
struct AskGuard<'a>(&'a AtomicUsize);

impl<'a> AskGuard<'a> {
    fn new(asking: &'a AtomicUsize) -> Self {
        asking.fetch_add(1, Ordering::Relaxed);
        // Either the call sees an event that was queued before, or the thread that queues it sees the call.
        fence(Ordering::SeqCst);
        Self(asking)
    }
}

impl Drop for AskGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Takes a call out of the plan when it is dropped while `is_due`, as by a panic.
struct LeaveOnPanic<'a> {
    shared: &'a EngineCore,
    later: &'a PendingAnswer,
    is_due: bool,
}

impl Drop for LeaveOnPanic<'_> {
    fn drop(&mut self) {
        let told = self.is_due.then(|| self.shared.give_up(self.later));
        let Some(Some(Reply {
            answer: Answer::Copy(Grant { pieces, .. }),
            ..
        })) = told
        else {
            return;
        };
        // The plan had granted the places already, and is told that nothing is copied.
        let ticket = self.later.ticket;
        let ok = false;
        match self.later.why.map(|why| (why.cause, why.version)) {
            Some((Cause::Room, Some(version))) => {
                self.shared.end_write(version, &pieces, true);
                self.shared.tell(Event::Written { ticket, ok });
            }
            _ => self.shared.tell(Event::Read { ticket, ok }),
        }
    }
}

impl std::fmt::Debug for EngineCore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EngineCore")
            .field("device", &self.device)
            .field("tiers", &self.tiers)
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use crate::{Cause, Engine, Region, RegionMut};
    use std::time::Duration;
    use tierflow_device::{Choice, open};

    /// A checkpoint queues its event for the thread that has the lock; a restore waits for the lock itself.
    #[test]
    fn a_wait_for_the_lock_has_its_name() {
        let device = open(Choice::Host).unwrap();
        let engine = Engine::builder(&device).host_cache(1 << 20);
        let engine = engine.build().unwrap();
        let checkpoint = |version| {
            let regions = [Region::from(&[1_u8; 100][..])];
            engine.checkpoint(version, &regions).unwrap();
        };
        let restore = |version| {
            let mut bytes = [0_u8; 100];
            let mut regions = [RegionMut::from(&mut bytes[..])];
            engine.restore(version, &mut regions).unwrap();
        };
        let calls: [&(dyn Fn(u64) + Sync); 2] = [&checkpoint, &restore];
        for call in calls {
            let before = engine.metrics().times(Cause::Lock).count;
            // A thread may begin after the lock is free again.
            let waited = (0..100).find(|&version| {
                std::thread::scope(|scope| {
                    let held = engine.shared.lock();
                    scope.spawn(move || call(version));
                    std::thread::sleep(Duration::from_millis(50));
                    drop(held);
                });
                engine.metrics().times(Cause::Lock).count > before
            });
            assert!(waited.is_some(), "{}", engine.metrics());
        }
    }

    #[test]
    fn an_end_forgets_the_hints_of_versions_that_are_held_alone() {
        let device = open(Choice::Host).unwrap();
        let engine = Engine::builder(&device).host_cache(1 << 20);
        let engine = engine.build().unwrap();
        engine.hint(0..10_000);
        let regions = [Region::from(&[1_u8; 100][..])];
        engine.checkpoint(5, &regions).unwrap();
        engine.shared.clear_up();
        let hinted: Vec<_> = engine.shared.lock().plan().hinted().collect();
        assert_eq!(hinted.len(), 9_999);
        assert!(!hinted.contains(&5));
    }

    #[test]
    fn no_caller_takes_in_anothers_whole_list_of_hints() {
        let device = open(Choice::Host).unwrap();
        let engine = Engine::builder(&device).host_cache(1 << 20);
        let engine = engine.build().unwrap();
        std::thread::scope(|scope| {
            let held = engine.shared.core.lock();
            let hinting = scope.spawn(|| engine.hint(0..10_000));
            // A list that was queued for the holder of the lock would be over by now.
            std::thread::sleep(Duration::from_millis(500));
            assert!(!hinting.is_finished());
            drop(held);
        });
        assert!(engine.shared.lock().plan().hinted().next().is_some());
    }
}
