//! Guests on peers: keeps the peer cache within what its peers still lend. A part that is wanted back, or whose lender is
//! gone, is emptied by the plan first: what has a lower copy is given up, the rest is flushed.

use super::core::Shared;
use super::medium::Medium;
use super::sync::{Builder, JoinHandle, Receiver, RecvTimeoutError, Sender, unbounded};
use crate::plan::{Event, Place, TierId};
use crate::{Error, Result};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tierflow_device::Access;
use tierflow_peers::PeerCache;

/// Between two looks at what peers want back: how long they wait until they are noticed.
const LOOK: Duration = Duration::from_millis(2);

/// The way from the plan to the keeper.
#[derive(Debug)]
pub(super) struct Link {
    tier: TierId,
    released: Sender<u64>,
}

impl Link {
    /// Nothing lies beyond the first `bytes` of a tier any more.
    pub(super) fn released(&self, tier: TierId, bytes: u64) {
        if tier == self.tier {
            // The keeper leaves only when the engine does.
            let _ = self.released.send(bytes);
        }
    }
}

/// Starts the thread that looks after the peer cache, if there is one. It ends when the engine's core lets go of its
/// [`Link`].
pub(crate) fn start(shared: &Arc<Shared>) -> Result<Option<JoinHandle<()>>> {
    let mut caches = shared.tiers.iter().enumerate();
    let found = caches.find_map(|(tier, has)| match &has.medium {
        Medium::Peers(cache) => Some((TierId(tier), Arc::clone(cache))),
        _ => None,
    });
    let Some((tier, cache)) = found else {
        return Ok(None);
    };
    let (sender, released) = unbounded();
    shared.core.lock().desk.guests = Some(Link {
        tier,
        released: sender,
    });
    let mut keeper = Keeper {
        shared: Arc::downgrade(shared),
        tier,
        limit: cache.usable() as u64,
        cache,
        stage: Stage::Lent,
    };
    let thread = Builder::new().name(String::from("tierflow-guests"));
    let thread = thread.spawn(move || keeper.run(&released));
    thread.map(Some).map_err(Error::Thread)
}

/// What becomes of the bytes beyond the limit.
#[derive(Debug, PartialEq, Eq)]
enum Stage {
    /// There are none.
    Lent,
    /// The plan empties them.
    Leaving,
    /// They are empty, and are to be given back.
    Left,
}

struct Keeper {
    shared: Weak<Shared>,
    tier: TierId,
    cache: Arc<PeerCache>,
    /// What the plan was told last.
    limit: u64,
    stage: Stage,
}

impl Keeper {
    fn run(&mut self, released: &Receiver<u64>) {
        loop {
            let notice = released.recv_timeout(LOOK);
            let Some(shared) = self.shared.upgrade() else {
                return;
            };
            match notice {
                Err(RecvTimeoutError::Disconnected) => return,
                // An earlier limit's answer is none to the latest.
                Ok(bytes) if bytes == self.limit && self.stage == Stage::Leaving => {
                    self.stage = Stage::Left;
                }
                Ok(_) | Err(RecvTimeoutError::Timeout) => {}
            }
            let wanted = self.cache.wanted().map(|bytes| bytes as u64);
            match wanted {
                Some(bytes) if self.stage == Stage::Lent || bytes < self.limit => {
                    self.stage = Stage::Leaving;
                    self.tell(&shared, bytes);
                }
                _ if self.stage == Stage::Left => self.give_back(&shared),
                _ => {}
            }
        }
    }

    fn tell(&mut self, shared: &Shared, bytes: u64) {
        self.limit = bytes;
        let tier = self.tier;
        shared.tell(Event::Limit { tier, bytes });
    }

    /// The plan uses nothing beyond the limit any more.
    fn give_back(&mut self, shared: &Shared) {
        let rest = self.cache.capacity() as u64 - self.limit;
        let rest = Place {
            tier: self.tier,
            offset: self.limit,
            size: rest,
            reserved: rest,
        };
        shared.pending.settle(&rest, Access::Write);
        match self.cache.give_back() {
            Ok(usable) => self.lend_again(shared, usable),
            Err(error) => {
                shared.core.lock().desk.last_failure = Some(Arc::new(error.into()));
                // Nothing changed, and it is tried again at the next look; or a part could not be moved up, and is gone.
                if self.cache.wanted().is_none() {
                    self.lend_again(shared, self.cache.usable());
                }
            }
        }
    }

    fn lend_again(&mut self, shared: &Shared, usable: usize) {
        self.stage = Stage::Lent;
        self.tell(shared, usable as u64);
    }
}
