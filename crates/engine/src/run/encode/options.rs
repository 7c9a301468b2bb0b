//! The builder's choice of a stage.

use super::{Compressed, DifferenceStage};
use crate::kind::Kind;
use crate::run::{Stage, StageOptions, TierState};
use crate::{BuildError, CompressedTiers, Compression, EngineBuilder, Result};
use std::any::Any;
use tierflow_device::Device;

/// Differences, compression, or both.
#[derive(Debug, Default)]
struct Options {
    differences: Option<crate::Differences>,
    compression: Option<Compression>,
}

impl Options {
    /// Takes the builder's options.
    fn of(builder: &mut EngineBuilder) -> Self {
        let options = builder.stage.take();
        let options = options.and_then(|options| (options as Box<dyn Any>).downcast().ok());
        options.map(|options| *options).unwrap_or_default()
    }

    /// Returns the reason why differences cannot be compressed in the chosen way.
    fn misfit(&self) -> Option<&'static str> {
        let how = self.compression.as_ref()?;
        if how.has_bounds() {
            Some(
                "a difference holds every byte as it was: leave the bounds out of `compress`, or leave out `dedup`",
            )
        } else if how.tiers() != CompressedTiers::default() {
            Some(
                "differences are made below the fastest tier: leave the tiers out of `compress`, or leave out `dedup`",
            )
        } else {
            None
        }
    }
}

impl StageOptions for Options {
    fn differs(&self) -> bool {
        self.differences.is_some()
    }

    fn whole_on(&self, kinds: &[Kind]) -> usize {
        let how = self.compression.as_ref();
        how.map_or(1, |how| how.tiers().whole_on(kinds))
    }

    fn check(&self, kinds: &[Kind]) -> Result<()> {
        if let Some(why) = self.misfit().filter(|_| self.differs()) {
            return Err(BuildError::NoDifferences { why }.into());
        }
        may_differ(kinds, self.whole_on(kinds))?;
        let how = self.compression.as_ref();
        let by_nvcomp = how.is_some_and(|how| how.nvcomp_codec().is_some());
        if by_nvcomp && (kinds.first() != Some(&Kind::Device) || self.whole_on(kinds) > 1) {
            let why = "nvCOMP compresses what leaves device memory: give the engine a device cache, and choose no lower tiers in \
                       `compress`, or leave out nvCOMP";
            return Err(BuildError::NoDifferences { why }.into());
        }
        Ok(())
    }

    fn make(&self, device: &Device, tiers: &[TierState]) -> Result<Option<Box<dyn Stage>>> {
        let compression = self.compression.clone();
        Ok(match (self.differences, compression) {
            (Some(differences), None) => {
                Some(Box::new(DifferenceStage::new(differences, device, tiers)?))
            }
            (Some(differences), Some(how)) => {
                let stage = DifferenceStage::new(differences, device, tiers)?;
                Some(Box::new(stage.encoded(how, device, tiers)?))
            }
            (None, Some(how)) => Some(Box::new(Compressed::new(how, device, tiers)?)),
            (None, None) => None,
        })
    }
}

impl EngineBuilder {
    /// Stores versions below the fastest tier as differences: those tiers hold, and take the time of, the bytes that changed from
    /// version to version. Restores and prefetches give the whole bytes.
    ///
    /// Versions of one size make chains, which begin anew with a version that has little in common with the one before, and are kept
    /// so that a restore [reads](crate::Differences::restore_reads) at most two checkpoints. One that another builds upon keeps its
    /// difference when it is discarded, until none does. Differences are made by the device where the fastest tier is device memory, in room for two checkpoints beside the device cache or for
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
    #[must_use]
    pub fn dedup(mut self, how: impl Into<crate::Differences>) -> Self {
        self.stage = Some(Box::new(Options {
            differences: Some(how.into()),
            ..Options::of(&mut self)
        }));
        self
    }

    /// Compresses versions that leave the fastest tier, or only those that go to the lower tiers that
    /// [`Compression::on`](crate::Compression::on) names: they hold more of it, and it takes less of their time. Restores and prefetches
    /// give the bytes that were checkpointed, or within bounds where [`Compression::within`](crate::Compression::within) allows that.
    ///
    /// The device compresses the contents of device memory, in room for a few checkpoints beside the device cache; the host's cores
    /// compress all else. A version that does not become smaller goes as it is. Where compression does not shorten the way
    /// down the engine leaves it out, and tries it again now and then: [`Metrics::compression`](crate::Metrics::compression) says which.
    ///
    /// With [`dedup`](Self::dedup), differences are compressed instead of checkpoints, by the same rules; bounds are refused, as a
    /// difference holds every byte as it was, and so are other tiers than all below the fastest.
    ///
    /// Directories and other storage that outlives the engine hold compressed versions, too. The next engine needs `compress` or
    /// `dedup` to read them, with any options.
    #[must_use]
    pub fn compress(mut self, how: Compression) -> Self {
        self.stage = Some(Box::new(Options {
            compression: Some(how),
            ..Options::of(&mut self)
        }));
        self
    }
}

/// Checks that the stage has memory to encode from, and tiers to store to below the first `above` of these.
fn may_differ(kinds: &[Kind], above: usize) -> Result<()> {
    let below = kinds.get(above..).unwrap_or_default();
    let why = match kinds {
        [Kind::Device | Kind::Host, ..] if below.is_empty() => {
            "give the engine a tier below those that hold checkpoints as they are, such as a scratch or an external directory"
        }
        _ if below.contains(&Kind::Peers) => "peers' memory holds checkpoints whole",
        [Kind::Device | Kind::Host, ..] => return Ok(()),
        _ => "give the engine a device cache or a host cache",
    };
    Err(BuildError::NoDifferences { why }.into())
}
