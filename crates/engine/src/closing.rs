//! How an engine ends: it waits as long as bytes get to where they outlive it.

use crate::{Engine, Error, Result, Within};
use std::time::{Duration, Instant};

/// How many times in its patience a wait looks for progress.
const LOOKS: u32 = 8;

/// A patience that counts from when bytes moved last.
pub(crate) struct ProgressPatience {
    length: Duration,
    seen: u64,
    since: Instant,
}

impl ProgressPatience {
    pub(crate) fn new(engine: &Engine, length: Duration) -> Self {
        Self {
            length,
            seen: engine.moved(),
            since: Instant::now(),
        }
    }

    /// Returns true once nothing has moved for as long as the patience lasts.
    pub(crate) fn is_over(&mut self, engine: &Engine) -> bool {
        let seen = engine.moved();
        if seen != self.seen {
            (self.seen, self.since) = (seen, Instant::now());
        }
        self.since.elapsed() >= self.length
    }
}

impl Engine {
    /// A number that grows with the bytes that get to tiers that outlive the engine, and with those that other ranks
    /// [protect](crate::EngineBuilder::redundancy): as long as it does, nothing hangs.
    #[must_use]
    pub fn progress(&self) -> u64 {
        self.moved()
    }

    fn moved(&self) -> u64 {
        let kept = self.shared.tiers.iter();
        let kept = kept.filter_map(|tier| tier.medium.kept());
        let moved: u64 = kept.map(|kept| kept.moved()).sum();
        moved.wrapping_add(self.nodes.progress())
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
        let mut moving = ProgressPatience::new(self, patience);
        loop {
            match wait(&self.within(patience / LOOKS)) {
                Err(Error::TimedOut { .. }) if moving.is_over(self) => {
                    return Err(Error::TimedOut { patience });
                }
                Err(Error::TimedOut { .. }) => {}
                waited => return waited,
            }
        }
    }
}
