//! The host cache, as large as a [`HostPool`] lets it be: asks for more as it fills, and gives back what others want.

use super::{CapacityOwner, EngineCore, EventFd, Notices, start as start_thread};
use crate::Result;
use crate::plan::TierId;
use crate::run::medium::Medium;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tierflow_sync::model::JoinHandle;
use tierflow_tier_alloc::{Error as ArenaError, HostArena, HostPool, Lease};

/// Slabs wanted beyond those in use, so that a cache that fills does not stop to ask.
const HEADROOM: u64 = 4;

/// Time from an event of the plan until the pool is told the cache's demand, and between two requests of a cache that
/// lacks some.
const SETTLED: Duration = Duration::from_millis(500);

/// A member of a pool, for the host cache of an engine.
#[derive(Debug)]
pub(crate) struct Pool {
    lease: Lease,
    tier: TierId,
    asked: Instant,
    /// True if something happened since the cache last asked.
    has_stirred: bool,
}

impl Pool {
    /// Joins the pool for a cache of `most` bytes.
    pub(crate) fn join(pool: &HostPool, most: usize) -> Result<Self> {
        let mut lease = pool.join(most as u64)?;
        lease.ask(HEADROOM * lease.slab())?;
        Ok(Self {
            lease,
            tier: TierId(0),
            asked: Instant::now(),
            has_stirred: false,
        })
    }

    /// Returns the bytes to begin with.
    pub(crate) fn bytes(&self) -> u64 {
        self.lease.terms().keep
    }

    /// Returns the bytes of a slab. Memory comes and goes in slabs.
    pub(crate) fn slab(&self) -> u64 {
        self.lease.slab()
    }
}

/// Limits the plan's host tier to the pool's terms, and starts the thread that keeps it there.
pub(crate) fn start(shared: &Arc<EngineCore>, mut pool: Pool) -> Result<JoinHandle<Lease>> {
    let mut tiers = shared.tiers.iter();
    let tier = tiers.position(|tier| matches!(tier.medium, Medium::Host(_)));
    let setting = "the number of slabs of a host pool";
    pool.tier = TierId(tier.ok_or(ArenaError::Zero { setting })?);
    let scarce = HEADROOM * pool.slab() / 2;
    let (tier, limit) = (pool.tier, pool.bytes());
    let join = |wake| {
        pool.lease.wake_by(wake);
        pool
    };
    start_thread(shared, tier, limit, scarce, join, |pool| pool.lease)
}

impl CapacityOwner for Pool {
    fn wait(&mut self, event: &EventFd, limit: Option<Duration>) {
        let settled = self.has_stirred.then_some(SETTLED);
        let limits = [limit, settled, self.lease.patience()];
        let changes = self.lease.changes();
        event.wait(changes.as_slice(), limits.into_iter().flatten().min());
    }

    fn terms(&mut self, shared: &EngineCore, notices: &Notices) -> Result<Option<u64>> {
        let passed = self.asked.elapsed();
        let is_due = |after: Duration| passed >= after;
        self.has_stirred |= notices.stirred.load(Ordering::Relaxed);
        let fills = notices.fills.swap(false, Ordering::AcqRel);
        let settled = self.has_stirred && is_due(SETTLED);
        let is_impatient = self.lease.patience().is_some() && is_due(SETTLED);
        if !(fills || settled || is_impatient || self.lease.has_changed()) {
            return Ok(None);
        }
        self.asked = Instant::now();
        if settled {
            // Later events are reported anew.
            self.has_stirred = false;
            notices.stirred.store(false, Ordering::Relaxed);
        }
        let (capacity, demand) = {
            let core = shared.lock();
            let plan = core.plan();
            (
                plan.statistics().tiers[self.tier.0].capacity,
                plan.demand(self.tier),
            )
        };
        let wanted = demand.saturating_add(HEADROOM * self.lease.slab());
        Ok(Some(self.lease.ask(wanted.min(capacity))?.keep))
    }

    fn grow(&mut self, shared: &EngineCore, bytes: u64) -> Result<()> {
        let grown = host(shared, self.tier).map(|arena| arena.resize(bytes as usize));
        Ok(grown.transpose().map(drop)?)
    }

    fn take_back(&mut self, shared: &EngineCore, durable: u64) -> Result<u64> {
        let resized = host(shared, self.tier).map(|arena| arena.resize(durable as usize));
        let left = resized.transpose()?.unwrap_or_default() as u64;
        Ok(self.lease.give_back(left.max(durable))?.keep)
    }
}

fn host(shared: &EngineCore, tier: TierId) -> Option<&HostArena> {
    match &shared.tiers.get(tier.0)?.medium {
        Medium::Host(arena) => Some(arena),
        _ => None,
    }
}
