//! Bounds of snapshots by what their errors do to the results.
//!
//! The image is the sum over the snapshots `n` of the source's field `s(n)` times the receivers' field `r(n)`, its partner; the
//! illumination is the sum of `s(n)²`. In a sample of the grid's cells, each shot keeps the fields before they are stored, those that
//! came back, and the partners. Therefore the error of the results is measured there, whatever the errors of snapshots depend on.
//!
//! - A shot counts if the sum of all shots with it is within the budget. Otherwise the shot is taken back and migrated once more.
//! - Bounds of the next attempt are chosen by the sample of the last one, so that it uses what the shots before left of the budget: errors that are spread evenly and do not depend on each other
//!   would use up the budget with `b(n) = within · rms(image) · sqrt(3 / N) / rms(r(n))`, an equal share for each of `N` snapshots, and
//!   with `2 s(n)` in place of `r(n)` for the illumination. The smaller one counts. Rounding the sample as the codec does shows the error
//!   that these bounds make, and both are scaled by it.
//! - The first shot has no sample before it, so its snapshots have a relative bound.

use anyhow::Result;
use rayon::prelude::*;
use tierflow_device::Device;

use crate::grid::{Grid, Spread};
use crate::propagator::{self, Propagator, Traces};

/// Cells of a sample, about.
const CELLS: usize = 8192;
/// Cells of a sample that a thread sums up at once.
const GRAIN: usize = 256;
/// The share of the budget that a sample may show: the error in all cells is another one.
const SHOWN: f64 = 0.9;
/// The share of the budget that bounds aim at: the error of the next shot is another one, too.
const AIM: f64 = 0.8;
/// How often bounds are scaled by the error that they make.
const ROUNDS: usize = 4;

/// Fields of a shot at each checkpoint, in a sample of the grid's cells, in device memory.
#[derive(Debug)]
pub struct Sample {
    /// The source's field when it was stored.
    pub exact: Traces,
    /// The source's field when it came back.
    pub restored: Traces,
    /// The receivers' field.
    pub partners: Traces,
}

impl Sample {
    /// Room for a shot's checkpoints, of unspecified content.
    pub fn new(device: &Device, grid: &Grid, checkpoints: usize) -> Result<Self> {
        let spread = sampled(grid);
        let traces = || Traces::new(device, spread, checkpoints);
        Ok(Self {
            exact: traces()?,
            restored: traces()?,
            partners: traces()?,
        })
    }

    /// Bytes in device memory.
    pub fn bytes(&self) -> usize {
        let Self {
            exact,
            restored,
            partners,
        } = self;
        [exact, restored, partners]
            .map(|it| it.samples.len())
            .iter()
            .sum()
    }

    /// Reads the sample of a shot.
    pub fn read(&self, propagator: &dyn Propagator) -> Result<Fields> {
        let read = |traces: &Traces| propagator::read(propagator, &traces.samples);
        Ok(Fields {
            cells: self.exact.spread.len(),
            exact: read(&self.exact)?,
            restored: read(&self.restored)?,
            partners: read(&self.partners)?,
        })
    }
}

/// Cells at equal distances in memory, which have no divisor in common with the depth: so all depths are met.
fn sampled(grid: &Grid) -> Spread {
    let depth = grid.shape[2];
    let mut step = (grid.cells() / CELLS).max(1);
    while divisor(step, depth) > 1 {
        step += 1;
    }
    Spread {
        origin: step / 2,
        count: [grid.cells() / step, 1],
        stride: [step, 0],
    }
}

fn divisor(a: usize, b: usize) -> usize {
    if b == 0 { a } else { divisor(b, a % b) }
}

/// A [`Sample`] in main memory: of each checkpoint, the values of all cells.
#[derive(Clone, Debug)]
pub struct Fields {
    cells: usize,
    exact: Vec<f32>,
    restored: Vec<f32>,
    partners: Vec<f32>,
}

/// Results in the cells of a sample.
#[derive(Clone, Debug, Default)]
struct Results {
    image: Vec<f64>,
    illumination: Vec<f64>,
}

/// An error of results, as a share of their Euclidean norms.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Off {
    pub image: f64,
    pub illumination: f64,
}

impl Off {
    fn worst(self) -> f64 {
        self.image.max(self.illumination)
    }
}

impl Results {
    fn add(&mut self, other: &Self) {
        for (sum, values) in [
            (&mut self.image, &other.image),
            (&mut self.illumination, &other.illumination),
        ] {
            sum.resize(values.len(), 0.0);
            sum.iter_mut()
                .zip(values)
                .for_each(|(sum, value)| *sum += value);
        }
    }

    /// Returns the error of these results, where `exact` ones are known.
    fn off(&self, exact: &Self) -> Off {
        let share = |values: &[f64], exact: &[f64]| {
            let apart = values.iter().zip(exact).map(|(value, exact)| value - exact);
            let apart = norm(apart);
            apart / norm(exact.iter().copied()).max(f64::MIN_POSITIVE)
        };
        Off {
            image: share(&self.image, &exact.image),
            illumination: share(&self.illumination, &exact.illumination),
        }
    }
}

impl Fields {
    /// Returns the results of a source's field, by checkpoint and value.
    fn results(&self, source: impl Fn(usize, f32) -> f32 + Sync, of: &[f32]) -> Results {
        let mut found = Results {
            image: vec![0.0; self.cells],
            illumination: vec![0.0; self.cells],
        };
        let images = found.image.par_chunks_mut(GRAIN);
        let parts = images.zip(found.illumination.par_chunks_mut(GRAIN));
        parts.enumerate().for_each(|(part, (image, illumination))| {
            let range = part * GRAIN..part * GRAIN + image.len();
            let rows = of.chunks(self.cells).zip(self.partners.chunks(self.cells));
            for (n, (values, partners)) in rows.enumerate() {
                let values = values[range.clone()].iter().zip(&partners[range.clone()]);
                let sums = image.iter_mut().zip(illumination.iter_mut());
                for ((value, partner), (image, illumination)) in values.zip(sums) {
                    let value = f64::from(source(n, *value));
                    *image += value * f64::from(*partner);
                    *illumination += value * value;
                }
            }
        });
        found
    }

    fn exact(&self) -> Results {
        self.results(|_, value| value, &self.exact)
    }

    fn restored(&self) -> Results {
        self.results(|_, value| value, &self.restored)
    }

    /// Returns the results of fields that are rounded within these bounds.
    fn rounded(&self, bounds: &[Option<f64>]) -> Results {
        let round = |n: usize, value: f32| bounds[n].map_or(value, |bound| rounded(value, bound));
        self.results(round, &self.exact)
    }

    /// Returns bounds of the checkpoints that keep the results within these shares: none where a field is all zeros.
    fn bounds(&self, within: Off) -> Vec<Option<f64>> {
        let within = [within.image, within.illumination];
        let sizes = |values: &[f32]| -> Vec<f64> {
            let rows = values.chunks(self.cells);
            rows.map(|row| norm(row.iter().map(|value| f64::from(*value))))
                .collect()
        };
        let (sources, partners) = (sizes(&self.exact), sizes(&self.partners));
        let exact = self.exact();
        let all = [&exact.image, &exact.illumination].map(|values| norm(values.iter().copied()));
        let even = (3.0 / sources.len() as f64).sqrt();
        let mut scales = [0, 1].map(|n| even * within[n] * all[n]);
        let of = |[image, illumination]: [f64; 2]| -> Vec<Option<f64>> {
            let sizes = sources.iter().zip(&partners);
            let bounds = sizes.map(|(source, partner)| {
                let bound = (image / partner).min(illumination / (2.0 * source));
                Some(bound).filter(|bound| bound.is_normal())
            });
            bounds.collect()
        };
        // Fields that are smaller than their bounds come back as zeros, and larger bounds make no larger error. Another shot's fields may
        // be larger, so errors that fill their bounds have to be within the share, too.
        let off = |bounds: &[Option<f64>]| {
            let rounded = self.rounded(bounds).off(&exact);
            let squares = bounds
                .iter()
                .map(|bound| bound.unwrap_or(0.0).powi(2) / 3.0);
            let with = |sizes: &[f64]| -> f64 {
                let terms = squares.clone().zip(sizes);
                terms.map(|(square, size)| square * size * size).sum()
            };
            let own = (self.cells as f64).sqrt() * squares.clone().sum::<f64>();
            let filled = [
                with(&partners).sqrt(),
                (4.0 * with(&sources) + own * own).sqrt(),
            ];
            let [image, illumination] = [0, 1].map(|n| filled[n] / all[n].max(f64::MIN_POSITIVE));
            [
                rounded.image.max(image),
                rounded.illumination.max(illumination),
            ]
        };
        for _ in 0..ROUNDS {
            let off = off(&of(scales));
            for n in [0, 1] {
                scales[n] *= (within[n] / off[n].max(f64::MIN_POSITIVE)).clamp(0.25, 4.0);
            }
        }
        loop {
            let bounds = of(scales);
            let off = off(&bounds);
            let worst = (off[0] / within[0]).max(off[1] / within[1]);
            // Of values that are not finite, no bound is known to be right, and none would be better.
            if worst.is_nan() || worst <= 1.0 {
                return bounds;
            }
            // Bounds that become too small for the codec are none, so the loop ends.
            scales = scales.map(|scale| scale * 0.9 / worst);
        }
    }
}

/// Rounds a value to a multiple of twice the bound, as the codec does.
fn rounded(value: f32, bound: f64) -> f32 {
    let multiple = (f64::from(value) / (2.0 * bound)).round_ties_even();
    match multiple.abs() < f64::from(1 << 30) {
        true => (multiple * (2.0 * bound)) as f32,
        false => value,
    }
}

fn norm(values: impl Iterator<Item = f64>) -> f64 {
    values.map(|value| value * value).sum::<f64>().sqrt()
}

/// The errors that snapshots may have, so that the errors of the results stay within a share of the results.
#[derive(Clone, Debug)]
pub struct ErrorBudget {
    within: f64,
    /// The share of the budget that bounds aim at.
    aim: f64,
    /// The bounds of the next attempt.
    bounds: Vec<Option<f64>>,
    exact: Results,
    restored: Results,
}

impl ErrorBudget {
    /// Keeps the sum of all shots within this share of it.
    pub fn new(within: f64) -> Self {
        Self {
            within,
            aim: AIM,
            bounds: Vec::new(),
            exact: Results::default(),
            restored: Results::default(),
        }
    }

    /// Returns the error that a checkpoint of the next attempt may have; `None` before the first attempt is over, and where all of a
    /// field was zero.
    pub fn error(&self, checkpoint: usize) -> Option<f64> {
        self.bounds.get(checkpoint).copied().flatten()
    }

    /// Takes the sample of an attempt, and chooses the bounds of the next one. Returns false if the results would not be within the
    /// budget with this shot: then they are to be as they were before it.
    pub fn take(&mut self, fields: &Fields) -> bool {
        let mut sums = [self.exact.clone(), self.restored.clone()];
        let [exact, restored] = &mut sums;
        exact.add(&fields.exact());
        restored.add(&fields.restored());
        let off = restored.off(exact).worst();
        let is_within = off <= SHOWN * self.within;
        if is_within {
            [self.exact, self.restored] = sums;
        } else if !self.bounds.is_empty() {
            self.aim *= AIM * self.within / off;
        }
        self.bounds = fields.bounds(self.left(fields));
        is_within
    }

    /// Returns the errors that one more shot like this one may add: what those before it left of their share, and its own. The results of
    /// shots are taken to have nothing in common, so that their squares add up, as those of errors do.
    fn left(&self, fields: &Fields) -> Off {
        let aim = self.aim * self.within;
        let left = |of: fn(&Results) -> &[f64]| {
            let norm = |values: &[f64]| norm(values.iter().copied());
            let (one, all) = (norm(of(&fields.exact())), norm(of(&self.exact)));
            let apart = of(&self.restored).iter().zip(of(&self.exact));
            let used: f64 = apart.map(|(a, b)| (a - b).powi(2)).sum();
            let left = aim.powi(2) * (one * one + all * all) - used;
            // A shot may use a quarter of its own share at least.
            (left.max(0.0).sqrt() / one.max(f64::MIN_POSITIVE)).max(aim / 4.0)
        };
        Off {
            image: left(|of| &of.image),
            illumination: left(|of| &of.illumination),
        }
    }

    /// Begins with results of zero, and keeps the bounds.
    pub fn restart(&mut self) {
        self.exact = Results::default();
        self.restored = Results::default();
    }

    /// The error of the results in the samples of all shots taken.
    pub fn off(&self) -> Off {
        self.restored.off(&self.exact)
    }
}

#[cfg(test)]
mod tests;
