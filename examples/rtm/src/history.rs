//! The history of the source's wavefields, kept by the engine. All that the program asks of
//! Tierflow's engine is in this file, but for schedules that store some states alone: `recompute`.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tierflow_device::Device;
use tierflow_engine::{
    AfterRestore, Bound, Compression, Element, Engine, Metrics, Region, RegionMut, Tier, Value,
};

use crate::cli::Compress;
use crate::propagator::Wavefield;

/// Names of the two time levels of a wavefield.
const NOW: &str = "now";
const BEFORE: &str = "before";

/// Sizes and places of the tiers.
#[derive(Clone, Copy, Debug)]
pub struct Tiers<'a> {
    /// Bytes of device memory; 0 for none.
    pub device_cache: u64,
    /// Bytes of host memory; 0 for none.
    pub host_cache: u64,
    /// Directory for files.
    pub scratch: &'a Path,
    /// Bytes of files.
    pub scratch_limit: u64,
    /// How what leaves the fastest tier is compressed, if it is.
    pub compress: Option<Compress>,
    /// The lot of a snapshot that was read.
    pub after_restore: AfterRestore,
    /// The time levels of a snapshot: 1 or 2.
    pub levels: usize,
}

/// Cells of each time level.
pub fn cells(field: &Wavefield) -> u64 {
    field.now.len() as u64 / 4
}

/// Both time levels of a wavefield of so many cells.
pub fn regions<'a>(field: &'a Wavefield, cells: &'a [u64; 1]) -> [Region<'a>; 2] {
    [
        Region::from(&field.now).array(NOW, Element::F32, cells),
        Region::from(&field.before).array(BEFORE, Element::F32, cells),
    ]
}

/// The same to be written.
pub fn regions_mut(field: &Wavefield) -> [RegionMut<'_>; 2] {
    [RegionMut::from(&field.now), RegionMut::from(&field.before)]
}

/// Wavefields by version, in device memory, host memory and files.
pub struct History {
    engine: Engine,
    levels: usize,
    opened: Instant,
    /// How long it took to build the engine.
    pub built_in: Duration,
    /// From then until the first checkpoint was accepted.
    pub first_accepted: Option<Duration>,
}

impl History {
    /// Builds the engine.
    pub fn open(device: &Device, tiers: Tiers<'_>) -> Result<Self> {
        let bytes = |size: u64| usize::try_from(size).context("the cache is too large");
        let start = Instant::now();
        let builder = Engine::builder(device)
            .device_cache(bytes(tiers.device_cache)?)
            .host_cache(bytes(tiers.host_cache)?)
            .tier(Tier::scratch(tiers.scratch).limit(tiers.scratch_limit))
            .after_restore(tiers.after_restore);
        // The caches are to hold as much as they can.
        let lossless = Compression::lossless(Value::F32).always();
        let engine = match tiers.compress {
            None => builder,
            Some(Compress::Lossless) => builder.compress(lossless),
            Some(Compress::Nvcomp(codec)) => builder.compress(lossless.nvcomp(codec)),
            Some(Compress::Within(share)) => {
                let bound = Bound::Relative(share);
                builder.compress(lossless.within(NOW, bound).within(BEFORE, bound))
            }
        };
        let engine = engine
            .build()
            .with_context(|| format!("no engine with scratch {}", tiers.scratch.display()))?;
        Ok(Self {
            levels: tiers.levels,
            ..Self::new(engine, start.elapsed())
        })
    }

    /// The history of an engine that was built in so long.
    pub fn new(engine: Engine, built_in: Duration) -> Self {
        Self {
            engine,
            levels: 2,
            opened: Instant::now(),
            built_in,
            first_accepted: None,
        }
    }

    /// The engine.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Tells which versions will be restored, in this order.
    pub fn hint(&self, versions: &[u64]) {
        self.engine.hint(versions.iter().copied());
    }

    /// Keeps a wavefield, perhaps with an error of its own in place of the builder's bounds.
    pub fn checkpoint(
        &mut self,
        version: u64,
        field: &Wavefield,
        error: Option<f64>,
    ) -> Result<()> {
        let mut call = self.engine.call();
        if let Some(error) = error {
            call = call.within_error(error);
        }
        call.checkpoint(version, &regions(field, &[cells(field)])[..self.levels])?;
        self.first_accepted
            .get_or_insert_with(|| self.opened.elapsed());
        Ok(())
    }

    /// From now on what was hinted may be brought near.
    pub fn prefetch_start(&self) {
        self.engine.hints().prefetch_start();
    }

    /// Restores a version. An engine that discards what was restored then gives it up.
    pub fn restore(&self, version: u64, field: &Wavefield) -> Result<()> {
        let levels = &mut regions_mut(field)[..self.levels];
        Ok(self.engine.restore(version, levels)?)
    }

    /// The engine's metrics.
    pub fn metrics(&self) -> Metrics {
        self.engine.metrics()
    }
}
