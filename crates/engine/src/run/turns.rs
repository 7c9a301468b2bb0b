//! Versions become durable in the order of their numbers: each is published when all smaller ones are that were on their way.

use super::sync::{Mutex, sleep};
use crate::Version;
use std::collections::BTreeSet;
use std::time::Duration;
use tierflow_store::{Error, Result};

/// Pauses between looks at those that come before.
const PAUSES: [Duration; 2] = [Duration::from_micros(20), Duration::from_millis(1)];

/// The versions on their way into one tier. The plan sends them in the order in which they were taken in, and sends what
/// failed again before anything that came later.
#[derive(Debug, Default)]
pub(super) struct Turns(Mutex<Coming>);

#[derive(Debug, Default)]
struct Coming {
    under_way: BTreeSet<Version>,
    /// Those that failed while others were under way.
    failed: BTreeSet<Version>,
    is_closed: bool,
}

impl Turns {
    /// A version was sent on its way.
    pub(super) fn expect(&self, version: Version) {
        let mut coming = self.0.lock();
        if coming.under_way.is_empty() {
            coming.failed.clear();
        }
        coming.failed.remove(&version);
        coming.under_way.insert(version);
    }

    /// It arrived, is not wanted any more, or failed and will be sent again.
    pub(super) fn end(&self, version: Version, has_failed: bool) {
        let mut coming = self.0.lock();
        let was_under_way = coming.under_way.remove(&version);
        if has_failed && was_under_way {
            coming.failed.insert(version);
        }
    }

    /// The engine ends: what is under way may never come, and nobody waits for it.
    pub(super) fn close(&self) {
        self.0.lock().is_closed = true;
    }

    /// Waits until nothing smaller is under way.
    pub(super) fn wait(&self, version: Version) -> Result<()> {
        let [mut pause, longest] = PAUSES;
        loop {
            {
                let coming = self.0.lock();
                if coming.is_closed {
                    return Err(Error::Cancelled);
                }
                if let Some(first) = coming.failed.range(..version).next() {
                    return Err(Error::OutOfTurn { first: *first });
                }
                if coming.under_way.range(..version).next().is_none() {
                    return Ok(());
                }
            }
            sleep(pause);
            pause = (pause * 2).min(longest);
        }
    }
}
