//! The state machine: events in, commands out.

mod at_once;
mod calls;
mod reading;
mod suspending;
mod waiting;
mod writing;

#[cfg(any(test, feature = "check"))]
mod check;
#[cfg(feature = "check")]
mod copy;
#[cfg(any(test, feature = "check"))]
mod fingerprint;

#[cfg(any(test, feature = "check"))]
pub use check::Violation;
pub use suspending::Foreseen;

use crate::command::{Command, Difference, Piece, Refusal};
use crate::config::{AfterRestore, ConfigError, PlanConfig};
use crate::event::{Event, Misuse, Stored, TransferFailure};
use crate::ledger::{Ledger, Outlook, Phase};
use crate::record::{Extent, Replica};
use crate::statistics::{Eviction, EvictionCause, Statistics, TierStatistics};
use crate::traffic::{Pressure, Traffic};
use crate::{TierId, TransferId, Version};
use calls::Calls;

/// The plan: which bytes go where, and when. See the [crate](crate).
#[derive(Debug)]
pub struct Plan {
    traffic: Traffic,
    calls: Calls,
    phase: Phase,
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
        })
    }

    /// Handles one event at `now_ns` (ns of any clock that does not go back) and appends the commands that follow to
    /// `commands`.
    ///
    /// # Errors
    /// [`Misuse`] if the event contradicts the plan's state. Nothing changed then.
    pub fn handle(
        &mut self,
        now_ns: u64,
        event: Event,
        commands: &mut Vec<Command>,
    ) -> Result<(), Misuse> {
        self.handle_all(now_ns, std::iter::once(event), commands)
    }

    /// Handles events of one moment, then appends the commands that follow from all of them.
    ///
    /// # Errors
    /// The first [`Misuse`]: that event changed nothing. The other events are handled all the same.
    pub fn handle_all(
        &mut self,
        now_ns: u64,
        events: impl IntoIterator<Item = Event>,
        commands: &mut Vec<Command>,
    ) -> Result<(), Misuse> {
        self.traffic.now_ns = self.traffic.now_ns.max(now_ns);
        std::mem::swap(&mut self.ledger_mut().commands, commands);
        let (mut outcome, mut is_changed) = (Ok(()), false);
        for event in events {
            self.traffic.ledger.tick += 1;
            let is_brief = self.is_brief(&event);
            let taken_in = self.take_in(event);
            is_changed |= taken_in.is_ok() && !is_brief;
            outcome = outcome.and(taken_in);
        }
        if is_changed {
            self.pump();
        }
        std::mem::swap(&mut self.ledger_mut().commands, commands);
        outcome
    }

    fn take_in(&mut self, event: Event) -> Result<(), Misuse> {
        if let Some(ticket) = event.call() {
            self.calls.begin(ticket)?;
        }
        match event {
            Event::Checkpoint {
                ticket,
                version,
                size,
            } => self.checkpoint(ticket, version, size, false),
            Event::Produce {
                ticket,
                version,
                size,
            } => self.checkpoint(ticket, version, size, true),
            Event::Written { ticket, ok } => self.written(ticket, ok)?,
            Event::Restore { ticket, version } => self.restore(ticket, version, false),
            Event::Consume { ticket, version } => self.restore(ticket, version, true),
            Event::Read { ticket, ok } => self.read(ticket, ok)?,
            Event::WrittenAtOnce { version, size } => self.written_at_once(version, size)?,
            Event::ReadAtOnce { version } => self.read_at_once(version)?,
            Event::Abandon { ticket } => self.abandon(ticket),
            Event::Hint { versions } => self.change_hints(versions, Ledger::hint_given),
            Event::HintNext { mut versions } => {
                versions.reverse();
                self.ledger_mut().forget_predictions();
                self.change_hints(versions, Ledger::hint_next);
            }
            Event::ForgetHints { versions } => {
                self.ledger_mut().forget_predictions();
                self.change_hints(versions, Ledger::forget_hints);
            }
            Event::PrefetchStart => {
                self.phase.prefetches = true;
                self.phase.is_reading = true;
            }
            Event::Drop { ticket, version } => self.drop_version(ticket, version),
            Event::Prune { versions } => self.prune(versions),
            Event::Wait { ticket, version } => self.wait(ticket, version),
            Event::Suspend {
                ticket,
                version,
                scope,
            } => self.suspend(ticket, version, scope),
            Event::Hold { version, is_held } => self.traffic.hold(version, is_held),
            Event::Limit { tier, bytes } => self.limit(tier, bytes)?,
            Event::Adopt {
                version,
                size,
                tier,
                difference,
            } => self.adopt(version, size, tier, difference)?,
            Event::Damaged { version, tier } => {
                if tier.0 >= self.ledger().tiers.len() {
                    return Err(Misuse::NoTier(tier));
                }
                self.ledger_mut().damaged(version, tier);
                self.ledger_mut().give_up_damaged(version);
            }
            Event::Encoded { id, stored } => self.traffic.encoded(id, stored)?,
            Event::TransferDone { id, stored } => self.ended(id, Ok(stored))?,
            Event::TransferFailed { id, why } => self.ended(id, Err(why))?,
        }
        Ok(())
    }

    fn ended(
        &mut self,
        id: TransferId,
        outcome: Result<Option<Stored>, TransferFailure>,
    ) -> Result<(), Misuse> {
        for version in self.traffic.ended(id, outcome)? {
            self.settle(version);
        }
        Ok(())
    }

    fn ledger(&self) -> &Ledger {
        &self.traffic.ledger
    }

    fn ledger_mut(&mut self) -> &mut Ledger {
        &mut self.traffic.ledger
    }

    fn emit(&mut self, command: Command) {
        self.ledger_mut().commands.push(command);
    }

    /// Starts all that can be started now: first callers, then what makes room for them, then what prepares later
    /// calls.
    fn pump(&mut self) {
        self.phase.peak = self.phase.peak.max(self.ledger().order.total().bytes);
        if !self.can_start_any() {
            return self.answer_waits();
        }
        loop {
            let outlook = Outlook::new(self.ledger(), &self.phase);
            self.vacate();
            self.admit(&outlook);
            let pressure = Pressure {
                write_waits: self.calls.is_any_blocked(),
                settles: self.calls.is_any_waiting(),
                has_begun: self.phase.has_begun,
                fetch_limits: self.phase.fetch_limits(self.ledger()),
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

    /// Returns true if nothing is under way that could change anything: no transfer, and no caller in the middle of a
    /// copy.
    fn is_idle(&self) -> bool {
        self.traffic.flights.is_empty() && !self.calls.is_any_copying()
    }

    /// Frees `version` if it was given up, and serves the restores that wait for it. Called when a use of `version`
    /// ended.
    fn settle(&mut self, version: Version) {
        self.ledger_mut().free_discarded(version);
        for ticket in self.ledger_mut().take_waiting(version) {
            self.serve(ticket, version);
        }
        if self.ledger().records.is_empty() {
            // The next version starts another history.
            self.phase.begin_history();
        }
    }

    /// Gives up `version`: the application will not ask for it again.
    fn discard(&mut self, version: Version) {
        self.ledger_mut().last_read.discard(version);
        let under_way = self.ledger_mut().discard(version, |_, _| ());
        self.discarded(version, under_way);
    }

    /// Ends the calls and the transfers of a version that was given up. `under_way`: its transfers that serve nothing
    /// any more.
    fn discarded(&mut self, version: Version, under_way: Vec<TransferId>) {
        for ticket in self.ledger_mut().take_waiting(version) {
            self.refuse(ticket, Refusal::Discarded);
        }
        for id in under_way {
            if !self.traffic.has_arrived(id) {
                self.emit(Command::Cancel { id });
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

    /// Evicts replicas beyond the limits once they are not needed there. Emits `Released` when none is left.
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
                let is_elsewhere = extent.is_sound_below(tier)
                    || (extent.is_sound_above(tier)
                        && self.ledger().dependents(id.0).is_empty()
                        && !self.ledger().tier(tier).config.eager);
                if is_elsewhere && extent.on(tier).is_some_and(Replica::is_idle) {
                    self.ledger_mut().evict(id, tier, EvictionCause::Limit);
                }
            }
            let this = self.ledger_mut().tier_mut(tier);
            if this.space.beyond_limit().next().is_none() {
                this.vacating = false;
                let bytes = this.space.limit();
                self.emit(Command::Released { tier, bytes });
            }
        }
    }

    fn adopt(
        &mut self,
        version: Version,
        size: u64,
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
            record.adopted && !record.discarded && record.size == size && record.is_off(tier)
        });
        let bytes = difference.map_or(size, |difference| difference.bytes);
        let reserved = ledger.tier(tier).space.reserved(bytes);
        if size == 0
            || !is_same
            || ledger.discarded.contains(version)
            || !ledger.may_lie(version, size, tier, difference)
        {
            return Ok(());
        }
        let Some(offset) = ledger.tier(tier).space.gap(reserved) else {
            return Ok(());
        };
        if known.is_none() {
            ledger.insert(version, size, false, true);
        }
        ledger.place_adopted(version, tier, offset, bytes);
        match difference {
            Some(difference) => ledger.lies_different(version, difference),
            None => ledger.lies_whole(version, tier),
        }
        let extents = ledger.extents(version).iter();
        let extents = extents.map(|extent| ((version, extent.start), extent.has_below(tier)));
        for (id, has_below) in extents.collect::<Vec<_>>() {
            ledger.step(id, tier, Move::WriteEnded);
            if has_below {
                ledger.step(id, tier, Move::Flushed);
            }
        }
        Ok(())
    }

    // Queries.

    /// Returns the bytes of a version's checkpoint while the version is held.
    #[must_use]
    pub fn size_of(&self, version: Version) -> Option<u64> {
        self.ledger().held(version).map(|record| record.size)
    }

    /// Returns the slowest of the fastest tiers that hold the bytes of a held version; `None` while some bytes cannot
    /// be read.
    #[must_use]
    pub fn fastest_tier(&self, version: Version) -> Option<TierId> {
        self.ledger().held(version)?.fastest()
    }

    /// Returns true if a version is held and can be read from replicas none of which is known to be
    /// [damaged](Event::Damaged).
    #[must_use]
    pub fn is_sound(&self, version: Version) -> bool {
        self.ledger().held(version).is_some() && self.ledger().is_sound(version)
    }

    /// Returns the runs of a version's bytes that lie on a tier.
    #[must_use]
    pub fn pieces(&self, version: Version, tier: TierId) -> Vec<Piece> {
        let extents = self.ledger().extents(version).iter();
        let piece = |extent: &Extent| Some(self.ledger().piece(extent, extent.on(tier)?));
        extents.filter_map(piece).collect()
    }

    /// Returns true if a checkpoint may have this number, as no version has it, and none that was discarded had it.
    #[must_use]
    pub fn is_new(&self, version: Version) -> bool {
        let ledger = self.ledger();
        !ledger.records.contains_key(&version) && !ledger.discarded.contains(version)
    }

    /// Returns why a version is not held: never seen, or gone.
    #[must_use]
    pub fn absence(&self, version: Version) -> Refusal {
        let ledger = self.ledger();
        match ledger.discarded.contains(version) || ledger.is_discarded(version) {
            true => Refusal::Discarded,
            false => Refusal::Unknown,
        }
    }

    /// Returns the held versions in no particular order.
    pub fn versions(&self) -> impl Iterator<Item = Version> + '_ {
        let records = self.ledger().records.iter();
        records
            .filter(|(_, record)| record.is_held())
            .map(|(&version, _)| version)
    }

    /// Returns the versions that the application hints, the one to be read last first. A version occurs once for each of its readings.
    pub fn hinted(&self) -> impl Iterator<Item = Version> + '_ {
        let ledger = self.ledger();
        ledger.hints.last_before(ledger.predictor.first_hinted())
    }

    /// Returns the smallest number above those of all versions that were ever held and that hints name; `None` if there is none.
    /// Looks at every version.
    #[must_use]
    pub fn unused(&self) -> Option<Version> {
        let ledger = self.ledger();
        let held = ledger.records.keys().copied();
        let newest = held.chain(self.hinted()).chain(ledger.discarded.last());
        newest.max().map_or(Some(0), |newest| newest.checked_add(1))
    }

    /// Returns true if a call waits for versions to be on the lowest tier.
    #[must_use]
    pub fn is_waited_for(&self) -> bool {
        self.calls.is_any_waiting()
    }

    /// Returns true once a checkpoint was asked for. Before that, adopted copies are written to no tier that holds
    /// [whole](crate::TierConfig::whole) versions, unless a call waits for them.
    #[must_use]
    pub fn has_begun(&self) -> bool {
        self.phase.has_begun
    }

    /// Returns true if the lowest tier has a held version, whole, and every version that it builds upon there.
    #[must_use]
    pub fn is_settled(&self, version: Version) -> bool {
        let is_held = self.ledger().held(version).is_some();
        is_held && self.ledger().is_settled(version)
    }

    /// Returns a version and those that it builds upon on the lowest tier, nearest first.
    pub fn chain(&self, version: Version) -> impl Iterator<Item = Version> + '_ {
        self.ledger().settled_with(version)
    }

    /// Bytes of `tier` that can be set aside; 0 if there is no such tier.
    #[must_use]
    pub fn free(&self, tier: TierId) -> u64 {
        let tier = self.ledger().tiers.get(tier.0);
        tier.map_or(0, |tier| tier.space.free())
    }

    /// Bytes that `tier` has a use for, whatever its limit: the larger of the bytes on it and the held bytes that have
    /// no room above.
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

    /// Returns a snapshot of the counts.
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

    /// Records evictions from now on, for [`Plan::take_evictions`].
    pub fn keep_evictions(&mut self) {
        self.ledger_mut().counts.evictions.get_or_insert_default();
    }

    /// Returns the evictions since the last call, if they are recorded.
    pub fn take_evictions(&mut self) -> Vec<Eviction> {
        let evictions = self.ledger_mut().counts.evictions.as_mut();
        evictions.map(std::mem::take).unwrap_or_default()
    }

    /// Returns the fate of restored versions.
    #[must_use]
    pub fn after_restore(&self) -> AfterRestore {
        self.ledger().after_restore
    }
}
