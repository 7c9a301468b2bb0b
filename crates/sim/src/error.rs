use std::fmt::Display;
use thiserror::Error;
use tierflow_plan::{Refusal, TierId, Version};

/// The reason why there is no result.
#[derive(Debug, Error)]
pub enum Error {
    /// The machine cannot be simulated: correct what the message names.
    #[error("the hardware cannot be simulated: {0}")]
    Hardware(String),
    /// No application could run the workload: correct what the message names.
    #[error("the workload of GPU {gpu} cannot be run: {reason}")]
    Workload {
        /// The GPU of the workload.
        gpu: usize,
        /// The mistake in it.
        reason: String,
    },
    /// The plan refused a call: the workload asks for a version that is gone, or the tiers are too small for it.
    #[error("GPU {gpu}'s call for version {version} was refused: {refusal:?}")]
    Refused {
        /// The GPU that made the call.
        gpu: usize,
        /// The version that it named.
        version: Version,
        /// The plan's answer.
        refusal: Refusal,
    },
    /// `wait` was answered before everything was on the lowest tier, because that tier is too small.
    #[error("GPU {gpu} waits for {versions} versions that cannot reach tier {}", lowest.0)]
    Stalled {
        /// The GPU that made the call.
        gpu: usize,
        /// Number of versions that are left.
        versions: u64,
        /// The lowest tier.
        lowest: TierId,
    },
    /// The plan broke one of its own invariants, or left a call unanswered: a defect to report.
    #[error("a defect of the plan on GPU {gpu}: {reason}")]
    Defect {
        /// The GPU of the plan.
        gpu: usize,
        /// The broken rule.
        reason: String,
    },
    /// A job, cluster or system has an impossible size or rate: correct what the message names.
    #[error("the cluster cannot be simulated: {0}")]
    Cluster(String),
    /// A line of a file of sizes does not have the expected form.
    #[error("line {line} of the trace is not `version,bytes`: {text:?}")]
    Trace {
        /// The line's number, from 1.
        line: usize,
        /// The line's text.
        text: String,
    },
    /// The schedule is no JSON of the expected form.
    #[cfg(feature = "json")]
    #[error("the schedule cannot be read: {0}")]
    Schedule(#[from] serde_json::Error),
}

impl Error {
    /// Makes an error of a plan that broke an invariant, or whose driver was wrong about its state.
    pub(crate) fn defect(gpu: usize, reason: impl Display) -> Self {
        Self::Defect {
            gpu,
            reason: reason.to_string(),
        }
    }
}

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;
