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
mod tests {
    use super::*;
    use crate::cli::{Args, Compress, Order};
    use crate::history::{History, Tiers};
    use crate::host::Host;
    use crate::migration::{Migration, Usage};
    use crate::survey::Survey;
    use clap::Parser;
    use std::time::Duration;
    use tierflow_device::{Choice, open};
    use tierflow_engine::AfterRestore;

    const WITHIN: f64 = 1e-3;

    /// A migration that came to an end: the error of its image in all cells and in the sample, and the shots that were taken back.
    struct Migrated {
        norm: f64,
        off: Off,
        taken_back: usize,
        /// The quotient of the bytes that were compressed and those that this made.
        smaller: f64,
    }

    /// Migrates three shots whose first one has a relative bound.
    fn migrated(first: f64) -> Migrated {
        let line = "rtm --decimate 4 --steps 240 --every 3 --shots 3 --verify --error-budget 1e-3";
        let args = Args::parse_from(line.split(' '));
        let survey = Survey::new(&args).unwrap();
        let device = open(Choice::Host).unwrap();
        let propagator = Host::new(&device, survey.grid.clone()).unwrap();
        let usage = Usage {
            order: Order::Reverse,
            hints: args.hints,
            interval: Duration::ZERO,
            recompute: None,
            verify: args.verify,
            within: true,
            error_budget: Some(WITHIN),
            inverts: false,
        };
        let mut migration = Migration::new(&device, &propagator, &survey, usage).unwrap();
        let scratch = tempfile::tempdir().unwrap();
        // The device cache holds no more than a few snapshots, so nearly all come back within bounds.
        let tiers = Tiers {
            device_cache: 3 * migration.checkpoint_bytes(),
            host_cache: args.host_cache,
            scratch: scratch.path(),
            scratch_limit: u64::MAX,
            compress: Some(Compress::Within(first)),
            after_restore: AfterRestore::Discard,
        };
        let mut history = None;
        for shot in 0..args.shots {
            let open = || History::open(&device, tiers);
            migration.shot(shot, &mut history, open).unwrap();
        }
        let (_, norm) = migration.difference().unwrap().unwrap();
        let (off, taken_back) = migration.budgeted().unwrap();
        let compression = history.unwrap().metrics().compression.unwrap();
        Migrated {
            norm,
            off,
            taken_back,
            smaller: compression.compressed as f64 / compression.stored as f64,
        }
    }

    #[test]
    fn the_image_of_a_budget_differs_by_no_more() {
        let found = migrated(WITHIN / 5.0);
        assert!(
            (WITHIN / 4.0..=WITHIN).contains(&found.norm),
            "{}",
            found.norm
        );
        let ratio = found.off.image / found.norm;
        assert!((0.8..1.25).contains(&ratio), "{ratio}");
        assert_eq!(found.taken_back, 0);
        assert!(found.smaller > 8.0, "{}", found.smaller);
    }

    #[test]
    fn a_shot_beyond_the_budget_is_taken_back() {
        let found = migrated(20.0 * WITHIN);
        assert_eq!(found.taken_back, 1);
        assert!(
            (WITHIN / 4.0..=WITHIN).contains(&found.norm),
            "{}",
            found.norm
        );
    }

    const CHECKPOINTS: usize = 300;
    const CELLS: usize = 500;

    /// Fields of which each checkpoint and cell has the source's value, then its partner.
    fn fields(mut of: impl FnMut(usize) -> [f32; 2]) -> Fields {
        let values = (0..CHECKPOINTS * CELLS).map(|at| of(at / CELLS));
        let (exact, partners): (Vec<f32>, Vec<f32>) = values.map(|[s, r]| (s, r)).unzip();
        Fields {
            cells: CELLS,
            restored: exact.clone(),
            exact,
            partners,
        }
    }

    /// Returns numbers between -1 and 1 that depend on each other as little as random ones.
    fn random() -> impl FnMut() -> f32 {
        let mut state = 1_u64;
        move || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_013_904_223);
            (state >> 40) as f32 / (1 << 23) as f32 - 1.0
        }
    }

    /// Fields of many magnitudes.
    fn waves() -> Fields {
        let mut random = random();
        let size = |n: usize| 10_f32.powi(n as i32 % 7 - 3);
        fields(|n| [size(n) * random(), size(n + 3) * random()])
    }

    #[test]
    fn errors_as_large_as_allowed_keep_the_results_within_their_share() {
        let mut fields = waves();
        let within = Off {
            image: WITHIN,
            illumination: WITHIN,
        };
        let (bounds, mut random) = (fields.bounds(within), random());
        for (row, bound) in fields.restored.chunks_mut(CELLS).zip(bounds) {
            let bound = bound.unwrap() as f32;
            row.iter_mut().for_each(|value| *value += bound * random());
        }
        let off = fields.restored().off(&fields.exact());
        assert!(off.worst() < 1.1 * WITHIN, "{off:?}");
        // One of them uses most of it.
        assert!(off.worst() > 0.8 * WITHIN, "{off:?}");
    }

    #[test]
    fn errors_of_one_sign_are_seen() {
        let fields = fields(|_| [0.9, 1.0]);
        let share = 0.1;
        let within = Off {
            image: share,
            illumination: share,
        };
        let exact = fields.exact();
        // Independent errors of this size would keep to the budget, but all values become zero.
        let even = share * CHECKPOINTS as f64 * 0.9 * (3.0 / CHECKPOINTS as f64).sqrt();
        let off = fields.rounded(&[Some(even); CHECKPOINTS]).off(&exact);
        assert_eq!(off.image, 1.0);
        let off = fields.rounded(&fields.bounds(within)).off(&exact);
        assert!(off.worst() <= share, "{off:?}");
    }

    #[test]
    fn a_shot_that_is_beyond_counts_for_nothing_and_its_bounds_shrink() {
        let mut budget = ErrorBudget::new(WITHIN);
        let mut fields = waves();
        assert_eq!(budget.error(0), None);
        assert!(budget.take(&fields));
        let first = budget.error(0).unwrap();
        fields.restored.iter_mut().for_each(|value| *value *= 1.01);
        assert!(!budget.take(&fields));
        assert_eq!(budget.off(), Off::default());
        let second = budget.error(0).unwrap();
        assert!(second < first / 5.0, "{second:e} after {first:e}");
        // Fields of zeros allow no error that could be told.
        fields.exact.fill(0.0);
        fields.restored.fill(0.0);
        assert!(budget.take(&fields));
        assert_eq!(budget.error(0), None);
    }

    #[test]
    fn a_sample_has_cells_of_all_depths() {
        for (shape, pad) in [
            ([361, 1, 241], 40),
            ([72, 72, 72], 12),
            ([208, 208, 208], 24),
            ([8, 1, 9], 5),
        ] {
            let grid = Grid::new(shape, pad, 10.0, 4000.0).unwrap();
            let spread = sampled(&grid);
            assert!(
                spread.len() >= CELLS_AT_LEAST.min(grid.cells()),
                "{shape:?}"
            );
            let depths: std::collections::BTreeSet<usize> = (0..spread.len())
                .map(|r| spread.cell(r) % grid.shape[2])
                .collect();
            assert_eq!(depths.len(), grid.shape[2], "{shape:?}");
            assert!(spread.cell(spread.len() - 1) < grid.cells());
        }
    }

    const CELLS_AT_LEAST: usize = 8000;
}
