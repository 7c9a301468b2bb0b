//! What may be chosen about an engine. `assembly` makes one of it.

mod assembly;
mod tier;

pub use tier::{DeviceCache, HostCache, NodeLocal, ScratchTier, Tier};

use crate::flush::Flush;
use crate::lasting::{Group, HistoryOptions};
use crate::plan::AfterRestore;
use std::path::PathBuf;
use std::sync::Arc;
use tierflow_device::Device;
#[cfg(feature = "peers")]
use tierflow_peers::PeerCache;
use tierflow_plan::{Policy, Residency};
use tierflow_store::{Retention, Storage, Vault};

/// A file tier without a limit of its own: the file system sets it.
const UNLIMITED: u64 = 1 << 60;

/// Tiers and policies of an [`Engine`](crate::Engine) to be. Without any call it has no tier, which [`EngineBuilder::build`] refuses.
pub struct EngineBuilder {
    device: Device,
    device_cache: DeviceCache,
    #[cfg(feature = "peers")]
    peer_cache: Option<Arc<PeerCache>>,
    host_cache: HostCache,
    scratch: Option<ScratchTier>,
    pub(crate) lasting: HistoryOptions,
    node_local_limit: u64,
    after_restore: AfterRestore,
    flush: Option<Flush>,
    timeline: usize,
    #[cfg(feature = "dedup")]
    dedup: Option<tierflow_dedup::Config>,
    #[cfg(feature = "compress")]
    compression: Option<crate::Compression>,
    #[cfg(feature = "cufile")]
    direct_io: crate::DirectIo,
    policy: Box<dyn Policy>,
}

impl EngineBuilder {
    pub(crate) fn new(device: &Device) -> Self {
        Self {
            device: device.clone(),
            device_cache: DeviceCache::default(),
            #[cfg(feature = "peers")]
            peer_cache: None,
            host_cache: HostCache::default(),
            scratch: None,
            lasting: HistoryOptions::default(),
            node_local_limit: UNLIMITED,
            after_restore: AfterRestore::default(),
            flush: None,
            timeline: 0,
            #[cfg(feature = "dedup")]
            dedup: None,
            #[cfg(feature = "compress")]
            compression: None,
            #[cfg(feature = "cufile")]
            direct_io: crate::DirectIo::default(),
            policy: Box::new(Residency),
        }
    }

    /// Device memory to keep checkpoints in, in bytes; 0 for no such tier.
    #[must_use]
    pub fn device_cache(mut self, bytes: usize) -> Self {
        self.device_cache.bytes = bytes;
        self
    }

    /// Host memory to keep checkpoints in, in bytes; 0 for no such tier.
    #[must_use]
    pub fn host_cache(mut self, bytes: usize) -> Self {
        self.host_cache.bytes = bytes;
        self
    }

    /// A directory for the scratch file, which has no name and goes with the engine.
    #[must_use]
    pub fn scratch(self, directory: impl Into<PathBuf>) -> Self {
        self.tier(Tier::scratch(directory))
    }

    /// Storage of your own as the lowest tier, instead of a scratch directory. Its
    /// [alignment](tierflow_store::Storage::alignment) is a power of two of at most 4096 bytes.
    #[must_use]
    pub fn storage(self, storage: Arc<dyn Storage>) -> Self {
        self.tier(Tier::storage(storage))
    }

    /// A directory of this node, made if missing, in which versions outlive the process: the next engine on it finds them.
    /// One process at a time writes there for each rank.
    #[must_use]
    pub fn node_local(self, directory: impl Into<PathBuf>) -> Self {
        self.tier(Tier::node_local(directory))
    }

    /// A directory on external storage, such as a parallel file system, in which versions outlive the node. With
    /// [`node_local`](Self::node_local), they get there through that directory; [`Engine::wait`](crate::Engine::wait) waits until they are
    /// published there.
    ///
    /// With the feature `objects`, an object store by its URL, too: `s3://bucket/prefix`, `gs://bucket/prefix` or
    /// `az://container/prefix`. The environment says how to get there (`AWS_ACCESS_KEY_ID`, `AWS_ENDPOINT_URL`, …), as tierflow-objects
    /// tells; a store that cannot be used is an error of [`build`](Self::build). `file:///path` is the directory.
    #[must_use]
    pub fn external(self, directory: impl Into<PathBuf>) -> Self {
        self.tier(Tier::external(directory))
    }

    /// External storage of another kind. It must keep the pieces of the engine's own rank.
    #[must_use]
    pub fn external_vault(self, vault: Arc<dyn Vault>) -> Self {
        self.tier(Tier::vault(vault))
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
    /// otherwise. The others are discarded, restored or not, but for those that the application has asked for: what is hinted
    /// or being restored stays until it was read.
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
    /// before. One that another builds upon keeps its difference when it is discarded, until none does. Differences are
    /// made by the device where the fastest tier is device memory, in room for two checkpoints beside the device cache or for
    /// one where there is no more; else by the host's cores.
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

    /// Compresses what leaves the fastest tier, or only what goes to the lower tiers that
    /// [`Compression::on`](crate::Compression::on) names: they hold more of it, and it takes less of their time. Restores and prefetches
    /// give the bytes that were checkpointed, or within bounds where [`Compression::within`](crate::Compression::within) allows that.
    ///
    /// What lies in device memory is compressed there, and needs room for a few checkpoints beside the device cache; what lies
    /// elsewhere, by the host's cores. What does not become smaller goes as it is, and where compressing does not shorten the way
    /// down it is left out, and tried again now and then: [`Metrics::compression`](crate::Metrics::compression) says which.
    ///
    /// With [`dedup`](Self::dedup), differences are compressed instead of checkpoints, by the same rules; bounds are refused, as a
    /// difference holds every byte as it was, and so are other tiers than all below the fastest.
    ///
    /// Directories and other storage that outlives the engine hold compressed versions, too. The next engine needs `compress` or
    /// `dedup` to read them, whatever is chosen by it, and to be built with the features of both if both were chosen.
    #[cfg(feature = "compress")]
    #[must_use]
    pub fn compress(mut self, how: crate::Compression) -> Self {
        self.compression = Some(how);
        self
    }

    /// Whether copies between device memory and the [scratch](Self::scratch) file go past the host's memory, by cuFile:
    /// [`Measured`](crate::DirectIo::Measured) unless you choose otherwise. cuFile is looked for when the engine is built and has both,
    /// where the loader finds libraries (`LD_LIBRARY_PATH`). It takes a few tenths of a second to open, and writes a `cufile.log` to the
    /// working directory.
    #[cfg(feature = "cufile")]
    #[must_use]
    pub fn direct_io(mut self, how: crate::DirectIo) -> Self {
        self.direct_io = how;
        self
    }

    /// The order in which versions are taken to be used, from which follows what lies where; [`Residency`] unless you choose
    /// another. One that panics is asked no more: see [`Engine::policy_panic`](crate::Engine::policy_panic).
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
            .field("lasting", &self.lasting)
            .field("after_restore", &self.after_restore)
            .finish_non_exhaustive()
    }
}
