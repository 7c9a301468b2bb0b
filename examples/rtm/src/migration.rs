//! Reverse time migration, shot by shot.
//!
//! 1. Observe: the shot over the true model, recorded by the receivers.
//! 2. Forward: the shot over the smooth model. Subtracting its record from the observed one leaves the reflections; its
//!    wavefield is checkpointed every few steps.
//! 3. Backward: the receivers send the reflections back, last sample first. At every checkpointed step the source's
//!    wavefield is restored; a reflector is where the two coincide.
//!
//! In an order other than the reverse one there is nothing to correlate with: 2. is followed by
//! reading the history in that order for the source illumination, which 3. computes on its way.

mod budgeted;
pub mod results;

use std::collections::HashMap;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use tierflow_device::{Device, Memory};
use tierflow_schedule::Estimate;

use crate::budget::{ErrorBudget, Of, Sample};
use crate::cli::{Hints, Order};
use crate::history::History;
use crate::host_history::HostHistory;
use crate::model::Model;
use crate::propagator::{self, Medium, Propagator, Traces, Wavefield};
use crate::recompute::{self, Planner};
use crate::stencil::Record;
use crate::survey::Survey;
use crate::tally::{ArrayBytes, Proven, Times, timed};
use budgeted::Budgeted;

/// How often a shot is migrated whose error is beyond the budget.
const ATTEMPTS: usize = 4;

/// How the history is used.
#[derive(Clone, Copy, Debug)]
pub struct Usage {
    pub order: Order,
    pub hints: Hints,
    /// At least this long from one checkpoint, or restore, to the next.
    pub interval: Duration,
    /// A schedule takes the place of the two fields above.
    pub recompute: Option<Planner>,
    pub verify: bool,
    /// Snapshots come back within a bound only.
    pub within: bool,
    /// The share of the results that errors of snapshots may take.
    pub error_budget: Option<f64>,
    /// The time levels of a snapshot: 1 or 2.
    pub levels: usize,
    /// Shots are migrated over one model after the other.
    pub inverts: bool,
}

/// The arrays of a run, and how far it is.
pub struct Migration<'a> {
    pub(crate) survey: &'a Survey,
    pub(crate) propagator: &'a dyn Propagator,
    usage: Usage,
    smooth: Medium,
    pub(crate) source: Wavefield,
    maps: Maps,
    imaging: Option<Imaging>,
    pub(crate) reference: Option<Reference<'a>>,
    last: Option<Instant>,
    budgeted: Option<Budgeted>,
    /// The number of attempts at shots so far: each has versions of its own.
    attempts: usize,
    /// The record of each shot's receivers, if shots are migrated more than once.
    observed: HashMap<usize, Memory>,
    /// Half the sum of the squared residuals of the shots since [`restart`](Self::restart).
    pub misfit: f64,
    /// The machine as the shots so far found it.
    pub(crate) known: Option<Estimate>,
    pub times: Times,
    pub proven: Proven,
    /// Called with the name of the pass after every time step of it.
    pub progress: Box<dyn Fn(&'static str)>,
    /// Called with each line of the report on a shot.
    pub say: Box<dyn Fn(&str)>,
}

/// Results computed from the history.
struct Maps {
    image: Memory,
    illumination: Memory,
}

/// Data that only the image needs.
struct Imaging {
    truth: Medium,
    receiver: Wavefield,
    traces: Traces,
}

/// The same from snapshots that never left memory.
pub(crate) struct Reference<'a> {
    history: HostHistory<'a>,
    source: Wavefield,
    maps: Maps,
}

impl Maps {
    fn new(device: &Device, propagator: &dyn Propagator) -> Result<Self> {
        let cells = propagator.grid().cells();
        let maps = Self {
            image: device.alloc(cells * size_of::<f32>())?,
            illumination: device.alloc(cells * size_of::<i64>())?,
        };
        propagator.clear(&maps.image)?;
        propagator.clear(&maps.illumination)?;
        Ok(maps)
    }
}

impl<'a> Migration<'a> {
    /// Takes all memory that the run needs.
    pub fn new(
        device: &Device,
        propagator: &'a dyn Propagator,
        survey: &'a Survey,
        usage: Usage,
    ) -> Result<Self> {
        let grid = propagator.grid();
        let imaging = if usage.order == Order::Reverse {
            Some(Imaging {
                truth: propagator::medium(device, propagator, &survey.truth)?,
                receiver: Wavefield::new(device, grid)?,
                traces: Traces::new(device, survey.receivers, survey.steps())?,
            })
        } else {
            None
        };
        let reference = if usage.verify {
            Some(Reference {
                history: HostHistory::new(propagator, usage.levels),
                source: Wavefield::new(device, grid)?,
                maps: Maps::new(device, propagator)?,
            })
        } else {
            None
        };
        let mut migration = Self {
            smooth: propagator::medium(device, propagator, &survey.smooth)?,
            source: Wavefield::new(device, grid)?,
            maps: Maps::new(device, propagator)?,
            imaging,
            reference,
            survey,
            propagator,
            budgeted: None,
            attempts: 0,
            observed: HashMap::new(),
            misfit: 0.0,
            usage,
            last: None,
            times: Times::default(),
            proven: Proven::default(),
            known: None,
            progress: Box::new(|_| ()),
            say: Box::new(|_| ()),
        };
        if let Some(within) = usage.error_budget {
            let maps = migration.all_maps().into_iter();
            let before = maps.map(|map| Ok(device.alloc(map.len())?));
            migration.budgeted = Some(Budgeted {
                budget: ErrorBudget::new(within),
                sample: Sample::new(device, propagator, survey)?,
                before: before.collect::<Result<_>>()?,
                taken_back: 0,
            });
        }
        Ok(migration)
    }

    /// Bytes of the arrays that the run works on: those in the device's memory, and those in main
    /// memory. With `verify`, the snapshots kept, and what is computed from them, are among them.
    pub fn array_bytes(&self) -> ArrayBytes {
        let field = |field: &Wavefield| field.now.len() + field.before.len();
        let maps = |maps: &Maps| maps.image.len() + maps.illumination.len();
        let imaging = self.imaging.as_ref().map_or(0, |imaging| {
            imaging.truth.0.len() + field(&imaging.receiver) + imaging.traces.samples.len()
        });
        let device = self.smooth.0.len() + field(&self.source) + maps(&self.maps) + imaging;
        let reference = self.reference.as_ref();
        let again = reference.map_or(0, |kept| field(&kept.source) + maps(&kept.maps));
        let budget = self.budgeted.as_ref().map_or(0, Budgeted::bytes);
        let kept = reference.map_or(0, |_| self.survey.checkpoints() * self.checkpoint_bytes());
        ArrayBytes {
            device: (device + again + budget) as u64,
            host: self.survey.array_bytes() + kept,
        }
    }

    /// Bytes of one checkpoint.
    pub fn checkpoint_bytes(&self) -> u64 {
        (self.usage.levels * self.source.now.len()) as u64
    }

    /// How long it takes to copy as many bytes as a checkpoint has within the device: what no
    /// checkpoint into device memory can beat. The median of several.
    pub fn plain_copy(&self, device: &Device) -> Result<Duration> {
        let levels = &self.source.levels()[..self.usage.levels];
        let targets = levels.iter().map(|level| device.alloc(level.len()));
        let targets = targets.collect::<Result<Vec<_>, _>>()?;
        let mut times = Vec::new();
        for _ in 0..21 {
            self.propagator.finish()?;
            let start = Instant::now();
            let pairs = levels.iter().zip(&targets);
            let copies =
                pairs.map(|(from, to)| Ok((from.lend(0..from.len())?, to.lend_mut(0..to.len())?)));
            let copies = copies.collect::<Result<Vec<_>>>()?;
            self.propagator.stream().copy_all(copies)?;
            times.push(start.elapsed());
        }
        times.sort_unstable();
        Ok(times[times.len() / 2])
    }

    /// Calls of `progress` that one shot makes.
    pub fn progress_per_shot(&self) -> u64 {
        let steps = self.survey.steps() as u64;
        if self.imaging.is_some() {
            3 * steps
        } else {
            steps + self.survey.checkpoints()
        }
    }

    /// Migrates one shot. The history is opened by the first one, when it has a first checkpoint
    /// to make.
    pub fn shot(
        &mut self,
        shot: usize,
        history: &mut Option<History>,
        open: impl FnOnce() -> Result<History>,
    ) -> Result<()> {
        let start = Instant::now();
        self.keep_maps()?;
        self.observe(shot)?;
        let history = match history {
            Some(history) => history,
            None => history.insert(open()?),
        };
        for attempt in 1.. {
            self.attempt(shot, history)?;
            self.attempts += 1;
            if self.is_within_budget(shot)? {
                break;
            }
            ensure!(
                attempt < ATTEMPTS,
                "--error-budget: shot {} is beyond it after {ATTEMPTS} attempts; give a larger share",
                shot + 1
            );
            self.observe(shot)?;
        }
        self.note_misfit()?;
        self.propagator.finish()?;
        self.times.total += start.elapsed();
        Ok(())
    }

    /// Begins anew with another model, of the smooth one's shape.
    pub fn restart(&mut self, model: &Model) -> Result<()> {
        let courant2 = self.propagator.grid().courant_squared(model);
        self.propagator
            .upload(bytemuck::cast_slice(&courant2), &self.smooth.0)?;
        self.misfit = 0.0;
        if let Some(of) = &mut self.budgeted {
            of.budget.restart();
        }
        self.clear_maps()
    }

    fn note_misfit(&mut self) -> Result<()> {
        let imaging = self.imaging.as_ref().filter(|_| self.usage.inverts);
        let Some(imaging) = imaging else {
            return Ok(());
        };
        let residuals: Vec<f32> = propagator::read(self.propagator, &imaging.traces.samples)?;
        let squares = residuals.iter().map(|value| f64::from(*value).powi(2));
        self.misfit += 0.5 * squares.sum::<f64>();
        Ok(())
    }

    /// Migrates one shot that was observed.
    fn attempt(&mut self, shot: usize, history: &mut History) -> Result<()> {
        if let Some(planner) = self.usage.recompute {
            return recompute::shot(self, shot, history.engine(), planner);
        }
        self.forward(shot, history)?;
        match self.imaging {
            Some(_) => self.backward(history),
            None => self.illuminate(history),
        }
    }

    fn observe(&mut self, shot: usize) -> Result<()> {
        let Some(imaging) = &self.imaging else {
            return Ok(());
        };
        if let Some(kept) = self.observed.get(&shot) {
            return self.copy([(kept, &imaging.traces.samples)].into_iter());
        }
        self.start(&self.source)?;
        for (n, &amplitude) in self.survey.wavelet.iter().enumerate() {
            self.propagator.step(&imaging.truth, &mut self.source)?;
            let cell = self.survey.sources[shot];
            self.propagator
                .inject_source(&imaging.truth, &self.source, cell, amplitude)?;
            self.propagator
                .record(&self.source, &imaging.traces, n, Record::Store)?;
            (self.progress)("observe");
        }
        if self.usage.inverts {
            let samples = &imaging.traces.samples;
            let kept = samples.device().alloc(samples.len())?;
            self.copy([(samples, &kept)].into_iter())?;
            self.observed.insert(shot, kept);
        }
        Ok(())
    }

    fn forward(&mut self, shot: usize, history: &mut History) -> Result<()> {
        self.start_source()?;
        if self.usage.hints == Hints::All {
            let versions = self.restore_order();
            timed(&mut self.times.hints, || history.hint(&versions));
        }
        for n in 0..self.survey.steps() {
            self.source_step(shot, n)?;
            self.record(n)?;
            if n % self.survey.every == 0 {
                let checkpoint = n / self.survey.every;
                let mut error = None;
                if let Some(of) = &self.budgeted {
                    error = of.budget.error(checkpoint);
                    let sample = &of.sample;
                    sample.take(self.propagator, Of::Exact, checkpoint, &self.source)?;
                }
                self.propagator.finish()?;
                self.pace();
                let version = self.version(checkpoint as u64);
                let mut blocked = Duration::ZERO;
                timed(&mut blocked, || {
                    history.checkpoint(version, &self.source, error)
                })?;
                self.times.checkpoints.push(blocked);
                self.keep(version)?;
            }
            (self.progress)("forward");
        }
        timed(&mut self.times.hints, || history.prefetch_start());
        Ok(())
    }

    fn backward(&mut self, history: &mut History) -> Result<()> {
        self.start_receiver()?;
        for n in (0..self.survey.steps()).rev() {
            self.receiver_step(n)?;
            if n % self.survey.every == 0 {
                let checkpoint = n / self.survey.every;
                let next = checkpoint.checked_sub(1).map(|c| self.version(c as u64));
                self.read(history, self.version(checkpoint as u64), next)?;
                self.sample(checkpoint)?;
            }
            (self.progress)("backward");
        }
        Ok(())
    }

    fn illuminate(&mut self, history: &mut History) -> Result<()> {
        let versions = self.restore_order();
        for (i, &version) in versions.iter().enumerate() {
            self.read(history, version, versions.get(i + 1).copied())?;
            (self.progress)("illuminate");
        }
        Ok(())
    }

    /// Restores a version of the source's wavefield and adds it to the maps.
    fn read(&mut self, history: &mut History, version: u64, next: Option<u64>) -> Result<()> {
        self.propagator.finish()?;
        self.pace();
        let mut blocked = Duration::ZERO;
        timed(&mut blocked, || history.restore(version, &self.source))?;
        self.times.restores.push(blocked);
        if let (Hints::One, Some(next)) = (self.usage.hints, next) {
            timed(&mut self.times.hints, || history.hint(&[next]));
        }
        self.image(version)
    }

    /// Adds a version, which is the source's wavefield, to the maps.
    pub(crate) fn image(&mut self, version: u64) -> Result<()> {
        self.map(&self.source, &self.maps)?;
        if let Some(mut reference) = self.reference.take() {
            let start = Instant::now();
            self.proven.snapshots += 1;
            let same = reference
                .history
                .take(version, &reference.source, &self.source)?;
            self.proven.different += u64::from(!same);
            self.map(&reference.source, &reference.maps)?;
            self.propagator.finish()?;
            self.times.verify += start.elapsed();
            self.reference = Some(reference);
        }
        Ok(())
    }

    fn map(&self, source: &Wavefield, maps: &Maps) -> Result<()> {
        if let Some(imaging) = &self.imaging {
            self.propagator
                .correlate(source, &imaging.receiver, &maps.image)?;
        }
        self.propagator.illuminate(source, &maps.illumination)
    }

    pub(crate) fn start_source(&self) -> Result<()> {
        self.start(&self.source)
    }

    /// Advances the source's wavefield by time step `n`.
    pub(crate) fn source_step(&mut self, shot: usize, n: usize) -> Result<()> {
        self.propagator.step(&self.smooth, &mut self.source)?;
        let (cell, amplitude) = (self.survey.sources[shot], self.survey.wavelet[n]);
        self.propagator
            .inject_source(&self.smooth, &self.source, cell, amplitude)
    }

    /// Subtracts what the receivers hear at time step `n`.
    pub(crate) fn record(&self, n: usize) -> Result<()> {
        self.imaging.as_ref().map_or(Ok(()), |imaging| {
            self.propagator
                .record(&self.source, &imaging.traces, n, Record::Subtract)
        })
    }

    /// Keeps the source's wavefield for the comparison, if there is one.
    pub(crate) fn keep(&mut self, version: u64) -> Result<()> {
        self.reference.as_mut().map_or(Ok(()), |reference| {
            timed(&mut self.times.verify, || {
                reference.history.keep(version, &self.source)
            })
        })
    }

    pub(crate) fn start_receiver(&self) -> Result<()> {
        let imaging = self.imaging.as_ref();
        imaging.map_or(Ok(()), |imaging| self.start(&imaging.receiver))
    }

    /// Advances the receivers' wavefield by time step `n`, backward.
    pub(crate) fn receiver_step(&mut self, n: usize) -> Result<()> {
        let Some(imaging) = &mut self.imaging else {
            return Ok(());
        };
        self.propagator.step(&self.smooth, &mut imaging.receiver)?;
        self.propagator
            .inject_traces(&self.smooth, &imaging.receiver, &imaging.traces, n)
    }

    /// Sets the maps to zero.
    pub(crate) fn clear_maps(&self) -> Result<()> {
        self.propagator.clear(&self.maps.image)?;
        self.propagator.clear(&self.maps.illumination)
    }

    fn start(&self, field: &Wavefield) -> Result<()> {
        self.propagator.clear(&field.now)?;
        self.propagator.clear(&field.before)
    }

    fn restore_order(&self) -> Vec<u64> {
        let order = self.usage.order.sequence(self.survey.checkpoints());
        order.into_iter().map(|c| self.version(c)).collect()
    }

    /// The version of a checkpoint of this attempt.
    fn version(&self, checkpoint: u64) -> u64 {
        self.survey.version(self.attempts, checkpoint)
    }

    fn pace(&mut self) {
        if !self.usage.interval.is_zero() {
            if let Some(last) = self.last {
                let start = Instant::now();
                thread::sleep(self.usage.interval.saturating_sub(last.elapsed()));
                self.times.paused += start.elapsed();
            }
            self.last = Some(Instant::now());
        }
    }
}
