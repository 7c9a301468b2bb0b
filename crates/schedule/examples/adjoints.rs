//! The gradients of a wave, of heat and of Lorenz's equations, by their adjoints, with some of the states in an engine.
//!
//! `cargo run -p tierflow-schedule --features engine --example adjoints`
//!
//! `examples/adjoints.cpp` of `tierflow-capi` and `adjoints.py` of the Python package are the same in C++ and Python.

use std::time::Duration;
use tierflow_device::{Choice, open};
use tierflow_engine::{Engine, Error, Region, RegionMut};
use tierflow_schedule::adjoint::{Adjoint, run};
use tierflow_schedule::{Machine, Schedule, Tier};

/// A recurrence: the step from one state to the next, and its adjoint at a state.
struct Problem {
    name: &'static str,
    steps: usize,
    first: Vec<f64>,
    step: fn(&[f64]) -> Vec<f64>,
    back: fn(&[f64], &[f64]) -> Vec<f64>,
}

fn laplace(u: &[f64], cell: usize) -> f64 {
    let count = u.len();
    u[(cell + 1) % count] - 2.0 * u[cell] + u[(cell + count - 1) % count]
}

/// The equation `u_tt = u_xx - u³`. The state is u and its velocity.
fn wave(state: &[f64]) -> Vec<f64> {
    let (u, v) = state.split_at(state.len() / 2);
    let v = (0..u.len()).map(|i| v[i] + 0.1 * (laplace(u, i) - u[i].powi(3)));
    let v: Vec<f64> = v.collect();
    let u = u.iter().zip(&v).map(|(u, v)| u + 0.1 * v);
    u.chain(v.iter().copied()).collect()
}

fn wave_back(state: &[f64], adjoint: &[f64]) -> Vec<f64> {
    let half = state.len() / 2;
    let (of_u, of_v) = adjoint.split_at(half);
    let v: Vec<f64> = (0..half).map(|i| of_v[i] + 0.1 * of_u[i]).collect();
    let u = (0..half).map(|i| of_u[i] + 0.1 * (laplace(&v, i) - 3.0 * state[i].powi(2) * v[i]));
    u.chain(v.iter().copied()).collect()
}

/// A rod with a source of heat that depends on the temperature.
fn heat(u: &[f64]) -> Vec<f64> {
    let step = |i: usize| u[i] + 0.2 * laplace(u, i) + 0.05 * u[i] * (1.0 - u[i]);
    (0..u.len()).map(step).collect()
}

fn heat_back(u: &[f64], v: &[f64]) -> Vec<f64> {
    let step = |i: usize| v[i] + 0.2 * laplace(v, i) + 0.05 * (1.0 - 2.0 * u[i]) * v[i];
    (0..u.len()).map(step).collect()
}

/// Lorenz's equations from many starting points of three numbers each.
fn lorenz(state: &[f64]) -> Vec<f64> {
    let step = |s: &[f64]| {
        [
            s[0] + 0.002 * 10.0 * (s[1] - s[0]),
            s[1] + 0.002 * (s[0] * (28.0 - s[2]) - s[1]),
            s[2] + 0.002 * (s[0] * s[1] - 8.0 / 3.0 * s[2]),
        ]
    };
    state.chunks_exact(3).flat_map(step).collect()
}

fn lorenz_back(state: &[f64], adjoint: &[f64]) -> Vec<f64> {
    let step = |(s, a): (&[f64], &[f64])| {
        [
            a[0] + 0.002 * (-10.0 * a[0] + (28.0 - s[2]) * a[1] + s[1] * a[2]),
            a[1] + 0.002 * (10.0 * a[0] - a[1] + s[0] * a[2]),
            a[2] + 0.002 * (-s[0] * a[1] - 8.0 / 3.0 * a[2]),
        ]
    };
    let both = state.chunks_exact(3).zip(adjoint.chunks_exact(3));
    both.flat_map(step).collect()
}

/// A problem on its way through a schedule. The objective is half the sum of the squares of the last state.
struct Running<'a> {
    problem: &'a Problem,
    state: Vec<u8>,
    adjoint: Vec<f64>,
}

impl Running<'_> {
    fn values(&self) -> Vec<f64> {
        let (numbers, _) = self.state.as_chunks();
        numbers.iter().copied().map(f64::from_ne_bytes).collect()
    }
}

impl Adjoint for Running<'_> {
    type Error = Error;

    fn advance(&mut self, _step: usize) -> Result<(), Error> {
        let next = (self.problem.step)(&self.values());
        self.state = next.into_iter().flat_map(f64::to_ne_bytes).collect();
        Ok(())
    }

    fn end_forward(&mut self) -> Result<(), Error> {
        self.adjoint = self.values();
        Ok(())
    }

    fn reverse(&mut self, _step: usize) -> Result<(), Error> {
        self.adjoint = (self.problem.back)(&self.values(), &self.adjoint);
        Ok(())
    }

    fn state(&self) -> Vec<Region<'_>> {
        vec![Region::from(&self.state[..])]
    }

    fn state_mut(&mut self) -> Vec<RegionMut<'_>> {
        vec![RegionMut::from(&mut self.state[..])]
    }
}

impl Problem {
    /// Returns all states of a run whose first state is moved by `size` along a direction.
    fn states(&self, size: f64) -> Vec<Vec<f64>> {
        let moved = |(i, value): (usize, &f64)| value + size * (0.3 * i as f64).cos();
        let mut states = vec![
            self.first
                .iter()
                .enumerate()
                .map(moved)
                .collect::<Vec<f64>>(),
        ];
        for step in 0..self.steps {
            states.push((self.step)(&states[step]));
        }
        states
    }

    fn stored_gradient(&self) -> Vec<f64> {
        let states = self.states(0.0);
        let (last, others) = states.split_last().unwrap_or((&self.first, &[]));
        let back = |adjoint: Vec<f64>, state: &Vec<f64>| (self.back)(state, &adjoint);
        others.iter().rev().fold(last.clone(), back)
    }

    fn gradient(&self, engine: &Engine) -> Result<(Vec<f64>, u64), Error> {
        let state: Vec<u8> = self
            .first
            .iter()
            .flat_map(|one| one.to_ne_bytes())
            .collect();
        let bytes = state.len() as u64;
        // A state takes five steps over this link.
        let link = bytes as f64 / 5e-3;
        let machine = Machine {
            forward: Duration::from_millis(1),
            backward: Duration::from_millis(1),
            state: bytes,
            device: 8 * bytes,
            tiers: vec![Tier {
                room: u64::MAX,
                down: link,
                up: link,
            }],
            copy: 1e11,
            codec: None,
        };
        let mut running = Running {
            problem: self,
            state,
            adjoint: Vec::new(),
        };
        let mut schedule = Schedule::new(&machine, Some(self.steps));
        let times = run(engine, &mut machine.into(), &mut schedule, &mut running)?;
        Ok((running.adjoint, times.stored / bytes))
    }

    /// Returns the order in which the error of the gradient's prediction of the objective shrinks with the distance: 2 if the gradient is
    /// right.
    fn order(&self, gradient: &[f64]) -> f64 {
        let value = |size| {
            self.states(size)
                .last()
                .map_or(0.0, |u| 0.5 * u.iter().map(|u| u * u).sum::<f64>())
        };
        let along = gradient
            .iter()
            .enumerate()
            .map(|(i, slope)| slope * (0.3 * i as f64).cos());
        let slope: f64 = along.sum();
        let rest = |size: f64| (value(size) - value(0.0) - size * slope).abs();
        (rest(1e-4) / rest(5e-5)).log2()
    }
}

fn problems() -> [Problem; 3] {
    let sines = |count: usize| (0..count).map(|i| (0.05 * i as f64).sin());
    [
        Problem {
            name: "wave",
            steps: 200,
            first: sines(1000).collect(),
            step: wave,
            back: wave_back,
        },
        Problem {
            name: "heat",
            steps: 200,
            first: sines(1000).map(|sine| 0.5 + 0.4 * sine).collect(),
            step: heat,
            back: heat_back,
        },
        Problem {
            name: "Lorenz",
            steps: 300,
            first: sines(300).map(|sine| 5.0 + sine).collect(),
            step: lorenz,
            back: lorenz_back,
        },
    ]
}

pub(crate) fn main() -> Result<(), Box<dyn std::error::Error>> {
    let engine = Engine::builder(&open(Choice::Host)?)
        .device_cache(64 << 10)
        .host_cache(4 << 20)
        .build()?;
    for problem in problems() {
        let (gradient, stored) = problem.gradient(&engine)?;
        let order = problem.order(&gradient);
        println!(
            "{}: {} steps, {stored} states stored, Taylor {order:.4}",
            problem.name, problem.steps
        );
        if gradient != problem.stored_gradient() || order < 1.99 {
            return Err(format!("the gradient of {} is wrong", problem.name).into());
        }
    }
    Ok(())
}
