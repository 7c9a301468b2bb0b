//! The machine of a computation, by the times of its engine's transfers.

use super::StepTimes;
use crate::machine::{Machine, Tier};
use std::time::Duration;
use tierflow_engine::{Cause, HopMetrics, Metrics};

/// Number of states that suffice to measure a rate. If one transfer's time varies by as much as its mean, the mean of 16 is
/// wrong by a quarter, and plans for such rates are hardly slower.
const SAMPLE: u64 = 16;

/// A period between the metrics of two moments. `None` stands for the engine's beginning.
#[derive(Clone, Copy, Debug)]
pub(super) struct Period<'a>(pub(super) Option<&'a Metrics>, pub(super) &'a Metrics);

impl Period<'_> {
    /// Returns the growth of a sum over the period.
    fn carried(self, sum: impl Fn(&Metrics) -> Carried) -> Carried {
        let (before, after) = (self.0.map(&sum).unwrap_or_default(), sum(self.1));
        Carried {
            bytes: after.bytes.saturating_sub(before.bytes),
            busy: after.busy.saturating_sub(before.busy),
        }
    }
}

/// Bytes of transfers, and the time for which their link was busy with them.
#[derive(Clone, Copy, Debug, Default)]
struct Carried {
    bytes: u64,
    busy: Duration,
}

/// Returns the bytes per second of the first element that carried enough: [`SAMPLE`] states, or half of the most bytes of any
/// element if that is less. Infinite if none carried a byte.
fn rate(carried: &[Carried], state: u64) -> f64 {
    let most = carried.iter().map(|carried| carried.bytes).max();
    let enough = most.unwrap_or(0).div_ceil(2);
    let enough = enough.min(SAMPLE.saturating_mul(state)).max(1);
    let is_enough = |one: &&Carried| one.bytes >= enough && !one.busy.is_zero();
    let found = carried.iter().find(is_enough);
    found.map_or(f64::INFINITY, |found| {
        found.bytes as f64 / found.busy.as_secs_f64()
    })
}

impl Machine {
    /// Makes a machine of the tiers of an engine, with the rates that its transfers had so far.
    ///
    /// A link that carried few states up and more down counts as fast up as down, and the other way round: a rate of few transfers
    /// may be far off. A link that carried no byte counts as one that takes no time: see [`measure`](super::measure). The first
    /// tier is the device. A codec is not measured: states that an engine compresses count with the size in [`StepTimes`].
    #[must_use]
    pub fn measured(metrics: &Metrics, steps: StepTimes) -> Self {
        let all = [Period(None, metrics)];
        Self::within(&all, &all, all[0], steps)
    }

    /// Makes the machine of [`measured`](Self::measured) with the links of the periods in `down` and `up`, of which the first is
    /// trusted most, and the copies of the period `copies`. Rooms are those at the end of `copies`.
    pub(super) fn within(
        down: &[Period<'_>],
        up: &[Period<'_>],
        copies: Period<'_>,
        steps: StepTimes,
    ) -> Self {
        let Period(_, metrics) = copies;
        let names: Vec<_> = metrics.tiers.iter().map(|tier| tier.name).collect();
        let tiers = metrics.tiers.iter().enumerate().skip(1).map(|(at, tier)| {
            // The link to a tier carries the transfers from all tiers above.
            let is_above = |name: &str| names[..at].contains(&name);
            let is_down = |hop: &HopMetrics| hop.to == tier.name && is_above(hop.from);
            let is_up = |hop: &HopMetrics| hop.from == tier.name && is_above(hop.to);
            let link = |period: &Period<'_>, is_it: &dyn Fn(&HopMetrics) -> bool| {
                period.carried(|metrics| {
                    let hops = metrics.hops.iter().filter(|hop| is_it(hop));
                    hops.fold(Carried::default(), |sum, hop| Carried {
                        bytes: sum.bytes + hop.bytes,
                        busy: sum.busy + hop.busy,
                    })
                })
            };
            let down = down.iter().map(|period| link(period, &is_down));
            let up = up.iter().map(|period| link(period, &is_up));
            let rate = |links: Vec<Carried>| rate(&links, steps.state);
            Tier {
                room: tier.limit,
                down: rate(down.clone().chain(up.clone()).collect()),
                up: rate(up.chain(down).collect()),
            }
        });
        // All time of a call, without waits and without the first touch of memory.
        let calls = |metrics: &Metrics| {
            let causes = [Cause::Copy, Cause::Plan, Cause::Lock, Cause::WakeUp];
            Carried {
                bytes: metrics.checkpoint.bytes + metrics.restore.bytes,
                busy: causes.map(|cause| metrics.times(cause).total).iter().sum(),
            }
        };
        Self {
            forward: steps.forward,
            backward: steps.backward,
            state: steps.state,
            device: metrics.tiers.first().map_or(0, |tier| tier.limit),
            tiers: tiers.collect(),
            copy: rate(&[copies.carried(calls)], steps.state),
            codec: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// Returns `count` states of 128 MiB that were carried at `rate` MiB/s.
    fn states(count: u64, rate: f64) -> Carried {
        let bytes = count * 128 * MIB;
        let busy = Duration::from_secs_f64(bytes as f64 / MIB as f64 / rate);
        Carried { bytes, busy }
    }

    fn measured(carried: &[Carried]) -> f64 {
        (rate(carried, 128 * MIB) / MIB as f64).round()
    }

    #[test]
    fn a_rate_is_that_of_more_than_a_few_transfers() {
        // A disk's way up in the sweep, on the whole, and its way down.
        assert_eq!(
            measured(&[states(2, 456.0), states(2, 456.0), states(200, 1800.0)]),
            1800.0
        );
        assert_eq!(
            measured(&[states(3, 456.0), states(90, 1500.0), states(200, 1800.0)]),
            1500.0
        );
        // Enough, and the newest.
        assert_eq!(measured(&[states(16, 456.0), states(90, 1500.0)]), 456.0);
        // A trial of six states, without the cold one before it.
        assert_eq!(measured(&[states(6, 900.0), states(7, 500.0)]), 900.0);
        assert_eq!(rate(&[states(0, 1.0)], 1), f64::INFINITY);
    }
}
