//! Copies, for searches through all that may happen next. A policy cannot be copied, so one of the same kind is given.

use super::Plan;
use crate::ledger::{Ledger, windows::Windows};
use crate::policy::Policy;
use crate::traffic::Traffic;

impl Plan {
    pub(crate) fn copy(&self, policy: Box<dyn Policy>) -> Self {
        Self {
            traffic: self.traffic.copy(policy),
            calls: self.calls.clone(),
            phase: self.phase,
        }
    }
}

impl Traffic {
    fn copy(&self, policy: Box<dyn Policy>) -> Self {
        Self {
            ledger: self.ledger.copy(policy),
            flights: self.flights.clone(),
            depths: self.depths.clone(),
            pace: self.pace.clone(),
            suspension: self.suspension,
            ..*self
        }
    }
}

impl Ledger {
    fn copy(&self, policy: Box<dyn Policy>) -> Self {
        Self {
            windows: self
                .windows
                .as_ref()
                .zip(policy.windows())
                .map(|(windows, chooser)| Windows {
                    chooser,
                    awaited: windows.awaited.clone(),
                }),
            tiers: self.tiers.clone(),
            records: self.records.clone(),
            discarded: self.discarded.clone(),
            hints: self.hints.clone(),
            hints_reach_far: self.hints_reach_far,
            predictor: self.predictor.clone(),
            order: self.order.clone(),
            outlook: self.outlook.clone(),
            contest: self.contest.clone(),
            last_read: self.last_read,
            policy,
            after_restore: self.after_restore,
            extents: self.extents,
            unit: self.unit,
            differences: self.differences,
            encoded_sizes: self.encoded_sizes,
            latest_encoding: self.latest_encoding,
            tick: self.tick,
            commands: self.commands.clone(),
            failing: self.failing.clone(),
            settled: self.settled.clone(),
            statistics: self.statistics.clone(),
            evictions: self.evictions.clone(),
        }
    }
}
