//! Where the source's wavefields go between the forward and the backward pass.

use std::collections::HashMap;

use anyhow::{Context, Result};

use crate::propagator::{Propagator, Wavefield};

/// Keeps wavefields by version.
pub trait History {
    /// Tells which versions will be restored, in this order.
    fn hint(&mut self, versions: &[u64]) -> Result<()>;

    /// Keeps both time levels of a wavefield.
    fn checkpoint(&mut self, version: u64, field: &Wavefield) -> Result<()>;

    /// From now on what was hinted may be brought near.
    fn prefetch_start(&mut self) -> Result<()>;

    /// Brings a version back. It is then no longer kept.
    fn restore(&mut self, version: u64, field: &Wavefield) -> Result<()>;
}

/// Keeps every wavefield in ordinary memory: the reference that `--verify` compares with.
pub struct Kept<'a> {
    propagator: &'a dyn Propagator,
    levels: HashMap<u64, [Vec<u8>; 2]>,
}

impl<'a> Kept<'a> {
    /// Nothing kept yet.
    pub fn new(propagator: &'a dyn Propagator) -> Self {
        Self { propagator, levels: HashMap::new() }
    }

    fn bytes(&self, field: &Wavefield) -> Result<[Vec<u8>; 2]> {
        let mut levels = [&field.now, &field.before].map(|memory| vec![0; memory.len()]);
        self.propagator.download(&field.now, &mut levels[0])?;
        self.propagator.download(&field.before, &mut levels[1])?;
        Ok(levels)
    }

    /// Whether a wavefield is what was kept as this version, bit for bit.
    pub fn is(&self, version: u64, field: &Wavefield) -> Result<bool> {
        Ok(self.levels.get(&version) == Some(&self.bytes(field)?))
    }
}

impl History for Kept<'_> {
    fn hint(&mut self, _: &[u64]) -> Result<()> {
        Ok(())
    }

    fn checkpoint(&mut self, version: u64, field: &Wavefield) -> Result<()> {
        let levels = self.bytes(field)?;
        self.levels.insert(version, levels);
        Ok(())
    }

    fn prefetch_start(&mut self) -> Result<()> {
        Ok(())
    }

    fn restore(&mut self, version: u64, field: &Wavefield) -> Result<()> {
        let [now, before] = self
            .levels
            .remove(&version)
            .with_context(|| format!("version {version} was not kept, or restored before"))?;
        self.propagator.upload(&now, &field.now)?;
        self.propagator.upload(&before, &field.before)
    }
}
