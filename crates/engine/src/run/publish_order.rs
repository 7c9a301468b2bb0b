//! Versions become durable in the order of their numbers: a version is published once all smaller versions on their way are.

use crate::Version;
use std::collections::BTreeSet;
use std::sync::OnceLock;
use tierflow_store::{Error, Result};
use tierflow_sync::model::Monitor;
use tierflow_sync::rank;

/// Called for each version: with true if it begins to wait for smaller versions, and with false when its wait is over or need not begin.
pub(super) type OrderObserver = dyn Fn(Version, bool) + Send + Sync;

/// The versions on their way into one tier. The plan sends them in the order in which they were taken in, and sends a failed version again
/// before any that came later.
#[derive(Default)]
pub(super) struct PublishOrder {
    coming: Monitor<InFlight, { rank::DURABLE }>,
    hear: OnceLock<Box<OrderObserver>>,
}

impl std::fmt::Debug for PublishOrder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Turns").field(&self.coming).finish()
    }
}

#[derive(Debug, Default)]
struct InFlight {
    under_way: BTreeSet<Version>,
    /// Versions that failed while others were under way.
    failed: BTreeSet<Version>,
    is_closed: bool,
}

impl PublishOrder {
    /// Notes that a version was sent on its way.
    pub(super) fn expect(&self, version: Version) {
        let mut coming = self.coming.lock();
        if coming.under_way.is_empty() {
            coming.failed.clear();
        }
        coming.failed.remove(&version);
        coming.under_way.insert(version);
    }

    /// Ends a version's way: it arrived, is not wanted any more, or failed and will be sent again.
    pub(super) fn end(&self, version: Version, has_failed: bool) {
        self.coming.change(|coming| {
            let was_under_way = coming.under_way.remove(&version);
            if has_failed && was_under_way {
                coming.failed.insert(version);
            }
        });
    }

    /// Notes that a version was given up: if it failed, it is not sent again, and no other waits for it.
    pub(super) fn forget(&self, version: Version) {
        self.coming.lock().failed.remove(&version);
    }

    /// Ends all waits: the engine ends, and versions that are under way may never come.
    pub(super) fn close(&self) {
        self.coming.change(|coming| coming.is_closed = true);
    }

    /// Sets the observer of the versions that wait.
    pub(super) fn tell(&self, hear: Box<OrderObserver>) {
        // The first observer stays.
        let _told_before = self.hear.set(hear);
    }

    fn say(&self, version: Version, waits: bool) {
        if let Some(hear) = self.hear.get() {
            hear(version, waits);
        }
    }

    /// Waits until no smaller version is under way. Fails with [`Error::OutOfTurn`] if a smaller version failed, and with
    /// [`Error::Cancelled`] at the end of the engine.
    pub(super) fn wait(&self, version: Version) -> Result<()> {
        let waits = !self.coming.lock().is_next(version)?;
        self.say(version, waits);
        if !waits {
            return Ok(());
        }
        let waited = self.coming.wait(|coming| match coming.is_next(version) {
            Ok(false) => None,
            done => Some(done.map(drop)),
        });
        self.say(version, false);
        waited
    }
}

impl InFlight {
    /// Returns true if no smaller version is under way.
    fn is_next(&self, version: Version) -> Result<bool> {
        if self.is_closed {
            return Err(Error::Cancelled);
        }
        if let Some(first) = self.failed.range(..version).next() {
            return Err(Error::OutOfTurn { first: *first });
        }
        Ok(self.under_way.range(..version).next().is_none())
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;
    use std::sync::Arc;
    use tierflow_sync::model::Mutex;

    #[test]
    fn who_waits_says_so_and_everyone_when_its_turn_has_come() {
        let (turns, heard) = (
            Arc::new(PublishOrder::default()),
            Arc::new(Mutex::<_>::new(Vec::new())),
        );
        let hears = Arc::clone(&heard);
        turns.tell(Box::new(move |version, waits| {
            hears.lock().push((version, waits));
        }));
        (1..4).for_each(|version| turns.expect(version));
        turns.wait(1).unwrap();
        assert_eq!(*heard.lock(), [(1, false)]);
        let waits = std::thread::spawn({
            let turns = Arc::clone(&turns);
            move || turns.wait(2)
        });
        while heard.lock().len() < 2 {
            std::thread::yield_now();
        }
        turns.end(1, true);
        assert!(waits.join().unwrap().is_err());
        assert_eq!(*heard.lock(), [(1, false), (2, true), (2, false)]);
    }
}
