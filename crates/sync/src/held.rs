//! The ranks that a thread holds, in builds with debug assertions. Shuttle runs all its threads on one, so nothing is checked
//! there.

#[cfg(all(debug_assertions, not(shuttle)))]
use std::{cell::RefCell, panic::Location};

#[cfg(all(debug_assertions, not(shuttle)))]
thread_local! {
    /// The ranks that this thread holds, each with the place where it was locked.
    static HELD: RefCell<Vec<(u8, &'static Location<'static>)>> = const { RefCell::new(Vec::new()) };
}

/// A rank that the current thread holds until this is dropped.
#[derive(Debug)]
pub(crate) struct HeldRank<const RANK: u8>(());

impl<const RANK: u8> HeldRank<RANK> {
    /// Records that the thread holds the rank. Called before a lock that may wait.
    ///
    /// # Panics
    /// With debug assertions, if the thread holds this rank or a higher one.
    #[track_caller]
    #[inline(always)]
    pub(crate) fn in_order() -> Self {
        #[cfg(all(debug_assertions, not(shuttle)))]
        check(RANK);
        Self::tried()
    }

    /// Records that the thread holds the rank, without a check of the order: an attempt that does not wait cannot be part of a
    /// deadlock.
    #[track_caller]
    #[inline(always)]
    pub(crate) fn tried() -> Self {
        #[cfg(all(debug_assertions, not(shuttle)))]
        {
            let entry = (RANK, Location::caller());
            // At the end of a thread its list may be destroyed already.
            let _or_gone = HELD.try_with(|held| held.borrow_mut().push(entry));
        }
        Self(())
    }
}

#[cfg(all(debug_assertions, not(shuttle)))]
impl<const RANK: u8> Drop for HeldRank<RANK> {
    fn drop(&mut self) {
        let _or_gone = HELD.try_with(|held| {
            let mut held = held.borrow_mut();
            if let Some(at) = held.iter().rposition(|(rank, _)| *rank == RANK) {
                held.remove(at);
            }
        });
    }
}

#[cfg(all(debug_assertions, not(shuttle)))]
#[track_caller]
#[allow(clippy::panic)]
fn check(rank: u8) {
    let highest = HELD.try_with(|held| held.borrow().iter().max_by_key(|(rank, _)| *rank).copied());
    if let Ok(Some((above, at))) = highest
        && above >= rank
        && !std::thread::panicking()
    {
        panic!("a lock of rank {rank} is taken by a thread that locked rank {above} at {at}");
    }
}

/// Panics if the thread waits with the plan's lock held: every call of the engine would wait, too.
///
/// # Panics
/// With debug assertions, if the thread holds the plan's lock.
#[track_caller]
#[inline(always)]
pub(crate) fn may_wait() {
    #[cfg(all(debug_assertions, not(shuttle)))]
    {
        let plan = |held: &RefCell<Vec<(u8, &'static Location<'static>)>>| {
            let held = held.borrow();
            held.iter()
                .find(|(rank, _)| *rank == crate::rank::PLAN)
                .copied()
        };
        if let Ok(Some((_, at))) = HELD.try_with(plan)
            && !std::thread::panicking()
        {
            wait_under_plan(at);
        }
    }
}

#[cfg(all(debug_assertions, not(shuttle)))]
#[track_caller]
#[allow(clippy::panic)]
fn wait_under_plan(at: &Location<'_>) {
    panic!("a thread waits that locked the plan at {at}");
}
