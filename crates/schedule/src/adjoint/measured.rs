//! The machine of a computation, by the times of its engine's transfers.

use super::StepTimes;
use crate::machine::{Machine, Tier};
use std::time::Duration;
use tierflow_engine::{Cause, HopMetrics, Metrics};

impl Machine {
    /// A machine of the tiers of an engine, with the rates that its transfers had so far.
    ///
    /// A link that carried nothing up is as fast as down, and the other way round; one that carried nothing at all counts as
    /// one that takes no time: see [`measure`](super::measure). The first tier is the device. A codec is not measured: what an engine compresses
    /// counts with the size of [`StepTimes`].
    #[must_use]
    pub fn measured(metrics: &Metrics, steps: StepTimes) -> Self {
        let all = [(None, metrics)];
        Self::within(&all, &all, steps)
    }

    /// The same from the first of these spans in which a link or a copy carried something.
    pub(super) fn within(down: &[Span<'_>], up: &[Span<'_>], steps: StepTimes) -> Self {
        let metrics = down[0].1;
        let names: Vec<_> = metrics.tiers.iter().map(|tier| tier.name).collect();
        // The link to a tier carries what comes from any tier above.
        let link = |spans: &[Span<'_>], is_it: &dyn Fn(&HopMetrics) -> bool| {
            rate(spans, &|metrics| {
                let hops = metrics.hops.iter().filter(|hop| is_it(hop));
                hops.fold((0, Duration::ZERO), |(bytes, busy), hop| {
                    (bytes + hop.bytes, busy + hop.busy)
                })
            })
        };
        let tiers = metrics.tiers.iter().enumerate().skip(1).map(|(at, tier)| {
            let down = link(down, &|hop| {
                hop.to == tier.name && names[..at].contains(&hop.from)
            });
            let up = link(up, &|hop| {
                hop.from == tier.name && names[..at].contains(&hop.to)
            });
            Tier {
                room: tier.limit,
                down: down.or(up).unwrap_or(f64::INFINITY),
                up: up.or(down).unwrap_or(f64::INFINITY),
            }
        });
        // All that a call takes, but for waits and memory that is touched for the first time.
        let copy = rate(up, &|metrics| {
            let bytes = metrics.checkpoint.bytes + metrics.restore.bytes;
            let causes = [Cause::Copy, Cause::Plan, Cause::Lock, Cause::WakeUp];
            let time = causes.iter().map(|&cause| metrics.times(cause).total).sum();
            (bytes, time)
        });
        Self {
            forward: steps.forward,
            backward: steps.backward,
            state: steps.state,
            device: metrics.tiers.first().map_or(0, |tier| tier.limit),
            tiers: tiers.collect(),
            copy: copy.unwrap_or(f64::INFINITY),
            codec: None,
        }
    }
}

/// From the metrics before, or from the beginning, to those after.
pub(super) type Span<'a> = (Option<&'a Metrics>, &'a Metrics);

/// Bytes per second in the first span that carried any.
fn rate(spans: &[Span<'_>], moved: &dyn Fn(&Metrics) -> (u64, Duration)) -> Option<f64> {
    spans.iter().find_map(|(before, after)| {
        let ((bytes, busy), before) = (moved(after), before.map(moved).unwrap_or_default());
        (bytes > before.0 && busy > before.1)
            .then(|| (bytes - before.0) as f64 / (busy - before.1).as_secs_f64())
    })
}
