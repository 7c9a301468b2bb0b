//! A rank: computes, meets the others and checkpoints, step by step.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use serde::{Deserialize, Serialize};
use tierflow_device::{Choice, open};
use tierflow_engine::{Engine, Region, RegionMut};

use super::generic_io::Layout;
use super::particles::{PARTICLE, Particles};
use crate::process::{meet, say};

/// Number of substeps over which the time of a substep is measured.
const TRIED: u32 = 3;

/// Versions that a host cache holds.
const SLOTS: usize = 2;

/// The way in which a rank writes its particles.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Writing {
    /// No checkpoints: the run that the others are compared with.
    Nothing,
    /// In the manner of GenericIO, all ranks into one file, durable before a step ends.
    GenericIo,
    /// By VELOC's interface over Tierflow.
    Veloc,
    /// By Tierflow's engine.
    Engine,
}

/// The work of a rank.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Rank {
    /// The rank's number.
    pub rank: usize,
    /// Number of ranks.
    pub ranks: usize,
    /// Particles of each rank.
    pub particles: usize,
    /// Steps, each with a checkpoint at its end.
    pub steps: u64,
    /// Substeps of computing in a step; 0 for a rank that only measures a substep and ends.
    pub substeps: u32,
    /// The way in which the rank writes.
    pub writing: Writing,
    /// The folder that all ranks write to.
    pub directory: PathBuf,
}

/// A way to write particles.
pub trait Checkpoints {
    /// Takes a checkpoint at the end of a step.
    ///
    /// # Errors
    /// An error if the call failed.
    fn checkpoint(&mut self, step: u64, particles: &Particles) -> Result<()>;

    /// Waits until all checkpoints are durable.
    ///
    /// # Errors
    /// An error if one of them failed.
    fn settle(&mut self) -> Result<()>;

    /// Reads a step's checkpoint.
    ///
    /// # Errors
    /// An error if the call failed.
    fn read(&mut self, step: u64, particles: &mut Particles) -> Result<()>;
}

impl Rank {
    /// Bytes of a rank's checkpoint.
    pub fn bytes(&self) -> usize {
        self.particles * PARTICLE
    }

    fn checkpoints(&self) -> Result<Box<dyn Checkpoints>> {
        Ok(match self.writing {
            Writing::Nothing => Box::new(Nothing),
            Writing::GenericIo => Box::new(GenericIo(self.clone())),
            Writing::Veloc => bail!("VELOC's interface is a program of its own"),
            Writing::Engine => {
                let builder = Engine::builder(&open(Choice::Host)?)
                    .host_cache(SLOTS * self.bytes())
                    .external(self.directory.join(format!("rank-{}", self.rank)));
                Box::new(Cached(builder.build()?))
            }
        })
    }

    /// Does the work. Writes a line and reads one at each meeting. Then writes a line with the seconds in which checkpoints blocked the rank,
    /// a line once all checkpoints are durable, and a line once the last checkpoint was read back.
    ///
    /// # Errors
    /// An error if a checkpoint failed, or the others are gone.
    pub fn serve(&self) -> Result<()> {
        self.serve_by(|rank| rank.checkpoints())
    }

    /// Does the work of [`serve`](Self::serve), with the caller's way to write.
    ///
    /// # Errors
    /// The errors of [`serve`](Self::serve).
    pub fn serve_by(
        &self,
        checkpoints: impl FnOnce(&Self) -> Result<Box<dyn Checkpoints>>,
    ) -> Result<()> {
        let mut particles = Particles::new(self.particles, self.rank);
        let mut checkpoints = checkpoints(self)?;
        meet()?;
        if self.substeps == 0 {
            let begun = Instant::now();
            (0..TRIED).for_each(|_| particles.advance());
            return say(&(begun.elapsed() / TRIED).as_secs_f64().to_string());
        }
        let mut blocked = Duration::ZERO;
        for step in 0..self.steps {
            (0..self.substeps).for_each(|_| particles.advance());
            meet()?;
            let begun = Instant::now();
            checkpoints.checkpoint(step, &particles)?;
            blocked += begun.elapsed();
            meet()?;
        }
        say(&blocked.as_secs_f64().to_string())?;
        checkpoints.settle()?;
        say("durable")?;
        if self.writing != Writing::Nothing {
            ensure!(self.steps > 0, "there is no checkpoint to read back");
            particles.come_back(|particles| checkpoints.read(self.steps - 1, particles))?;
        }
        say("whole")
    }
}

struct Nothing;

impl Checkpoints for Nothing {
    fn checkpoint(&mut self, _: u64, _: &Particles) -> Result<()> {
        Ok(())
    }

    fn settle(&mut self) -> Result<()> {
        Ok(())
    }

    fn read(&mut self, _: u64, _: &mut Particles) -> Result<()> {
        bail!("nothing was written")
    }
}

struct GenericIo(Rank);

impl GenericIo {
    fn layout(&self) -> Layout {
        Layout {
            ranks: self.0.ranks,
            particles: self.0.particles,
        }
    }

    fn path(&self, step: u64) -> PathBuf {
        self.0.directory.join(format!("step-{step}.gio"))
    }
}

impl Checkpoints for GenericIo {
    fn checkpoint(&mut self, step: u64, particles: &Particles) -> Result<()> {
        self.layout()
            .write(&self.path(step), self.0.rank, particles)
    }

    fn settle(&mut self) -> Result<()> {
        Ok(())
    }

    fn read(&mut self, step: u64, particles: &mut Particles) -> Result<()> {
        self.layout().read(&self.path(step), self.0.rank, particles)
    }
}

struct Cached(Engine);

impl Checkpoints for Cached {
    fn checkpoint(&mut self, step: u64, particles: &Particles) -> Result<()> {
        Ok(self
            .0
            .checkpoint(step, &particles.arrays().map(Region::from))?)
    }

    fn settle(&mut self) -> Result<()> {
        Ok(self.0.wait()?)
    }

    fn read(&mut self, step: u64, particles: &mut Particles) -> Result<()> {
        let mut arrays = particles.arrays_mut().map(RegionMut::from);
        self.0.restore(step, &mut arrays)?;
        Ok(())
    }
}
