//! A reversed computation whose states an engine keeps.

use crate::action::Action;
use crate::machine::{Machine, Tier};
use crate::schedule::Schedule;
use std::collections::HashMap;
use std::time::{Duration, Instant};
use tierflow_engine::{Cause, Engine, HopMetrics, Metrics, Region, RegionMut};

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
    /// Time for which states were stored and brought back.
    pub blocked: Duration,
    /// The machine as this run had it: the means of its steps, and the rates of its links and copies. A link without transfers in
    /// the run has the rate of those before it. The [bound](Machine::bound) of this machine is the one that the run's time is
    /// compared with.
    pub machine: Machine,
}

impl Machine {
    /// A machine of the tiers of an engine, with the rates that its transfers had so far.
    ///
    /// A link that carried nothing up is as fast as down, and the other way round; one that carried nothing at all counts as
    /// one that takes no time: see [`measure`]. The first tier is the device. A codec is not measured: what an engine compresses
    /// counts with the size of [`StepTimes`].
    #[must_use]
    pub fn measured(metrics: &Metrics, steps: StepTimes) -> Self {
        Self::between(None, metrics, steps)
    }

    /// The same from the transfers after `earlier`, as far as there were any.
    fn between(earlier: Option<&Metrics>, metrics: &Metrics, steps: StepTimes) -> Self {
        let names: Vec<_> = metrics.tiers.iter().map(|tier| tier.name).collect();
        let rate = |moved: &dyn Fn(&Metrics) -> (u64, Duration)| {
            let ((bytes, busy), before) = (moved(metrics), earlier.map(moved).unwrap_or_default());
            let (bytes, busy) = match bytes > before.0 {
                true => (bytes - before.0, busy.saturating_sub(before.1)),
                false => (bytes, busy),
            };
            (bytes > 0 && !busy.is_zero()).then(|| bytes as f64 / busy.as_secs_f64())
        };
        // The link to a tier carries what comes from any tier above.
        let link = |is_it: &dyn Fn(&HopMetrics) -> bool| {
            rate(&|metrics| {
                let hops = metrics.hops.iter().filter(|hop| is_it(hop));
                hops.fold((0, Duration::ZERO), |(bytes, busy), hop| {
                    (bytes + hop.bytes, busy + hop.busy)
                })
            })
        };
        let tiers = metrics.tiers.iter().enumerate().skip(1).map(|(at, tier)| {
            let down = link(&|hop| hop.to == tier.name && names[..at].contains(&hop.from));
            let up = link(&|hop| hop.from == tier.name && names[..at].contains(&hop.to));
            Tier {
                room: tier.limit,
                down: down.or(up).unwrap_or(f64::INFINITY),
                up: up.or(down).unwrap_or(f64::INFINITY),
            }
        });
        let copy = rate(&|metrics| {
            let bytes = metrics.checkpoint.bytes + metrics.restore.bytes;
            (bytes, metrics.times(Cause::Copy).total)
        });
        Self {
            forward: steps.forward,
            backward: steps.backward,
            state: steps.state,
            device: metrics.tiers.first().map_or(0, |tier| tier.limit),
            tiers: tiers.collect(),
            copy: copy.unwrap_or(f64::INFINITY),
            codec: None,
        }
    }
}

/// Measures the machine that a computation of so many steps runs on: the times of its steps, and the engine's copies and links down.
///
/// Sends some states down to the lowest tier and waits until they are there, then computes the first steps and reverses them, some
/// 0.1 s each. So the computation has to be set to its beginning afterwards.
///
/// # Errors
/// The errors of the computation, and those of [`Engine::reserve`], [`Engine::checkpoint`], [`Engine::wait`] and [`Engine::discard`].
pub fn measure<A: Adjoint>(
    engine: &Engine,
    computation: &mut A,
    steps: usize,
) -> Result<Machine, A::Error> {
    // States go down one at a time: together they would share the links. The first one finds memory that was not used before.
    let mut warm = None;
    for version in engine.reserve(6)? {
        engine.checkpoint(version, &computation.state())?;
        engine.wait()?;
        engine.discard(version)?;
        warm.get_or_insert_with(|| engine.metrics());
    }
    let steps = StepTimes {
        state: computation.state().iter().map(|r| r.len() as u64).sum(),
        forward: mean(steps, &mut |step| computation.advance(step))?,
        backward: mean(steps, &mut |step| computation.reverse(step))?,
    };
    Ok(Machine::between(warm.as_ref(), &engine.metrics(), steps))
}

/// The mean time of the first steps, after one that is not timed.
fn mean<E>(steps: usize, work: &mut dyn FnMut(usize) -> Result<(), E>) -> Result<Duration, E> {
    work(0)?;
    let (start, mut count) = (Instant::now(), 0);
    while count < 8 || start.elapsed() < Duration::from_millis(100) {
        work(count % steps.max(1))?;
        count += 1;
    }
    Ok(start.elapsed().div_f64(count as f64))
}

/// Runs a schedule: forward to the end, and back. The engine has to keep the versions that were restored
/// ([`AfterRestore::Keep`](tierflow_engine::AfterRestore::Keep), which is its default).
///
/// States get numbers that nobody else uses ([`Engine::reserve`]). The restores of a plan are hinted in their order, before
/// the sweep; those of a sweep of unknown length at its end, when its reversal is planned. Of `machine`, this takes the size of
/// a state and the time of a reversed step; all else was measured then. Nothing is left in the engine.
///
/// # Errors
/// The errors of the computation and of the engine.
pub fn run<A: Adjoint>(
    engine: &Engine,
    machine: &Machine,
    schedule: &mut Schedule,
    computation: &mut A,
) -> Result<RunTimes, A::Error> {
    let mut run = Run {
        engine,
        computation,
        versions: HashMap::new(),
        numbers: 0..0,
        hinted: Vec::new(),
        links: Links::default(),
        times: RunTimes {
            total: Duration::ZERO,
            advanced: 0,
            forward: Duration::ZERO,
            reversed: 0,
            backward: Duration::ZERO,
            stored: 0,
            blocked: Duration::ZERO,
            machine: machine.clone(),
        },
    };
    let earlier = engine.metrics();
    let start = Instant::now();
    let ended = run.play(schedule);
    run.times.total = start.elapsed();
    // Versions are left after an error alone.
    for version in run.versions.values().copied() {
        let _is_gone = engine.discard(version);
    }
    engine.forget_hints(Some(&run.hinted));
    ended?;
    let (metrics, steps) = (engine.metrics(), run.steps());
    run.times.stored = metrics.checkpoint.bytes - earlier.checkpoint.bytes;
    run.times.machine = Machine::between(Some(&earlier), &metrics, steps);
    Ok(run.times)
}

/// The transfers of a link down.
#[derive(Clone, Copy, Debug, Default)]
struct Traffic {
    /// Transfers that the rule began.
    sent: usize,
    /// Transfers that had arrived when it began the last one.
    arrived: u64,
}

impl Traffic {
    /// Returns true if a transfer arrived since the rule began its last one: so it begins as many as the link carries.
    fn is_idle(&mut self, sent: usize, arrived: u64) -> bool {
        if self.sent != sent {
            *self = Self { sent, arrived };
        }
        sent == 0 || arrived > self.arrived
    }
}

/// The links down of an engine, in a sweep of unknown length.
#[derive(Clone, Debug, Default)]
pub struct Links(Vec<Traffic>);

impl Links {
    /// Tells of the link down to each tier whether it is idle, as [`Schedule::next_action`] asks. As soon as the length is
    /// known, there is nothing to tell.
    pub fn idle(&mut self, engine: &Engine, schedule: &Schedule) -> Vec<bool> {
        let moved = schedule.moved();
        if moved.is_empty() {
            return Vec::new();
        }
        let metrics = engine.metrics();
        self.0.resize(moved.len(), Traffic::default());
        let links = self.0.iter_mut().zip(moved);
        let links = links.zip(metrics.tiers.iter().skip(1));
        let idle = links.map(|((link, sent), below)| {
            let hops = metrics.hops.iter().filter(|hop| hop.to == below.name);
            let arrived = hops.map(|hop| hop.transfers).sum::<u64>();
            link.is_idle(sent, below.checkpoints + arrived)
        });
        idle.collect()
    }
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
    links: Links,
    times: RunTimes,
}

impl<A: Adjoint> Run<'_, A> {
    /// Means of the steps so far. Those that were not taken have the times that were expected.
    fn steps(&self) -> StepTimes {
        let RunTimes { machine, .. } = &self.times;
        let mean = |time: Duration, steps: usize, expected| match steps {
            0 => expected,
            _ => time.div_f64(steps as f64),
        };
        StepTimes {
            forward: mean(self.times.forward, self.times.advanced, machine.forward),
            backward: mean(self.times.backward, self.times.reversed, machine.backward),
            state: machine.state,
        }
    }

    fn play(&mut self, schedule: &mut Schedule) -> Result<(), A::Error> {
        self.hint(schedule)?;
        while let Some(action) = schedule.next_action(&self.links.idle(self.engine, schedule)) {
            self.act(action)?;
            let is_sweep = schedule.plan().is_none();
            match action {
                Action::Save { .. } if is_sweep => self.hint_newest_first()?,
                Action::Forward { to, .. } if is_sweep && self.computation.is_over(to) => {
                    schedule.end(&Machine::measured(&self.engine.metrics(), self.steps()));
                    self.hint(schedule)?;
                }
                Action::EndForward => {
                    self.hint(schedule)?;
                    self.engine.prefetch_start();
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Hints the restores to come in their order, of the versions that are there or that the sweep stores. At its end those
    /// follow that the reversal stores: until then they would take room that no version needs.
    fn hint(&mut self, schedule: &Schedule) -> Result<(), A::Error> {
        if schedule.plan().is_none() {
            return Ok(());
        }
        self.engine.forget_hints(Some(&self.hinted));
        let is_end = |action: &Action| matches!(action, Action::EndForward);
        let mut is_sweep = schedule.ahead().any(|action| is_end(&action));
        let saves = |actions: &mut dyn Iterator<Item = Action>| {
            actions
                .filter(|action| matches!(action, Action::Save { .. }))
                .count() as u64
        };
        let ahead = match is_sweep {
            true => saves(&mut schedule.ahead().take_while(|action| !is_end(action))),
            false => saves(&mut schedule.ahead()),
        };
        self.numbers = self.engine.reserve(ahead)?;
        let (mut versions, mut numbers) = (self.versions.clone(), self.numbers.clone());
        self.hinted.clear();
        for action in schedule.ahead() {
            match action {
                Action::Save { step, .. } => match numbers.next() {
                    Some(version) => drop(versions.insert(step, version)),
                    None => drop(versions.remove(&step)),
                },
                Action::Restart { step } => self.hinted.extend(versions.get(&step)),
                Action::Forget { step } if !is_sweep => drop(versions.remove(&step)),
                Action::EndForward => is_sweep = false,
                _ => {}
            }
        }
        self.engine.hint(self.hinted.iter().copied());
        Ok(())
    }

    /// Hints the state that a sweep of unknown length stores next, and before it those that are there, the newest first: the
    /// engine makes room for the next one meanwhile, and writes nothing down that may be forgotten.
    fn hint_newest_first(&mut self) -> Result<(), A::Error> {
        self.engine.forget_hints(Some(&self.hinted));
        self.numbers = self.engine.reserve(1)?;
        self.hinted.clear();
        self.hinted.push(self.numbers.start);
        let mut stored: Vec<u64> = self.versions.values().copied().collect();
        stored.sort_unstable_by(|a, b| b.cmp(a));
        self.hinted.append(&mut stored);
        self.engine.hint(self.hinted.iter().copied());
        Ok(())
    }

    fn act(&mut self, action: Action) -> Result<(), A::Error> {
        let start = Instant::now();
        match action {
            Action::Forward { from, to } => {
                (from..to).try_for_each(|step| self.computation.advance(step))?;
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
