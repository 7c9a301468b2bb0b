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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunTimes {
    /// Time of the whole run.
    pub total: Duration,
    /// Forward steps, each as often as it was computed.
    pub advanced: usize,
    /// Time of these steps.
    pub forward: Duration,
    /// Time of the reversed steps.
    pub backward: Duration,
    /// Time for which states were stored and brought back.
    pub blocked: Duration,
}

impl Machine {
    /// A machine of the tiers of an engine, with the rates that its transfers had so far.
    ///
    /// A link that carried nothing up is as fast as down, and the other way round; one that carried nothing at all counts as
    /// one that takes no time: see [`measure`]. The first tier is the device. A codec is not measured: what an engine compresses
    /// counts with the size of [`StepTimes`].
    #[must_use]
    pub fn measured(metrics: &Metrics, steps: StepTimes) -> Self {
        let names: Vec<_> = metrics.tiers.iter().map(|tier| tier.name).collect();
        // The link to a tier carries what comes from any tier above.
        let rate = |is_it: &dyn Fn(&HopMetrics) -> bool| {
            let hops = metrics.hops.iter().filter(|hop| is_it(hop));
            let (bytes, busy) = hops.fold((0, Duration::ZERO), |(bytes, busy), hop| {
                (bytes + hop.bytes, busy + hop.busy)
            });
            (bytes > 0).then(|| bytes as f64 / busy.as_secs_f64().max(1e-9))
        };
        let tiers = metrics.tiers.iter().enumerate().skip(1).map(|(at, tier)| {
            let down = rate(&|hop| hop.to == tier.name && names[..at].contains(&hop.from));
            let up = rate(&|hop| hop.from == tier.name && names[..at].contains(&hop.to));
            Tier {
                room: tier.limit,
                down: down.or(up).unwrap_or(f64::INFINITY),
                up: up.or(down).unwrap_or(f64::INFINITY),
            }
        });
        let bytes = metrics.checkpoint.bytes + metrics.restore.bytes;
        let copying = metrics.times(Cause::Copy).total.as_secs_f64();
        Self {
            forward: steps.forward,
            backward: steps.backward,
            state: steps.state,
            device: metrics.tiers.first().map_or(0, |tier| tier.limit),
            tiers: tiers.collect(),
            copy: if copying > 0.0 {
                bytes as f64 / copying
            } else {
                f64::INFINITY
            },
            codec: None,
        }
    }
}

/// Sends `states` copies of the state of a computation down to the lowest tier, so that the engine has measured its links
/// down. Waits until they are there.
///
/// # Errors
/// The errors of [`Engine::reserve`], [`Engine::checkpoint`], [`Engine::wait`] and [`Engine::discard`].
pub fn measure<A: Adjoint>(
    engine: &Engine,
    computation: &A,
    states: u64,
) -> tierflow_engine::Result<()> {
    // States go down one at a time: together they would share the links.
    for version in engine.reserve(states)? {
        engine.checkpoint(version, &computation.state())?;
        engine.wait()?;
        engine.discard(version)?;
    }
    Ok(())
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
        links: Vec::new(),
        times: RunTimes::default(),
    };
    let start = Instant::now();
    let ended = run.play(machine, schedule);
    run.times.total = start.elapsed();
    // Versions are left after an error alone.
    for version in run.versions.into_values() {
        let _is_gone = engine.discard(version);
    }
    engine.forget_hints(Some(&run.hinted));
    ended.map(|()| run.times)
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

struct Run<'a, A> {
    engine: &'a Engine,
    computation: &'a mut A,
    /// The version of each stored step.
    versions: HashMap<usize, u64>,
    /// Numbers of the states that will be stored.
    numbers: std::ops::Range<u64>,
    /// Hinted restores in their order.
    hinted: Vec<u64>,
    /// The link down to each tier, in a sweep of unknown length.
    links: Vec<Traffic>,
    times: RunTimes,
}

impl<A: Adjoint> Run<'_, A> {
    fn play(&mut self, machine: &Machine, schedule: &mut Schedule) -> Result<(), A::Error> {
        self.hint(schedule)?;
        while let Some(action) = schedule.next_action(&self.idle_links(schedule)) {
            self.act(action)?;
            let is_sweep = schedule.plan().is_none();
            match action {
                Action::Save { .. } if is_sweep => self.hint_newest_first()?,
                Action::Forward { to, .. } if is_sweep && self.computation.is_over(to) => {
                    let steps = StepTimes {
                        forward: self.times.forward.div_f64(self.times.advanced as f64),
                        backward: machine.backward,
                        state: machine.state,
                    };
                    schedule.end(&Machine::measured(&self.engine.metrics(), steps));
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

    /// Tells of the link down to each tier whether it is idle, in a sweep of unknown length.
    fn idle_links(&mut self, schedule: &Schedule) -> Vec<bool> {
        if schedule.plan().is_some() {
            return Vec::new();
        }
        let (moved, metrics) = (schedule.moved(), self.engine.metrics());
        self.links.resize(moved.len(), Traffic::default());
        let links = self.links.iter_mut().zip(moved);
        let links = links.zip(metrics.tiers.iter().skip(1));
        let idle = links.map(|((link, sent), below)| {
            let hops = metrics.hops.iter().filter(|hop| hop.to == below.name);
            let arrived = hops.map(|hop| hop.transfers).sum::<u64>();
            link.is_idle(sent, below.checkpoints + arrived)
        });
        idle.collect()
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
