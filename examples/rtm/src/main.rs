//! Reverse time migration out of a checkpoint history far larger than the memory it runs in.
//!
//! - `survey`, `model`, `model_file`, `wavelet`: what is shot where, from the command line
//! - `grid`, `propagator` with `host` (`stencil`) and `cuda`: the wave equation
//! - `migration`: the passes; `history`: their use of Tierflow; `recompute`: the passes by a schedule; `host_history`: what `--verify` trusts
//! - `budget`: how exact each snapshot has to be; `inversion`: the models of `--invert`; `image`, `picture`, `tally`, `report`: what comes out
#![allow(
    missing_docs,
    unreachable_pub,
    missing_debug_implementations,
    reason = "a program"
)]

mod budget;
mod cli;
mod cuda;
mod grid;
mod history;
mod host;
mod host_history;
mod image;
mod inversion;
mod migration;
mod model;
mod model_file;
mod picture;
mod propagator;
mod recompute;
mod report;
mod stencil;
mod survey;
mod tally;
#[cfg(test)]
mod tests;
mod wavelet;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};
use tierflow_device::{Choice, Device, Kind};
use tierflow_engine::AfterRestore;
use xxhash_rust::xxh3::xxh3_64;

use cli::{Args, Compress, DeviceChoice, Order};
use history::{History, Tiers};
use inversion::Inversion;
use migration::{Migration, Usage, results};
use propagator::Propagator;
use report::Summary;
use survey::Survey;

fn main() -> Result<()> {
    let args = Args::parse();
    let survey = Survey::new(&args)?;
    let device = tierflow_device::open(match args.device {
        DeviceChoice::Auto => Choice::Auto,
        DeviceChoice::Cuda => Choice::Cuda { ordinal: 0 },
        DeviceChoice::Host => Choice::Host,
    })?;
    ensure!(
        args.recompute.is_none() || args.order == Order::Reverse,
        "--recompute: schedules are for the reverse order"
    );
    ensure!(
        args.invert.is_none() || args.order == Order::Reverse,
        "--invert: the image is computed in the reverse order"
    );
    ensure!(
        args.error_budget.is_none() || args.order == Order::Reverse,
        "--error-budget: the image is computed in the reverse order"
    );
    let scratch = directories(&args)?;
    let write = |name: &str| args.out.join(name);
    picture::write_colour(
        &write("velocity.png"),
        survey.truth.shape,
        &survey.truth.velocity,
    )?;

    let propagator: Box<dyn Propagator> = match device.info().kind {
        Kind::Cuda => Box::new(cuda::Cuda::new(&device, survey.grid.clone())?),
        _ => Box::new(host::Host::new(&device, survey.grid.clone())?),
    };
    let beside = match args.beside_memory {
        true => Some(in_memory(
            &device,
            propagator.as_ref(),
            &survey,
            &args,
            &scratch,
        )?),
        false => None,
    };
    let mut migration = Migration::new(&device, propagator.as_ref(), &survey, usage(&args))?;
    let arrays = migration.array_bytes();
    report::introduce(&survey, &device, arrays, migration.checkpoint_bytes());
    let plain_copy = migration.plain_copy(&device)?;

    let history = run(&mut migration, &args, &device, &survey, &scratch)?;
    let metrics = history.metrics();
    let (built_in, first_accepted) = (history.built_in, history.first_accepted);
    drop(history);

    let (correlation, map) = migration.results()?;
    let plain = device.info().host_accessible;
    let summary = Summary {
        times: &migration.times,
        metrics: &metrics,
        plain_copy,
        built_in,
        first_accepted,
        arrays: arrays.host + if plain { arrays.device } else { 0 },
        tiers: args.host_cache + if plain { args.device_cache } else { 0 },
    };
    summary.print();
    if let (Some(Compress::Within(_)), Some((most, norm))) =
        (compress(&args), migration.difference()?)
    {
        println!(
            "verify      the image differs from that of exact snapshots by {most:.1e} of its largest value at most, \
             {norm:.1e} in the Euclidean norm"
        );
    } else if args.verify {
        let snapshots = migration.proven.snapshots;
        println!(
            "verify      all {snapshots} snapshots and what was computed are equal, bit for bit"
        );
    }
    if let Some(([estimate, most], taken_back)) = migration.budgeted() {
        println!(
            "budget      by a sample of the cells, the image differs by {:.1e} in the Euclidean norm, at most {:.1e}; \
             the illumination by {:.1e}, at most {:.1e}; {taken_back} shots were taken back",
            estimate.image, most.image, estimate.illumination, most.illumination
        );
    }
    if let Some((time, image)) = beside {
        let (_, norm) = results::apart(&migration.image_of_all_cells()?, &image);
        let own = migration.times.total;
        println!(
            "in memory   {:.2} s with all snapshots in device memory as they are; this run took {:.3} times as long, and its image differs \
             by {norm:.1e} in the Euclidean norm",
            time.as_secs_f64(),
            own.as_secs_f64() / time.as_secs_f64()
        );
    }
    let illumination = image::illumination(&map);
    let shape = survey.grid.inner;
    println!(
        "fingerprint illumination {:016x}, the same in every order",
        xxh3_64(bytemuck::cast_slice(&map))
    );
    let picture = if args.order == Order::Reverse {
        let image = image::filter(shape, &correlation, &illumination, survey.mute());
        let picture = write("image.png");
        picture::write_grey(&picture, shape, &image)?;
        picture
    } else {
        let picture = write("illumination.png");
        picture::write_colour(&picture, shape, &image::decibels(&illumination))?;
        picture
    };
    println!(
        "pictures    {}, {}",
        write("velocity.png").display(),
        picture.display()
    );
    Ok(())
}

fn usage(args: &Args) -> Usage {
    Usage {
        order: args.order,
        hints: args.hints,
        interval: Duration::from_millis(args.interval_ms),
        recompute: args.recompute.map(Into::into),
        verify: args.verify,
        within: matches!(compress(args), Some(Compress::Within(_))),
        error_budget: args.error_budget,
        levels: args.levels.into(),
        inverts: args.invert.is_some(),
    }
}

/// Migrates all shots with all snapshots in device memory as they are. Returns the time that this took, and the image of all cells.
fn in_memory(
    device: &Device,
    propagator: &dyn Propagator,
    survey: &Survey,
    args: &Args,
    scratch: &std::path::Path,
) -> Result<(Duration, Vec<f32>)> {
    let mut args = Args {
        compress: None,
        error_budget: None,
        verify: false,
        ..args.clone()
    };
    let mut migration = Migration::new(device, propagator, survey, usage(&args))?;
    // A few more than a shot has, as removed ones take a moment to leave.
    args.device_cache = (survey.checkpoints() + 4) * migration.checkpoint_bytes();
    drop(run(&mut migration, &args, device, survey, scratch)?);
    Ok((migration.times.total, migration.image_of_all_cells()?))
}

/// How snapshots are compressed, unless a shot before has found how exact each of them has to be.
fn compress(args: &Args) -> Option<Compress> {
    // A relative bound makes an error of the image that is up to four times as large.
    let first = args
        .error_budget
        .map(|within| Compress::Within(within / 5.0));
    first.or(args.compress)
}

/// Makes the output directory. Returns the scratch directory: one that was named must be there.
fn directories(args: &Args) -> Result<PathBuf> {
    let make = |path: &PathBuf| {
        std::fs::create_dir_all(path)
            .with_context(|| format!("cannot make the directory {}", path.display()))
    };
    make(&args.out)?;
    match &args.scratch {
        Some(scratch) => Ok(scratch.clone()),
        None => {
            let scratch = args.out.join("scratch");
            make(&scratch)?;
            Ok(scratch)
        }
    }
}

/// Migrates all shots, with a progress bar where there is a terminal.
fn run(
    migration: &mut Migration<'_>,
    args: &Args,
    device: &Device,
    survey: &Survey,
    scratch: &std::path::Path,
) -> Result<History> {
    let mut inversion = args.invert.map(|_| Inversion::new(survey));
    let iterations = args.invert.unwrap_or(1);
    let shots = (iterations * args.shots) as u64;
    let bar = ProgressBar::new(migration.progress_per_shot() * shots);
    bar.set_style(ProgressStyle::with_template(
        "{msg:24} {wide_bar} {percent:>3}% {eta:>4}",
    )?);
    let lines = bar.clone();
    migration.say = Box::new(move |line| lines.suspend(|| println!("{line}")));
    let mut history = None;
    for shot in (0..iterations).flat_map(|_| 0..args.shots) {
        let (ticks, shots) = (bar.clone(), args.shots);
        migration.progress = Box::new(move |pass| {
            if ticks.position() % 64 == 0 {
                ticks.set_message(format!("shot {}/{shots} {pass}", shot + 1));
            }
            ticks.inc(1);
        });
        let tiers = Tiers {
            device_cache: args.device_cache,
            host_cache: args.host_cache,
            scratch,
            scratch_limit: args.scratch_limit.unwrap_or(u64::MAX),
            compress: compress(args),
            after_restore: match args.recompute {
                // A snapshot is read once.
                None => AfterRestore::Discard,
                Some(_) => AfterRestore::Keep,
            },
            levels: args.levels.into(),
        };
        migration.shot(shot, &mut history, || History::open(device, tiers))?;
        if let Some(inversion) = inversion.as_mut().filter(|_| shot + 1 == args.shots) {
            let (image, map) = migration.results()?;
            let n = inversion.misfits.len();
            (migration.say)(&format!(
                "misfit      {:.6e} in iteration {n}",
                migration.misfit
            ));
            inversion.step(survey, migration.misfit, &image, &image::illumination(&map));
            if n + 1 < iterations {
                migration.restart(&inversion.model)?;
            }
        }
    }
    bar.finish_and_clear();
    if let Some(inversion) = inversion {
        let rows = args.out.join("misfit.json");
        std::fs::write(&rows, inversion.rows(&args.named())?)
            .with_context(|| format!("cannot write {}", rows.display()))?;
        let shape = survey.truth.shape;
        picture::write_colour(
            &args.out.join("model.png"),
            shape,
            &inversion.model.velocity,
        )?;
    }
    history.context("no shot was migrated")
}
