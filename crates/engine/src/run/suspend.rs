//! The choice of the version that can be durable in time, by the plan's forecast, and the request to the plan to make it durable.

use super::call_table::{Answer, PendingAnswer};
use super::core::EngineCore;
use super::medium::TierState;
use super::waits::WaitInfo;
use crate::Version;
use crate::blocked::Cause;
use crate::deadline::Deadline;
use crate::plan::{Event, Plan, Scope};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The plan's answer to a suspension, or the end that will receive it.
pub(crate) struct SuspendTicket(Result<Answer, PendingAnswer>);

/// The plan's decision: the version that is to be durable, and how long that takes if it is known.
pub(crate) struct SuspendChoice {
    pub(crate) version: Option<Version>,
    pub(crate) expected: Option<Duration>,
    pub(crate) asked: Option<SuspendTicket>,
}

/// Tells the plan which versions wait for their turn on the lowest tier. The throughput of that tier does not count such waits.
pub(crate) fn hear_turns(shared: &Arc<EngineCore>) {
    if let Some(durable) = shared.tiers.last().and_then(|tier| tier.medium.durable()) {
        let shared = Arc::downgrade(shared);
        durable.tell(Box::new(move |version, is_held| {
            // An engine that ends needs no throughput.
            if let Some(shared) = shared.upgrade() {
                shared.tell(Event::Hold { version, is_held });
            }
        }));
    }
}

impl EngineCore {
    /// Returns the time on the plan's clock, in ns.
    pub(crate) fn now_ns(&self) -> u64 {
        self.recorder.clock.now_ns()
    }

    /// Returns true if the lowest tier outlives the engine.
    pub(crate) fn lasts(&self) -> bool {
        self.tiers.last().is_some_and(|tier| tier.kind.lasts())
    }

    /// Returns the versions that the next run needs to continue from one: the earlier ones, too, if versions build upon others, or become
    /// durable in the order of their numbers.
    fn scope(&self, plan: &Plan) -> Scope {
        let is_in_order = |tier: &TierState| {
            tier.medium
                .durable()
                .is_some_and(super::durable_tier::DurableTier::is_in_order)
        };
        match plan.may_build_upon_others() || self.tiers.last().is_some_and(is_in_order) {
            true => Scope::History,
            false => Scope::Version,
        }
    }

    /// Returns the version of a suspension, for which nothing else moves, as the application is about to end.
    pub(crate) fn suspended_for(&self) -> Option<Version> {
        self.lock().plan().suspended_for()
    }

    /// Returns the time that a version needs to be durable, if nothing else moves from now on.
    pub(crate) fn time_to_durable(&self, version: Version) -> Option<Duration> {
        let ns = |plan: &Plan| plan.ns_to_settle(self.now_ns(), version, self.scope(plan));
        ns(self.lock().plan()).map(Duration::from_nanos)
    }

    /// Has the plan make `version` durable, or without one the newest version that can be durable by the deadline.
    pub(crate) fn suspend(&self, version: Option<Version>, deadline: Instant) -> SuspendChoice {
        let by = self.recorder.clock.at_ns(deadline);
        let mut core = self.lock();
        let (now, plan) = (self.now_ns(), core.plan());
        let scope = self.scope(plan);
        let (version, ns) = match version {
            Some(version) => (Some(version), plan.ns_to_settle(now, version, scope)),
            None => {
                let foreseen = plan.foresee(now, by, scope);
                let ns = foreseen.and_then(|foreseen| foreseen.ns);
                (foreseen.map(|foreseen| foreseen.version), ns)
            }
        };
        let asked = version.map(|version| {
            let ticket = self.ticket();
            let suspend = Event::Suspend {
                ticket,
                version,
                scope,
            };
            SuspendTicket(self.ask_in(&mut core, self.now_ns(), ticket, suspend, 0, false))
        });
        SuspendChoice {
            version,
            expected: ns.map(Duration::from_nanos),
            asked,
        }
    }

    /// Waits for the plan's answer. Returns `None` at the deadline.
    pub(crate) fn await_suspended(
        &self,
        asked: SuspendTicket,
        deadline: Deadline<'_>,
    ) -> Option<Answer> {
        match asked.0 {
            Ok(answer) => Some(answer),
            Err(later) => {
                let why = Some(WaitInfo {
                    cause: Cause::Flushes,
                    version: None,
                    bytes: 0,
                });
                let since_ns = self.now_ns();
                let later = PendingAnswer {
                    why,
                    since_ns,
                    ..later
                };
                self.hear_answer(&later, deadline)
            }
        }
    }
}
