//! The state machine: events in, commands out.

mod calls;
mod pattern;
mod reading;
mod suspending;
mod waiting;
mod writing;

#[cfg(any(test, feature = "check"))]
mod check;
#[cfg(any(test, feature = "check"))]
mod fingerprint;

#[cfg(any(test, feature = "check"))]
pub use check::Violation;
pub use suspending::Foreseen;

use crate::command::{Command, Difference, Piece, Refusal};
use crate::config::{AfterRestore, ConfigError, PlanConfig};
use crate::event::{Event, Misuse};
use crate::ledger::{Ledger, Outlook, Phase};
use crate::record::Replica;
use crate::statistics::{Cause, Eviction, Statistics, TierStatistics};
use crate::traffic::{Pressure, Traffic};
use crate::{TierId, Version};
use calls::Calls;
use pattern::Pattern;

/// The plan: which bytes go where, and when. See the [crate](crate).
#[derive(Debug)]
pub struct Plan {
    traffic: Traffic,
    calls: Calls,
    phase: Phase,
    pattern: Pattern,
}

impl Plan {
    /// A plan over empty tiers.
    ///
    /// # Errors
    /// [`ConfigError`] if there is no tier, or one too small for its alignment.
    pub fn new(config: PlanConfig) -> Result<Self, ConfigError> {
        Ok(Self {
            traffic: Traffic::new(Ledger::new(config)?),
            calls: Calls::default(),
            phase: Phase::default(),
            pattern: Pattern::default(),
        })
    }

    /// Takes in one event, at `now_ns` of any clock that does not go back, and appends what is to be done to `commands`.
    ///
    /// # Errors
    /// [`Misuse`] if the event cannot be. Nothing changed then.
    pub fn handle(
        &mut self,
        now_ns: u64,
        event: Event,
        commands: &mut Vec<Command>,
    ) -> Result<(), Misuse> {
        self.handle_all(now_ns, std::iter::once(event), commands)
    }

    /// Takes in events of one moment, and then says what is to be done.
    ///
    /// # Errors
    /// The first [`Misuse`]: that event changed nothing. The others are taken in all the same.
    pub fn handle_all(
        &mut self,
        now_ns: u64,
        events: impl IntoIterator<Item = Event>,
        commands: &mut Vec<Command>,
    ) -> Result<(), Misuse> {
        self.traffic.now_ns = self.traffic.now_ns.max(now_ns);
        let (mut outcome, mut is_changed) = (Ok(()), false);
        for event in events {
            self.traffic.ledger.tick += 1;
            let taken_in = self.take_in(event);
            is_changed |= taken_in.is_ok();
            outcome = outcome.and(taken_in);
        }
        if is_changed {
            self.pump();
        }
        commands.append(&mut self.traffic.ledger.commands);
        outcome
    }

    fn take_in(&mut self, event: Event) -> Result<(), Misuse> {
        match event {
            Event::Checkpoint {
                ticket,
                version,
                size,
            } => self.checkpoint(ticket, (version, size), false),
            Event::Produce {
                ticket,
                version,
                size,
            } => self.checkpoint(ticket, (version, size), true),
            Event::Written { ticket, ok } => self.written(ticket, ok),
            Event::Restore { ticket, version } => self.restore(ticket, version, false),
            Event::Consume { ticket, version } => self.restore(ticket, version, true),
            Event::Read { ticket, ok } => self.read(ticket, ok),
            Event::Abandon { ticket } => self.abandon(ticket),
            Event::Hint { versions } => {
                versions.into_iter().for_each(|v| self.ledger_mut().hint(v));
                Ok(())
            }
            Event::ForgetHints { most } => {
                let versions: Vec<_> = self.ledger().hints.last().take(most).collect();
                versions
                    .into_iter()
                    .for_each(|v| self.ledger_mut().forget_hints(v));
                Ok(())
            }
            Event::PrefetchStart => {
                self.phase.prefetches = true;
                self.phase.is_reading = true;
                Ok(())
            }
            Event::Drop { ticket, version } => self.drop_version(ticket, version),
            Event::Prune { versions } => {
                self.prune(versions);
                Ok(())
            }
            Event::Wait { ticket, version } => self.wait(ticket, version),
            Event::Suspend {
                ticket,
                version,
                scope,
            } => self.suspend(ticket, version, scope),
            Event::Hold { version, is_held } => {
                self.traffic.hold(version, is_held);
                Ok(())
            }
            Event::Limit { tier, bytes } => self.limit(tier, bytes),
            Event::Adopt {
                version,
                size,
                tier,
                difference,
            } => self.adopt((version, size), tier, difference),
            Event::Damaged { version, tier } => {
                if tier.0 >= self.ledger().tiers.len() {
                    return Err(Misuse::NoTier(tier));
                }
                self.ledger_mut().damaged(version, tier);
                Ok(())
            }
            Event::Encoded { id, stored } => self.traffic.encoded(id, stored),
            Event::TransferDone { id, stored } => {
                let ended = self.traffic.done(id, stored)?;
                ended.into_iter().for_each(|version| self.settle(version));
                Ok(())
            }
            Event::TransferFailed { id, why } => {
                let ended = self.traffic.failed(id, why)?;
                ended.into_iter().for_each(|version| self.settle(version));
                Ok(())
            }
        }
    }

    fn ledger(&self) -> &Ledger {
        &self.traffic.ledger
    }

    fn ledger_mut(&mut self) -> &mut Ledger {
        &mut self.traffic.ledger
    }

    fn say(&mut self, command: Command) {
        self.ledger_mut().commands.push(command);
    }

    /// Does all that can be done now: callers first, then what makes room for them, then what comes up for later.
    fn pump(&mut self) {
        loop {
            let outlook = Outlook::new(self.ledger(), &self.phase);
            self.vacate();
            self.admit(&outlook);
            let pressure = Pressure {
                write_waits: self.calls.is_any_blocked(),
                settles: self.calls.is_any_waiting(),
                has_begun: self.phase.has_begun,
                fetched_before: self.phase.fetched_before(),
            };
            self.traffic.run(&outlook, pressure);
            if self.resume() {
                continue;
            }
            if !self.calls.is_any_blocked() || !self.is_idle() {
                break;
            }
            // Nothing is under way that could make room.
            self.pass_by_or_refuse(&outlook);
        }
        self.vacate();
        self.answer_suspending();
        self.answer_waits();
    }

    /// Nothing is under way that could change anything: no transfer, and no caller in the middle of a copy.
    fn is_idle(&self) -> bool {
        self.traffic.flights.is_empty() && !self.calls.is_any_copying()
    }

    /// After anything ended that used `version`: frees it if it was given up, serves who waited for it.
    fn settle(&mut self, version: Version) {
        self.ledger_mut().free_discarded(version);
        for ticket in self.ledger_mut().take_waiting(version) {
            self.serve(ticket, version);
        }
        if self.ledger().records.is_empty() {
            // What comes next is another history.
            self.phase.prefetches = false;
            self.phase.is_reading = false;
        }
    }

    /// `version` will not be asked for again.
    fn discard(&mut self, version: Version) {
        let under_way = self.ledger_mut().discard(version);
        self.discarded(version, under_way);
    }

    /// Ends the calls and the transfers of a version that was given up. `under_way`: transfers that serve nothing any more.
    fn discarded(&mut self, version: Version, under_way: Vec<crate::TransferId>) {
        for ticket in self.ledger_mut().take_waiting(version) {
            self.refuse(ticket, Refusal::Discarded);
        }
        for id in under_way {
            if !self.traffic.has_arrived(id) {
                self.say(Command::Cancel { id });
            }
        }
        self.settle(version);
    }

    // Tiers.

    fn limit(&mut self, tier: TierId, bytes: u64) -> Result<(), Misuse> {
        let this = self.traffic.ledger.tiers.get_mut(tier.0);
        let this = this.ok_or(Misuse::NoTier(tier))?;
        this.space.set_limit(bytes);
        this.vacating = true;
        self.go_on();
        Ok(())
    }

    /// Gives up what lies beyond the limits and is needed there no more; says so when nothing is left.
    fn vacate(&mut self) {
        for tier in (0..self.ledger().tiers.len()).map(TierId) {
            if !self.ledger().tier(tier).vacating {
                continue;
            }
            let beyond: Vec<_> = self.ledger().tier(tier).space.beyond_limit().collect();
            for id in beyond {
                let Some(extent) = self.ledger().extent(id) else {
                    continue;
                };
                let is_built_upon = self
                    .ledger()
                    .records
                    .get(&id.0)
                    .is_some_and(|r| !r.dependents.is_empty());
                let is_elsewhere = extent.is_sound_below(tier)
                    || (extent.is_sound_above(tier)
                        && !is_built_upon
                        && !self.ledger().tier(tier).config.eager);
                if is_elsewhere && extent.on(tier).is_some_and(Replica::is_idle) {
                    self.ledger_mut().evict(id, tier, Cause::Limit);
                }
            }
            let this = self.ledger_mut().tier_mut(tier);
            if this.space.beyond_limit().next().is_none() {
                this.vacating = false;
                let bytes = this.space.limit();
                self.say(Command::Released { tier, bytes });
            }
        }
    }

    fn adopt(
        &mut self,
        (version, size): (Version, u64),
        tier: TierId,
        difference: Option<Difference>,
    ) -> Result<(), Misuse> {
        use tierflow_lifecycle::Event as Move;
        let ledger = &mut self.traffic.ledger;
        if tier.0 >= ledger.tiers.len() {
            return Err(Misuse::NoTier(tier));
        }
        let known = ledger.records.get(&version);
        let is_same = known.is_none_or(|record| {
            let on_it = record
                .extents
                .iter()
                .any(|extent| extent.on(tier).is_some());
            record.adopted && !record.discarded && record.size == size && !on_it
        });
        let bytes = difference.map_or(size, |difference| difference.bytes);
        let reserved = ledger.tier(tier).space.reserved(bytes);
        if size == 0
            || !is_same
            || ledger.discarded.contains(version)
            || !ledger.may_lie((version, size), tier, difference)
        {
            return Ok(());
        }
        let space = &ledger.tier(tier).space;
        let fits = space.largest_gap() >= reserved;
        let run = space.find(reserved, reserved).into_iter().next();
        let Some(run) = run.filter(|_| fits) else {
            return Ok(());
        };
        if known.is_none() {
            ledger.insert(version, size, false, true);
        }
        ledger.place_adopted(version, (tier, run, bytes));
        match difference {
            Some(difference) => ledger.lies_different(version, difference),
            None => ledger.lies_whole(version, tier),
        }
        let record = ledger.records.get(&version);
        let extents = record.iter().flat_map(|record| &record.extents);
        let starts: Vec<_> = extents.map(|extent| extent.start).collect();
        for id in starts.into_iter().map(|start| (version, start)) {
            ledger.step(id, tier, Move::WriteEnded);
            if ledger
                .extent(id)
                .is_some_and(|extent| extent.has_below(tier))
            {
                ledger.step(id, tier, Move::Flushed);
            }
        }
        Ok(())
    }

    // What the plan knows.

    /// Bytes of a version's checkpoint, while it is held.
    #[must_use]
    pub fn size_of(&self, version: Version) -> Option<u64> {
        self.ledger().held(version).map(|record| record.size)
    }

    /// The slowest of the fastest tiers that the bytes of a version can be read from, while it is held and all can.
    #[must_use]
    pub fn fastest_tier(&self, version: Version) -> Option<TierId> {
        self.ledger().held(version)?.fastest()
    }

    /// Whether a version is held, and can be read from replicas of which none is known to be [damaged](Event::Damaged).
    #[must_use]
    pub fn is_sound(&self, version: Version) -> bool {
        self.ledger().held(version).is_some() && self.ledger().is_sound(version)
    }

    /// What of a version lies on a tier.
    #[must_use]
    pub fn pieces(&self, version: Version, tier: TierId) -> Vec<Piece> {
        let record = self.ledger().records.get(&version);
        let extents = record.iter().flat_map(|record| &record.extents);
        let on = extents.filter_map(|extent| Some((extent, extent.on(tier)?)));
        on.map(|(extent, replica)| self.ledger().piece(extent, replica))
            .collect()
    }

    /// Why a version is not held: never seen, or gone.
    #[must_use]
    pub fn absence(&self, version: Version) -> Refusal {
        let ledger = self.ledger();
        let is_gone = ledger.discarded.contains(version)
            || ledger.records.get(&version).is_some_and(|r| r.discarded);
        match is_gone {
            true => Refusal::Discarded,
            false => Refusal::Unknown,
        }
    }

    /// The versions held, in no particular order.
    pub fn versions(&self) -> impl Iterator<Item = Version> + '_ {
        let records = self.ledger().records.iter();
        records
            .filter(|(_, record)| record.is_held())
            .map(|(&version, _)| version)
    }

    /// Whether any version is expected to be read, as hints go.
    #[must_use]
    pub fn is_hinted(&self) -> bool {
        self.ledger().hints.last().next().is_some()
    }

    /// Whether a call waits for versions to be on the lowest tier.
    #[must_use]
    pub fn is_waited_for(&self) -> bool {
        self.calls.is_any_waiting()
    }

    /// Whether a checkpoint was asked for. Before that, adopted copies are written to no tier that holds
    /// [whole](crate::TierConfig::whole) versions, unless a call waits for them.
    #[must_use]
    pub fn has_begun(&self) -> bool {
        self.phase.has_begun
    }

    /// Whether a version lies on the lowest tier, whole, with every version that it builds upon there.
    #[must_use]
    pub fn is_settled(&self, version: Version) -> bool {
        let is_held = self.ledger().held(version).is_some();
        is_held && self.ledger().is_settled(version)
    }

    /// A version and those that it builds upon on the lowest tier, nearest first.
    pub fn chain(&self, version: Version) -> impl Iterator<Item = Version> + '_ {
        self.ledger().settled_with(version)
    }

    /// Bytes that may be set aside on `tier` and are not; 0 while there is no such tier.
    #[must_use]
    pub fn free(&self, tier: TierId) -> u64 {
        let tier = self.ledger().tiers.get(tier.0);
        tier.map_or(0, |tier| tier.space.free())
    }

    /// Bytes that `tier` has a use for, whatever its limit: what lies there, or else all that is held and has no room
    /// above.
    #[must_use]
    pub fn demand(&self, tier: TierId) -> u64 {
        let Some(this) = self.ledger().tiers.get(tier.0) else {
            return 0;
        };
        let above = self.ledger().tiers[..tier.0].iter();
        let above: u64 = above.map(|tier| tier.space.limit()).sum();
        let held = self.ledger().order.total().bytes;
        held.saturating_sub(above).max(this.space.used())
    }

    /// A snapshot of the counts.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        let ledger = self.ledger();
        let tiers = ledger.tiers.iter().zip(&ledger.counts.tiers);
        let tiers = tiers.map(|(tier, counts)| TierStatistics {
            capacity: tier.space.capacity(),
            limit: tier.space.limit(),
            used_bytes: tier.space.used(),
            ..*counts
        });
        Statistics {
            tiers: tiers.collect(),
            hops: ledger.counts.hops.clone(),
            prefetch_distance: ledger.counts.prefetch_distance,
            pruned: ledger.counts.pruned,
        }
    }

    /// Keeps evictions from now on, for [`Plan::take_evictions`].
    pub fn keep_evictions(&mut self) {
        self.ledger_mut().counts.evictions.get_or_insert_default();
    }

    /// The evictions since the last time, if they are kept.
    pub fn take_evictions(&mut self) -> Vec<Eviction> {
        let evictions = self.ledger_mut().counts.evictions.as_mut();
        evictions.map(std::mem::take).unwrap_or_default()
    }

    /// What becomes of restored versions.
    #[must_use]
    pub fn after_restore(&self) -> AfterRestore {
        self.ledger().after_restore
    }
}
