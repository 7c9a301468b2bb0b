//! Schedules of adjoint checkpointing: the times at which steps are saved, read and dropped.

use super::{Hints, Op, Workload};
#[cfg(feature = "json")]
use crate::Result;
#[cfg(feature = "json")]
use serde::{Deserialize, Serialize};
use tierflow_plan::{AfterRestore, Version};

/// An action on a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "json", derive(Serialize, Deserialize))]
pub(super) enum Action {
    #[cfg_attr(feature = "json", serde(rename = "w"))]
    Write,
    #[cfg_attr(feature = "json", serde(rename = "r"))]
    Read,
    #[cfg_attr(feature = "json", serde(rename = "d"))]
    Drop,
}

/// An op: `["w", version, step, tier wished, clock]`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "json", derive(Serialize, Deserialize))]
pub(super) struct Entry(
    pub(super) Action,
    pub(super) Version,
    /// The step of the forward computation whose state is saved.
    pub(super) u64,
    /// The tier that the author of the schedule wishes. The cache ignores it.
    pub(super) String,
    /// Steps computed before, forwards and backwards.
    pub(super) u64,
);

/// A checkpointing schedule as `checkpoint_schedules` and similar libraries make them: states of some steps are written,
/// read once or more often, and dropped, between steps of computing.
///
/// ```
/// # use tierflow_sim::{Hints, Schedule};
/// let schedule = Schedule::revolve(10, 3);
/// let same = Schedule::from_json(&schedule.to_json()?)?;
/// assert_eq!(same.workload(1 << 20, 1_000_000, Hints::All), schedule.workload(1 << 20, 1_000_000, Hints::All));
/// # Ok::<(), tierflow_sim::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "json", derive(Serialize, Deserialize))]
pub struct Schedule {
    /// Name of its maker.
    #[cfg_attr(feature = "json", serde(rename = "schedule", default))]
    pub name: String,
    pub(super) ops: Vec<Entry>,
}

impl Schedule {
    /// Reads a JSON object whose `ops` are `["w" or "r" or "d", version, step, tier wished, clock]`. Other fields are
    /// ignored.
    ///
    /// # Errors
    /// [`Error::Schedule`](crate::Error::Schedule) if it has another form.
    #[cfg(feature = "json")]
    pub fn from_json(text: &str) -> Result<Self> {
        Ok(serde_json::from_str(text)?)
    }

    /// Returns the JSON that [`Schedule::from_json`] reads.
    ///
    /// # Errors
    /// [`Error::Schedule`](crate::Error::Schedule); none is known.
    #[cfg(feature = "json")]
    pub fn to_json(&self) -> Result<String> {
        Ok(serde_json::to_string(self)?)
    }

    /// Returns the schedule as a workload, with checkpoints of `bytes` bytes and steps of `step_ns` ns. Versions are
    /// kept until the schedule drops them. A hinted version may be written much later.
    #[must_use]
    pub fn workload(&self, bytes: u64, step_ns: u64, hints: Hints) -> Workload {
        let mut ops = Vec::new();
        let mut now = 0;
        for &Entry(action, version, _, _, clock) in &self.ops {
            if clock > now {
                ops.push(Op::Compute((clock - now).saturating_mul(step_ns)));
                now = clock;
            }
            ops.push(match action {
                Action::Write => Op::Checkpoint { version, bytes },
                Action::Drop => Op::Drop(version),
                Action::Read => Op::Restore(version),
            });
        }
        Workload {
            ops,
            after_restore: AfterRestore::Keep,
        }
        .hinted(hints)
    }
}
