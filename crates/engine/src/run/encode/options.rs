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
    /// Takes the options out of the builder.
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
    /// Stores versions below the fastest tier as differences. Lower tiers store, and transfer, only the bytes that change from
    /// version to version. Restores and prefetches return all bytes.
    ///
    /// Versions of one size form chains. A version that has little in common with its predecessor starts a new chain. Chains are
    /// kept so short that a restore [reads](crate::Differences::restore_reads) at most two checkpoints. When a version is
    /// discarded, its difference stays as long as other versions build upon it. If the fastest tier is device memory, the device
    /// makes the differences. For that it takes memory for two checkpoints beside the device cache, or for one if there is no more.
    /// Otherwise the host's cores make them.
    ///
    /// Directories of a single rank hold differences, too. The next engine needs `dedup` to read them, with any chunk size.
    /// Discarded versions that others build upon are there again for the next engine.
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

    /// Compresses versions that leave the fastest tier, or only those that go to the tiers that
    /// [`Compression::on`](crate::Compression::on) names. The tiers then hold more versions, and transfers to them take less time.
    /// Restores and prefetches return the bytes that were checkpointed, or values within the bounds of
    /// [`Compression::within`](crate::Compression::within).
    ///
    /// The device compresses the contents of device memory, with memory for a few checkpoints beside the device cache. The host's
    /// cores compress all else. A version that does not become smaller is stored as it is. If compression does not shorten the way
    /// down, the engine turns it off, and tries it again now and then. [`Metrics::compression`](crate::Metrics::compression) tells
    /// if it is on.
    ///
    /// With [`dedup`](Self::dedup), the engine compresses differences instead of checkpoints, by the same rules. Building the
    /// engine then fails with bounds, as a difference keeps every byte, and with other tiers than all below the fastest.
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

/// Checks that the fastest tier is memory to encode from, and that there are tiers to store to below the first `above` ones.
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
