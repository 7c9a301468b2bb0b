//! Work with storage for which a caller waits until a deadline. Such work has a thread to itself, and goes on beyond the deadline. Lookups
//! on storage are of no use beyond the deadline, so all lookups share one thread.

use super::core::EngineCore;
use crate::{Error, Result};
use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::Instant;
use tierflow_sync::model::{AtomicBool, Builder, Mutex, Ordering, bounded};

/// The state of the work.
enum Progress<T> {
    UnderWay,
    Over(T),
    /// The caller has left.
    GivenUp,
}

/// Runs `work` in a new thread. Returns the result if `work` is over before `deadline`. Else returns `None`, and sets the flag that `work`
/// was given, which asks it to stop; the thread calls `too_late` once `work` is over. The engine waits for the thread when it is dropped.
///
/// # Errors
/// The errors of `work`, and its panic as an error; [`Error::Thread`] if no thread can be started.
pub(crate) fn work_until<T: Send + 'static>(
    shared: &Arc<EngineCore>,
    deadline: Instant,
    work: impl FnOnce(&EngineCore, Arc<AtomicBool>) -> Result<T> + Send + 'static,
    too_late: impl FnOnce(&EngineCore) + Send + 'static,
) -> Result<Option<T>> {
    let outcome = Arc::new(Mutex::<_>::new(Progress::UnderWay));
    let (sender, over) = bounded(1);
    let (theirs, its) = (Arc::clone(shared), Arc::clone(&outcome));
    let stop = Arc::<AtomicBool>::default();
    let stopped_by = Arc::clone(&stop);
    let run = move || {
        let result = theirs.count_copy(|| work(&theirs, stopped_by)).flatten();
        let is_late = {
            let mut outcome = its.lock();
            let is_late = matches!(*outcome, Progress::GivenUp);
            if !is_late {
                *outcome = Progress::Over(result);
            }
            is_late
        };
        match is_late {
            true => too_late(&theirs),
            // The caller that waits looks at `outcome`, whether or not this message arrives.
            false => drop(sender.send(())),
        }
    };
    let thread = Builder::new().name("tierflow-call".to_owned()).spawn(run);
    shared.keep_thread(thread.map_err(Error::Thread)?);
    let _in_time = over.recv_deadline(deadline);
    let mut outcome = outcome.lock();
    match std::mem::replace(&mut *outcome, Progress::GivenUp) {
        Progress::Over(result) => result.map(Some),
        Progress::UnderWay | Progress::GivenUp => {
            stop.store(true, Ordering::Relaxed);
            Ok(None)
        }
    }
}

/// Lookups for which callers wait, in their order.
#[derive(Default)]
pub(crate) struct Lookups {
    waiting: VecDeque<Lookup>,
    is_under_way: bool,
}

struct Lookup {
    /// A token that is gone once the caller has left.
    caller: Weak<()>,
    look: Box<dyn FnOnce(&EngineCore) + Send>,
}

impl std::fmt::Debug for Lookups {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lookups")
            .field("waiting", &self.waiting.len())
            .finish_non_exhaustive()
    }
}

/// Runs `work` in the thread of all lookups. Returns the result if `work` is over before `deadline`, else `None`. Work whose caller has
/// left is not begun.
///
/// # Errors
/// The errors of `work`, and its panic as an error; [`Error::Thread`] if no thread can be started.
pub(crate) fn look_until<T: Send + 'static>(
    shared: &Arc<EngineCore>,
    deadline: Instant,
    work: impl FnOnce(&EngineCore) -> Result<T> + Send + 'static,
) -> Result<Option<T>> {
    let (sender, found) = bounded(1);
    let caller = Arc::new(());
    let lookup = Lookup {
        caller: Arc::downgrade(&caller),
        look: Box::new(move |shared| {
            let result = shared.count_copy(|| work(shared)).flatten();
            // The caller may have left.
            drop(sender.send(result));
        }),
    };
    let theirs = Arc::clone(shared);
    let run = move || {
        while let Some(next) = theirs.next_lookup() {
            (next.look)(&theirs);
        }
    };
    let started = {
        // The lock is held while the thread starts: no other caller waits for a thread that does not come.
        let mut lookups = shared.lookups.lock();
        lookups
            .waiting
            .retain(|lookup| lookup.caller.strong_count() > 0);
        lookups.waiting.push_back(lookup);
        match std::mem::replace(&mut lookups.is_under_way, true) {
            true => None,
            false => {
                let thread = Builder::new().name("tierflow-look".to_owned()).spawn(run);
                lookups.is_under_way = thread.is_ok();
                Some(thread.map_err(Error::Thread)?)
            }
        }
    };
    if let Some(thread) = started {
        shared.keep_thread(thread);
    }
    found.recv_deadline(deadline).ok().transpose()
}

impl EngineCore {
    /// Takes the next lookup whose caller still waits.
    fn next_lookup(&self) -> Option<Lookup> {
        let mut lookups = self.lookups.lock();
        lookups
            .waiting
            .retain(|lookup| lookup.caller.strong_count() > 0);
        let next = lookups.waiting.pop_front();
        lookups.is_under_way = next.is_some();
        next
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;
    use crate::Engine;
    use std::time::Duration;
    use tierflow_device::{Choice, open};

    #[test]
    fn work_that_panics_is_an_error_and_ends() {
        let engine = Engine::builder(&open(Choice::Host).unwrap()).host_cache(1 << 20);
        let engine = engine.build().unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        let work = |_: &EngineCore, _| -> Result<()> { panic!("not today") };
        let done = work_until(&engine.shared, deadline, work, |_| {});
        let error = done.unwrap_err().to_string();
        assert!(error.contains("not today"), "{error}");
        for _ in 0..2 {
            let work = |_: &EngineCore| -> Result<()> { panic!("nor now") };
            let error = look_until(&engine.shared, deadline, work).unwrap_err();
            assert!(error.to_string().contains("nor now"), "{error}");
        }
        assert!(!engine.shared.is_copying());
    }
}
