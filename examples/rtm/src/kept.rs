//! The reference that `--verify` compares with: a history in ordinary memory.

use std::collections::HashMap;

use anyhow::{Context, Result};

use crate::propagator::{Propagator, Wavefield};

/// Keeps every wavefield, both time levels, until it is taken.
pub struct Kept<'a> {
    propagator: &'a dyn Propagator,
    levels: HashMap<u64, [Vec<u8>; 2]>,
}

impl<'a> Kept<'a> {
    /// Nothing kept yet.
    pub fn new(propagator: &'a dyn Propagator) -> Self {
        Self {
            propagator,
            levels: HashMap::new(),
        }
    }

    /// Keeps a wavefield as this version.
    pub fn keep(&mut self, version: u64, field: &Wavefield) -> Result<()> {
        self.levels.insert(version, self.bytes(field)?);
        Ok(())
    }

    /// Puts a version into `field` and forgets it. Tells whether `restored` is the same, bit for
    /// bit.
    pub fn take(&mut self, version: u64, field: &Wavefield, restored: &Wavefield) -> Result<bool> {
        let kept = self
            .levels
            .remove(&version)
            .with_context(|| format!("version {version} was not kept, or taken before"))?;
        self.propagator.upload(&kept[0], &field.now)?;
        self.propagator.upload(&kept[1], &field.before)?;
        Ok(kept == self.bytes(restored)?)
    }

    fn bytes(&self, field: &Wavefield) -> Result<[Vec<u8>; 2]> {
        let mut levels = [&field.now, &field.before].map(|memory| vec![0; memory.len()]);
        self.propagator.download(&field.now, &mut levels[0])?;
        self.propagator.download(&field.before, &mut levels[1])?;
        Ok(levels)
    }
}
