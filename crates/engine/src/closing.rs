//! How an engine ends: it waits as long as bytes get to where they outlive it.

use crate::run::Shared;
use crate::{Engine, Error, Result, Within};
use std::time::{Duration, Instant};

/// How many times in its patience a wait looks for progress.
const LOOKS: u32 = 8;

impl Shared {
    /// A number that grows with the bytes that get to tiers that outlive the engine.
    pub(crate) fn moved(&self) -> u64 {
        let kept = self.tiers.iter().filter_map(|tier| tier.medium.kept());
        kept.map(|kept| kept.moved()).sum()
    }
}

/// A patience that counts from when bytes moved last.
pub(crate) struct Stall {
    patience: Duration,
    seen: u64,
    since: Instant,
}

impl Stall {
    pub(crate) fn new(shared: &Shared, patience: Duration) -> Self {
        Self {
            patience,
            seen: shared.moved(),
            since: Instant::now(),
        }
    }

    /// Returns true once nothing has moved for as long as the patience lasts.
    pub(crate) fn is_over(&mut self, shared: &Shared) -> bool {
        let seen = shared.moved();
        if seen != self.seen {
            (self.seen, self.since) = (seen, Instant::now());
        }
        self.since.elapsed() >= self.patience
    }
}

impl Engine {
    /// A number that grows with the bytes that get to tiers that outlive the engine: as long as it does, storage does not hang.
    #[must_use]
    pub fn progress(&self) -> u64 {
        self.shared.moved()
    }

    /// [`Engine::wait`], as long as bytes get to tiers that outlive the engine: `patience` counts from the last that did.
    ///
    /// # Errors
    /// As [`Engine::wait`]; [`Error::TimedOut`] when nothing has moved for so long.
    pub fn wait_while_moving(&self, patience: Duration) -> Result<()> {
        self.while_moving(patience, |within| within.wait())
    }

    /// Repeats a wait as long as bytes get to tiers that outlive the engine: `patience` counts from the last that did.
    pub(crate) fn while_moving(
        &self,
        patience: Duration,
        wait: impl Fn(&Within<'_>) -> Result<()>,
    ) -> Result<()> {
        let mut stall = Stall::new(&self.shared, patience);
        loop {
            match wait(&self.within(patience / LOOKS)) {
                Err(Error::TimedOut { .. }) if stall.is_over(&self.shared) => {
                    return Err(Error::TimedOut { patience });
                }
                Err(Error::TimedOut { .. }) => {}
                waited => return waited,
            }
        }
    }
}
