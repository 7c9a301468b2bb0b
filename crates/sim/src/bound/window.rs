//! The bytes that have to cross each hop between the beginning of one call and the end of another.

use super::HopBytes;
use super::fetches::Fetches;
use super::steps::{Step, StepKind};
use crate::hardware::{Hardware, UNLIMITED};

/// A window: from the beginning of one step's call to the end of another's.
#[derive(Debug)]
pub(super) struct Window<'a> {
    steps: &'a [Step],
    from: usize,
    to: usize,
    /// Bytes that all tiers above each tier hold.
    above: Vec<f64>,
    /// Number of checkpoints before the window. Versions with smaller numbers are older than the window.
    first: usize,
    /// Bytes checkpointed within the window that have to be kept.
    live: f64,
    /// By tier: a cache of all tiers above it.
    fetches: Vec<Fetches>,
    needs: Vec<HopBytes>,
    compute_ns: f64,
}

impl<'a> Window<'a> {
    /// Makes an empty window before step `from`.
    pub(super) fn new(hardware: &Hardware, steps: &'a [Step], from: usize) -> Self {
        let before = steps[..from].iter();
        let first = before
            .filter(|step| matches!(step.kind, StepKind::Checkpoint { .. }))
            .count();
        let mut above = 0.0;
        let capacities = hardware.tiers.iter().map(|tier| {
            let before = above;
            above += match tier.capacity {
                UNLIMITED => f64::INFINITY,
                capacity => capacity as f64,
            };
            before
        });
        let above: Vec<f64> = capacities.collect();
        let caches = above.iter();
        Self {
            fetches: caches
                .map(|above| Fetches::new(*above, steps, from))
                .collect(),
            steps,
            from,
            to: from,
            above,
            first,
            live: 0.0,
            needs: vec![HopBytes::default(); hardware.tiers.len()],
            compute_ns: 0.0,
        }
    }

    /// Extends the window by one step.
    pub(super) fn extend(&mut self) {
        let Some(step) = self.steps.get(self.to) else {
            return;
        };
        if self.to > self.from {
            self.compute_ns += step.compute_ns;
        }
        let at = self.to;
        self.to += 1;
        match step.kind {
            StepKind::Checkpoint { bytes, .. } => self.live += bytes,
            StepKind::Restore {
                version,
                bytes,
                last: true,
            }
            | StepKind::Drop { version, bytes }
                if version >= self.first =>
            {
                self.live -= bytes;
            }
            StepKind::Restore { .. }
            | StepKind::Drop { .. }
            | StepKind::Wait
            | StepKind::Barrier => {}
        }
        let is_wait = step.kind == StepKind::Wait;
        let hops = self.needs.iter_mut().zip(&self.above);
        for ((need, above), fetches) in hops.zip(&mut self.fetches).skip(1) {
            // Bytes that are not above at the end have crossed.
            let kept_above = if is_wait { 0.0 } else { *above };
            need.down = need.down.max(self.live - kept_above);
            need.up = fetches.extend(step, at);
        }
    }

    /// Returns the bytes that have to cross the hop to `tier`.
    pub(super) fn need(&self, tier: usize) -> HopBytes {
        self.needs[tier]
    }

    /// Returns the least ns lost in the window, if this GPU has every link alone. May be negative.
    pub(super) fn lost_ns(&self, hardware: &Hardware) -> f64 {
        let hops = hardware.hops.iter().zip(&self.needs).skip(1);
        let spans = hops.flat_map(|(hop, need)| hop.links.iter().map(|link| need.over(link)));
        spans.fold(0.0, f64::max) - self.compute_ns
    }

    /// ns that the application computes between the end of the call before the window and the window's end.
    pub(super) fn compute_with_first_ns(&self) -> f64 {
        let first = self.steps.get(self.from);
        self.compute_ns + first.map_or(0.0, |step| step.compute_ns)
    }
}
