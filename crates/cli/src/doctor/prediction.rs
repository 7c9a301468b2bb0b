//! Predicts by the simulator for how long a run's calls would wait with other caches.

use super::trace::{Call, Run};
use std::collections::BTreeSet;
use tierflow_plan::AfterRestore;
use tierflow_sim::{Hardware, Hints, Hop, Link, Op, Simulation, Tier, UNLIMITED, Workload};

/// A simulated run.
#[derive(Debug)]
pub(crate) struct Prediction {
    hardware: Hardware,
    workload: Workload,
}

impl Prediction {
    /// Makes a prediction for the calls of a run, with the sizes and rates of its tiers; `None` without a time line.
    pub(crate) fn of(run: &Run) -> Option<Self> {
        let ops = ops(&run.calls);
        let (tiers, hops) = (run.tiers(), run.hops());
        if ops.is_empty() || tiers.is_empty() {
            return None;
        }
        let bytes = run.sum("call_bytes_total", &[]);
        let copying = run.sum("blocked_seconds_sum", &["cause=copy"]);
        let mut hardware = Hardware::new();
        for (at, (name, limit)) in tiers.iter().enumerate() {
            let rate = |down: bool| {
                let above = |tier: &str| tiers[..at].iter().any(|(name, _)| name == tier);
                let carried = hops.iter().filter(|hop| match down {
                    true => hop.to == *name && above(&hop.from),
                    false => hop.from == *name && above(&hop.to),
                });
                carried.map(|hop| hop.rate).fold(0.0, f64::max)
            };
            let (down, up) = match at {
                0 => (bytes / copying.max(1e-9), bytes / copying.max(1e-9)),
                _ => (rate(true), rate(false)),
            };
            // A direction of a link that carried nothing gets the rate of the other direction.
            let known = |rate: f64, other: f64| match (rate > 0.0, other > 0.0) {
                (true, _) => rate as u64,
                (false, true) => other as u64,
                (false, false) => UNLIMITED,
            };
            let link = Link {
                down: known(down, up),
                up: known(up, down),
                both: UNLIMITED,
                gpus: 1,
            };
            hardware = hardware.tier(Tier::new(name, *limit as u64), Hop::over(link, 10_000));
        }
        let workload = Workload {
            ops,
            after_restore: AfterRestore::Keep,
        }
        .hinted(Hints::All);
        Some(Self { hardware, workload })
    }

    /// Returns the share of the time that calls would wait if one tier were `times` as large.
    pub(crate) fn waiting(&self, tier: usize, times: u64) -> Option<f64> {
        let mut hardware = self.hardware.clone();
        let capacity = &mut hardware.tiers.get_mut(tier)?.capacity;
        *capacity = capacity.saturating_mul(times);
        let outcome = Simulation::new(hardware)
            .run(std::slice::from_ref(&self.workload))
            .ok()?;
        let client = outcome.clients.first()?;
        let stalls = client.stalls;
        let waited = stalls.room_ns + stalls.arrival_ns + stalls.restore_from_below_ns;
        Some(waited as f64 / client.elapsed_ns.max(1) as f64)
    }
}

/// Returns the steps of an application that made these calls. Leaves out restores of versions whose checkpoint is not in the time line.
fn ops(calls: &[Call]) -> Vec<Op> {
    let (mut written, mut ops) = (BTreeSet::new(), Vec::new());
    for call in calls {
        if call.computed_ns > 0 {
            ops.push(Op::Compute(call.computed_ns));
        }
        let (version, bytes) = (call.version, call.bytes);
        if call.writes && bytes > 0 && written.insert(version) {
            ops.push(Op::Checkpoint { version, bytes });
        } else if !call.writes && written.contains(&version) {
            ops.push(Op::Restore(version));
        }
    }
    ops
}
