//! How an engine is put together.

use crate::flush::Flush;
use crate::kind::{Kind, depth, may_differ};
use crate::lasting::{self, External, Group, Lasting, Opened};
use crate::plan::{AfterRestore, Differences, Plan, PlanConfig, TierConfig};
use crate::run::{
    Crew, Direction, Lane, Media, Queue, Queues, Recorder, Share, Shared, Stage, Tier,
    start_guests, start_opening, start_workers,
};
use crate::{Engine, Error, Result};
use crossbeam_channel::unbounded;
use std::path::PathBuf;
use std::sync::Arc;
use tierflow_device::Device;
use tierflow_evict::{Cost, Policy};
use tierflow_peers::PeerCache;
use tierflow_store::{Retention, Scratch, Storage, Vault};
use tierflow_tier_alloc::{DeviceArena, DeviceOptions, HostArena, HostOptions, HostPool, Pace};

/// Copies start at multiples of this many bytes, which is what direct I/O asks for.
const ALIGNMENT: u64 = 4096;

/// A file tier without a limit of its own: the file system sets it.
const UNLIMITED: u64 = 1 << 60;

/// Bytes of the host cache that are pinned before anything is flushed there, and ahead of what is.
const LEAD: usize = 1 << 30;

/// Bytes of the device cache that are usable before anything else begins to grow.
const FIRST_CHUNK: usize = 256 << 20;

/// Differences that a version is made of, at most: what a restore from a lower tier reads.
const LONGEST_CHAIN: u32 = 16;

/// Makes the policy of one tier.
type MakePolicy = Box<dyn Fn() -> Box<dyn Policy + Send>>;

/// Tiers and policies of an [`Engine`] to be. Without any call it has no tier, which [`EngineBuilder::build`] refuses.
pub struct EngineBuilder {
    device: Device,
    device_cache: usize,
    peer_cache: Option<Arc<PeerCache>>,
    host_cache: usize,
    scratch: Option<PathBuf>,
    storage: Option<Arc<dyn Storage>>,
    storage_limit: u64,
    pub(crate) lasting: Lasting,
    node_local_limit: u64,
    after_restore: AfterRestore,
    flush: Option<Flush>,
    timeline: usize,
    dedup: Option<tierflow_dedup::Config>,
    policy: MakePolicy,
    device_growth: DeviceOptions,
    evict_while_growing: bool,
    host_growth: HostOptions,
    host_pool: Option<HostPool>,
}

impl EngineBuilder {
    pub(crate) fn new(device: &Device) -> Self {
        Self {
            device: device.clone(),
            device_cache: 0,
            peer_cache: None,
            host_cache: 0,
            scratch: None,
            storage: None,
            storage_limit: UNLIMITED,
            lasting: Lasting::default(),
            node_local_limit: UNLIMITED,
            after_restore: AfterRestore::default(),
            flush: None,
            timeline: 0,
            dedup: None,
            policy: Box::new(|| Box::new(Cost::default())),
            device_growth: DeviceOptions::default(),
            evict_while_growing: false,
            host_growth: HostOptions::default().pace(Pace::AsNeeded { lead: LEAD }),
            host_pool: None,
        }
    }

    /// Device memory to keep checkpoints in, in bytes; 0 for no such tier.
    #[must_use]
    pub fn device_cache(mut self, bytes: usize) -> Self {
        self.device_cache = bytes;
        self
    }

    /// Spare memory of peers as a tier below the device cache: what overflows goes over the links between devices,
    /// several times as fast as to the host, and comes back that way. A peer that wants its memory back has it once
    /// what lies there was flushed, or given up where a lower copy exists; so it needs a tier below.
    #[must_use]
    pub fn peer_cache(mut self, cache: PeerCache) -> Self {
        self.peer_cache = Some(Arc::new(cache));
        self
    }

    /// Host memory to keep checkpoints in, in bytes; 0 for no such tier.
    #[must_use]
    pub fn host_cache(mut self, bytes: usize) -> Self {
        self.host_cache = bytes;
        self
    }

    /// Shares a pool of host memory with other engines, of this process or of others on this machine: the host cache is
    /// what the pool lets this engine use, up to [`host_cache`](Self::host_cache) bytes, or all of the pool if that is
    /// not set. An engine that wants it has an equal part; what others leave idle it borrows, and gives back, emptied,
    /// when they want it.
    ///
    /// It needs a tier below to flush to, and memory that can be given back in parts:
    /// [`HostGrowth::Pieces`](tierflow_tier_alloc::HostGrowth::Pieces), the default.
    #[must_use]
    pub fn host_pool(mut self, pool: &HostPool) -> Self {
        self.host_pool = Some(pool.clone());
        self
    }

    /// A directory for the scratch file, which has no name and goes with the engine.
    #[must_use]
    pub fn scratch(mut self, directory: impl Into<PathBuf>) -> Self {
        self.scratch = Some(directory.into());
        self
    }

    /// Storage of your own as the lowest tier, instead of a scratch directory.
    #[must_use]
    pub fn storage(mut self, storage: Arc<dyn Storage>) -> Self {
        self.storage = Some(storage);
        self
    }

    /// The most bytes to set aside on the lowest tier; without it, as many as there are.
    #[must_use]
    pub fn storage_limit(mut self, bytes: u64) -> Self {
        self.storage_limit = bytes.min(UNLIMITED);
        self
    }

    /// A directory of this node, made if missing, in which versions outlive the process: the next engine on it finds them.
    /// One process at a time writes there for each rank.
    #[must_use]
    pub fn node_local(mut self, directory: impl Into<PathBuf>) -> Self {
        self.lasting.node_local = Some(directory.into());
        self
    }

    /// The most bytes to keep in the node-local directory. What also lies on external storage gives way to newer versions;
    /// without external storage, nothing does.
    #[must_use]
    pub fn node_local_limit(mut self, bytes: u64) -> Self {
        self.node_local_limit = bytes.min(UNLIMITED);
        self
    }

    /// A directory on external storage, such as a parallel file system, in which versions outlive the node. With
    /// [`node_local`](Self::node_local), they get there through that directory; [`Engine::wait`] waits until they are
    /// published there.
    #[must_use]
    pub fn external(mut self, directory: impl Into<PathBuf>) -> Self {
        self.lasting.external = Some(External::Directory(directory.into()));
        self
    }

    /// External storage of another kind. It must keep the pieces of the engine's own rank.
    #[must_use]
    pub fn external_vault(mut self, vault: Arc<dyn Vault>) -> Self {
        self.lasting.external = Some(External::Vault(vault));
        self
    }

    /// The engine keeps the pieces of one `rank`, counted from 0, of `ranks`, which are threads, processes or hosts that
    /// share the external storage. A version that outlives the engine counts only when every rank's piece of it, written
    /// in the same `run` of the application (a job's number, another one after each restart), is there.
    #[must_use]
    pub fn group(mut self, rank: u32, ranks: u32, run: u64) -> Self {
        self.lasting.group = Group { rank, ranks, run };
        self
    }

    /// Which versions to keep, of those that outlive the engine, as new ones reach the lowest tier; all unless you say
    /// otherwise. The others are discarded, restored or not.
    #[must_use]
    pub fn retention(mut self, retention: Retention) -> Self {
        self.lasting.retention = Some(retention);
        self
    }

    /// What becomes of versions once they are restored; they are kept unless you say otherwise.
    #[must_use]
    pub fn after_restore(mut self, after: AfterRestore) -> Self {
        self.after_restore = after;
        self
    }

    /// When copies are flushed to the tier below. Unless you say otherwise, above half; at once where versions are to
    /// outlive the engine.
    #[must_use]
    pub fn flush(mut self, flush: Flush) -> Self {
        self.flush = Some(flush);
        self
    }

    /// Keeps a time line of the last `entries` flushes, prefetches, waits, copies and evictions, for
    /// [`Engine::write_timeline`]; 80 bytes each. 0, as unless you say otherwise, keeps none and costs nothing.
    #[must_use]
    pub fn timeline(mut self, entries: usize) -> Self {
        self.timeline = entries;
        self
    }

    /// Stores what leaves the fastest tier as differences: the tiers below hold, and take the time of, what changed from
    /// version to version. Restores and prefetches give the whole bytes.
    ///
    /// Versions of one size make chains of at most 16, which begin anew with a version that has little in common with the one
    /// before. One that another builds upon keeps its difference when it is discarded, until nobody does. Differences are
    /// made by the device where the fastest tier is device memory, else by the host's cores.
    ///
    /// ```
    /// # fn main() -> tierflow_engine::Result<()> {
    /// use tierflow_dedup::Tree;
    /// use tierflow_engine::Engine;
    /// let device = tierflow_device::open(tierflow_device::Choice::Host)?;
    /// let engine = Engine::builder(&device)
    ///     .device_cache(1 << 20)
    ///     .host_cache(8 << 20)
    ///     .dedup(Tree { chunk: 128 })
    ///     .build()?;
    /// # drop(engine); Ok(()) }
    /// ```
    #[must_use]
    pub fn dedup(mut self, how: impl Into<tierflow_dedup::Config>) -> Self {
        self.dedup = Some(how.into());
        self
    }

    /// The eviction policy of every tier; [`Cost`] unless you choose another.
    #[must_use]
    pub fn policy<P: Policy + Send + 'static>(mut self, make: impl Fn() -> P + 'static) -> Self {
        self.policy = Box::new(move || Box::new(make()));
        self
    }

    /// How the device cache comes to be: a [`DeviceGrowth`](tierflow_tier_alloc::DeviceGrowth), or more.
    ///
    /// Whichever it is, nothing is evicted from a cache that is not mapped and filled yet (HiPC'22 §II, constraint 1),
    /// unless [`EngineBuilder::evict_while_growing`] says so.
    #[must_use]
    pub fn device_growth(mut self, growth: impl Into<DeviceOptions>) -> Self {
        self.device_growth = growth.into();
        self
    }

    /// Whether checkpoints may be evicted from a device cache that is still being mapped. They are not unless you say
    /// so (HiPC'22 §II, constraint 1): bytes that are still to be mapped count as free, and a checkpoint waits for them
    /// rather than push another one out. If they may, the cache is as large as it is mapped at the moment, and nobody
    /// waits for the driver.
    #[must_use]
    pub fn evict_while_growing(mut self, may: bool) -> Self {
        self.evict_while_growing = may;
        self
    }

    /// How the host cache comes to be: a [`HostGrowth`](tierflow_tier_alloc::HostGrowth), or more.
    #[must_use]
    pub fn host_growth(mut self, growth: impl Into<HostOptions>) -> Self {
        self.host_growth = growth.into();
        self
    }

    /// Builds the engine. Takes milliseconds whatever the sizes, as memory is mapped, touched and pinned in the background,
    /// unless growths were chosen that do it all at once.
    ///
    /// # Errors
    /// [`Error::NoTier`]; [`Error::NothingBelowPeers`]; [`Error::Tier`] if a tier is smaller than 4 KiB; [`Error::Arena`] if the address space is not to be had; [`Error::Storage`] if a directory
    /// refuses files, or another process writes there; [`Error::Device`] if streams cannot be made. With a pool,
    /// [`Error::NothingBelowPool`], and [`Error::Arena`] if it cannot be used.
    pub fn build(mut self) -> Result<Engine> {
        let share = self.share()?;
        let kinds = self.kinds();
        if kinds.is_empty() {
            return Err(Error::NoTier);
        }
        if self.dedup.is_some() {
            may_differ(&kinds)?;
        }
        self.check_peers(&kinds)?;
        // Streams come before memory: once the arenas grow, the driver is slow to make anything.
        let lane = Lane::with_stream(&self.device)?;
        let (queues, crews) = crews(&self.device, &kinds)?;
        let opened = self.lasting.open()?;
        let flush = self
            .flush
            .unwrap_or(if kinds.iter().any(|kind| kind.lasts()) {
                Flush::Eager
            } else {
                Flush::default()
            });
        let mut tiers = Vec::new();
        let mut configs = Vec::new();
        for (index, &kind) in kinds.iter().enumerate() {
            let tier = self.tier(kind, &opened)?;
            let capacity = tier.media.capacity().unwrap_or(match kind {
                Kind::NodeLocal => self.node_local_limit,
                Kind::External => UNLIMITED,
                Kind::Device | Kind::Peers | Kind::Host | Kind::Storage => self.storage_limit,
            });
            configs.push(TierConfig {
                capacity,
                alignment: ALIGNMENT,
                policy: (self.policy)(),
                flush_bandwidth: kind.flush_bandwidth(),
                flush_above: flush.above(tier.media.capacity().unwrap_or(0)),
                flush_depth: depth(&kinds, index),
                prefetch_depth: depth(&kinds, index),
            });
            tiers.push(tier);
        }
        let stage = self.dedup.zip(tiers.first());
        let stage = stage.map(|(config, fastest)| Stage::new(config, &self.device, &fastest.media));
        let stage = stage.transpose()?;
        let mut plan = Plan::new(PlanConfig {
            tiers: configs,
            after_restore: self.after_restore,
            differences: stage.is_some().then(|| Differences {
                overhead: Stage::overhead(),
                longest: LONGEST_CHAIN,
            }),
        })?;
        if kinds.iter().any(|kind| kind.lasts()) {
            plan.flush_all_versions();
        }
        if self.timeline > 0 {
            plan.keep_evictions();
        }
        let shared = Arc::new(Shared::new(
            self.device,
            (tiers, stage),
            plan,
            queues,
            lane,
            Recorder::new(self.timeline),
        ));
        let mut workers = start_workers(&shared, crews)?;
        workers.extend(start_guests(&shared)?);
        let device = kinds.iter().position(|&kind| kind == Kind::Device);
        if let Some(tier) = device.filter(|_| self.evict_while_growing) {
            workers.extend(start_opening(&shared, tier)?);
        }
        let mut engine = Engine::assemble(Arc::clone(&shared), workers, self.lasting.closing);
        if let Some(share) = share {
            engine.keep_within(share)?;
        }
        lasting::adopt(&shared, &opened)?;
        Ok(engine)
    }

    /// That the peer cache is this device's, and has a tier below.
    fn check_peers(&self, kinds: &[Kind]) -> Result<()> {
        if kinds.last() == Some(&Kind::Peers) {
            return Err(Error::NothingBelowPeers);
        }
        match &self.peer_cache {
            Some(cache) if !cache.memory().device().is_same(&self.device) => {
                Err(Error::Device(tierflow_device::Invalid::OtherDevice.into()))
            }
            _ => Ok(()),
        }
    }

    /// Joins the pool, if there is one, and sees to it that the host cache can shrink.
    fn share(&mut self) -> Result<Option<Share>> {
        let Some(pool) = &self.host_pool else {
            return Ok(None);
        };
        if self.host_cache == 0 {
            self.host_cache = usize::try_from(pool.bytes()).unwrap_or(usize::MAX);
        }
        if self.kinds().last() == Some(&Kind::Host) {
            return Err(Error::NothingBelowPool);
        }
        let share = Share::of(pool, self.host_cache)?;
        let growth = std::mem::take(&mut self.host_growth);
        let slab = usize::try_from(share.slab()).unwrap_or(usize::MAX);
        let begin = usize::try_from(share.bytes()).unwrap_or(usize::MAX);
        self.host_growth = growth.in_slabs(slab)?.begin_with(begin);
        Ok(Some(share))
    }

    /// The tiers asked for, fastest first.
    fn kinds(&self) -> Vec<Kind> {
        let storage = self.storage.is_some() || self.scratch.is_some();
        let asked = [
            (self.device_cache > 0, Kind::Device),
            (self.peer_cache.is_some(), Kind::Peers),
            (self.host_cache > 0, Kind::Host),
            (storage, Kind::Storage),
            (self.lasting.node_local.is_some(), Kind::NodeLocal),
            (self.lasting.external.is_some(), Kind::External),
        ];
        asked
            .into_iter()
            .filter(|(asked, _)| *asked)
            .map(|(_, kind)| kind)
            .collect()
    }

    fn tier(&self, kind: Kind, opened: &Opened) -> Result<Tier> {
        let (name, media) = match kind {
            Kind::Device => {
                let arena = DeviceArena::start(
                    &self.device,
                    self.device_cache,
                    self.device_growth.clone(),
                )?;
                // The first checkpoint goes here: let no other memory get in its way.
                arena.wait_usable(arena.capacity().min(FIRST_CHUNK))?;
                ("device", Media::Device(arena))
            }
            Kind::Peers => {
                let cache = self.peer_cache.as_ref().ok_or(Error::NoTier)?;
                ("peers", Media::Peers(Arc::clone(cache)))
            }
            Kind::Host => (
                "host",
                Media::Host(HostArena::start(
                    &self.device,
                    self.host_cache,
                    self.host_growth.clone(),
                )?),
            ),
            Kind::Storage => {
                let storage = match (&self.storage, &self.scratch) {
                    (Some(storage), _) => Arc::clone(storage),
                    (None, Some(directory)) => Arc::new(Scratch::open(directory)?),
                    (None, None) => return Err(Error::NoTier),
                };
                ("file", Media::Storage(storage))
            }
            Kind::NodeLocal | Kind::External => {
                let (name, kept) = match kind {
                    Kind::NodeLocal => ("node-local", &opened.node_local),
                    _ => ("external", &opened.external),
                };
                let kept = kept.as_ref().ok_or(Error::NoTier)?;
                (name, Media::Kept(Arc::clone(kept)))
            }
        };
        Ok(Tier { name, media })
    }
}

/// As many workers for each direction and tier as the plan may have transfers under way there.
fn crews(device: &Device, kinds: &[Kind]) -> Result<(Queues, Vec<Crew>)> {
    let mut queues = Queues::new();
    let mut crews = Vec::new();
    for tier in 0..kinds.len() - 1 {
        for direction in [Direction::Down, Direction::Up] {
            let make = match kinds[tier] {
                Kind::Device | Kind::Peers => Lane::with_stream,
                _ => |device: &Device| Ok(Lane::new(device)),
            };
            let (sender, jobs) = unbounded();
            let workers = depth(kinds, tier);
            let queue = Queue {
                jobs: sender,
                workers,
            };
            queues.insert((direction, tier), queue);
            let workers = (0..workers).map(|_| make(device)).collect::<Result<_>>()?;
            crews.push(Crew {
                direction,
                tier,
                workers,
                jobs,
            });
        }
    }
    Ok((queues, crews))
}

impl std::fmt::Debug for EngineBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EngineBuilder")
            .field("device_cache", &self.device_cache)
            .field("host_cache", &self.host_cache)
            .field("scratch", &self.scratch)
            .field("storage", &self.storage)
            .field("lasting", &self.lasting)
            .field("after_restore", &self.after_restore)
            .finish_non_exhaustive()
    }
}
