//! Builds an engine from its options: the tiers, the plan and the workers.

use super::machine::usable_memory;
use super::{EngineBuilder, UNLIMITED};
use crate::flush::Flush;
use crate::history::{self, OpenHistory};
use crate::kind::{Kind, depth};
use crate::plan::{PlanConfig, TierConfig, TierId, World};
use crate::policy_guard::GuardedPolicy;
use crate::run::{
    AHEAD, COMMITTED, Direction, DurableTier, EngineCore, EngineParts, LinkQueues, LinkWorkers,
    Medium, Pool, Recorder, Stage, TierContext, TierState, commit_queue, find_direct, hear_turns,
    start_committer, start_housekeeping, start_mapped_tier, start_peers, start_workers,
};
use crate::{BuildError, Engine, Error, Result};
use std::sync::Arc;
use tierflow_device::Device;
use tierflow_store::Storage;
use tierflow_sync::model::{Mutex, unbounded};
use tierflow_tier_alloc::{DeviceArena, HostArena, HostPool};
use tierflow_transfer::{PART_BYTES, ScratchMedium, Straight};

/// Alignment of copies in a tier, in bytes, as direct I/O requires.
pub(super) const ALIGNMENT: u64 = 4096;

/// Bytes of the device cache that become usable before other memory starts to grow.
const FIRST_CHUNK: usize = 256 << 20;

impl EngineBuilder {
    /// Builds the engine. Takes milliseconds for any sizes, as memory is mapped, touched and pinned in the background, unless a
    /// growth option does that at once.
    ///
    /// If part of the durable storage cannot be used and another part can, the engine leaves the first part out or only
    /// reads it: see [`Engine::damage`].
    ///
    /// # Errors
    /// [`Error::Build`] if the options, or files on the storage, have to be changed first; [`Error::Memory`] if address space is
    /// short; [`Error::Pool`] if a pool cannot be used; [`Error::Storage`] if a directory refuses files, if another process writes
    /// there, or, with [`tierflow_store::Error::Absent`], if ranks of the group are absent; [`Error::Device`] if streams cannot be
    /// made.
    pub fn build(mut self) -> Result<Engine> {
        self.check()?;
        let pool = self.join_pool()?;
        let mut kinds = self.kinds();
        if kinds.is_empty() {
            return Err(BuildError::NoTier.into());
        }
        self.check_stage(&kinds)?;
        self.check_peers(&kinds)?;
        let consumes = self.after_restore == crate::plan::AfterRestore::Discard;
        let opened = self.history.open(self.differs(), consumes)?;
        if opened.node_local.is_none() && self.history.node_local.take().is_some() {
            // The directory is left out. The engine's damage names it.
            kinds = self.kinds();
        }
        // The limit is at least one block. Larger versions bypass the tier.
        let room = opened
            .node_local
            .as_ref()
            .and_then(|durable| durable.room(u64::MAX));
        let limit = room.map_or(self.node_local_limit, |room| room.max(ALIGNMENT));
        self.node_local_limit = limit.max(opened.required(ALIGNMENT));
        // Streams are made before memory: while the arenas grow, the driver makes everything slowly.
        let context = TierContext::with_stream(&self.device)?;
        let (mut links, workers) = workers(&self.device, &kinds)?;
        let mut commits = Vec::new();
        let lasts = kinds.iter().any(|kind| kind.lasts());
        let is_eager = self.flush == Some(Flush::Eager);
        let mut tiers = Vec::new();
        let mut configs = Vec::new();
        for (index, &kind) in kinds.iter().enumerate() {
            let (medium, limit) = self.make(kind, &opened)?;
            let capacity = medium.capacity().unwrap_or(limit);
            let tier = TierState { kind, medium };
            // A save may wait for another save, which would then find no worker. So saves that wait for their turn have their own
            // worker.
            let takes_many = tier.medium.durable().is_some_and(DurableTier::takes_many);
            if takes_many {
                let (sender, receiver) = commit_queue();
                links.commits.insert(index, sender);
                commits.push((index, receiver));
            }
            configs.push(TierConfig {
                capacity,
                alignment: ALIGNMENT,
                depth: depth(kind),
                small: match kind {
                    Kind::Storage => AHEAD,
                    _ if takes_many => COMMITTED,
                    _ => 0,
                },
                part: match &tier.medium {
                    medium if medium.is_memory() => part_bytes(&configs, capacity),
                    _ => 0,
                },
                eager: kind.lasts() || (is_eager && index + 1 == kinds.len()),
                whole: kind.lasts(),
                from_above: index > 0
                    && kinds.get(index - 1).is_some_and(|above| above.lasts())
                    && tier
                        .medium
                        .durable()
                        .is_some_and(DurableTier::takes_copies_alone),
                shared: kind == Kind::Storage,
            });
            tiers.push(tier);
        }
        let stage = self.stage(&tiers)?;
        let below = TierId(self.whole_on(&kinds) - 1);
        let (policy, policy_panic) = GuardedPolicy::new(self.policy);
        let mut world = World::new(PlanConfig {
            after_restore: self.after_restore,
            policy: Box::new(policy),
            differences: stage.as_ref().map(|stage| crate::plan::Differences {
                below,
                overhead: stage.overhead(),
                longest: stage.longest_chain(),
                ascending: lasts,
            }),
            ..PlanConfig::new(configs)
        })?;
        if self.timeline > 0 {
            world.plan_mut().keep_evictions();
        }
        let shared = Arc::new(EngineCore::new(EngineParts {
            device: self.device,
            tiers,
            stage,
            world,
            links,
            context,
            recorder: Recorder::new(self.timeline),
            empties: Arc::clone(&opened.empties),
            layouts: Arc::clone(&opened.layouts),
        }));
        hear_turns(&shared);
        // If a step fails from here on, the engine ends the threads that were started.
        let mut engine = Engine::assemble(Arc::clone(&shared), self.history.closing);
        start_workers(&shared, workers)?;
        for (tier, receiver) in commits {
            start_committer(&shared, tier, receiver)?;
        }
        start_housekeeping(&shared)?;
        start_peers(&shared)?;
        let device = kinds.iter().position(|&kind| kind == Kind::Device);
        if let Some(tier) = device.filter(|_| self.device_cache.evict_while_growing) {
            start_mapped_tier(&shared, tier)?;
        }
        if let Some(pool) = pool {
            engine.keep_within(pool)?;
        }
        history::adopt(&shared, &opened, self.node_local_limit, ALIGNMENT)?;
        engine.policy_panic = policy_panic;
        engine.damage = opened.damage;
        engine.after_restore = self.after_restore;
        engine.taken = opened.taken;
        engine.nodes = opened.nodes;
        Ok(engine)
    }

    /// Checks the sizes and the options of durable storage, before any storage is opened.
    fn check(&self) -> Result<()> {
        if let Some(&(option, _)) = self.refused.first() {
            return Err(BuildError::Option { option }.into());
        }
        let caches = [
            ("device", self.device_cache.bytes),
            ("host", self.host_cache.bytes),
        ];
        let is_small = |(_, bytes): &&(_, usize)| (1..ALIGNMENT).contains(&(*bytes as u64));
        if let Some(&(cache, bytes)) = caches.iter().find(is_small) {
            return Err(BuildError::SmallCache {
                cache,
                bytes,
                least: ALIGNMENT,
            }
            .into());
        }
        let (usable, host) = (usable_memory(), &self.host_cache);
        let pool = host.pool.as_ref().map(HostPool::bytes);
        let bytes = pool.unwrap_or(host.bytes as u64);
        if bytes > usable {
            return Err(BuildError::LargeCache { bytes, usable }.into());
        }
        self.check_direct()?;
        self.history.check()
    }

    fn differs(&self) -> bool {
        let stage = self.stage.as_ref();
        stage.is_some_and(|stage| stage.differs())
    }

    /// Returns the number of tiers, from the fastest on, that hold versions uncompressed.
    fn whole_on(&self, kinds: &[Kind]) -> usize {
        let stage = self.stage.as_ref();
        stage.map_or(1, |stage| stage.whole_on(kinds))
    }

    /// Checks that the lower tiers can hold versions in the stage's form.
    fn check_stage(&self, kinds: &[Kind]) -> Result<()> {
        let Some(stage) = &self.stage else {
            return Ok(());
        };
        stage.check(kinds)?;
        if stage.differs() {
            self.history.may_differ()?;
        }
        Ok(())
    }

    /// Makes the stage between the tiers that hold versions as they are and those below.
    fn stage(&self, tiers: &[TierState]) -> Result<Option<Box<dyn Stage>>> {
        match &self.stage {
            Some(stage) => stage.make(&self.device, tiers),
            None => Ok(None),
        }
    }

    /// Checks that an engine for direct copies has both a device cache and a scratch directory.
    fn check_direct(&self) -> Result<()> {
        let has_both = self.device_cache.bytes > 0 && self.scratch.is_some();
        if self.direct_io == crate::DirectIo::Always && !has_both {
            let why = "the engine has no device cache, or no scratch directory".to_owned();
            return Err(BuildError::DirectIo { why }.into());
        }
        Ok(())
    }

    /// Returns the direct path between device memory and storage that bypasses the host, or `None` if there is none.
    fn direct(&self, storage: &Arc<dyn Storage>) -> Result<Option<Arc<Straight>>> {
        if self.device_cache.bytes == 0 {
            return Ok(None);
        }
        let direct = find_direct(&self.device, storage, self.direct_io)?;
        Ok(direct.map(Arc::new))
    }

    /// Checks that the peer cache is this device's, and has a tier below.
    fn check_peers(&self, kinds: &[Kind]) -> Result<()> {
        if kinds.last() == Some(&Kind::Peers) {
            return Err(BuildError::NothingBelowPeers.into());
        }
        if let Some(cache) = &self.peer_cache
            && !cache.is_of(&self.device)
        {
            return Err(Error::Device(tierflow_device::Invalid::OtherDevice.into()));
        }
        Ok(())
    }

    /// Joins the pool, if there is one, and lets the host cache shrink and grow in slabs.
    fn join_pool(&mut self) -> Result<Option<Pool>> {
        let Some(pool) = self.host_cache.pool.clone() else {
            return Ok(None);
        };
        if self.host_cache.bytes == 0 {
            self.host_cache.bytes = usize::try_from(pool.bytes()).unwrap_or(usize::MAX);
        }
        if self.kinds().last() == Some(&Kind::Host) {
            return Err(BuildError::NothingBelowPool.into());
        }
        let share = Pool::join(&pool, self.host_cache.bytes)?;
        let growth = std::mem::take(&mut self.host_cache.growth);
        let slab = usize::try_from(share.slab()).unwrap_or(usize::MAX);
        let begin = usize::try_from(share.bytes()).unwrap_or(usize::MAX);
        self.host_cache.growth = growth.in_slabs(slab)?.begin_with(begin);
        Ok(Some(share))
    }

    /// Returns the chosen tiers, fastest first.
    fn kinds(&self) -> Vec<Kind> {
        let asked = [
            (self.device_cache.bytes > 0, Kind::Device),
            (self.peer_cache.is_some(), Kind::Peers),
            (self.host_cache.bytes > 0, Kind::Host),
            (self.scratch.is_some(), Kind::Storage),
            (self.history.node_local.is_some(), Kind::NodeLocal),
            (self.history.external.is_some(), Kind::External),
        ];
        asked
            .into_iter()
            .filter(|(asked, _)| *asked)
            .map(|(_, kind)| kind)
            .collect()
    }

    /// Makes a tier's medium. Also returns the largest number of bytes there, for media that have no size.
    fn make(&self, kind: Kind, opened: &OpenHistory) -> Result<(Medium, u64)> {
        let medium = match kind {
            Kind::Device => {
                let arena = DeviceArena::start(
                    &self.device,
                    self.device_cache.bytes,
                    self.device_cache.growth.clone(),
                )?;
                // The first checkpoint goes here, so no other memory may grow before this part.
                arena.wait_usable(arena.capacity().min(FIRST_CHUNK))?;
                Medium::Device(arena)
            }
            Kind::Peers => Medium::Peers(Arc::clone(self.peer_cache.as_ref().ok_or(ABSENT)?)),
            Kind::Host => Medium::Host(HostArena::start(
                &self.device,
                self.host_cache.bytes,
                self.host_cache.growth_on(&self.device),
            )?),
            Kind::Storage => {
                let scratch = self.scratch.as_ref().ok_or(ABSENT)?;
                let (storage, limit) = scratch.open()?;
                let direct = self.direct(&storage)?;
                return Ok((Medium::Storage(ScratchMedium::new(storage, direct)), limit));
            }
            Kind::NodeLocal => {
                let durable = opened.node_local.as_ref().ok_or(ABSENT)?;
                return Ok((
                    Medium::DurableTier(Arc::clone(durable)),
                    self.node_local_limit,
                ));
            }
            Kind::External => {
                Medium::DurableTier(Arc::clone(opened.external.as_ref().ok_or(ABSENT)?))
            }
        };
        Ok((medium, UNLIMITED))
    }
}

/// The error for a tier that was counted but not chosen.
const ABSENT: Error = Error::Internal {
    what: "a tier that was not asked for",
};

/// Returns the bytes of one transfer between a memory tier and the tiers above. A part must be large enough that the link stays
/// busy for longer than a worker and the plan need between two parts. All parts under way, in both directions, take at most a
/// quarter of the smallest tier.
fn part_bytes(above: &[TierConfig], capacity: u64) -> u64 {
    let capacities = above.iter().map(|tier| tier.capacity);
    let smallest = capacities.fold(capacity, u64::min);
    (smallest / 16).min(PART_BYTES)
}

/// Makes workers for each link into and out of a tier: as many as the plan may run transfers on the link.
fn workers(device: &Device, kinds: &[Kind]) -> Result<(LinkQueues, Vec<LinkWorkers>)> {
    let mut links = LinkQueues::default();
    let mut workers = Vec::new();
    let reaches_device = kinds
        .iter()
        .any(|kind| matches!(kind, Kind::Device | Kind::Peers));
    // The first tier has no tier above, but callers copy to and from storage there, too.
    let is_way = |(tier, kind): &(usize, &Kind)| *tier > 0 || **kind == Kind::Storage;
    for (tier, &kind) in kinds.iter().enumerate().filter(is_way) {
        for direction in [Direction::Down, Direction::Up] {
            // Copies between memories run one after the other on one stream, each at the link's full rate. On two streams they
            // would share the link and end together. The link would then idle until both workers have noticed that.
            let shares_stream = reaches_device && !matches!(kind, Kind::Storage) && !kind.lasts();
            let shared = match shares_stream {
                true => Some(Arc::new(device.stream()?)),
                false => None,
            };
            let make = || match &shared {
                Some(stream) => Ok(TierContext::on(device, Arc::clone(stream))),
                None if reaches_device => TierContext::with_stream(device),
                None => Ok(TierContext::new(device)),
            };
            let (sender, tasks) = unbounded();
            links.queues.insert((direction, tier), sender);
            let contexts = (0..depth(kind)).map(|_| make());
            workers.push(LinkWorkers {
                direction,
                tier,
                depth: depth(kind),
                waiting: Mutex::new(contexts.collect::<Result<_>>()?),
                tasks,
            });
        }
    }
    Ok((links, workers))
}
