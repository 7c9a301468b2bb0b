//! Schedules of reversed computations: which states are stored, and which are computed again.

use std::time::Duration;

use parking_lot::Mutex;
use tierflow_schedule::adjoint::StepTimes;
use tierflow_schedule::{Action, Machine, Plan, Schedule, Tier};

use crate::core::OpenEngine;
use crate::failure::{Failure, Outcome, exported};
use crate::ffi::{In, Out};
use crate::handles::{Handle, Named};

/// Number of tiers below the device, at most: the length of `tiers` in `tf_machine`.
const TIERS: usize = 5;

/// `tf_tier` of the header.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct RawTier {
    room: u64,
    down: f64,
    pub(crate) up: f64,
}

/// `tf_machine` of the header.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct RawMachine {
    forward: f64,
    backward: f64,
    state: u64,
    device: u64,
    copy: f64,
    pub(crate) tiers: [RawTier; TIERS],
    pub(crate) count: usize,
}

/// `tf_action` of the header.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct RawAction {
    kind: i32,
    step: u64,
    pub(crate) to: u64,
}

struct Playing(Mutex<Schedule>);

impl Named for Playing {
    const NAME: &'static str = "tf_schedule";
}

fn time(seconds: f64) -> Outcome<Duration> {
    let wrong = |_| Failure::argument(format!("a step cannot take {seconds} seconds"));
    Duration::try_from_secs_f64(seconds).map_err(wrong)
}

/// Checks the number of steps of a schedule.
fn count(steps: u64) -> Outcome<usize> {
    let steps = usize::try_from(steps).ok().filter(|&steps| steps > 0);
    steps.ok_or_else(|| Failure::argument("a schedule needs 1 step or more"))
}

impl RawMachine {
    fn read(from: In<'_, Self>) -> Outcome<Machine> {
        let null = || Failure::argument("machine is null");
        let machine = from.read().ok_or_else(null)?;
        let many = || Failure::argument(format!("a machine has {TIERS} tiers at most"));
        let tiers = machine.tiers.get(..machine.count).ok_or_else(many)?;
        let tiers = tiers
            .iter()
            .map(|&RawTier { room, down, up }| Tier { room, down, up });
        Ok(Machine {
            forward: time(machine.forward)?,
            backward: time(machine.backward)?,
            state: machine.state,
            device: machine.device,
            tiers: tiers.collect(),
            copy: machine.copy,
            codec: None,
        })
    }
}

impl From<Action> for RawAction {
    fn from(action: Action) -> Self {
        let (kind, step, to) = match action {
            Action::Forward { from, to } => (1, from, to),
            Action::Save { step, .. } => (2, step, step),
            Action::EndForward => (3, 0, 0),
            Action::Restart { step } => (4, step, step),
            Action::Reverse { step } => (5, step, step),
            Action::Forget { step } => (6, step, step),
        };
        Self {
            kind,
            step: step as u64,
            to: to as u64,
        }
    }
}

exported! {
    fn tf_machine_measure(engine: Handle<OpenEngine>, forward: f64, backward: f64, state: u64, machine: Out<RawMachine>) {
        let steps = StepTimes { forward: time(forward)?, backward: time(backward)?, state };
        let measured = Machine::measured(&engine.get()?.engine.metrics(), steps);
        let mut tiers = [RawTier::default(); TIERS];
        for (raw, &Tier { room, down, up }) in tiers.iter_mut().zip(&measured.tiers) {
            *raw = RawTier { room, down, up };
        }
        let count = measured.tiers.len().min(TIERS);
        let (device, copy) = (measured.device, measured.copy);
        machine.put(RawMachine { forward, backward, state, device, copy, tiers, count }, "machine")
    }

    fn tf_machine_bound(machine: In<'_, RawMachine>, steps: u64, seconds: Out<f64>) {
        let bound = RawMachine::read(machine)?.bound(count(steps)?);
        seconds.put(bound.time.as_secs_f64(), "seconds")
    }

    fn tf_schedule_new(machine: In<'_, RawMachine>, steps: u64, schedule: Out<Handle<Playing>>) {
        let machine = RawMachine::read(machine)?;
        schedule.exists("schedule")?;
        let playing = Playing(Mutex::new(Schedule::new(&machine, Some(count(steps)?))));
        schedule.put(Handle::new(playing), "schedule")
    }

    fn tf_schedule_times(schedule: Handle<Playing>, expected: Out<f64>, bound: Out<f64>) {
        let playing = schedule.get()?;
        let schedule = playing.0.lock();
        let plan = schedule.plan();
        let time = plan.and_then(Plan::expected).map_or(f64::INFINITY, |time| time.as_secs_f64());
        expected.put_if_asked(time);
        bound.put_if_asked(plan.map_or(0.0, |plan| plan.bound().time.as_secs_f64()));
        Ok(())
    }

    fn tf_schedule_next(schedule: Handle<Playing>, action: Out<RawAction>) {
        action.exists("action")?;
        let playing = schedule.get()?;
        let next = playing.0.lock().next_action(&[]);
        let ended = RawAction { kind: 0, step: 0, to: 0 };
        action.put(next.map_or(ended, RawAction::from), "action")
    }

    fn tf_schedule_free(schedule: Handle<Playing>) { schedule.take().map(drop) }
}
