//! The survey: everything about a run that follows from the model and the command line, as sources, receivers and
//! durations.

use anyhow::{Result, ensure};

use crate::cli::Args;
use crate::grid::{Grid, Spread};
use crate::model::Model;
use crate::{model_file, wavelet};

/// Thickness of the absorbing layer of a section, in cells.
const PAD_2D: usize = 40;
/// Cells from the model's top to sources and receivers.
const DEPTH: usize = 2;

/// More steps than any of our grids needs, few enough to keep a wavelet of.
const MOST_STEPS: usize = 10_000_000;

/// A survey: the same sources and receivers over the true and the smooth model.
#[derive(Debug)]
pub struct Survey {
    pub grid: Grid,
    pub truth: Model,
    pub smooth: Model,
    /// Peak frequency in Hz.
    pub frequency: f32,
    /// Amplitudes, one per time step.
    pub wavelet: Vec<f32>,
    /// Time steps from one checkpoint to the next.
    pub every: usize,
    /// The cell of each shot.
    pub sources: Vec<usize>,
    pub receivers: Spread,
}

impl Survey {
    pub fn new(args: &Args) -> Result<Self> {
        let (truth, pad) = model(args)?;
        let (slowest, fastest) = truth.range();
        let grid = Grid::new(truth.shape, pad, truth.spacing, fastest)?;
        // 8th-order differences carry about 3.6 cells a wavelength cleanly; the highest frequency
        // is 2.5 times the peak.
        let carried = slowest / (9.0 * truth.spacing);
        let frequency = args.frequency.unwrap_or(carried);
        ensure!(
            frequency > 0.0 && frequency <= 2.0 * carried,
            "--frequency {frequency} Hz: this grid carries up to {:.1} Hz; give less, or a model of \
             smaller spacing",
            2.0 * carried
        );
        let two_way = 2.0 * truth.vertical_time();
        let enough = (1.25 * two_way + 2.0 * wavelet::delay(frequency)) / grid.dt;
        let steps = args.steps.unwrap_or(enough as usize + 1);
        ensure!(
            (1..=MOST_STEPS).contains(&steps),
            "{steps} time steps: give --steps 1 to {MOST_STEPS}"
        );
        // The correlation of two signals needs samples twice a period of their highest frequency.
        let coarsest = (0.5 / (wavelet::highest(frequency) * grid.dt)) as usize;
        let every = args
            .every
            .unwrap_or((steps / 300).clamp(1, coarsest.max(1)));
        ensure!(
            every >= 1,
            "--every 0: give at least one time step between checkpoints"
        );
        let places = grid.inner[0] * grid.inner[1];
        ensure!(
            (1..=places).contains(&args.shots),
            "--shots {}: give 1 to {places}, which is one at every point of the surface",
            args.shots
        );
        ensure!(
            args.smooth >= 0.0 && args.smooth <= 1e4,
            "--smooth must be 0 to 10000 cells"
        );
        Ok(Self {
            smooth: truth.smooth(args.smooth),
            sources: sources(&grid, args.shots),
            receivers: Spread::surface(&grid, DEPTH),
            wavelet: wavelet::ricker(frequency, grid.dt, steps),
            frequency,
            every,
            truth,
            grid,
        })
    }

    /// Time steps of each pass.
    pub fn steps(&self) -> usize {
        self.wavelet.len()
    }

    /// Checkpoints of each shot.
    pub fn checkpoints(&self) -> u64 {
        self.steps().div_ceil(self.every) as u64
    }

    /// The version of a shot's checkpoint.
    pub fn version(&self, shot: usize, checkpoint: u64) -> u64 {
        shot as u64 * self.checkpoints() + checkpoint
    }

    /// Bytes of the models and the wavelet, which stay in main memory.
    pub fn array_bytes(&self) -> u64 {
        let values = self.truth.velocity.len() + self.smooth.velocity.len() + self.wavelet.len();
        (values * size_of::<f32>()) as u64
    }

    /// Cells at the top that the image leaves out, where sources and receivers are.
    pub fn mute(&self) -> usize {
        4 * DEPTH
    }
}

fn model(args: &Args) -> Result<(Model, usize)> {
    if let Some(shape) = args.volume {
        let smallest = shape.into_iter().min().unwrap_or(0);
        ensure!(
            smallest >= 32,
            "--3d: at least 32 cells along each axis are needed"
        );
        let pad = (smallest / 8).min(24);
        let inner = shape.map(|n| n - 2 * pad);
        return Ok((Model::made(inner, args.spacing)?, pad));
    }
    let model = match &args.model {
        Some(path) => model_file::read(path, args.shape, args.spacing)?,
        None => Model::made([361, 1, 241], args.spacing)?,
    };
    let pad = if model.shape[1] == 1 { PAD_2D } else { 24 };
    Ok((model.decimate(args.decimate)?, pad))
}

/// `shots` cells spread evenly over the surface.
fn sources(grid: &Grid, shots: usize) -> Vec<usize> {
    let [nx, ny, _] = grid.inner;
    // In 3-D, as many lines as make the pattern about square.
    let lines = if ny == 1 {
        1
    } else {
        (shots as f64).sqrt().round() as usize
    };
    let at = |i: usize, count: usize, n: usize| (2 * i + 1) * n / (2 * count);
    (0..shots)
        .map(|shot| {
            let line = shot % lines;
            let in_line = shots / lines + usize::from(line < shots % lines);
            grid.index([at(shot / lines, in_line, nx), at(line, lines, ny), DEPTH])
        })
        .collect()
}
