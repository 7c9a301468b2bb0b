//! Suspension before a preemption: the choice of a version that can still reach the lowest tier, and the call.

use super::Plan;
use super::calls::SuspendCall;
use crate::command::{Command, Refusal};
use crate::event::Scope;
use crate::traffic::{ParallelTime, Suspension};
use crate::{Ticket, Version};

/// A version that can be on the lowest tier by a deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Foreseen {
    /// The version.
    pub version: Version,
    /// ns that this takes if nothing else moves from now on: 0 if the version is there, `None` while nothing was
    /// measured.
    pub ns: Option<u64>,
}

impl Plan {
    /// Returns the newest accepted version (the one of the largest number) that can be on the lowest tier by `by_ns` of
    /// the driver's clock, if [`Event::Suspend`] comes at `now_ns`. Before any transfer to the lowest tier has ended,
    /// this is the newest of all. `None` if no version can. Once `by_ns` is past, only versions that are there can,
    /// also where a transfer under way has already taken longer than was predicted.
    ///
    /// [`Event::Suspend`]: crate::Event::Suspend
    #[must_use]
    pub fn foresee(&self, now_ns: u64, by_ns: u64, scope: Scope) -> Option<Foreseen> {
        // Discarded versions have to go there, too, if others build upon them.
        let lies_encoded = self.ledger().lies_encoded(self.ledger().last());
        let records = self.ledger().records.iter();
        let needed =
            records.filter(|(_, record)| record.is_taken_in && record.is_needed(lies_encoded));
        let mut versions: Vec<_> = needed.map(|(&version, _)| version).collect();
        versions.sort_unstable();
        let (models, none) = (self.traffic.pace.models(), self.no_time());
        // The versions before it in a history cost their time, too.
        let mut before = Some(none);
        let foreseen = versions.into_iter().map(|version| {
            let left = |version| self.traffic.left_to_settle(version, now_ns, models);
            let alone = || {
                let (mut all, mut chain) = (self.no_time(), self.ledger().settled_with(version));
                chain.try_fold(0.0, |_, version| Some(all.add(left(version)?)))
            };
            let left = left(version);
            let ns = match scope {
                Scope::Version => alone(),
                Scope::History => before.as_mut().zip(left).map(|(all, left)| all.add(left)),
            };
            before.take_if(|_| left.is_none());
            let ns = ns.map(|ns| ns.ceil() as u64);
            let is_held = self.ledger().held(version).is_some();
            let can_settle = is_held && self.ledger().can_settle(version);
            (Foreseen { version, ns }, can_settle)
        });
        let patience = by_ns.saturating_sub(now_ns);
        let in_time = foreseen.filter(|(foreseen, can_settle)| {
            let is_in_time = match patience {
                0 => self.ledger().is_settled(foreseen.version),
                _ => foreseen.ns.is_none_or(|ns| ns <= patience),
            };
            *can_settle && is_in_time
        });
        in_time.last().map(|(foreseen, _)| foreseen)
    }

    /// Returns the ns from `now_ns` until a version lies on the lowest tier, if [`Event::Suspend`] comes for it now.
    /// `None` while nothing was measured.
    ///
    /// [`Event::Suspend`]: crate::Event::Suspend
    #[must_use]
    pub fn ns_to_settle(&self, now_ns: u64, version: Version, scope: Scope) -> Option<u64> {
        let wanted = Suspension {
            version,
            scope,
            goes_on: false,
        };
        let owed = self.traffic.owed_to(wanted);
        let (models, mut all) = (self.traffic.pace.models(), self.no_time());
        let mut each = owed.map(|version| self.traffic.left_to_settle(version, now_ns, models));
        let ns = each.try_fold(0.0, |_, left| Some(all.add(left?)));
        ns.map(|ns| ns.ceil() as u64)
    }

    fn no_time(&self) -> ParallelTime {
        ParallelTime::new(self.traffic.depth_down())
    }

    /// Returns true if versions may build upon others.
    #[must_use]
    pub fn may_build_upon_others(&self) -> bool {
        let differences = self.ledger().differences;
        differences.is_some_and(|differences| differences.longest > 1)
    }

    /// Returns the version of the suspension under way, if the application has asked for nothing since.
    #[must_use]
    pub fn suspended_for(&self) -> Option<Version> {
        let suspension = self.traffic.suspension;
        let suspension = suspension.filter(|suspension| !suspension.goes_on);
        suspension.map(|suspension| suspension.version)
    }

    pub(super) fn suspend(&mut self, ticket: Ticket, version: Version, scope: Scope) {
        let held = self.ledger().held(version);
        if !held.is_some_and(|record| record.is_taken_in) {
            return self.refuse(ticket, self.absence(version));
        }
        self.reopen();
        let suspension = Suspension {
            version,
            scope,
            goes_on: self.calls.is_any_blocked() || self.calls.is_any_waiting(),
        };
        for id in self.traffic.competing_transfers(suspension) {
            self.emit(Command::Cancel { id });
        }
        self.traffic.suspension = Some(suspension);
        let versions = self.owed_to_suspending();
        let suspending = SuspendCall { ticket, suspension };
        if let Some(former) = self.calls.suspending.replace(suspending) {
            self.refuse(former.ticket, Refusal::Stalled { versions });
        }
    }

    /// Notes that the application asked for something, so it has not gone.
    pub(super) fn go_on(&mut self) {
        if let Some(suspension) = &mut self.traffic.suspension {
            suspension.goes_on = true;
        }
    }

    /// Ends a suspension once its versions are there or cannot get there, if the application went on. Returns true if
    /// it ended.
    pub(super) fn resume(&mut self) -> bool {
        let is_over = self.traffic.suspension.is_some_and(|suspension| {
            let mut owed = self.traffic.owed_to(suspension);
            suspension.goes_on && (owed.next().is_none() || self.is_idle())
        });
        if is_over {
            self.traffic.suspension = None;
        }
        is_over
    }

    /// Returns the number of versions that the suspension's caller still waits for.
    fn owed_to_suspending(&self) -> u64 {
        let wanted = self.calls.suspending.map(|call| call.suspension);
        wanted.map_or(0, |wanted| self.traffic.owed_to(wanted).count() as u64)
    }

    /// Answers the call for a suspension once all its versions are there, gone, or cannot get there.
    pub(super) fn answer_suspending(&mut self) {
        let Some(SuspendCall { ticket, suspension }) = self.calls.suspending else {
            return;
        };
        let version = suspension.version;
        let versions = self.owed_to_suspending();
        if versions > 0 && !self.is_idle() {
            return;
        }
        self.calls.suspending = None;
        if versions > 0 {
            self.refuse(ticket, Refusal::Stalled { versions });
        } else if self.ledger().held(version).is_some() {
            self.done(ticket);
        } else {
            self.refuse(ticket, self.absence(version));
        }
    }
}
