//! Shots whose source wavefields are stored, or computed again, by a schedule.
//!
//! A step of the schedule is the way from one checkpoint to the next: `every` time steps of a pass.

use std::ops::Range;
use std::time::{Duration, Instant};

use anyhow::Result;
use tierflow_engine::{Engine, Region, RegionMut};
use tierflow_schedule::adjoint::{self, Adjoint};
use tierflow_schedule::{Estimate, Plan, Schedule};

use crate::cli::Recompute;
use crate::history;
use crate::migration::Migration;
use crate::report;

/// Makes the schedule of a shot of so many steps.
#[derive(Clone, Copy, Debug)]
pub struct Planner {
    pub name: &'static str,
    pub schedule: fn(&Estimate, usize) -> Schedule,
}

impl From<Recompute> for Planner {
    fn from(which: Recompute) -> Self {
        let schedule: fn(&Estimate, usize) -> Schedule = match which {
            Recompute::Auto => |known, steps| known.plan(steps).into(),
            Recompute::Never => |known, steps| Plan::every(&known.machine, steps, 1).into(),
            Recompute::Always => |known, steps| Plan::on_device(&known.quiet, steps).into(),
        };
        let name = which.name();
        Self { name, schedule }
    }
}

/// Migrates a shot, whose record was observed.
pub fn shot(
    migration: &mut Migration<'_>,
    shot: usize,
    engine: &Engine,
    planner: Planner,
) -> Result<()> {
    let steps = usize::try_from(migration.survey.checkpoints())?;
    let mut known = match migration.known.take() {
        Some(known) => known,
        None => measure(migration, shot, engine)?,
    };
    let start = Instant::now();
    let mut schedule = (planner.schedule)(&known, steps);
    let planned_in = start.elapsed();
    let plan = schedule.plan();
    let expected = plan.and_then(|plan| plan.time_on(known.machine_for(plan)));
    let line = report::planned(planner.name, &known, plan, expected, planned_in);
    (migration.say)(&line);
    let mut source = Source::new(migration, shot, Pass::Forward);
    source.begin()?;
    let times = adjoint::run(engine, &mut known, &mut schedule, &mut source)?;
    (migration.say)(&report::played(expected, &times));
    migration.known = Some(known);
    Ok(())
}

/// The machine of a shot that was observed.
fn measure(migration: &mut Migration<'_>, shot: usize, engine: &Engine) -> Result<Estimate> {
    let reference = migration.reference.take();
    migration.start_receiver()?;
    // The last step may be a shorter one.
    let steps = usize::try_from(migration.survey.checkpoints())?.saturating_sub(1);
    let known = adjoint::measure(
        engine,
        &mut Source::new(migration, shot, Pass::Trial),
        steps,
    )?;
    migration.clear_maps()?;
    migration.reference = reference;
    Ok(known)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pass {
    /// Steps that are timed and leave nothing.
    Trial,
    /// The sweep, in which the receivers listen.
    Forward,
    Backward,
}

/// The source's wavefield of a shot. The state of step `k` is its checkpoint `k`.
struct Source<'m, 'a> {
    migration: &'m mut Migration<'a>,
    shot: usize,
    pass: Pass,
    cells: [u64; 1],
}

impl<'m, 'a> Source<'m, 'a> {
    fn new(migration: &'m mut Migration<'a>, shot: usize, pass: Pass) -> Self {
        Self {
            cells: [history::cells(&migration.source)],
            migration,
            shot,
            pass,
        }
    }

    /// Goes to the first checkpoint.
    fn begin(&mut self) -> Result<()> {
        self.migration.start_source()?;
        self.migration.start_receiver()?;
        self.advance_over(0..1)?;
        self.migration.keep(self.version(0))
    }

    fn version(&self, step: usize) -> u64 {
        self.migration.survey.version(self.shot, step as u64)
    }

    /// The time step of a checkpoint, or the end of the pass.
    fn time_step(&self, checkpoint: usize) -> usize {
        let survey = self.migration.survey;
        (checkpoint * survey.every).min(survey.steps())
    }

    fn advance_over(&mut self, time_steps: Range<usize>) -> Result<()> {
        for n in time_steps {
            self.migration.source_step(self.shot, n)?;
            if self.pass == Pass::Forward {
                self.migration.record(n)?;
                (self.migration.progress)("forward");
            }
        }
        self.migration.propagator.finish()
    }
}

impl Adjoint for Source<'_, '_> {
    type Error = anyhow::Error;

    fn advance(&mut self, step: usize) -> Result<()> {
        let steps = self.migration.survey.steps();
        let after = |checkpoint: usize| (self.time_step(checkpoint) + 1).min(steps);
        self.advance_over(after(step)..after(step + 1))?;
        if self.pass == Pass::Forward && self.time_step(step + 1) < steps {
            self.migration.keep(self.version(step + 1))?;
        }
        Ok(())
    }

    fn is_over(&mut self, step: usize) -> bool {
        self.time_step(step) == self.migration.survey.steps()
    }

    fn planned(&mut self, plan: &Plan, expected: Duration) {
        (self.migration.say)(&report::planned_again(plan, expected));
    }

    fn end_forward(&mut self) -> Result<()> {
        self.pass = Pass::Backward;
        Ok(())
    }

    fn reverse(&mut self, step: usize) -> Result<()> {
        for n in (self.time_step(step)..self.time_step(step + 1)).rev() {
            self.migration.receiver_step(n)?;
            if self.pass == Pass::Backward {
                (self.migration.progress)("backward");
            }
        }
        self.migration.image(self.version(step))?;
        self.migration.propagator.finish()
    }

    fn state(&self) -> Vec<Region<'_>> {
        history::regions(&self.migration.source, &self.cells).into()
    }

    fn state_mut(&mut self) -> Vec<RegionMut<'_>> {
        history::regions_mut(&self.migration.source).into()
    }
}

#[cfg(test)]
mod tests;
