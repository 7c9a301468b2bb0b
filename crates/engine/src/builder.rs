//! What may be chosen about an engine. `assembly` makes one of it.

mod assembly;

use crate::flush::Flush;
use crate::lasting::{External, Group, Lasting};
use crate::plan::AfterRestore;
use std::path::PathBuf;
use std::sync::Arc;
use tierflow_device::Device;
#[cfg(feature = "peers")]
use tierflow_peers::PeerCache;
use tierflow_plan::{Policy, Residency};
use tierflow_store::{Retention, Storage, Vault};
use tierflow_tier_alloc::{DeviceOptions, HostOptions, HostPool, Pace};

/// A file tier without a limit of its own: the file system sets it.
const UNLIMITED: u64 = 1 << 60;

/// Bytes of the host cache that are pinned before anything is flushed there, and ahead of what is.
const LEAD: usize = 1 << 30;

/// Tiers and policies of an [`Engine`](crate::Engine) to be. Without any call it has no tier, which [`EngineBuilder::build`] refuses.
pub struct EngineBuilder {
    device: Device,
    device_cache: usize,
    #[cfg(feature = "peers")]
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
    #[cfg(feature = "dedup")]
    dedup: Option<tierflow_dedup::Config>,
    #[cfg(feature = "compress")]
    compression: Option<crate::Compression>,
    policy: Box<dyn Policy>,
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
            #[cfg(feature = "peers")]
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
            #[cfg(feature = "dedup")]
            dedup: None,
            #[cfg(feature = "compress")]
            compression: None,
            policy: Box::new(Residency),
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
    #[cfg(feature = "peers")]
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

    /// Storage of your own as the lowest tier, instead of a scratch directory. Its
    /// [alignment](tierflow_store::Storage::alignment) is a power of two of at most 4096 bytes.
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
    /// without external storage, nothing does. What lies there alone when the engine is built is kept even if it is more.
    #[must_use]
    pub fn node_local_limit(mut self, bytes: u64) -> Self {
        self.node_local_limit = bytes.min(UNLIMITED);
        self
    }

    /// A directory on external storage, such as a parallel file system, in which versions outlive the node. With
    /// [`node_local`](Self::node_local), they get there through that directory; [`Engine::wait`](crate::Engine::wait) waits until they are
    /// published there.
    ///
    /// With the feature `objects`, an object store by its URL, too: `s3://bucket/prefix`, `gs://bucket/prefix` or
    /// `az://container/prefix`. The environment says how to get there (`AWS_ACCESS_KEY_ID`, `AWS_ENDPOINT_URL`, …), as tierflow-objects
    /// tells; a store that cannot be used is an error of [`build`](Self::build). `file:///path` is the directory.
    #[must_use]
    pub fn external(mut self, directory: impl Into<PathBuf>) -> Self {
        self.lasting.external = Some(External::Named(directory.into()));
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
    ///
    /// [`EngineBuilder::build`] is collective then: each rank calls it, in a thread or process of its own, and it returns when
    /// all have agreed on the versions that every rank can restore: the same [`latest`](crate::Engine::latest) for all. What is
    /// newer is given up by all, and its numbers are free. They meet in the directory on external storage, or in the
    /// node-local one if there is no other; see [`collective`](Self::collective). Over a vault that knows no
    /// [way to meet](Vault::collective), each looks for itself, and they may differ.
    #[must_use]
    pub fn group(mut self, rank: u32, ranks: u32, run: u64) -> Self {
        self.lasting.group = Some(Group { rank, ranks, run });
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

    /// When versions are written to the lowest tier. Unless you say otherwise, as far as is [needed](Flush::Needed); at
    /// once where versions are to outlive the engine.
    #[must_use]
    pub fn flush(mut self, flush: Flush) -> Self {
        self.flush = Some(flush);
        self
    }

    /// Keeps a time line of the last `entries` flushes, prefetches, waits, copies and evictions, for
    /// [`Engine::write_timeline`](crate::Engine::write_timeline); 80 bytes each. 0, as unless you say otherwise, keeps none and costs nothing.
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
    /// Directories of a single rank hold differences, too. The next engine needs `dedup` to read them, whatever its chunks;
    /// what was discarded while others build upon it is there again for it.
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
    #[cfg(feature = "dedup")]
    #[must_use]
    pub fn dedup(mut self, how: impl Into<tierflow_dedup::Config>) -> Self {
        self.dedup = Some(how.into());
        self
    }

    /// Compresses what leaves the fastest tier: the tiers below hold more of it, and it takes less of their time. Restores and
    /// prefetches give the bytes that were checkpointed, or within bounds where [`Compression::within`](crate::Compression::within)
    /// allows that.
    ///
    /// What lies in device memory is compressed there, and needs room for a few checkpoints beside the device cache; what lies in
    /// host memory, by the host's cores. What does not become smaller goes as it is, and where compressing does not
    /// shorten the way down it is left out, and tried again now and then: [`Metrics::compression`](crate::Metrics::compression)
    /// says which.
    ///
    /// Directories and other storage that outlives the engine hold compressed versions, too. The next engine needs `compress` to
    /// read them, whatever is chosen by it.
    #[cfg(feature = "compress")]
    #[must_use]
    pub fn compress(mut self, how: crate::Compression) -> Self {
        self.compression = Some(how);
        self
    }

    /// The order in which versions are taken to be used, from which follows what lies where; [`Residency`] unless you choose
    /// another. One that panics is asked no more: see [`Engine::policy_panic`](crate::Engine::policy_panic).
    #[must_use]
    pub fn policy(mut self, policy: impl Policy + 'static) -> Self {
        self.policy = Box::new(policy);
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
