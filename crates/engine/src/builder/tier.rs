//! The tiers of an engine, each with its options.

use super::assembly::ALIGNMENT;
use super::{EngineBuilder, UNLIMITED};
use crate::history::External;
use crate::run::PeerMemory;
use crate::{BuildError, Error, Result};
use std::mem::{self, Discriminant};
use std::path::PathBuf;
use std::sync::Arc;
use tierflow_device::Device;
use tierflow_store::{Guarded, Scratch, Storage, Vault, Verified};
use tierflow_tier_alloc::{DeviceOptions, HostOptions, HostPool, Pace};
use tierflow_transfer::volume::{Volume, VolumeError};

/// Bytes of the host cache that are pinned before the first flush, and later ahead of the farthest copy or loan.
const LEAD: usize = 1 << 30;

/// A tier of a future engine, for [`EngineBuilder::tier`].
///
/// The kind of a tier decides its level: device memory, memory of peers, host memory, scratch storage, the node's
/// directory, external storage. An engine has at most one tier of each kind; the last one given counts.
///
/// ```
/// use tierflow_engine::{Engine, Tier};
/// use tierflow_tier_alloc::DeviceGrowth;
/// # fn main() -> tierflow_engine::Result<()> {
/// let device = tierflow_device::open(tierflow_device::Choice::Host)?;
/// let engine = Engine::builder(&device)
///     .tier(Tier::device(16 << 20).growth(DeviceGrowth::DirectAlloc))
///     .tier(Tier::host(64 << 20))
///     .tier(Tier::scratch(std::env::temp_dir()).limit(1 << 30))
///     .build()?;
/// # drop(engine); Ok(()) }
/// ```
#[derive(Debug)]
pub struct Tier(pub(crate) AnyTier);

/// The kind of a tier, with its options.
#[derive(Debug)]
pub(crate) enum AnyTier {
    Device(MemoryCache<DeviceOptions>),
    #[cfg_attr(not(feature = "peers"), expect(dead_code))]
    Peers(Arc<dyn PeerMemory>),
    Host(MemoryCache<HostOptions>),
    Scratch(ScratchTier),
    NodeLocal(PathBuf, u64),
    External(External),
    /// A tier that was given this option, which its kind does not have.
    Refused(&'static str, Discriminant<AnyTier>),
}

impl AnyTier {
    fn kind(&self) -> Discriminant<Self> {
        match self {
            Self::Refused(_, kind) => *kind,
            tier => mem::discriminant(tier),
        }
    }
}

impl Tier {
    /// Returns a cache of `bytes` bytes of device memory; 0 for no such tier.
    #[must_use]
    pub fn device(bytes: usize) -> MemoryCache<DeviceOptions> {
        MemoryCache::new(bytes, DeviceOptions::default())
    }

    /// Returns a cache of `bytes` bytes of host memory. 0 means no such tier, or with a [pool](MemoryCache::pool) all of the pool.
    #[must_use]
    pub fn host(bytes: usize) -> MemoryCache<HostOptions> {
        let growth = HostOptions::default().pace(Pace::AsNeeded { lead: LEAD });
        MemoryCache::new(bytes, growth)
    }

    /// Returns a scratch file in a directory. The file has no name and ends with the engine.
    #[must_use]
    pub fn scratch(directory: impl Into<PathBuf>) -> Self {
        Self::on_blocks(Blocks::Directory(directory.into()))
    }

    /// Returns one tier of scratch files, a file in each of these directories, which are on separate file systems. Each block goes
    /// to the file system that is predicted to write it first, by [VeloC's adaptive placement](tierflow_transfer::volume::Volume).
    /// A directory that fails or is full gets no more blocks. [`EngineBuilder::build`] measures the directories, which writes about
    /// 100 MiB to each.
    #[must_use]
    pub fn scratch_over<P: Into<PathBuf>>(directories: impl IntoIterator<Item = P>) -> Self {
        let directories = directories.into_iter().map(Into::into);
        Self::on_blocks(Blocks::Directories(directories.collect()))
    }

    /// Returns a tier on the application's storage instead of a scratch file. The contents end with the engine. The
    /// [alignment](tierflow_store::Storage::alignment) must be a power of two of at most 4096 bytes.
    #[must_use]
    pub fn storage(storage: Arc<dyn Storage>) -> Self {
        Self::on_blocks(Blocks::Storage(storage))
    }

    /// Returns a directory of this node, made if missing, in which versions outlive the process: the next engine on the directory
    /// finds them. For each rank, at most one process at a time writes there.
    #[must_use]
    pub fn node_local(directory: impl Into<PathBuf>) -> Self {
        Self(AnyTier::NodeLocal(directory.into(), UNLIMITED))
    }

    /// Returns a directory on external storage, or an object store by its URL: see [`EngineBuilder::external`].
    #[must_use]
    pub fn external(directory: impl Into<PathBuf>) -> Self {
        Self(AnyTier::External(External::Named(directory.into())))
    }

    /// Returns external storage of the application's kind, which keeps the pieces of the engine's rank.
    #[must_use]
    pub fn vault(vault: Arc<dyn Vault>) -> Self {
        Self(AnyTier::External(External::Vault(vault)))
    }

    /// Sets the largest number of bytes on scratch storage or in the node's directory. By default, or with `None`, the file system
    /// sets the limit. For other tiers, [`EngineBuilder::build`] refuses a limit.
    ///
    /// In the node's directory, versions that are also on external storage are removed for newer ones. Without external storage no
    /// version is removed. Versions that only this directory has when the engine is built are kept even beyond the limit.
    #[must_use]
    pub fn limit(mut self, bytes: impl Into<Option<u64>>) -> Self {
        let bytes = bytes.into().unwrap_or(UNLIMITED).min(UNLIMITED);
        match &mut self.0 {
            AnyTier::Scratch(ScratchTier { limit, .. }) | AnyTier::NodeLocal(_, limit) => {
                *limit = bytes
            }
            other => *other = AnyTier::Refused("limit", other.kind()),
        }
        self
    }

    /// Turns checksums of scratch storage on or off. The default is on. Then the engine keeps a checksum of each 64 KiB that it
    /// writes, in 8 bytes of memory, and checks the bytes that it reads. If a copy does not match, the engine reads the copy on the
    /// next tier. If there is none, restoring fails with [`Error::Damaged`]. Copies that bypass host memory
    /// (`EngineBuilder::direct_io`) are not checked. [`EngineBuilder::build`] refuses the option for other tiers: tiers that
    /// outlive the engine always have checksums, and tiers in memory have none.
    #[must_use]
    pub fn checksums(mut self, are_kept: bool) -> Self {
        match &mut self.0 {
            AnyTier::Scratch(scratch) => scratch.is_verified = are_kept,
            other => *other = AnyTier::Refused("checksums", other.kind()),
        }
        self
    }

    fn on_blocks(on: Blocks) -> Self {
        Self(AnyTier::Scratch(ScratchTier {
            on,
            limit: UNLIMITED,
            is_verified: true,
        }))
    }
}

impl EngineBuilder {
    /// Adds a tier. Replaces an earlier tier of the same kind.
    #[must_use]
    pub fn tier(mut self, tier: impl Into<Tier>) -> Self {
        let tier = tier.into().0;
        self.refused.retain(|(_, kind)| *kind != tier.kind());
        match tier {
            AnyTier::Device(cache) => self.device_cache = cache,
            AnyTier::Peers(cache) => self.peer_cache = Some(cache),
            AnyTier::Host(cache) => self.host_cache = cache,
            AnyTier::Scratch(scratch) => self.scratch = Some(scratch),
            AnyTier::NodeLocal(directory, limit) => {
                self.history.node_local = Some(directory);
                self.history.limit = (limit < UNLIMITED).then_some(limit);
                self.node_local_limit = limit;
            }
            AnyTier::External(external) => self.history.external = Some(external),
            AnyTier::Refused(option, kind) => self.refused.push((option, kind)),
        }
        self
    }
}

/// A cache in the memory of the [device](Tier::device) or the [host](Tier::host), as a tier. The options tell how it grows.
#[derive(Debug, Clone)]
pub struct MemoryCache<O> {
    pub(super) bytes: usize,
    pub(super) growth: O,
    pub(super) evict_while_growing: bool,
    pub(super) pool: Option<HostPool>,
}

impl<O> MemoryCache<O> {
    fn new(bytes: usize, growth: O) -> Self {
        Self {
            bytes,
            growth,
            evict_while_growing: false,
            pool: None,
        }
    }

    /// Sets the growth: a [`DeviceGrowth`](tierflow_tier_alloc::DeviceGrowth), a
    /// [`HostGrowth`](tierflow_tier_alloc::HostGrowth), or more options.
    ///
    /// With any growth, a device cache evicts no version before all of it is mapped and filled (HiPC'22 §II, constraint 1), unless
    /// [`evict_while_growing`](MemoryCache::evict_while_growing) is set.
    ///
    /// Without a GPU, a host cache with [`Pace::AsNeeded`] grows by [`Pace::Doubling`], at most as far ahead.
    #[must_use]
    pub fn growth(mut self, growth: impl Into<O>) -> Self {
        self.growth = growth.into();
        self
    }
}

impl MemoryCache<DeviceOptions> {
    /// Sets whether checkpoints may be evicted from the cache while it is still being mapped. The default is no (HiPC'22 §II,
    /// constraint 1): bytes that are still to be mapped count as free, and a checkpoint waits for them instead of evicting another
    /// one. If set, the cache is as large as its mapped part, and no caller waits for the driver.
    #[must_use]
    pub fn evict_while_growing(mut self, may: bool) -> Self {
        self.evict_while_growing = may;
        self
    }
}

impl From<MemoryCache<DeviceOptions>> for Tier {
    fn from(cache: MemoryCache<DeviceOptions>) -> Self {
        Self(AnyTier::Device(cache))
    }
}

impl MemoryCache<HostOptions> {
    /// Shares a pool of host memory with other engines, of this process or of other processes on this machine. The cache is the
    /// part of the pool that this engine may use: at most its bytes, or all of the pool if these are 0. Each engine gets an equal
    /// part on demand. An engine borrows the idle memory of the others. When they need it, the engine empties it and gives it back.
    ///
    /// The cache needs a tier below to flush to, and memory that can be given back in parts:
    /// [`HostGrowth::Pieces`](tierflow_tier_alloc::HostGrowth::Pieces), the default.
    #[must_use]
    pub fn pool(mut self, pool: &HostPool) -> Self {
        self.pool = Some(pool.clone());
        self
    }

    /// Returns the growth for this device. Without a driver nothing is pinned. Then memory is touched ahead of its use, as much as
    /// was used before, so that small checkpoints take little memory. A copy into untouched memory does not wait for the touching:
    /// the copy itself causes the page faults.
    pub(super) fn growth_on(&self, device: &Device) -> HostOptions {
        let growth = self.growth.clone();
        match (device.info().kind, growth.pace) {
            (tierflow_device::Kind::Host, Pace::AsNeeded { lead }) => {
                growth.pace(Pace::Doubling { most: lead })
            }
            _ => growth,
        }
    }
}

impl From<MemoryCache<HostOptions>> for Tier {
    fn from(cache: MemoryCache<HostOptions>) -> Self {
        Self(AnyTier::Host(cache))
    }
}

/// Storage that ends with the engine, as a tier.
#[derive(Debug, Clone)]
pub(crate) struct ScratchTier {
    pub(super) on: Blocks,
    pub(super) limit: u64,
    is_verified: bool,
}

/// The directories or the storage that hold the blocks.
#[derive(Debug, Clone)]
pub(super) enum Blocks {
    Directory(PathBuf),
    Directories(Vec<PathBuf>),
    Storage(Arc<dyn Storage>),
}

impl ScratchTier {
    /// Opens the storage. Also returns the largest number of bytes there.
    pub(super) fn open(&self) -> Result<(Arc<dyn Storage>, u64)> {
        let (storage, limit) = self.open_blocks()?;
        match self.is_verified {
            true => Ok((Arc::new(Verified::new(storage)), limit)),
            false => Ok((storage, limit)),
        }
    }

    fn open_blocks(&self) -> Result<(Arc<dyn Storage>, u64)> {
        Ok(match &self.on {
            Blocks::Directory(directory) => (Arc::new(Scratch::open(directory)?), self.limit),
            Blocks::Directories(directories) => {
                let volume = Volume::of_directories(directories).map_err(|error| match error {
                    VolumeError::Store(error) => Error::from(error),
                    error => BuildError::Scratch(Box::new(error)).into(),
                })?;
                let bytes = volume.bytes();
                (Arc::new(volume), self.limit.min(bytes))
            }
            Blocks::Storage(storage) => (aligned(storage)?, self.limit),
        })
    }
}

/// Wraps the application's storage in a guard. Refuses an alignment that is not a power of two up to [`ALIGNMENT`].
fn aligned(storage: &Arc<dyn Storage>) -> Result<Arc<dyn Storage>> {
    let storage = Guarded::new(Arc::clone(storage));
    let alignment = storage.alignment();
    if alignment.is_power_of_two() && alignment as u64 <= ALIGNMENT {
        return Ok(Arc::new(storage));
    }
    Err(BuildError::Alignment {
        alignment,
        most: ALIGNMENT,
    }
    .into())
}
