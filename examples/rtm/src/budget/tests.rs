use super::*;
use crate::cli::{Args, Compress, Order};
use crate::grid::Grid;
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
    most: Off,
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
        levels: 2,
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
        levels: 2,
    };
    let mut history = None;
    for shot in 0..args.shots {
        let open = || History::open(&device, tiers);
        migration.shot(shot, &mut history, open).unwrap();
    }
    let (_, norm) = migration.difference().unwrap().unwrap();
    let ([off, most], taken_back) = migration.budgeted().unwrap();
    let compression = history.unwrap().metrics().compression.unwrap();
    Migrated {
        norm,
        off,
        most,
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
    assert!(found.norm <= found.most.image && found.most.image <= WITHIN);
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

/// Returns the misfits of an inversion's iterations, as shares of the first one, and the quotient of the bytes that were compressed and
/// those that this made.
fn inverted(more: &str) -> (Vec<f64>, f64) {
    let line = "rtm --decimate 4 --steps 240 --every 3 --shots 1 --invert 3 --host-cache 64MiB";
    let folder = tempfile::tempdir().unwrap();
    let args = Args {
        out: folder.path().into(),
        ..Args::parse_from(line.split(' ').chain(more.split_whitespace()))
    };
    let survey = Survey::new(&args).unwrap();
    let device = open(Choice::Host).unwrap();
    let propagator = Host::new(&device, survey.grid.clone()).unwrap();
    let usage = crate::usage(&args);
    let mut migration = Migration::new(&device, &propagator, &survey, usage).unwrap();
    let history = crate::run(&mut migration, &args, &device, &survey, folder.path()).unwrap();
    let rows = std::fs::read_to_string(folder.path().join("misfit.json")).unwrap();
    let values = rows.split("\"value\":").skip(1);
    let misfits = values.map(|row| row.split(',').next().unwrap().parse().unwrap());
    let smaller = history.metrics().compression.map_or(1.0, |compression| {
        compression.compressed as f64 / compression.stored as f64
    });
    (misfits.collect(), smaller)
}

#[test]
fn an_inversion_within_a_budget_has_the_misfits_of_exact_snapshots() {
    let (exact, _) = inverted("");
    let (within, smaller) = inverted("--error-budget 2e-3 --device-cache 1MB");
    assert_eq!((exact.len(), within.len()), (3, 3));
    assert!(exact[2] < 0.98, "{exact:?}");
    assert!(smaller > 12.0, "{smaller}");
    for (exact, within) in exact.iter().zip(&within) {
        assert!((within / exact - 1.0).abs() < 0.01, "{within} for {exact}");
    }
    // Bounds that follow from no result are seen in the curve.
    let (far, _) = inverted("--compress 0.3 --device-cache 1MB");
    let apart = far
        .iter()
        .zip(&exact)
        .map(|(far, exact)| (far / exact - 1.0).abs());
    assert!(apart.fold(0.0, f64::max) > 0.01, "{far:?} for {exact:?}");
}

const CHECKPOINTS: usize = 300;
const CELLS: usize = 500;

/// Fields of which each checkpoint and cell has the source's value, then its partner.
fn fields(mut of: impl FnMut(usize) -> [f32; 2]) -> Fields {
    let values = (0..CHECKPOINTS * CELLS).map(|at| of(at / CELLS));
    let (exact, partners): (Vec<f32>, Vec<f32>) = values.map(|[s, r]| (s, r)).unzip();
    Fields {
        weights: vec![1.0; CELLS].into(),
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
    let (bounds, mut random) = (fields.bounds(&fields.exact(), within), random());
    for (row, bound) in fields.restored.chunks_mut(CELLS).zip(bounds) {
        let bound = bound.unwrap() as f32;
        row.iter_mut().for_each(|value| *value += bound * random());
    }
    let off = fields.restored().off(&fields.exact(), 0.0);
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
    let off = fields.rounded(&[Some(even); CHECKPOINTS]).off(&exact, 0.0);
    assert_eq!(off.image, 1.0);
    let off = fields
        .rounded(&fields.bounds(&exact, within))
        .off(&exact, 0.0);
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
    assert_eq!(budget.off(SIGMAS), Off::default());
    let second = budget.error(0).unwrap();
    assert!(second < first / 5.0, "{second:e} after {first:e}");
    // Fields of zeros allow no error that could be told.
    fields.exact.fill(0.0);
    fields.restored.fill(0.0);
    assert!(budget.take(&fields));
    assert_eq!(budget.error(0), None);
}

fn survey(line: &str) -> Survey {
    Survey::new(&Args::parse_from(line.split(' '))).unwrap()
}

/// Results of a sample whose image, and its error, shrink by powers of the distance from the source in `at`.
fn shrinking(grid: &Grid, source: usize, weights: &[f64], cells: &[u32]) -> [Results; 2] {
    let place = |cell: usize| {
        let (x, rest) = (cell / grid.x_stride(), cell % grid.x_stride());
        [x, rest / grid.y_stride(), rest % grid.y_stride()].map(|at| at as f64)
    };
    let shrinks = |power: f64| -> Vec<f64> {
        let of = |cell: &u32| {
            let apart = place(*cell as usize).into_iter().zip(place(source));
            let square: f64 = apart.map(|(a, b)| (a - b).powi(2)).sum();
            (1.0 + square).powf(-power)
        };
        cells.iter().map(of).collect()
    };
    let (exact, off) = (shrinks(0.75), shrinks(1.5));
    let restored: Vec<f64> = exact
        .iter()
        .zip(off)
        .map(|(value, off)| value + WITHIN * off)
        .collect();
    [restored, exact].map(|image| Results {
        weights: weights.into(),
        illumination: image.clone(),
        image,
    })
}

#[test]
fn errors_in_few_cells_are_estimated_where_an_even_sample_fails() {
    for (line, shots) in [("rtm --3d 96x96x96 --shots 4", 4), ("rtm --shots 3", 3)] {
        let survey = survey(line);
        let grid = &survey.grid;
        let drawn = draw(&survey, CELLS);
        let cells: f64 = drawn.weights.iter().sum();
        let ratio = cells / grid.cells() as f64;
        assert!((0.9..1.1).contains(&ratio), "{line}: {ratio}");
        let (mut evens, all) = (Vec::new(), (0..grid.cells() as u32).collect::<Vec<_>>());
        for shot in 0..shots {
            let off = |weights: &[f64], cells: &[u32], sigmas: f64| {
                let [restored, exact] = shrinking(grid, survey.sources[shot], weights, cells);
                restored.off(&exact, sigmas).image
            };
            let truth = off(&vec![1.0; all.len()], &all, 0.0);
            let estimate = off(&drawn.weights, &drawn.cells, 0.0) / truth;
            let most = off(&drawn.weights, &drawn.cells, SIGMAS) / truth;
            assert!((0.85..1.15).contains(&estimate), "{line}: {estimate}");
            assert!((1.0..1.3).contains(&most), "{line}: {most}");
            let step = grid.cells() / CELLS;
            let even: Vec<u32> = all.iter().skip(step / 2).step_by(step).copied().collect();
            evens.push(off(&vec![step as f64; even.len()], &even, 0.0) / truth);
        }
        if !grid.is_flat() {
            assert!(
                evens.iter().any(|even| !(0.6..1.6).contains(even)),
                "{line}: {evens:?}"
            );
        }
    }
}

#[test]
fn a_small_grid_is_sampled_whole() {
    let drawn = draw(&survey("rtm --3d 40x40x40 --shots 1"), 1 << 18);
    assert_eq!(drawn.cells.len(), 40_usize.pow(3));
    assert!(drawn.weights.iter().all(|weight| *weight == 1.0));
}
