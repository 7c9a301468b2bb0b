//! Housekeeping: a thread gives up, and removes, versions that are not to be kept any more. No transfer and no call waits for it, and it
//! begins after the callers that wait for versions have them.

use super::core::EngineCore;
use crate::plan::{Event, TierId};
use crate::{Error, Result};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tierflow_store::guarded;
use tierflow_sync::model::{Builder, Monitor, sleep};

/// Longest time that housekeeping waits for callers that wait for versions. Callers that take turns would hold it up for ever.
const LONGEST_DELAY: Duration = Duration::from_secs(1);

/// Time between two looks for such callers.
const NAP: Duration = Duration::from_millis(2);

/// The requests for housekeeping.
#[derive(Debug, Default)]
pub(crate) struct Housekeeping {
    due: Monitor<Due>,
}

#[derive(Debug, Default)]
struct Due {
    is_due: bool,
    /// True if a version came to the lowest tier, so that an older one may go.
    is_of_lowest: bool,
    is_closed: bool,
}

impl Housekeeping {
    /// Requests housekeeping. A run meets all requests that came before it.
    fn ask(&self, is_of_lowest: bool) {
        let mut due = self.due.lock();
        let was_due = due.is_due;
        due.is_due = true;
        due.is_of_lowest |= is_of_lowest;
        drop(due);
        if !was_due {
            self.due.change(|_| ());
        }
    }

    /// Sleeps until housekeeping is requested. Returns true if a request was for the lowest tier; `None` at the end of the engine.
    fn next(&self) -> Option<bool> {
        self.due.wait(|due| {
            if due.is_closed {
                return Some(None);
            }
            let is_due = std::mem::take(&mut due.is_due);
            is_due.then(|| Some(std::mem::take(&mut due.is_of_lowest)))
        })
    }

    /// Ends the thread: the engine ends, and clears up itself.
    pub(super) fn close(&self) {
        self.due.change(|due| due.is_closed = true);
    }
}

/// Starts the thread, if some tier keeps versions under their numbers. [`Housekeeping::close`] ends it.
pub(crate) fn start(shared: &Arc<EngineCore>) -> Result<()> {
    if shared
        .tiers
        .iter()
        .all(|tier| tier.medium.durable().is_none())
    {
        return Ok(());
    }
    let housekeeping = Arc::clone(&shared.housekeeping);
    let theirs = Arc::downgrade(shared);
    let run = move || {
        while let Some(is_of_lowest) = housekeeping.next() {
            let Some(shared) = theirs.upgrade() else {
                return;
            };
            shared.let_waiters_go_first();
            let housekeep = || {
                shared.housekeep(is_of_lowest);
                Ok(())
            };
            if !shared.is_stopping()
                && let Err(panic) = guarded("removing versions that are given up", housekeep)
            {
                tracing::warn!("versions that were given up stay for now: {panic}");
            }
        }
    };
    let thread = Builder::new().name("tierflow-tidy".to_owned());
    shared.keep_thread(thread.spawn(run).map_err(Error::Thread)?);
    Ok(())
}

impl EngineCore {
    /// Requests housekeeping because a version came to `tier`, if that keeps versions under their numbers.
    pub(crate) fn have_housekept(&self, tier: TierId) {
        let this = self.tiers.get(tier.0);
        if this.is_some_and(|tier| tier.medium.durable().is_some()) {
            let lowest = self.tiers.len() - 1;
            self.housekeeping.ask(tier.0 == lowest);
        }
    }

    fn let_waiters_go_first(&self) {
        let begun = Instant::now();
        while begun.elapsed() < LONGEST_DELAY
            && !self.is_stopping()
            && self.lock().plan().is_waited_for()
        {
            sleep(NAP);
        }
    }

    /// Gives up versions that the lowest tier is not to keep any more, if `is_of_lowest`. Removes given-up copies.
    pub(super) fn housekeep(&self, is_of_lowest: bool) {
        let lowest = self.tiers.last().and_then(|tier| tier.medium.durable());
        if let Some(durable) = lowest.filter(|_| is_of_lowest) {
            let versions = durable.not_retained(|version| self.lock().plan().is_sound(version));
            if !versions.is_empty() {
                self.tell(Event::Prune { versions });
            }
        }
        let durable = self.tiers.iter().filter_map(|tier| tier.medium.durable());
        durable.for_each(|durable| durable.tidy());
        self.limit_to_room();
    }

    /// Tells the plan how many bytes of a limited tier its versions may have, if heads and copies that cannot be removed take clearly more
    /// or less than before.
    pub(super) fn limit_to_room(&self) {
        for (index, tier) in self.tiers.iter().enumerate() {
            let Some(durable) = tier.medium.durable().filter(|durable| durable.is_limited()) else {
                continue;
            };
            let state = self.lock().plan().statistics().tiers.get(index).copied();
            let Some((state, room)) = state.and_then(|s| Some((s, durable.room(s.used_bytes)?)))
            else {
                continue;
            };
            let bytes = room.min(state.capacity);
            if bytes.abs_diff(state.limit) > state.capacity / 256 {
                self.tell(Event::Limit {
                    tier: TierId(index),
                    bytes,
                });
            }
        }
    }
}
