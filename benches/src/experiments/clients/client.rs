//! A client: a forward pass of checkpoints, and a backward pass of restores.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Result;
use serde::{Deserialize, Serialize};
use tierflow_engine::{AfterRestore, Engine, Region, RegionMut, Tier};
use tierflow_tier_alloc::{HostPool, PoolOptions};

use crate::machine::device_of;
use crate::process::{meet, say};

const MIB: usize = 1 << 20;

/// The sizes of the experiment, for one client on average.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct ClientScale {
    /// Bytes of a version.
    version: usize,
    versions: u64,
    device: usize,
    host: usize,
    slab: u64,
    /// Time between two checkpoints, and between two restores, in µs.
    interval_us: u64,
}

impl ClientScale {
    pub(super) fn of(is_gpu: bool, is_quick: bool) -> Self {
        let (version, versions, interval_us) = match (is_gpu, is_quick) {
            (_, true) => (MIB / 2, 48, 250),
            (false, false) => (4 * MIB, 96, 2_000),
            (true, false) => (32 * MIB, 48, 10_000),
        };
        Self {
            version,
            versions,
            device: 8 * version,
            host: 24 * version,
            slab: version.max(2 * MIB) as u64,
            interval_us,
        }
    }
}

/// A client, in the form in which its process reads it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::experiments) struct Client {
    pub(super) index: usize,
    pub(super) clients: usize,
    pub(super) coupled: bool,
    pub(super) pooled: bool,
    pub(super) scale: ClientScale,
    /// The folder of scratch files and of the pool.
    pub(super) directory: PathBuf,
}

/// A client's measurement: bytes that it restored, and seconds that it was blocked.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct ClientTimes {
    pub(super) bytes: f64,
    pub(super) checkpointing: f64,
    pub(super) restoring: f64,
}

impl Client {
    /// Returns the number of times that the client meets the others.
    pub(super) fn meetings(&self) -> u64 {
        if self.coupled {
            1 + 2 * self.scale.versions
        } else {
            1
        }
    }

    /// Returns the bytes of the client's versions: the average if the client is alone, else half as much more or half of it.
    fn bytes(&self) -> usize {
        match (self.clients, self.index % 2) {
            (1, _) => self.scale.version,
            (_, 0) => self.scale.version / 2 * 3,
            (_, _) => self.scale.version / 2,
        }
    }

    /// Runs as a process: meets the others by a line each way, and prints the measurement.
    pub(in crate::experiments) fn serve(&self) -> Result<()> {
        let folder = self.directory.join("pool");
        let pool = || HostPool::of_node(Some(&folder), self.pool_options());
        let pool = self.pooled.then(pool).transpose()?;
        let done = self.run(pool.as_ref(), &mut meet)?;
        say(&serde_json::to_string(&done)?)
    }

    /// Returns the options of the pool that all clients share.
    pub(super) fn pool_options(&self) -> PoolOptions {
        let total = self.scale.host * self.clients;
        PoolOptions::new(total as u64).slab(self.scale.slab)
    }

    /// Runs with a part of a pool as the host cache, or with a host cache of its own.
    pub(super) fn run(
        &self,
        pool: Option<&HostPool>,
        meet: &mut dyn FnMut() -> Result<()>,
    ) -> Result<ClientTimes> {
        let ClientScale {
            versions,
            device,
            host: host_cache,
            interval_us,
            ..
        } = self.scale;
        let gpu = device_of(self.index)?;
        let builder = Engine::builder(&gpu)
            .device_cache(device)
            .scratch(&self.directory)
            .after_restore(AfterRestore::Discard);
        let engine = match pool {
            None => builder.host_cache(host_cache),
            Some(pool) => builder.tier(Tier::host(0).pool(pool)),
        }
        .build()?;
        let bytes = self.bytes();
        let field = gpu.alloc(bytes)?;
        let stream = gpu.stream()?;
        let pause = || std::thread::sleep(Duration::from_micros(interval_us));
        engine.hint((0..versions).rev());
        let (mut checkpointing, mut restoring) = (Duration::ZERO, Duration::ZERO);
        meet()?;
        for version in 0..versions {
            stream.fill(&mut field.lend_mut(0..bytes)?, version as u8)?;
            pause();
            if self.coupled {
                meet()?;
            }
            let begun = Instant::now();
            engine.checkpoint(version, &[Region::from(&field)])?;
            checkpointing += begun.elapsed();
        }
        for version in (0..versions).rev() {
            pause();
            if self.coupled {
                meet()?;
            }
            let begun = Instant::now();
            engine.restore(version, &mut [RegionMut::from(&field)])?;
            restoring += begun.elapsed();
            let mut seen = [0; 1];
            stream.read(&field.lend(bytes - 1..bytes)?, &mut seen)?;
            anyhow::ensure!(seen == [version as u8], "version {version} came back wrong");
        }
        Ok(ClientTimes {
            bytes: bytes as f64 * versions as f64,
            checkpointing: checkpointing.as_secs_f64(),
            restoring: restoring.as_secs_f64(),
        })
    }
}
