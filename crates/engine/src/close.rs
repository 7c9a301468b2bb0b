//! The end of an engine: it waits as long as bytes still reach tiers that outlive it.

use crate::deadline::Awaited;
use crate::error::left_text;
use crate::plan::TierId;
use crate::{Call, Engine, Error, Result, Version};
use std::time::{Duration, Instant};

/// Number of times that a wait checks for progress within its patience.
const LOOKS: u32 = 8;

/// Longest time to wait for housekeeping at the end. After that, storage counts as hanging.
const LONGEST_HOUSEKEEPING: Duration = Duration::from_secs(10);

/// A patience that counts from the last progress.
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

    /// Returns true if nothing has moved for the length of the patience.
    pub(crate) fn is_over(&mut self, engine: &Engine) -> bool {
        let seen = engine.moved();
        if seen != self.seen {
            (self.seen, self.since) = (seen, Instant::now());
        }
        self.since.elapsed() >= self.length
    }
}

/// The patience for the threads of an engine that ends. For threads that copy, the engine's patience counts. The other threads get
/// a longer time, as they end by themselves unless storage hangs in housekeeping. The directories are free for another engine once
/// all threads have ended.
pub(crate) struct EndPatience {
    of_copies: ProgressPatience,
    since: Instant,
}

impl EndPatience {
    pub(crate) fn new(engine: &Engine) -> Self {
        Self {
            of_copies: ProgressPatience::new(engine, engine.patience),
            since: Instant::now(),
        }
    }

    pub(crate) fn is_over(&mut self, engine: &Engine) -> bool {
        self.of_copies.is_over(engine)
            && (engine.shared.is_copying() || self.since.elapsed() >= LONGEST_HOUSEKEEPING)
    }
}

impl Engine {
    /// Ends the engine once every accepted version is on the lowest tier, if that tier outlives the engine, and is
    /// [protected](Engine::protect). After [`Engine::suspend`], waits only for the chosen version. Dropping the engine also ends
    /// it, but waits only for transfers that are under way. In both cases a warning ([`tracing`]) names the versions that are not
    /// durable and that no error names.
    ///
    /// # Errors
    /// [`Error::Lost`] names the versions that were not durable although nothing moved for the
    /// [`closing_patience`](crate::EngineBuilder::closing_patience), and gives the cause. The engine is ended nevertheless. To be
    /// able to react, call [`Call::settle`] before.
    pub fn close(self) -> Result<()> {
        let settled = self.call().within(self.patience).settle();
        settled.inspect_err(|error| self.warn_of_lost(Some(error)))
    }

    /// Returns a number that grows with the bytes that reach tiers that outlive the engine, and with the bytes that other ranks
    /// protect.
    pub(crate) fn moved(&self) -> u64 {
        let durable = self.shared.tiers.iter();
        let durable = durable.filter_map(|tier| tier.medium.durable());
        let moved: u64 = durable.map(|durable| durable.moved()).sum();
        moved.wrapping_add(self.nodes.progress())
    }

    /// Names in a warning ([`tracing`]) the versions that would not be durable if the engine ended now: the versions that would be
    /// lost, and the versions that are on this node alone. Leaves out versions that `told` names, an error that the application
    /// got, and versions that were named before. Does nothing if no storage outlives the engine. Dropping the engine calls this.
    pub fn warn_of_lost(&self, told: Option<&Error>) {
        let mut named = self.named_at_end.lock();
        if let Some(Error::Lost { versions, kept, .. }) = told {
            named.extend(versions.iter().chain(kept));
        }
        drop(named);
        if !self.shared.lasts() {
            return;
        }
        let (mut lost, mut kept) = self.not_durable();
        let mut named = self.named_at_end.lock();
        lost.retain(|version| named.insert(*version));
        kept.retain(|version| named.insert(*version));
        drop(named);
        if !lost.is_empty() || !kept.is_empty() {
            tracing::warn!("{}", left_text(&lost, &kept));
        }
    }

    /// Protects versions together with the other ranks, if redundancy is made in calls alone. Callers do this after an error, too,
    /// as the other ranks wait for this call.
    fn protect_if_driven(&self) -> Result<()> {
        match self.is_driven() {
            true => self.protect(),
            false => Ok(()),
        }
    }

    /// Returns the versions that would not be [durable](Engine::is_durable) if the engine ended now: the versions that would be
    /// lost, and the versions that are [kept](Call::is_kept), each in ascending order. If the engine has accepted no version, both
    /// lists are empty: the versions that it found stay where they are.
    fn not_durable(&self) -> (Vec<Version>, Vec<Version>) {
        let mut versions = match self.at_home() {
            Ok(()) if self.shared.has_begun() => self.versions(),
            _ => Vec::new(),
        };
        versions.retain(|version| !self.is_durable(*version));
        versions
            .into_iter()
            .partition(|version| !self.call().is_kept(*version))
    }

    /// Returns the error of an engine that could not settle. If versions are not durable because of that, the error names them,
    /// including those that a suspension gave up.
    fn lost(&self, cause: Error) -> Error {
        let (versions, kept) = self.not_durable();
        match versions.is_empty() && kept.is_empty() {
            true => cause,
            false => Error::Lost {
                versions,
                kept,
                cause: Box::new(cause),
            },
        }
    }
}

impl Call<'_> {
    /// Returns true if storage that outlives the engine has all of `version`, and of every version that it builds upon. Storage of
    /// the node alone is enough, so the version may not be [durable](Engine::is_durable) yet. Never waits.
    #[must_use]
    pub fn is_kept(self, version: Version) -> bool {
        let shared = &self.engine.shared;
        let mut tiers = (0..).map(TierId).zip(&shared.tiers);
        let first = tiers.find(|(_, tier)| tier.medium.durable().is_some());
        first.is_some_and(|(first, _)| shared.lock().plan().is_sound_from(version, first))
    }

    /// Waits as [`Engine::close`] does, but leaves the engine open. If it fails, remove the cause and settle again. The patience
    /// counts from the last time that bytes reached a tier that outlives the engine.
    ///
    /// # Errors
    /// [`Error::Lost`] names the versions that would not be durable if the engine ended now, with the cause: an error of
    /// [`Call::wait`] or [`Engine::protect`]. If there are no such versions, the error is the cause itself.
    pub fn settle(self) -> Result<()> {
        let waited = self.settle_while_moving();
        let settled = waited.and(self.engine.protect_if_driven());
        settled.map_err(|cause| self.engine.lost(cause))
    }

    fn settle_while_moving(self) -> Result<()> {
        let Some(patience) = self.patience else {
            return self.wait_settled();
        };
        let mut moving = ProgressPatience::new(self.engine, patience);
        loop {
            match self.within(patience / LOOKS).wait_settled() {
                Err(Error::TimedOut { what, .. }) if moving.is_over(self.engine) => {
                    return Err(Error::TimedOut { what, patience });
                }
                Err(Error::TimedOut { .. }) => {}
                waited => return waited,
            }
        }
    }

    /// Waits until the versions that have to outlive the engine are on the lowest tier.
    fn wait_settled(self) -> Result<()> {
        let engine = self.engine;
        engine.at_home()?;
        let lowest = engine.shared.tiers.last();
        match lowest.and_then(|tier| tier.medium.durable()) {
            None => Ok(()),
            Some(_) => match engine.shared.suspended_for() {
                Some(version) => self.wait_suspended(version),
                None if !engine.shared.has_begun() => Ok(()),
                None => self.wait(),
            },
        }
    }

    /// Waits for the version of a suspension. The engine stays suspended.
    fn wait_suspended(self, version: Version) -> Result<()> {
        let (engine, deadline) = (self.engine, self.deadline(Awaited::Durable(version)));
        if engine.is_durable(version) || engine.check_held(version).is_err() {
            return Ok(());
        }
        let by = deadline.at().unwrap_or_else(Instant::now);
        let suspension = engine.suspend(Some(version), by)?;
        match suspension.wait_until(deadline)? {
            true => Ok(()),
            false => Err(deadline.passed()),
        }
    }
}
