//! A workload as the calls that the bound counts, and the computing before each.

use crate::Result;
use crate::hardware::Hardware;
use crate::workload::{Op, Workload};
use std::collections::HashMap;
use tierflow_plan::AfterRestore;

/// The index of no step: the version is not read again.
pub(super) const NO_READING: usize = usize::MAX;

/// A call.
#[derive(Debug, Clone, Copy)]
pub(super) struct Step {
    pub(super) kind: StepKind,
    /// ns that the application computes before it.
    pub(super) compute_ns: f64,
    /// ns that the application has computed before it, since the beginning.
    pub(super) computed_ns: f64,
    /// Least ns of its copy.
    pub(super) copy_ns: f64,
    /// The step of the next reading of the version that it writes or reads; [`NO_READING`] if there is none.
    pub(super) next_reading: usize,
}

/// The effect of a call on the bytes that have to be stored. Versions are numbered in the order of their checkpoints.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum StepKind {
    Checkpoint {
        version: usize,
        bytes: f64,
    },
    /// `last` if the version is not needed any more.
    Restore {
        version: usize,
        bytes: f64,
        last: bool,
    },
    Drop {
        version: usize,
        bytes: f64,
    },
    Wait,
    Barrier,
}

impl Step {
    pub(super) fn is_barrier(&self) -> bool {
        self.kind == StepKind::Barrier
    }

    /// Returns the version that it writes or reads, with its bytes.
    pub(super) fn passed(&self) -> Option<(usize, f64)> {
        match self.kind {
            StepKind::Checkpoint { version, bytes } | StepKind::Restore { version, bytes, .. } => {
                Some((version, bytes))
            }
            StepKind::Drop { .. } | StepKind::Wait | StepKind::Barrier => None,
        }
    }

    /// Returns true if its kind differs from that of the step before.
    pub(super) fn begins_phase_after(&self, before: &Self) -> bool {
        std::mem::discriminant(&self.kind) != std::mem::discriminant(&before.kind)
    }
}

pub(super) fn steps(hardware: &Hardware, workload: &Workload, gpu: usize) -> Result<Vec<Step>> {
    let sizes = workload.validate(gpu)?;
    let size = |version| sizes.get(version).map_or(0.0, |&bytes| bytes as f64);
    let mut numbers = HashMap::new();
    let mut compute_ns = 0.0;
    let mut computed_ns = 0.0;
    let mut steps = Vec::new();
    for op in &workload.ops {
        let kind = match op {
            Op::Compute(ns) => {
                compute_ns += *ns as f64;
                continue;
            }
            Op::Hint(_) | Op::HintNext(_) | Op::ForgetHints(_) | Op::PrefetchStart => continue,
            Op::Checkpoint { version, bytes } => {
                let number = numbers.len();
                numbers.insert(*version, number);
                StepKind::Checkpoint {
                    version: number,
                    bytes: *bytes as f64,
                }
            }
            Op::Restore(version) => StepKind::Restore {
                version: numbers.get(version).copied().unwrap_or(0),
                bytes: size(version),
                last: workload.after_restore == AfterRestore::Discard,
            },
            Op::Drop(version) => StepKind::Drop {
                version: numbers.get(version).copied().unwrap_or(0),
                bytes: size(version),
            },
            Op::Wait => StepKind::Wait,
            Op::Barrier => StepKind::Barrier,
        };
        computed_ns += compute_ns;
        steps.push(Step {
            computed_ns,
            kind,
            compute_ns: std::mem::take(&mut compute_ns),
            copy_ns: copy_ns(hardware, kind),
            next_reading: NO_READING,
        });
    }
    let mut readings = HashMap::new();
    for (at, step) in steps.iter_mut().enumerate().rev() {
        let Some((version, _)) = step.passed() else {
            continue;
        };
        step.next_reading = readings.get(&version).copied().unwrap_or(NO_READING);
        if let StepKind::Restore { .. } = step.kind {
            readings.insert(version, at);
        }
    }
    Ok(steps)
}

/// Returns the least ns of one copy between the application and any tier: each passes the first hop.
fn copy_ns(hardware: &Hardware, kind: StepKind) -> f64 {
    let (Some(hop), Some(need)) = (hardware.hops.first(), need(kind)) else {
        return 0.0;
    };
    let links = hop.links.iter().map(|link| need.over(link));
    hop.latency_ns as f64 + links.fold(0.0, f64::max)
}

fn need(kind: StepKind) -> Option<super::HopBytes> {
    match kind {
        StepKind::Checkpoint { bytes, .. } => Some(super::HopBytes {
            down: bytes,
            up: 0.0,
        }),
        StepKind::Restore { bytes, .. } => Some(super::HopBytes {
            down: 0.0,
            up: bytes,
        }),
        StepKind::Drop { .. } | StepKind::Wait | StepKind::Barrier => None,
    }
}
