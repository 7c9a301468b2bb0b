//! The runs that there is time for: what tells most comes first, and none is begun that may not end in time.

use std::time::{Duration, Instant};

use anyhow::Result;
use tierflow_sim::Workload;

use super::play::Played;
use super::{Machine, Way};
use crate::experiments::Run;

pub(super) struct Sitting<'a> {
    pub(super) run: &'a mut Run,
    begun: Instant,
    patience: Duration,
    no_time: u32,
    lacking: u32,
}

impl<'a> Sitting<'a> {
    /// From now on, calibration included, this long; a small part of it in a quick run.
    pub(super) fn new(run: &'a mut Run, patience: Duration) -> Self {
        let patience = match run.is_quick() {
            true => patience / 60,
            false => patience,
        };
        Self {
            run,
            begun: Instant::now(),
            patience,
            no_time: 0,
            lacking: 0,
        }
    }

    /// Compares one run; `None` if there is no time for it, or the machine lacks what it needs.
    pub(super) fn compare(
        &mut self,
        machine: &Machine,
        case: &str,
        way: Way,
        workload: &Workload,
    ) -> Result<Option<Played>> {
        if let Some(what) = machine.lacks(way) {
            eprintln!("  {case}: not run: needs {what}, and this machine has none");
            self.lacking += 1;
            return Ok(None);
        }
        // Half as much again as the application computes, and the memory has to come.
        let compute = Duration::from_nanos(workload.compute_ns());
        let memory = match self.run.is_quick() {
            true => Duration::from_millis(100),
            false => Duration::from_secs(1),
        };
        let expected = compute * 3 / 2 + memory;
        if self.begun.elapsed() + expected > self.patience {
            self.no_time += 1;
            return Ok(None);
        }
        machine.compare(self.run, case, way, workload).map(Some)
    }

    /// Says what was left out.
    pub(super) fn end(self) -> Result<()> {
        for (why, runs) in [("time", self.no_time), ("a GPU", self.lacking)] {
            let metric = format!("left out for lack of {why}");
            self.run
                .value("all runs", &metric, "runs", f64::from(runs))?;
        }
        Ok(())
    }
}
