//! The reference that `--verify` compares with: a history in ordinary memory.

use std::collections::HashMap;

use anyhow::{Context, Result};

use crate::propagator::{self, Propagator, Wavefield};

/// Keeps every wavefield, one or both time levels, until it is taken.
pub struct HostHistory<'a> {
    propagator: &'a dyn Propagator,
    levels: usize,
    fields: HashMap<u64, Vec<Vec<u8>>>,
}

impl<'a> HostHistory<'a> {
    /// An empty history.
    pub fn new(propagator: &'a dyn Propagator, levels: usize) -> Self {
        Self {
            propagator,
            levels,
            fields: HashMap::new(),
        }
    }

    /// Keeps a wavefield as this version.
    pub fn keep(&mut self, version: u64, field: &Wavefield) -> Result<()> {
        self.fields.insert(version, self.bytes(field)?);
        Ok(())
    }

    /// Puts a version into `field` and forgets it. Tells whether `restored` is the same, bit for
    /// bit.
    pub fn take(&mut self, version: u64, field: &Wavefield, restored: &Wavefield) -> Result<bool> {
        let kept = self
            .fields
            .remove(&version)
            .with_context(|| format!("version {version} was not kept, or taken before"))?;
        for (bytes, level) in kept.iter().zip(field.levels()) {
            self.propagator.upload(bytes, level)?;
        }
        Ok(kept == self.bytes(restored)?)
    }

    fn bytes(&self, field: &Wavefield) -> Result<Vec<Vec<u8>>> {
        let levels = field.levels().into_iter().take(self.levels);
        let bytes = levels.map(|level| propagator::read(self.propagator, level));
        bytes.collect()
    }
}
