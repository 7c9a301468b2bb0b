//! Schedules of adjoint checkpointing: writes while restoring, versions read twice, versions dropped.

use anyhow::Result;
use tierflow_sim::{Hardware, Hints};

use super::{HINTS, inputs, report};
use crate::experiments::Run;

/// Bytes of a state, and ns of a step: a step of a wave equation on a GPU reads and writes its state a few times.
const STATE: u64 = 1 << 30;
const STEP_NS: u64 = 5_000_000;

pub(super) fn run(run: &mut Run) -> Result<()> {
    // The device keeps four states and the host twelve: fewer than the schedules have at a time.
    let hardware = Hardware::h100(4 * STATE, 12 * STATE);
    let found = inputs::schedules()?;
    for (name, schedule) in &found.items {
        for (hints_name, hints) in HINTS {
            if hints == Hints::Single && run.is_quick() {
                continue;
            }
            let workloads = [schedule.workload(STATE, STEP_NS, hints)];
            let origin = found.origin;
            let case = |policy: &str| {
                format!("schedule={name} ({origin}), hints={hints_name}, policy={policy}")
            };
            report(run, case, &hardware, &workloads)?;
        }
    }
    Ok(())
}
