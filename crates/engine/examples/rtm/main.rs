//! Reverse time migration out of a checkpoint history far larger than the memory it runs in.
#![allow(missing_docs, unreachable_pub, reason = "a program, not a library")]

mod cli;
mod cuda;
mod grid;
mod history;
mod host;
mod image;
mod migration;
mod model;
mod model_file;
mod picture;
mod propagator;
mod stencil;
mod survey;
#[cfg(test)]
mod tests;
mod wavelet;

use std::time::Duration;

use anyhow::{Context, Result};
use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};

use cli::{Args, Order};
use migration::{Migration, Usage};
use propagator::Propagator;
use survey::Survey;

fn main() -> Result<()> {
    let args = Args::parse();
    let survey = Survey::new(&args)?;
    let device = tierflow_device::open(tierflow_device::Choice::Host)?;
    std::fs::create_dir_all(&args.out)
        .with_context(|| format!("cannot make the output directory {}", args.out.display()))?;
    let write = |name: &str| args.out.join(name);
    picture::write_colour(&write("velocity.png"), survey.truth.shape, &survey.truth.velocity)?;
    picture::write_colour(&write("smooth.png"), survey.smooth.shape, &survey.smooth.velocity)?;
    println!("{} steps, every {}, {} checkpoints, f {} dt {} grid {:?}", survey.steps(), survey.every, survey.checkpoints(), survey.frequency, survey.grid.dt, survey.grid.shape);

    let propagator: Box<dyn Propagator> = Box::new(host::Host::new(&device, survey.grid.clone())?);
    let usage = Usage {
        order: args.order,
        hints: args.hints,
        interval: Duration::from_millis(args.interval_ms),
        verify: args.verify,
    };
    let mut migration = Migration::new(&device, propagator.as_ref(), &survey, usage)?;
    let bar = ProgressBar::new(migration.progress_per_shot() * args.shots as u64);
    let b = bar.clone();
    migration.progress = Box::new(move |_| b.inc(1));
    let mut history = None;
    for shot in 0..args.shots {
        migration.shot(shot, &mut history, || Ok(history::Kept::new(propagator.as_ref())))?;
    }
    println!("{:?} {:?}", migration.times, migration.times.computing());
    let (c, i) = migration.results()?;
    let i = image::illumination(&i);
    let im = image::filter(survey.grid.inner, &c, &i, survey.mute());
    picture::write_grey(&write("image.png"), survey.grid.inner, &im)?;
    picture::write_colour(&write("illumination.png"), survey.grid.inner, &i.iter().map(|v| (v+1e-9).ln()).collect::<Vec<_>>())?;
    let _ = (Order::Reverse, ProgressStyle::default_bar());
    Ok(())
}
