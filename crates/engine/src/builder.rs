//! The options of an engine. `assembly` builds an engine from them.

mod assembly;
mod machine;
pub(crate) mod tier;

use tier::{AnyTier, ScratchTier};
pub use tier::{MemoryCache, Tier};

use crate::flush::Flush;
use crate::history::HistoryOptions;
use crate::plan::AfterRestore;
use crate::run::{PeerMemory, StageOptions};
use std::mem::Discriminant;
use std::path::PathBuf;
use std::sync::Arc;
use tierflow_device::Device;
use tierflow_plan::{Policy, Residency};
use tierflow_store::Retention;
use tierflow_tier_alloc::{DeviceOptions, HostOptions};

/// Limit in bytes of a file tier without a configured limit: the file system sets the real limit.
pub(crate) const UNLIMITED: u64 = 1 << 60;

/// Tiers and policies of a future [`Engine`](crate::Engine). A new builder has no tier, which [`EngineBuilder::build`]
/// refuses.
pub struct EngineBuilder {
    device: Device,
    device_cache: MemoryCache<DeviceOptions>,
    peer_cache: Option<Arc<dyn PeerMemory>>,
    host_cache: MemoryCache<HostOptions>,
    scratch: Option<ScratchTier>,
    pub(crate) history: HistoryOptions,
    node_local_limit: u64,
    /// Options that were given to a tier whose kind does not have them, with that kind.
    refused: Vec<(&'static str, Discriminant<AnyTier>)>,
    after_restore: AfterRestore,
    flush: Option<Flush>,
    timeline: usize,
    pub(crate) stage: Option<Box<dyn StageOptions>>,
    direct_io: crate::DirectIo,
    policy: Box<dyn Policy>,
}

impl EngineBuilder {
    pub(crate) fn new(device: &Device) -> Self {
        Self {
            device: device.clone(),
            device_cache: Tier::device(0),
            peer_cache: None,
            host_cache: Tier::host(0),
            scratch: None,
            history: HistoryOptions::default(),
            node_local_limit: UNLIMITED,
            refused: Vec::new(),
            after_restore: AfterRestore::default(),
            flush: None,
            timeline: 0,
            stage: None,
            direct_io: crate::DirectIo::default(),
            policy: Box::new(Residency),
        }
    }

    /// Sets the device cache to `bytes` of device memory; 0 for no such tier.
    #[must_use]
    pub fn device_cache(self, bytes: usize) -> Self {
        let mut cache = self.device_cache.clone();
        cache.bytes = bytes;
        self.tier(cache)
    }

    /// Sets the host cache to `bytes` of host memory; 0 for no such tier.
    #[must_use]
    pub fn host_cache(self, bytes: usize) -> Self {
        let mut cache = self.host_cache.clone();
        cache.bytes = bytes;
        self.tier(cache)
    }

    /// Adds a scratch file in a directory. The file has no name and ends with the engine.
    #[must_use]
    pub fn scratch(self, directory: impl Into<PathBuf>) -> Self {
        self.tier(Tier::scratch(directory))
    }

    /// Adds a directory of this node, made if missing, in which versions outlive the process: the next engine on the directory
    /// finds them. For each rank, at most one process at a time writes there.
    #[must_use]
    pub fn node_local(self, directory: impl Into<PathBuf>) -> Self {
        self.tier(Tier::node_local(directory))
    }

    /// Adds a directory on external storage, such as a parallel file system, in which versions outlive the node. With
    /// [`node_local`](Self::node_local), versions get there through that directory.
    /// [`Engine::wait`](crate::Engine::wait) waits until they are published there.
    ///
    /// With the feature `objects`, the directory may be an object store's URL: `s3://bucket/prefix`,
    /// `gs://bucket/prefix` or `az://container/prefix`. Environment variables give the access (`AWS_ACCESS_KEY_ID`,
    /// `AWS_ENDPOINT_URL`, …): see tierflow-objects. If the store cannot be used, [`build`](Self::build) fails.
    /// `file:///path` is a directory.
    #[must_use]
    pub fn external(self, directory: impl Into<PathBuf>) -> Self {
        self.tier(Tier::external(directory))
    }

    /// Sets the durable versions to keep as new ones reach the lowest tier; by default all. The engine discards the
    /// others, restored or not. A version that is hinted or being restored stays until the application has read it.
    #[must_use]
    pub fn retention(mut self, retention: Retention) -> Self {
        self.history.retention = Some(retention);
        self
    }

    /// Sets what happens to versions after a restore. By default they are kept.
    #[must_use]
    pub fn after_restore(mut self, after: AfterRestore) -> Self {
        self.after_restore = after;
        self
    }

    /// Sets the time at which versions are written to the lowest tier. The default is at once if versions outlive the
    /// engine, and otherwise [as needed](Flush::Needed).
    #[must_use]
    pub fn flush(mut self, flush: Flush) -> Self {
        self.flush = Some(flush);
        self
    }

    /// Keeps a time line of the last `entries` flushes, prefetches, waits, copies and evictions, for
    /// [`Engine::write_timeline`](crate::Engine::write_timeline), at 88 bytes each. 0, the default, keeps none and
    /// costs nothing.
    #[must_use]
    pub fn timeline(mut self, entries: usize) -> Self {
        self.timeline = entries;
        self
    }

    /// Sets whether copies between device memory and the [scratch](Self::scratch) file bypass host memory by cuFile; by
    /// default [`Measured`](crate::DirectIo::Measured). The loader looks for cuFile where it finds libraries
    /// (`LD_LIBRARY_PATH`): before the first large copy between the two, or, with
    /// [`Always`](crate::DirectIo::Always), when the engine is built. Opening cuFile takes a few tenths of a second, and
    /// writes a `cufile.log` to the working directory.
    #[must_use]
    pub fn direct_io(mut self, how: crate::DirectIo) -> Self {
        self.direct_io = how;
        self
    }

    /// Sets the policy, which predicts the order in which versions are used; by default [`Residency`]. The engine stops
    /// asking a policy that panics: see [`Metrics::policy_panic`](crate::Metrics::policy_panic).
    #[must_use]
    pub fn policy(mut self, policy: impl Policy + 'static) -> Self {
        self.policy = Box::new(policy);
        self
    }
}

impl std::fmt::Debug for EngineBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EngineBuilder")
            .field("device_cache", &self.device_cache)
            .field("host_cache", &self.host_cache)
            .field("scratch", &self.scratch)
            .field("history", &self.history)
            .field("after_restore", &self.after_restore)
            .finish_non_exhaustive()
    }
}
