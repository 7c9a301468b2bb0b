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
    // A result uses most of its share.
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
