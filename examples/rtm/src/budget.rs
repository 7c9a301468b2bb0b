//! Bounds of snapshots by what their errors do to the results.
//!
//! The image is the sum over the snapshots `n` of the source's field `s(n)` times the receivers' field `r(n)`, its partner; the
//! illumination is the sum of `s(n)²`. In a sample of the grid's cells, each shot keeps the fields before they are stored, those that
//! came back, and the partners. Therefore the error of the results is measured there, whatever the errors of snapshots depend on.
//!
//! - Fields and their errors are largest in few cells, close to sources and receivers. So these cells are in the sample more often: a cell
//!   that is drawn with probability `p` stands for `1 / p` cells. Sums over all cells are estimated without bias, and so is the variance of
//!   their estimates.
//! - A shot counts if the sum of all shots with it is within the budget at [`SIGMAS`] standard deviations above the estimate. Otherwise
//!   the shot is taken back and migrated once more.
//! - Bounds of the next attempt are chosen by the sample of the last one, so that it uses what the shots before left of the budget: errors that are spread evenly and do not depend on each other
//!   would use up the budget with `b(n) = within · norm(image) · sqrt(3 / N) / norm(r(n))`, an equal share for each of `N` snapshots, and
//!   with `2 s(n)` in place of `r(n)` for the illumination. The smaller one counts. Rounding the sample as the codec does shows the error
//!   that these bounds make, and both are scaled by it.
//! - The first shot has no sample before it, so its snapshots have a relative bound.

use std::sync::Arc;

use anyhow::Result;
use rayon::prelude::*;
use tierflow_device::{Device, Memory};
use xxhash_rust::xxh3::xxh3_64;

use crate::propagator::{self, Propagator, Wavefield};
use crate::survey::Survey;

/// Cells of a sample, about.
const CELLS: usize = 8192;
/// Cells of a sample that a thread sums up at once.
const GRAIN: usize = 256;
/// Standard deviations by which the error may exceed its estimate and still be within the budget.
const SIGMAS: f64 = 2.0;
/// The share of the budget that bounds aim at: the error of the next shot is another one, and known by an estimate only.
const AIM: f64 = 0.8;
/// How often bounds are scaled by the error that they make.
const ROUNDS: usize = 4;

/// Cells of a grid, drawn with known probabilities.
#[derive(Debug)]
struct Drawn {
    cells: Vec<u32>,
    /// So many cells each of them stands for: the inverse of its probability.
    weights: Arc<[f64]>,
}

/// Draws cells independently of each other. A third of them is spread evenly, a third by the logarithm of the distance from the sources, and
/// a third by that from the receivers' depth. A cell with a probability of one or more is always in the sample.
fn draw(survey: &Survey, count: usize) -> Drawn {
    let grid = &survey.grid;
    let place = |cell: usize| {
        let (x, rest) = (cell / grid.x_stride(), cell % grid.x_stride());
        [x, rest / grid.y_stride(), rest % grid.y_stride()].map(|at| at as f64)
    };
    let sources: Vec<_> = survey.sources.iter().map(|cell| place(*cell)).collect();
    let [.., receivers] = place(survey.receivers.origin);
    let power = if grid.is_flat() { 1.0 } else { 1.5 };
    let close = |cell: usize| {
        let at = place(cell);
        let by = |source: &[f64; 3]| {
            let square: f64 = at.iter().zip(source).map(|(a, b)| (a - b).powi(2)).sum();
            (1.0 + square).powf(-power)
        };
        let by_sources: f64 = sources.iter().map(by).sum();
        [by_sources, 1.0 / (1.0 + (at[2] - receivers).abs())]
    };
    let planes = || (0..grid.shape[0]).into_par_iter();
    let cells = |plane: usize| plane * grid.x_stride()..(plane + 1) * grid.x_stride();
    let sums: Vec<[f64; 2]> = planes()
        .map(|plane| {
            let add = |[a, b]: [f64; 2], [c, d]: [f64; 2]| [a + c, b + d];
            cells(plane).map(close).fold([0.0; 2], add)
        })
        .collect();
    let sums = [0, 1].map(|of| sums.iter().map(|sum| sum[of]).sum::<f64>());
    let drawn = planes().flat_map_iter(|plane| {
        cells(plane).filter_map(|cell| {
            let [by_sources, by_depth] = close(cell);
            let shares = 1.0 / grid.cells() as f64 + by_sources / sums[0] + by_depth / sums[1];
            let probability = (count as f64 / 3.0 * shares).min(1.0);
            let number = xxh3_64(&cell.to_le_bytes()) as f64 / 2_f64.powi(64);
            (number < probability).then_some((cell as u32, 1.0 / probability))
        })
    });
    let (cells, weights): (Vec<_>, Vec<f64>) = drawn.unzip();
    Drawn {
        cells,
        weights: weights.into(),
    }
}

/// Fields of a shot at each checkpoint, in a sample of the grid's cells, in device memory.
#[derive(Debug)]
pub struct Sample {
    weights: Arc<[f64]>,
    cells: Memory,
    /// The source's field when it was stored, when it came back, and the receivers' field.
    rows: [Memory; 3],
}

/// A field of a [`Sample`].
#[derive(Clone, Copy, Debug)]
pub enum Of {
    /// The source's field when it was stored.
    Exact,
    /// The source's field when it came back.
    Restored,
    /// The receivers' field.
    Partner,
}

impl Sample {
    /// Room for a shot's checkpoints, of unspecified content.
    pub fn new(device: &Device, propagator: &dyn Propagator, survey: &Survey) -> Result<Self> {
        let Drawn { cells, weights } = draw(survey, CELLS);
        let memory = device.alloc(size_of_val(cells.as_slice()))?;
        propagator.upload(bytemuck::cast_slice(&cells), &memory)?;
        let bytes = usize::try_from(survey.checkpoints())? * memory.len();
        let rows = || device.alloc(bytes);
        Ok(Self {
            weights,
            cells: memory,
            rows: [rows()?, rows()?, rows()?],
        })
    }

    /// Bytes in device memory.
    pub fn bytes(&self) -> usize {
        self.cells.len() + self.rows.iter().map(Memory::len).sum::<usize>()
    }

    /// Takes the sample of a field at a checkpoint.
    pub fn take(
        &self,
        propagator: &dyn Propagator,
        of: Of,
        checkpoint: usize,
        field: &Wavefield,
    ) -> Result<()> {
        propagator.gather(field, &self.cells, &self.rows[of as usize], checkpoint)
    }

    /// Reads the sample of a shot.
    pub fn read(&self, propagator: &dyn Propagator) -> Result<Fields> {
        let read = |of: Of| propagator::read(propagator, &self.rows[of as usize]);
        Ok(Fields {
            weights: self.weights.clone(),
            exact: read(Of::Exact)?,
            restored: read(Of::Restored)?,
            partners: read(Of::Partner)?,
        })
    }
}

/// A [`Sample`] in main memory: of each checkpoint, the values of all cells.
#[derive(Clone, Debug)]
pub struct Fields {
    weights: Arc<[f64]>,
    exact: Vec<f32>,
    restored: Vec<f32>,
    partners: Vec<f32>,
}

/// Results in the cells of a sample.
#[derive(Clone, Debug, Default)]
struct Results {
    weights: Arc<[f64]>,
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
        self.weights = other.weights.clone();
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

    /// Returns the error of these results in all cells, where `exact` ones are known: so many standard deviations above its estimate.
    fn off(&self, exact: &Self, sigmas: f64) -> Off {
        let share = |values: &[f64], exact: &[f64]| {
            let squares = values.iter().zip(exact).map(|(value, exact)| {
                let apart = (value - exact).powi(2);
                [apart, exact * exact]
            });
            let weighted = self.weights.iter().zip(squares);
            let add = |[a, b]: [f64; 2], (weight, [c, d]): (&f64, [f64; 2])| {
                [a + weight * c, b + weight * d]
            };
            let [apart, whole] = weighted.clone().fold([0.0; 2], add);
            let whole = whole.max(f64::MIN_POSITIVE);
            let share = apart / whole;
            // A cell is in the sample or not, independently of others: the variance of a quotient of two such sums, to first order.
            let terms = weighted.map(|(weight, [apart, exact])| {
                weight * (weight - 1.0) * (apart - share * exact).powi(2)
            });
            (share + sigmas * terms.sum::<f64>().sqrt() / whole).sqrt()
        };
        Off {
            image: share(&self.image, &exact.image),
            illumination: share(&self.illumination, &exact.illumination),
        }
    }

    /// Returns the Euclidean norms of the results in all cells.
    fn norms(&self) -> [f64; 2] {
        [&self.image, &self.illumination].map(|values| norm(values.iter().copied(), &self.weights))
    }
}

impl Fields {
    fn rows<'f>(&self, of: &'f [f32]) -> std::slice::Chunks<'f, f32> {
        of.chunks(self.weights.len().max(1))
    }

    /// Returns the results of a source's field, by checkpoint and value.
    fn results(&self, source: impl Fn(usize, f32) -> f32 + Sync, of: &[f32]) -> Results {
        let mut found = Results {
            weights: self.weights.clone(),
            image: vec![0.0; self.weights.len()],
            illumination: vec![0.0; self.weights.len()],
        };
        let images = found.image.par_chunks_mut(GRAIN);
        let parts = images.zip(found.illumination.par_chunks_mut(GRAIN));
        parts.enumerate().for_each(|(part, (image, illumination))| {
            let range = part * GRAIN..part * GRAIN + image.len();
            let rows = self.rows(of).zip(self.rows(&self.partners));
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

    /// Returns bounds of the checkpoints that keep the results, which are `exact` ones, within these shares: none where a field is all zeros.
    fn bounds(&self, exact: &Results, within: Off) -> Vec<Option<f64>> {
        let within = [within.image, within.illumination];
        let sizes = |values: &[f32]| -> Vec<f64> {
            let rows = self.rows(values).map(|row| {
                let values = row.iter().map(|value| f64::from(*value));
                norm(values, &self.weights)
            });
            rows.collect()
        };
        let (sources, partners) = (sizes(&self.exact), sizes(&self.partners));
        let all = exact.norms();
        let cells: f64 = self.weights.iter().sum();
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
            let rounded = self.rounded(bounds).off(exact, 0.0);
            let squares = bounds
                .iter()
                .map(|bound| bound.unwrap_or(0.0).powi(2) / 3.0);
            let with = |sizes: &[f64]| -> f64 {
                let terms = squares.clone().zip(sizes);
                terms.map(|(square, size)| square * size * size).sum()
            };
            let own = cells.sqrt() * squares.clone().sum::<f64>();
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

/// Estimates the Euclidean norm in all cells.
fn norm(values: impl Iterator<Item = f64>, weights: &[f64]) -> f64 {
    let squares = values
        .zip(weights)
        .map(|(value, weight)| weight * value * value);
    squares.sum::<f64>().sqrt()
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
        let shot = fields.exact();
        let mut sums = [self.exact.clone(), self.restored.clone()];
        let [exact, restored] = &mut sums;
        exact.add(&shot);
        restored.add(&fields.restored());
        let off = restored.off(exact, SIGMAS).worst();
        let is_within = off <= self.within;
        if is_within {
            [self.exact, self.restored] = sums;
        } else if !self.bounds.is_empty() {
            self.aim *= AIM * self.within / off;
        }
        self.bounds = fields.bounds(&shot, self.left(&shot));
        is_within
    }

    /// Returns the errors that one more shot like this one may add: what those before it left of their share, and its own. The results of
    /// shots are taken to have nothing in common, so that their squares add up, as those of errors do.
    fn left(&self, shot: &Results) -> Off {
        let aim = self.aim * self.within;
        let used = self.off(0.0);
        let (one, all) = (shot.norms(), self.exact.norms());
        let left = |of: usize, used: f64| {
            let left = aim.powi(2) * (one[of].powi(2) + all[of].powi(2)) - (used * all[of]).powi(2);
            // A shot may use a quarter of its own share at least.
            (left.max(0.0).sqrt() / one[of].max(f64::MIN_POSITIVE)).max(aim / 4.0)
        };
        Off {
            image: left(0, used.image),
            illumination: left(1, used.illumination),
        }
    }

    /// Begins with results of zero, and keeps the bounds.
    pub fn restart(&mut self) {
        self.exact = Results::default();
        self.restored = Results::default();
    }

    /// The error of the results of all shots taken, so many standard deviations above its estimate.
    fn off(&self, sigmas: f64) -> Off {
        self.restored.off(&self.exact, sigmas)
    }

    /// The error of the results of all shots taken: its estimate, and what it is at most at [`SIGMAS`] standard deviations.
    pub fn error_of_results(&self) -> [Off; 2] {
        [self.off(0.0), self.off(SIGMAS)]
    }
}

#[cfg(test)]
mod tests;
