//! The classes `Machine` and `Schedule`, for reversed computations. `tierflow/_tiered.py` makes a schedule of `checkpoint_schedules` of them.

use std::time::Duration;

use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::intern;
use pyo3::prelude::*;
use tierflow_bind::Failure;
use tierflow_schedule::adjoint::{Links, StepTimes};
use tierflow_schedule::{self as schedule, Action, Plan, Tier};

use crate::engine::Engine;
use crate::errors::Answer;
use crate::options::Bytes;

fn duration(seconds: f64) -> Answer<Duration> {
    let wrong = |_| Failure::argument(format!("a step cannot take {seconds} seconds"));
    Ok(Duration::try_from_secs_f64(seconds).map_err(wrong)?)
}

/// A computation, and the memories for its states. `forward` and `backward` are the seconds of a step and of a reversed step, and `state`
/// is the bytes of a state. `device` is the bytes for states on the fastest tier. Each of the `tiers` below has the bytes for states, and
/// the bytes per second down and up. `copy` is the bytes per second of a copy to or from the fastest tier; without it, copies take no time.
#[pyclass(frozen, from_py_object, module = "tierflow")]
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    machine: schedule::Machine,
}

#[pymethods]
impl Machine {
    #[new]
    #[pyo3(signature = (*, forward, backward, state, device, tiers = None, copy = None))]
    fn new(
        forward: f64,
        backward: f64,
        state: Bytes,
        device: Bytes,
        tiers: Option<Vec<(Bytes, f64, f64)>>,
        copy: Option<f64>,
    ) -> Answer<Self> {
        let tiers = tiers.unwrap_or_default().into_iter();
        let tiers = tiers.map(|(room, down, up)| Tier {
            room: room.0,
            down,
            up,
        });
        let machine = schedule::Machine {
            forward: duration(forward)?,
            backward: duration(backward)?,
            state: state.0,
            device: device.0,
            tiers: tiers.collect(),
            copy: copy.unwrap_or(f64::INFINITY),
            codec: None,
        };
        Ok(Self { machine })
    }

    /// Makes a machine of the tiers of `engine`, with the rates that its transfers had so far. `forward` and `backward` are the seconds of a
    /// step and of a reversed step, and `state` is an array, or a number of bytes.
    #[staticmethod]
    #[pyo3(signature = (engine, *, forward, backward, state))]
    fn measured(
        engine: &Bound<'_, Engine>,
        forward: f64,
        backward: f64,
        state: &Bound<'_, PyAny>,
    ) -> Answer<Self> {
        let py = engine.py();
        let state = match state.getattr_opt(intern!(py, "nbytes"))? {
            Some(bytes) => bytes.extract()?,
            None => state.extract::<Bytes>()?.0,
        };
        let steps = StepTimes {
            forward: duration(forward)?,
            backward: duration(backward)?,
            state,
        };
        let measured = |engine: &tierflow_engine::Engine| engine.metrics();
        let metrics = engine.get().detached(py, measured)?;
        let machine = schedule::Machine::measured(&metrics, steps);
        Ok(Self { machine })
    }

    /// Returns a lower bound of the seconds that a schedule of `steps` steps takes.
    fn bound(&self, py: Python<'_>, steps: usize) -> f64 {
        py.detach(|| self.machine.bound(steps).time.as_secs_f64())
    }

    fn __repr__(&self) -> String {
        format!("{:?}", self.machine)
    }
}

/// An iterator over the actions of a schedule for `machine`: the name of each, and its steps.
///
/// Without `steps`, the length of the sweep is unknown until `end`. Until then, `engine` tells the schedule which links are idle; without
/// an engine, all links count as idle.
#[pyclass(module = "tierflow")]
#[derive(Debug)]
pub(crate) struct Schedule {
    schedule: schedule::Schedule,
    machine: schedule::Machine,
    engine: Option<Py<Engine>>,
    links: Links,
}

#[pymethods]
impl Schedule {
    #[new]
    #[pyo3(signature = (machine, steps = None, engine = None))]
    fn new(
        py: Python<'_>,
        machine: Machine,
        steps: Option<usize>,
        engine: Option<Py<Engine>>,
    ) -> Self {
        let machine = machine.machine;
        Self {
            schedule: py.detach(|| schedule::Schedule::new(&machine, steps)),
            machine,
            engine,
            links: Links::default(),
        }
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.engine)
    }

    fn __clear__(&mut self) {
        self.engine = None;
    }

    fn __iter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    fn __next__(&mut self, py: Python<'_>) -> Answer<Option<(&'static str, usize, usize)>> {
        let Self {
            schedule, links, ..
        } = self;
        let idle = match &self.engine {
            Some(engine) => engine
                .get()
                .detached(py, |engine| links.idle(engine, schedule))?,
            _ => vec![true; schedule.moved().len()],
        };
        Ok(schedule.next_action(&idle).map(|action| match action {
            Action::Forward { from, to } => ("forward", from, to),
            Action::Save { step, .. } => ("save", step, step),
            Action::EndForward => ("end_forward", 0, 0),
            Action::Restart { step } => ("restart", step, step),
            Action::Reverse { step } => ("reverse", step, step),
            Action::Forget { step } => ("forget", step, step),
        }))
    }

    /// Ends a sweep of unknown length at the step that the last action leads to.
    fn end(&mut self, py: Python<'_>) -> Answer<()> {
        if let Some(engine) = &self.engine {
            let steps = StepTimes {
                forward: self.machine.forward,
                backward: self.machine.backward,
                state: self.machine.state,
            };
            let metrics = engine
                .get()
                .detached(py, tierflow_engine::Engine::metrics)?;
            self.machine = schedule::Machine::measured(&metrics, steps);
        }
        py.detach(|| self.schedule.end(&self.machine));
        Ok(())
    }

    /// Seconds that the replay of the plan takes; `None` while the number of steps is not known.
    #[getter]
    fn expected(&self) -> Option<f64> {
        let expected = self.schedule.plan().and_then(Plan::expected);
        expected.map(|time| time.as_secs_f64())
    }

    /// Seconds that no schedule beats; `None` while the number of steps is not known.
    #[getter]
    fn bound(&self) -> Option<f64> {
        let plan = self.schedule.plan();
        plan.map(|plan| plan.bound().time.as_secs_f64())
    }

    /// States that the forward sweep will store in the actions that are known and not done yet.
    #[getter]
    fn stored(&self) -> usize {
        let sweep = self.schedule.ahead();
        let sweep = sweep.take_while(|action| !matches!(action, Action::EndForward));
        sweep
            .filter(|action| matches!(action, Action::Save { .. }))
            .count()
    }
}
