//! A reversed computation whose states an engine keeps.

mod links;
mod measured;

pub use links::Links;

use crate::action::Action;
use crate::estimate::Estimate;
use crate::machine::Machine;
use crate::plan::Plan;
use crate::schedule::Schedule;
use measured::Period;
use std::collections::HashMap;
use std::ops::Range;
use std::panic::resume_unwind;
use std::time::{Duration, Instant};
use tierflow_engine::{AfterRestore, Engine, Metrics, Region, RegionMut};

/// A computation that is reversed. Each call returns once its work on the state has ended.
pub trait Adjoint {
    /// The error of a step, which errors of the engine become, too.
    type Error: From<tierflow_engine::Error>;

    /// Computes the state of `step + 1` from that of `step`, in place. A step may be computed several times.
    ///
    /// # Errors
    /// Any error ends the run.
    fn advance(&mut self, step: usize) -> Result<(), Self::Error>;

    /// Returns true if a sweep of unknown length ends before `step`.
    fn is_over(&mut self, _step: usize) -> bool {
        false
    }

    /// Receives the plan that was made or judged again when the sweep ended, and the expected time of the whole run.
    fn planned(&mut self, _plan: &Plan, _expected: Duration) {}

    /// Begins the reversal, once the state after the last step exists for the first time.
    ///
    /// # Errors
    /// Any error ends the run.
    fn end_forward(&mut self) -> Result<(), Self::Error> {
        Ok(())
    }

    /// Reverses `step`, whose state is in the state's memory. The call may overwrite that memory.
    ///
    /// # Errors
    /// Any error ends the run.
    fn reverse(&mut self, step: usize) -> Result<(), Self::Error>;

    /// Returns the memory of the state, to be read by a checkpoint.
    fn state(&self) -> Vec<Region<'_>>;

    /// Returns the same memory, to be written by a restore.
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
    /// Number of computed forward steps. A step counts each time that it is computed.
    pub advanced: usize,
    /// Time of the forward steps.
    pub forward: Duration,
    /// Number of reversed steps.
    pub reversed: usize,
    /// Time of the reversed steps.
    pub backward: Duration,
    /// Bytes of the states that were stored.
    pub stored: u64,
    /// Time of the calls that stored, hinted and restored states.
    pub blocked: Duration,
    /// The time that was expected when the sweep ended: the sweep's, and the reversal's with the rates of the sweep.
    pub expected: Option<Duration>,
    /// The machine as this run measured it: the means of its steps, the rates of its copies, of its links down in the sweep and up in the
    /// reversal (or, without such transfers, of all transfers). The run's time is compared with its [bound](Machine::bound).
    pub machine: Machine,
}

/// Measures the machine that a computation of `steps` steps runs on: the times of its steps, the engine's copies and links down.
///
/// Computes some steps, then reverses some. Then does both again while states go down to the lowest tier, one at a time. Each of the
/// four parts takes at least about 0.1 s. The caller has to set the computation to its beginning afterwards.
///
/// # Errors
/// The errors of the computation, and those of [`Engine::reserve`], [`Engine::checkpoint`], [`Engine::wait`] and [`Engine::discard`].
pub fn measure<A: Adjoint>(
    engine: &Engine,
    computation: &mut A,
    steps: usize,
) -> Result<Estimate, A::Error> {
    // The first state and the first steps use new memory, so they are not measured.
    beside(engine, 1, computation, &mut Vec::new(), &mut |one| {
        one.advance(0)?;
        one.reverse(0)
    })?;
    let (warm, mut discards) = (engine.metrics(), Vec::new());
    let mut step = (0..steps.max(1)).cycle();
    let mut next = || step.next().unwrap_or(0);
    let state = computation.state().iter().map(|r| r.len() as u64).sum();
    let mut times = |states| -> Result<StepTimes, A::Error> {
        Ok(StepTimes {
            state,
            forward: beside(engine, states, computation, &mut discards, &mut |one| {
                one.advance(next())
            })?,
            backward: beside(engine, states, computation, &mut discards, &mut |one| {
                one.reverse(next())
            })?,
        })
    };
    let (quiet, steps) = (times(0)?, times(3)?);
    let after = &engine.metrics();
    let periods = [Period(Some(&warm), after), Period(None, after)];
    let machine = Machine::within(&periods, &periods, periods[0], steps);
    let quiet = Machine {
        forward: quiet.forward,
        backward: quiet.backward,
        ..machine.clone()
    };
    let mut estimate = Estimate::new(machine, quiet);
    estimate.discard = mean(&discards).unwrap_or_default();
    Ok(estimate)
}

/// Does work while states go down, one at a time, as together they would share the links. Returns the mean time of the work, which is
/// done beside each state until the state has arrived, and at least `states` times and for 33 ms. If `states` is 0, the work is done
/// at least nine times and for 100 ms.
fn beside<A: Adjoint>(
    engine: &Engine,
    states: u32,
    computation: &mut A,
    discards: &mut Vec<Duration>,
    work: &mut dyn FnMut(&mut A) -> Result<(), A::Error>,
) -> Result<Duration, A::Error> {
    let (mut time, mut count) = (Duration::ZERO, 0);
    let least = if states == 0 { 9 } else { states };
    let mut during =
        |computation: &mut A, millis, is_over: &dyn Fn() -> bool| -> Result<(), A::Error> {
            let (start, mut done) = (Instant::now(), 0);
            while done < least || !is_over() || start.elapsed() < Duration::from_millis(millis) {
                work(computation)?;
                done += 1;
            }
            time += start.elapsed();
            count += done;
            Ok(())
        };
    if states == 0 {
        during(computation, 100, &|| true)?;
    }
    for version in engine.reserve(u64::from(states))? {
        engine.checkpoint(version, &computation.state())?;
        let worked = std::thread::scope(|scope| {
            let sent = scope.spawn(|| engine.wait());
            during(computation, 33, &|| sent.is_finished())?;
            let sent = sent.join().unwrap_or_else(|panic| resume_unwind(panic));
            sent.map_err(A::Error::from)
        });
        let begun = Instant::now();
        engine.discard(version)?;
        discards.push(begun.elapsed());
        worked?;
    }
    Ok(time / count.max(1))
}

/// Runs a schedule: forward to the end, and back. The engine has to keep restored versions ([`AfterRestore::Keep`], its default).
///
/// States get numbers that nobody else uses ([`Engine::reserve`]). If the sweep's length is known, the restores of its states are hinted
/// in their order before the sweep. Otherwise they are hinted [by tier](Schedule::by_tier) at each state that the sweep stores. The
/// reversal of a gap between two of these states stores more states, whose restores are hinted before the others when the reversal of the
/// gap begins ([`Hints::prepend`](tierflow_engine::Hints::prepend)); earlier, they would take room that no state needs. When the sweep
/// ends, the reversal is planned again with the rates of the sweep. A plan of given actions ([`Plan::of`]) keeps its actions. The new plan
/// takes three numbers from the estimate: the size of a state, the time of a reversed step, and the time of a step that is computed again
/// over that of a step of the sweep. All other numbers were measured in the sweep. The estimate [learns](Estimate::learn) from the run.
/// The run leaves no version in the engine.
///
/// # Errors
/// [`Error::DiscardsRestored`](tierflow_engine::Error::DiscardsRestored), before the first step, if the engine discards restored
/// versions; the errors of the computation and of the engine.
pub fn run<A: Adjoint>(
    engine: &Engine,
    estimate: &mut Estimate,
    schedule: &mut Schedule,
    computation: &mut A,
) -> Result<RunTimes, A::Error> {
    if engine.after_restore() == AfterRestore::Discard {
        return Err(tierflow_engine::Error::DiscardsRestored.into());
    }
    let before = engine.metrics();
    let mut run = Run {
        engine,
        machine: match schedule.plan() {
            Some(plan) => estimate.machine_for(plan),
            None => &estimate.machine,
        },
        again: estimate.again,
        discard: estimate.discard,
        schedule: &mut *schedule,
        computation,
        versions: HashMap::new(),
        numbers: 0..0,
        start: Instant::now(),
        advances: Vec::new(),
        swept: 0,
        reversals: Vec::new(),
        discards: Vec::new(),
        blocked: Duration::ZERO,
        expected: None,
    };
    let swept = run.sweep(&before);
    let ended = swept.and_then(|swept| run.reversal().map(|()| swept));
    let total = run.start.elapsed();
    // Only an error leaves versions and hinted numbers.
    for version in run.versions.values() {
        let _is_gone = engine.discard(*version);
    }
    run.forget_numbers();
    let (swept, after) = (ended?, engine.metrics());
    let (whole, all) = (Period(Some(&before), &after), Period(None, &after));
    let sweep = [Period(Some(&before), &swept), whole, all];
    let reversal = [Period(Some(&swept), &after), whole, all];
    let learnt = (run.again(), run.discard());
    let times = RunTimes {
        total,
        advanced: run.advances.len(),
        forward: run.advances.iter().sum(),
        reversed: run.reversals.len(),
        backward: run.reversals.iter().sum(),
        stored: after.checkpoint.bytes - before.checkpoint.bytes,
        blocked: run.blocked,
        expected: run.expected,
        machine: Machine::within(&sweep, &reversal, whole, run.steps(0)),
    };
    if let Some(plan) = schedule.plan() {
        estimate.learn(plan, &times.machine, total);
    }
    (estimate.again, estimate.discard) = learnt;
    Ok(times)
}

/// A computation on its way through a schedule.
struct Run<'a, A> {
    engine: &'a Engine,
    machine: &'a Machine,
    /// Time of a step that is computed again, divided by the time of a step of the sweep, in earlier runs.
    again: f64,
    /// The time of a discard, in earlier runs.
    discard: Duration,
    schedule: &'a mut Schedule,
    computation: &'a mut A,
    /// The version of each stored step.
    versions: HashMap<usize, u64>,
    /// Numbers of the states that will be stored.
    numbers: Range<u64>,
    start: Instant,
    /// The time of each forward step.
    advances: Vec<Duration>,
    /// Number of forward steps in the sweep.
    swept: usize,
    /// The time of each reversed step.
    reversals: Vec<Duration>,
    discards: Vec<Duration>,
    blocked: Duration,
    expected: Option<Duration>,
}

impl<A: Adjoint> Run<'_, A> {
    /// Goes to the end of the sweep and plans the reversal. Returns the metrics of that moment.
    fn sweep(&mut self, before: &Metrics) -> Result<Metrics, A::Error> {
        let mut links = Links::default();
        if self.schedule.plan().is_some() {
            let ahead: Vec<Action> = self.schedule.ahead().collect();
            let mut parts = ahead.split(|action| *action == Action::EndForward);
            self.reserve(saves(parts.next().unwrap_or_default()))?;
            self.hint(|run| run.engine.hint(run.restores(&ahead)));
        }
        while self.schedule.ahead().next() != Some(Action::EndForward) {
            let idle = links.idle(self.engine, self.schedule);
            let Some(action) = self.schedule.next_action(&idle) else {
                break;
            };
            self.act(action)?;
            match action {
                _ if self.schedule.plan().is_some() => {}
                Action::Save { .. } => self.hint_by_tier()?,
                Action::Forward { to, .. } if self.computation.is_over(to) => break,
                _ => {}
            }
        }
        self.swept = self.advances.len();
        let swept = self.engine.metrics();
        let machine = self.swept_machine(before, &swept);
        match self.schedule.plan() {
            Some(_) => self.schedule.plan_again(&machine),
            None => {
                let mut hints: Vec<u64> = self.versions.values().copied().collect();
                hints.sort_unstable_by(|a, b| b.cmp(a));
                self.hint_anew(hints);
                self.schedule.end(&machine);
            }
        }
        let reversal = self.schedule.plan().and_then(Plan::reversal);
        let is_discard = |action: &Action| matches!(action, Action::Forget { .. });
        let discards = self.schedule.ahead().filter(is_discard).count();
        let discards = u32::try_from(discards).unwrap_or(u32::MAX);
        let discards = self.discard().saturating_mul(discards);
        let ahead = self.start.elapsed().saturating_add(discards);
        self.expected = reversal.map(|reversal| ahead.saturating_add(reversal));
        if let (Some(plan), Some(expected)) = (self.schedule.plan(), self.expected) {
            self.computation.planned(plan, expected);
        }
        Ok(swept)
    }

    /// Returns the mean times of the steps so far, without the first `first` forward steps. Steps that did not run have expected times.
    fn steps(&self, first: usize) -> StepTimes {
        StepTimes {
            forward: mean(&self.advances[first..]).unwrap_or(self.machine.forward),
            backward: mean(&self.reversals).unwrap_or(self.machine.backward),
            state: self.machine.state,
        }
    }

    /// Returns the time of a step that was computed again over that of the sweep's second half; without such steps, that of earlier runs.
    fn again(&self) -> f64 {
        let (sweep, again) = self.advances.split_at(self.swept);
        match (mean(&sweep[sweep.len() / 2..]), mean(again)) {
            (Some(sweep), Some(again)) if !sweep.is_zero() => again.div_duration_f64(sweep),
            _ => self.again,
        }
    }

    /// Returns the mean time of this run's discards, or that of earlier runs if there were none.
    fn discard(&self) -> Duration {
        mean(&self.discards).unwrap_or(self.discard)
    }

    /// Returns the expected machine of the reversal. Steps take as long as in the sweep's second half, as earlier steps touch memory for the
    /// first time, times `again`. The rates of links down are those of the sweep. The rates of links up are those of earlier runs, as
    /// transfers up in a sweep share the links with transfers down.
    fn swept_machine(&self, before: &Metrics, swept: &Metrics) -> Machine {
        let mut steps = self.steps(self.swept / 2);
        steps.forward = steps.forward.mul_f64(self.again);
        let down = [Period(Some(before), swept), Period(None, swept)];
        Machine::within(&down, &[Period(None, before)], down[0], steps)
    }

    /// Reverses one gap after the other. A gap ends with the action that forgets the state before it; the gap's restores are hinted first.
    fn reversal(&mut self) -> Result<(), A::Error> {
        let actions: Vec<Action> = self.schedule.ahead().collect();
        self.reserve(saves(&actions))?;
        self.engine.hints().prefetch_start();
        let mut ahead = &actions[..];
        while !ahead.is_empty() {
            let end = ahead.iter().position(
                |action| matches!(action, Action::Forget { step } if self.versions.contains_key(step)),
            );
            let (gap, behind) = ahead.split_at(end.map_or(ahead.len(), |end| end + 1));
            // A single restore is hinted already. Earlier hints of the gap's first state stay behind the new ones until the discard, as
            // the state would lose its room if it had no hint for a moment.
            let restores = self.restores(gap);
            if restores.len() > 1 {
                self.hint(|run| run.engine.hints().prepend(restores));
            }
            for &action in gap {
                self.schedule.next_action(&[]);
                self.act(action)?;
            }
            ahead = behind;
        }
        Ok(())
    }

    /// Hints the state that a sweep of unknown length stores next, then the stored states in the order of their tiers.
    fn hint_by_tier(&mut self) -> Result<(), A::Error> {
        self.reserve(1)?;
        let states = self.schedule.by_tier().into_iter();
        let states = states.filter_map(|step| self.versions.get(&step).copied());
        let next = std::iter::once(self.numbers.start);
        self.hint_anew(next.chain(states).collect());
        Ok(())
    }

    /// Hints versions in this order, in place of their earlier hints.
    fn hint_anew(&mut self, versions: Vec<u64>) {
        self.hint(|run| {
            run.engine.hints().forget(&versions);
            run.engine.hint(versions);
        });
    }

    /// Calls `tell`, which hints restores to the engine, and counts its time as blocked.
    fn hint(&mut self, tell: impl FnOnce(&Self)) {
        let start = Instant::now();
        tell(self);
        self.blocked += start.elapsed();
    }

    /// Reserves numbers for the next states. Unused numbers of before are forgotten.
    fn reserve(&mut self, saves: u64) -> Result<(), A::Error> {
        self.forget_numbers();
        self.numbers = self.engine.reserve(saves)?;
        Ok(())
    }

    /// Withdraws the hints of the reserved numbers that no state has.
    fn forget_numbers(&self) {
        let left = Vec::from_iter(self.numbers.clone());
        self.engine.hints().forget(&left);
    }

    /// Returns the versions that these actions restore, in their order. States beyond the reserved numbers have none yet.
    fn restores(&self, actions: &[Action]) -> Vec<u64> {
        let (mut numbers, mut changed) = (self.numbers.clone(), HashMap::new());
        let mut restores = Vec::new();
        for action in actions {
            match *action {
                Action::Save { step, .. } => drop(changed.insert(step, numbers.next())),
                Action::Forget { step } => drop(changed.insert(step, None)),
                Action::Restart { step } => {
                    let stored = || self.versions.get(&step).copied();
                    restores.extend(changed.get(&step).copied().unwrap_or_else(stored));
                }
                _ => {}
            }
        }
        restores
    }

    fn act(&mut self, action: Action) -> Result<(), A::Error> {
        let start = Instant::now();
        match action {
            Action::Forward { from, to } => {
                for step in from..to {
                    let begun = Instant::now();
                    self.computation.advance(step)?;
                    self.advances.push(begun.elapsed());
                }
            }
            Action::Save { step, .. } => {
                let version = match self.numbers.next() {
                    Some(version) => version,
                    None => self.engine.reserve(1)?.start,
                };
                self.engine.checkpoint(version, &self.computation.state())?;
                self.versions.insert(step, version);
                self.blocked += start.elapsed();
            }
            Action::EndForward => self.computation.end_forward()?,
            Action::Restart { step } => {
                let version = self.versions.get(&step).copied();
                let version = version.ok_or(tierflow_engine::Error::Internal {
                    what: "a plan restarts from a state that it has not saved: check the actions if they are your own",
                })?;
                let mut state = self.computation.state_mut();
                self.engine.restore(version, &mut state)?;
                self.blocked += start.elapsed();
            }
            Action::Reverse { step } => {
                self.computation.reverse(step)?;
                self.reversals.push(start.elapsed());
            }
            Action::Forget { step } => {
                if let Some(version) = self.versions.remove(&step) {
                    self.engine.discard(version)?;
                    self.discards.push(start.elapsed());
                }
            }
        }
        Ok(())
    }
}

fn mean(times: &[Duration]) -> Option<Duration> {
    let sum = times.iter().sum::<Duration>();
    (!times.is_empty()).then(|| sum.div_f64(times.len() as f64))
}

fn saves(actions: &[Action]) -> u64 {
    let is_save = |action: &&Action| matches!(action, Action::Save { .. });
    actions.iter().filter(is_save).count() as u64
}
