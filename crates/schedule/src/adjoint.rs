//! A reversed computation whose states an engine keeps.

mod links;
mod measured;

pub use links::Links;

use crate::action::Action;
use crate::machine::Machine;
use crate::plan::Plan;
use crate::schedule::Schedule;
use std::collections::HashMap;
use std::panic::resume_unwind;
use std::time::{Duration, Instant};
use tierflow_engine::{Engine, Metrics, Region, RegionMut};

/// A computation that is reversed. Each call returns when its work on the state is over.
pub trait Adjoint {
    /// The error of a step. That of the engine ends the run, too.
    type Error: From<tierflow_engine::Error>;

    /// Computes the state of `step + 1` from that of `step`, in place. A step may be computed several times.
    ///
    /// # Errors
    /// Any error ends the run.
    fn advance(&mut self, step: usize) -> Result<(), Self::Error>;

    /// Tells if a sweep of unknown length ends before `step`.
    fn is_over(&mut self, _step: usize) -> bool {
        false
    }

    /// Hears the plan that was made or judged again when the sweep ended, and the time that the run is expected to take then.
    fn planned(&mut self, _plan: &Plan, _expected: Duration) {}

    /// Begins the reversal: the state after the last step exists for the first time.
    ///
    /// # Errors
    /// Any error ends the run.
    fn end_forward(&mut self) -> Result<(), Self::Error> {
        Ok(())
    }

    /// Reverses `step`, whose state is there. The state may be overwritten.
    ///
    /// # Errors
    /// Any error ends the run.
    fn reverse(&mut self, step: usize) -> Result<(), Self::Error>;

    /// The memory of the state, to be stored.
    fn state(&self) -> Vec<Region<'_>>;

    /// The same memory, to be written.
    fn state_mut(&mut self) -> Vec<RegionMut<'_>>;
}

/// Times of one step and bytes of one state, as an application measured them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepTimes {
    /// Time of one forward step.
    pub forward: Duration,
    /// Time of one step of the reversed computation.
    pub backward: Duration,
    /// Bytes of one state.
    pub state: u64,
}

/// Times of a run, as measured.
#[derive(Clone, Debug, PartialEq)]
pub struct RunTimes {
    /// Time of the whole run.
    pub total: Duration,
    /// Forward steps, each as often as it was computed.
    pub advanced: usize,
    /// Time of these steps.
    pub forward: Duration,
    /// Steps that were reversed.
    pub reversed: usize,
    /// Time of these steps.
    pub backward: Duration,
    /// Bytes of the states that were stored.
    pub stored: u64,
    /// Time for which states were stored, hinted and brought back.
    pub blocked: Duration,
    /// The time that was expected when the sweep ended: the sweep's, and that of the reversal with the rates of the sweep.
    pub expected: Option<Duration>,
    /// The machine as this run had it: the means of its steps, the rates of its copies, and those of its links: down in the sweep,
    /// up in the reversal. A link without transfers then has the rate of all its transfers. The [bound](Machine::bound) of this
    /// machine is the one that the run's time is compared with.
    pub machine: Machine,
}

/// Measures the machine that a computation of so many steps runs on: the times of its steps, and the engine's copies and links down.
///
/// Sends some states down to the lowest tier, one at a time, and meanwhile computes the first steps, then reverses them, for some
/// 0.1 s each at least. So the computation has to be set to its beginning afterwards.
///
/// # Errors
/// The errors of the computation, and those of [`Engine::reserve`], [`Engine::checkpoint`], [`Engine::wait`] and [`Engine::discard`].
pub fn measure<A: Adjoint>(
    engine: &Engine,
    computation: &mut A,
    steps: usize,
) -> Result<Machine, A::Error> {
    // The first state and the first steps find memory that was not used before.
    beside(engine, 1, 1, computation, &mut |one| {
        one.advance(0)?;
        one.reverse(0)
    })?;
    let warm = engine.metrics();
    let mut step = (0..steps.max(1)).cycle();
    let mut next = || step.next().unwrap_or(0);
    let forward = beside(engine, 3, 3, computation, &mut |one| one.advance(next()))?;
    let backward = beside(engine, 3, 3, computation, &mut |one| one.reverse(next()))?;
    let steps = StepTimes {
        state: computation.state().iter().map(|r| r.len() as u64).sum(),
        forward,
        backward,
    };
    let metrics = engine.metrics();
    let spans = [(Some(&warm), &metrics), (None, &metrics)];
    Ok(Machine::within(&spans, &spans, steps))
}

/// Sends so many states down, one at a time: together they would share the links. Returns the mean time of the work beside that,
/// which is done `least` times a state, and for 33 ms.
fn beside<A: Adjoint>(
    engine: &Engine,
    states: u64,
    least: u32,
    computation: &mut A,
    work: &mut dyn FnMut(&mut A) -> Result<(), A::Error>,
) -> Result<Duration, A::Error> {
    let (mut time, mut count) = (Duration::ZERO, 0);
    for version in engine.reserve(states)? {
        engine.checkpoint(version, &computation.state())?;
        std::thread::scope(|scope| {
            let sent = scope.spawn(|| engine.wait());
            let (start, mut done) = (Instant::now(), 0);
            while done < least || !sent.is_finished() || start.elapsed() < Duration::from_millis(33)
            {
                work(computation)?;
                done += 1;
            }
            time += start.elapsed();
            count += done;
            let sent = sent.join().unwrap_or_else(|panic| resume_unwind(panic));
            sent.map_err(A::Error::from)
        })?;
        engine.discard(version)?;
    }
    Ok(time / count.max(1))
}

/// Runs a schedule: forward to the end, and back. The engine has to keep the versions that were restored
/// ([`AfterRestore::Keep`](tierflow_engine::AfterRestore::Keep), which is its default).
///
/// States get numbers that nobody else uses ([`Engine::reserve`]). The restores of the states that the sweep stores are hinted in
/// their order before it; those of a sweep of unknown length at its end. The states of a gap between two of them are hinted when its
/// reversal begins: earlier, they would take room that no state needs. When the sweep ends, the reversal is planned again with the
/// rates that the sweep had; a plan of given actions ([`Plan::of`]) keeps them. Of `machine`, this takes the size of a state and the
/// time of a reversed step; all else was measured then. Nothing is left in the engine.
///
/// # Errors
/// The errors of the computation and of the engine.
pub fn run<A: Adjoint>(
    engine: &Engine,
    machine: &Machine,
    schedule: &mut Schedule,
    computation: &mut A,
) -> Result<RunTimes, A::Error> {
    let earlier = engine.metrics();
    let mut run = Run {
        engine,
        computation,
        versions: HashMap::new(),
        numbers: 0..0,
        hinted: Vec::new(),
        first_of_gaps: u64::MAX,
        links: Links::default(),
        is_swept: false,
        steps: Vec::new(),
        swept: earlier.clone(),
        earlier,
        start: Instant::now(),
        times: RunTimes {
            total: Duration::ZERO,
            advanced: 0,
            forward: Duration::ZERO,
            reversed: 0,
            backward: Duration::ZERO,
            stored: 0,
            blocked: Duration::ZERO,
            expected: None,
            machine: machine.clone(),
        },
    };
    let ended = run.play(schedule);
    run.times.total = run.start.elapsed();
    // Versions are left after an error alone.
    for version in run.versions.values().copied() {
        let _is_gone = engine.discard(version);
    }
    run.forget_hints();
    ended?;
    let metrics = engine.metrics();
    run.times.stored = metrics.checkpoint.bytes - run.earlier.checkpoint.bytes;
    let (before, swept) = (Some(&run.earlier), &run.swept);
    let down = [(before, swept), (before, &metrics), (None, &metrics)];
    let up = [(Some(swept), &metrics), down[1], down[2]];
    run.times.machine = Machine::within(&down, &up, run.times.steps());
    Ok(run.times)
}

struct Run<'a, A> {
    engine: &'a Engine,
    computation: &'a mut A,
    /// The version of each stored step.
    versions: HashMap<usize, u64>,
    /// Numbers of the states that will be stored.
    numbers: std::ops::Range<u64>,
    /// Hinted restores in their order.
    hinted: Vec<u64>,
    /// The least number of the states that the reversal stores.
    first_of_gaps: u64,
    links: Links,
    is_swept: bool,
    /// Times of the forward steps of the sweep.
    steps: Vec<Duration>,
    earlier: Metrics,
    /// The metrics at the end of the sweep.
    swept: Metrics,
    start: Instant,
    times: RunTimes,
}

impl RunTimes {
    /// Means of the steps so far. Those that were not taken have the times that were expected.
    fn steps(&self) -> StepTimes {
        let mean = |time: Duration, steps: usize, expected| match steps {
            0 => expected,
            _ => time.div_f64(steps as f64),
        };
        StepTimes {
            forward: mean(self.forward, self.advanced, self.machine.forward),
            backward: mean(self.backward, self.reversed, self.machine.backward),
            state: self.machine.state,
        }
    }
}

impl<A: Adjoint> Run<'_, A> {
    fn play(&mut self, schedule: &mut Schedule) -> Result<(), A::Error> {
        self.hint_sweep(schedule)?;
        while let Some(action) = schedule.next_action(&self.links.idle(self.engine, schedule)) {
            if action == Action::EndForward {
                self.is_swept = true;
                self.forget_hints();
                self.hint_gap(schedule)?;
                self.engine.prefetch_start();
            }
            let ends_gap = self.is_swept && self.is_last_of_gap(action);
            self.act(action)?;
            let is_unknown = schedule.plan().is_none();
            match action {
                Action::Save { .. } if is_unknown => self.hint_newest_first()?,
                Action::Forward { to, .. } if is_unknown && self.computation.is_over(to) => {
                    schedule.end(&self.machine());
                    self.end_sweep(schedule);
                    self.hint_sweep(schedule)?;
                }
                Action::Forward { .. } if schedule.ahead().next() == Some(Action::EndForward) => {
                    let is_new = schedule.plan_again(&self.machine());
                    self.end_sweep(schedule);
                    if is_new {
                        self.hint_sweep(schedule)?;
                    }
                }
                _ if ends_gap => self.hint_gap(schedule)?,
                _ => {}
            }
        }
        Ok(())
    }

    /// The machine as the sweep had it. Its steps are those of its second half: earlier ones touch memory for the first time.
    fn machine(&self) -> Machine {
        let late = &self.steps[self.steps.len() / 2..];
        let mut steps = self.times.steps();
        if !late.is_empty() {
            steps.forward = late.iter().sum::<Duration>() / late.len() as u32;
        }
        let metrics = self.engine.metrics();
        let spans = [(Some(&self.earlier), &metrics), (None, &metrics)];
        Machine::within(&spans, &spans, steps)
    }

    /// Tells the computation of the plan and the time that is expected now.
    fn end_sweep(&mut self, schedule: &Schedule) {
        self.swept = self.engine.metrics();
        if let Some(plan) = schedule.plan() {
            self.times.expected = plan.reversal().map(|time| self.start.elapsed() + time);
            if let Some(expected) = self.times.expected {
                self.computation.planned(plan, expected);
            }
        }
    }

    /// Tells if an action forgets a state of the sweep: the gap behind it is reversed then.
    fn is_last_of_gap(&self, action: Action) -> bool {
        let Action::Forget { step } = action else {
            return false;
        };
        let version = self.versions.get(&step);
        version.is_some_and(|&version| version < self.first_of_gaps)
    }

    fn forget_hints(&mut self) {
        let hinted = std::mem::take(&mut self.hinted);
        self.engine.forget_hints(Some(&hinted));
    }

    /// Hints the restores to come, in their order, of the states that are there and those that the sweep stores.
    fn hint_sweep(&mut self, schedule: &Schedule) -> Result<(), A::Error> {
        if schedule.plan().is_none() {
            return Ok(());
        }
        self.forget_hints();
        let is_end = |action: &Action| *action == Action::EndForward;
        let sweep = schedule.ahead().take_while(|action| !is_end(action));
        self.numbers = self.engine.reserve(saves(sweep))?;
        let (mut versions, mut numbers) = (self.versions.clone(), self.numbers.clone());
        for action in schedule.ahead() {
            match action {
                Action::Save { step, .. } => match numbers.next() {
                    Some(version) => drop(versions.insert(step, version)),
                    None => drop(versions.remove(&step)),
                },
                Action::Restart { step } => self.hinted.extend(versions.get(&step)),
                Action::Forget { step } => drop(versions.remove(&step)),
                _ => {}
            }
        }
        self.engine.hint(self.hinted.iter().copied());
        Ok(())
    }

    /// Hints the restores of the gap that is reversed next. Without hints, those of the gaps before it are expected after them,
    /// the newest first.
    fn hint_gap(&mut self, schedule: &Schedule) -> Result<(), A::Error> {
        let start = Instant::now();
        let gap = schedule.ahead();
        let gap: Vec<Action> = gap
            .take_while(|action| !self.is_last_of_gap(*action))
            .collect();
        self.numbers = self.engine.reserve(saves(gap.iter().copied()))?;
        self.first_of_gaps = self.first_of_gaps.min(self.numbers.start);
        let (mut numbers, mut stored) = (self.numbers.clone(), HashMap::new());
        self.hinted.clear();
        for action in gap {
            match action {
                Action::Save { step, .. } => {
                    stored.extend(numbers.next().map(|version| (step, version)));
                }
                Action::Restart { step } => {
                    let version = stored.get(&step).or_else(|| self.versions.get(&step));
                    self.hinted.extend(version);
                }
                _ => {}
            }
        }
        self.engine.hint(self.hinted.iter().copied());
        self.times.blocked += start.elapsed();
        Ok(())
    }

    /// Hints the state that a sweep of unknown length stores next, and before it those that are there, the newest first: the
    /// engine makes room for the next one meanwhile, and writes nothing down that may be forgotten.
    fn hint_newest_first(&mut self) -> Result<(), A::Error> {
        self.forget_hints();
        self.numbers = self.engine.reserve(1)?;
        let mut stored: Vec<u64> = self.versions.values().copied().collect();
        stored.sort_unstable_by(|a, b| b.cmp(a));
        self.hinted.push(self.numbers.start);
        self.hinted.append(&mut stored);
        self.engine.hint(self.hinted.iter().copied());
        Ok(())
    }

    fn act(&mut self, action: Action) -> Result<(), A::Error> {
        let start = Instant::now();
        match action {
            Action::Forward { from, to } => {
                for step in from..to {
                    let begun = Instant::now();
                    self.computation.advance(step)?;
                    if !self.is_swept {
                        self.steps.push(begun.elapsed());
                    }
                }
                self.times.advanced += to - from;
                self.times.forward += start.elapsed();
            }
            Action::Save { step, .. } => {
                let version = self.numbers.next();
                let version =
                    version.map_or_else(|| self.engine.reserve(1).map(|one| one.start), Ok)?;
                self.engine.checkpoint(version, &self.computation.state())?;
                self.versions.insert(step, version);
                self.times.blocked += start.elapsed();
            }
            Action::EndForward => {
                self.computation.end_forward()?;
            }
            Action::Restart { step } => {
                let version = self.versions.get(&step).copied();
                let version = version.ok_or(tierflow_engine::Error::Unknown {
                    version: step as u64,
                })?;
                self.engine
                    .restore(version, &mut self.computation.state_mut())?;
                self.times.blocked += start.elapsed();
            }
            Action::Reverse { step } => {
                self.computation.reverse(step)?;
                self.times.reversed += 1;
                self.times.backward += start.elapsed();
            }
            Action::Forget { step } => {
                if let Some(version) = self.versions.remove(&step) {
                    self.engine.discard(version)?;
                }
            }
        }
        Ok(())
    }
}

fn saves(actions: impl Iterator<Item = Action>) -> u64 {
    let saves = actions.filter(|action| matches!(action, Action::Save { .. }));
    saves.count() as u64
}
