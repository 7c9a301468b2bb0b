//! Memory that peers lend: what is wanted back, or whose lender is gone, is emptied by the plan first. What has a lower copy is
//! given up, the rest is flushed.

use super::{Bell, Lender, Notices, Shared, start as start_thread};
use crate::Result;
use crate::plan::TierId;
use crate::run::medium::Medium;
use crate::run::sync::JoinHandle;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;
use tierflow_peers::PeerCache;

struct Peers(Arc<PeerCache>);

/// Starts the thread that looks after the peer cache, if there is one.
pub(crate) fn start(shared: &Arc<Shared>) -> Result<Option<JoinHandle<()>>> {
    let mut caches = shared.tiers.iter().enumerate();
    let found = caches.find_map(|(tier, has)| match &has.medium {
        Medium::Peers(cache) => Some((TierId(tier), Arc::clone(cache))),
        _ => None,
    });
    let Some((tier, cache)) = found else {
        return Ok(None);
    };
    let usable = cache.usable() as u64;
    let join = |wake| {
        cache.wake_by(&wake);
        Peers(cache)
    };
    start_thread(shared, (tier, usable, 0), join, drop).map(Some)
}

impl Lender for Peers {
    fn wait(&mut self, bell: &Bell, limit: Option<Duration>) {
        let recalls = self.0.recalls();
        let recalls: Vec<_> = recalls.iter().map(AsFd::as_fd).collect();
        bell.wait(&recalls, limit);
    }

    fn terms(&mut self, _: &Shared, _: &Notices) -> Result<Option<u64>> {
        Ok(self.0.wanted().map(|bytes| bytes as u64))
    }

    fn grow(&mut self, _: &Shared, _: u64) -> Result<()> {
        Ok(())
    }

    fn take_back(&mut self, shared: &Shared, _: u64) -> Result<u64> {
        match self.0.give_back() {
            // A part could not be moved up, and is gone.
            Err(error) if self.0.wanted().is_none() => {
                shared.lock().desk.last_failure = Some(Arc::new(error.into()));
                Ok(self.0.usable() as u64)
            }
            given => Ok(given? as u64),
        }
    }
}
