//! Keeps the host cache within what a [`HostPool`] lets the engine use: asks for more as it fills, and has the plan empty
//! what others want, gives the memory back to the system and the capacity to the pool, in that order.

use super::core::{Core, Shared};
use super::medium::Medium;
use super::sync::{Builder, JoinHandle, Receiver, RecvTimeoutError, Sender, unbounded};
use crate::plan::{Event, Place, TierId};
use crate::{Error, Result};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use tierflow_device::Access;
use tierflow_tier_alloc::{HostArena, HostPool, Lease, Terms};

/// Between two looks at the pool while nothing happens here: how long others wait until they are noticed.
const LOOK: Duration = Duration::from_millis(5);

/// How often somebody who lacks something looks whether another member has died.
const SELDOM: Duration = Duration::from_millis(500);

/// Slabs wanted beyond those in use, so that a cache that fills does not stop to ask.
const HEADROOM: u64 = 4;

/// What the keeper is told.
#[derive(Debug)]
enum Notice {
    /// The cache fills.
    Fills,
    /// The plan has emptied all but so many bytes.
    Released(u64),
}

/// The way from the plan to the keeper.
#[derive(Debug)]
pub(super) struct Link {
    tier: TierId,
    headroom: u64,
    notices: Sender<Notice>,
    /// When it was last told that the cache fills.
    told: Option<Instant>,
}

impl Link {
    /// After an event: tells the keeper if the cache fills.
    pub(super) fn look(&mut self, free: u64) {
        let lately = self.told.is_some_and(|told| told.elapsed() < LOOK);
        if free < self.headroom / 2 && !lately {
            self.told = Some(Instant::now());
            let _ = self.notices.send(Notice::Fills);
        }
    }

    pub(super) fn tier(&self) -> TierId {
        self.tier
    }

    pub(super) fn released(&self, tier: TierId, bytes: u64) {
        if tier == self.tier {
            // The keeper leaves only when the engine does.
            let _ = self.notices.send(Notice::Released(bytes));
        }
    }
}

/// The part of a pool that an engine begins with.
#[derive(Debug)]
pub(crate) struct Share {
    lease: Lease,
}

impl Share {
    /// Joins the pool for a cache of `most` bytes.
    pub(crate) fn of(pool: &HostPool, most: usize) -> Result<Self> {
        let mut lease = pool.join(most as u64)?;
        let headroom = HEADROOM * lease.slab();
        lease.ask(headroom)?;
        Ok(Self { lease })
    }

    /// Bytes to begin with.
    pub(crate) fn bytes(&self) -> u64 {
        self.lease.terms().keep
    }

    /// Bytes that come and go at once.
    pub(crate) fn slab(&self) -> u64 {
        self.lease.slab()
    }
}

/// Limits the plan's host tier to the share, and starts the thread that keeps it there. It ends when the engine's core
/// lets go of its [`Link`], and hands back the lease: the memory is still there then.
pub(crate) fn start(shared: &Arc<Shared>, share: Share) -> Result<JoinHandle<Lease>> {
    let is_host = |tier: &super::Tier| matches!(tier.medium, Medium::Host(_));
    let tier = shared.tiers.iter().position(is_host);
    let tier = TierId(tier.ok_or(Error::NoTier)?);
    let (sender, notices) = unbounded();
    let limit = share.bytes();
    shared.tell(Event::Limit { tier, bytes: limit });
    let mut core = shared.core.lock();
    let capacity = core.plan().statistics().tiers[tier.0].capacity;
    core.desk.link = Some(Link {
        tier,
        headroom: HEADROOM * share.slab(),
        notices: sender,
        told: None,
    });
    drop(core);
    let mut keeper = Keeper {
        shared: Arc::downgrade(shared),
        tier,
        capacity,
        limit: limit.min(capacity),
        owes: false,
        looked: Instant::now(),
        lease: share.lease,
    };
    let run = move || {
        keeper.run(&notices);
        keeper.lease
    };
    let thread = Builder::new().name(String::from("tierflow-keeper"));
    thread.spawn(run).map_err(Error::Thread)
}

struct Keeper {
    shared: Weak<Shared>,
    tier: TierId,
    /// Bytes of the tier.
    capacity: u64,
    /// What the plan was told last.
    limit: u64,
    /// What lies beyond the limit is out of use, and not given back yet.
    owes: bool,
    looked: Instant,
    lease: Lease,
}

impl Keeper {
    fn run(&mut self, notices: &Receiver<Notice>) {
        loop {
            let notice = notices.recv_timeout(LOOK);
            let Some(shared) = self.shared.upgrade() else {
                return;
            };
            match notice {
                Err(RecvTimeoutError::Disconnected) => return,
                Ok(Notice::Released(bytes)) => self.owes |= bytes == self.limit,
                Ok(Notice::Fills) | Err(RecvTimeoutError::Timeout) => {}
            }
            if self.owes {
                self.give_back(&shared);
            }
            let fills = matches!(notice, Ok(Notice::Fills));
            if fills || self.lease.has_changed() || self.looked.elapsed() >= SELDOM {
                self.ask(&shared);
            }
        }
    }

    /// Asks for what the cache has a use for, and goes by the answer.
    fn ask(&mut self, shared: &Shared) {
        self.looked = Instant::now();
        let demand = shared.core.lock().plan().demand(self.tier);
        let wanted = demand.saturating_add(HEADROOM * self.lease.slab());
        match self.lease.ask(wanted.min(self.capacity)) {
            Ok(terms) => self.go_by(shared, terms),
            // What it has, it goes on having.
            Err(error) => note(&mut shared.core.lock(), error.into()),
        }
    }

    fn go_by(&mut self, shared: &Shared, terms: Terms) {
        let limit = terms.keep.min(self.capacity);
        if limit > self.limit {
            // Memory first: the plan hands it out at once.
            match host(shared, self.tier).map(|arena| arena.resize(limit as usize)) {
                Some(Ok(_)) | None => {}
                Some(Err(error)) => return note(&mut shared.core.lock(), error.into()),
            }
        }
        if limit != self.limit {
            self.limit = limit;
            self.owes = false;
            let (tier, bytes) = (self.tier, limit);
            shared.tell(Event::Limit { tier, bytes });
        }
    }

    /// The plan uses nothing beyond the limit any more: gives the memory back, then the capacity.
    fn give_back(&mut self, shared: &Shared) {
        let rest = Place {
            tier: self.tier,
            offset: self.limit,
            size: self.capacity - self.limit,
            reserved: self.capacity - self.limit,
        };
        shared.pending.settle(&rest, Access::Write);
        let Some(arena) = host(shared, self.tier) else {
            return;
        };
        let given = arena
            .resize(self.limit as usize)
            .and_then(|kept| self.lease.give_back((kept as u64).max(self.limit)));
        match given {
            Ok(terms) => {
                self.owes = false;
                self.go_by(shared, terms);
            }
            // Asked again at the next look.
            Err(error) => note(&mut shared.core.lock(), error.into()),
        }
    }
}

fn host(shared: &Shared, tier: TierId) -> Option<&HostArena> {
    match &shared.tiers.get(tier.0)?.medium {
        Medium::Host(arena) => Some(arena),
        _ => None,
    }
}

fn note(core: &mut Core, error: Error) {
    core.desk.last_failure = Some(Arc::new(error));
}
