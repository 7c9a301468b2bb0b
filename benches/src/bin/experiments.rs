//! Runs the experiments and writes the report; `cargo xtask bench` calls it.
#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::{Parser, Subcommand};
use tierflow_benches::experiments::{EXPERIMENTS, Experiment, Run, child, find};
use tierflow_benches::{machine, report};

#[derive(Parser)]
#[command(about = "The experiments of Tierflow")]
struct Cli {
    #[command(subcommand)]
    command: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Say what there is
    List {
        /// Names alone, one on each line
        #[arg(long)]
        names: bool,
    },
    /// Run one experiment and write its rows as JSON; go on after the cells that the file has already
    Run {
        name: String,
        /// Be done in seconds
        #[arg(long)]
        quick: bool,
        /// Leave cells that may not end in this many minutes for the next run of the same command
        #[arg(long)]
        minutes: Option<f64>,
        #[arg(long)]
        out: PathBuf,
    },
    /// Do the work of one process of an experiment that needs several, and talk with the others line by line
    #[command(hide = true)]
    Child {
        experiment: String,
        /// The work, as JSON
        work: String,
    },
    /// Run experiments, each in a process of its own, and write the report
    All {
        /// Names of those to run; without a name, all that this machine can run
        names: Vec<String>,
        #[arg(long)]
        quick: bool,
        /// The folder for report.json and the pages
        #[arg(long)]
        out: PathBuf,
    },
    /// Write the report of rows that were measured before, and print the table of what they have beside the papers
    Report {
        /// Files of rows as JSON
        #[arg(required = true)]
        rows: Vec<PathBuf>,
        /// Facts that the page states of the rows: the machine, the date, whether they are quick ones
        #[arg(long = "from", required = true)]
        facts: Vec<String>,
        /// The folder for report.json and the pages
        #[arg(long)]
        out: PathBuf,
    },
    /// Put rows that were measured before into a report that is kept with the book, in place of those of the same experiments
    Keep {
        /// The report, docs/reports/MACHINE-DATE.json
        report: PathBuf,
        /// Files of rows as JSON
        #[arg(required = true)]
        rows: Vec<PathBuf>,
        /// Metrics to keep, with their extremes; all, where none is named
        #[arg(long = "metric")]
        metrics: Vec<String>,
    },
    /// Write those tables of Markdown files anew that are made of docs/reports
    Tables {
        /// The root of the workspace
        root: PathBuf,
    },
}

fn main() -> Result<()> {
    match Cli::parse().command {
        Action::List { names } => list(names),
        Action::Run {
            name,
            quick,
            minutes,
            out,
        } => {
            let time = minutes.map(|minutes| Duration::try_from_secs_f64(60.0 * minutes));
            run(named(&name)?, quick, time.transpose()?, &out)?;
        }
        Action::Child { experiment, work } => child(&experiment, &work)?,
        Action::All { names, quick, out } => all(&choose(&names)?, quick, &out)?,
        Action::Report { rows, facts, out } => {
            let rows = rows.iter().map(|path| report::read_kept(path));
            let rows = rows.collect::<Result<Vec<_>>>()?.concat();
            report::write(&out, &rows, &facts)?;
            print!("{}", report::index(&rows)?);
        }
        Action::Keep {
            report,
            rows,
            metrics,
        } => report::keep(&report, read_all(&rows)?, &metrics)?,
        Action::Tables { root } => {
            for (path, text) in report::stale(&root)? {
                std::fs::write(&path, text)
                    .with_context(|| format!("cannot write {}", path.display()))?;
                println!("wrote {}", path.display());
            }
        }
    }
    Ok(())
}

fn read_all(files: &[PathBuf]) -> Result<Vec<report::Row>> {
    let rows = files.iter().map(|path| report::read_rows(path));
    Ok(rows.collect::<Result<Vec<_>>>()?.concat())
}

fn list(names: bool) {
    for Experiment {
        name,
        about,
        needs_gpu,
        ..
    } in EXPERIMENTS
    {
        let gpu = if *needs_gpu { " (needs a GPU)" } else { "" };
        if names {
            println!("{name}")
        } else {
            println!("{name:<16} {about}{gpu}")
        }
    }
}

fn named(name: &str) -> Result<&'static Experiment> {
    find(name).with_context(|| format!("no experiment is called {name:?}; see `experiments list`"))
}

fn choose(names: &[String]) -> Result<Vec<&'static Experiment>> {
    if !names.is_empty() {
        return names.iter().map(|name| named(name)).collect();
    }
    let (here, elsewhere): (Vec<&Experiment>, Vec<&Experiment>) = EXPERIMENTS
        .iter()
        .partition(|experiment| !experiment.needs_gpu || machine::has_gpu());
    for experiment in elsewhere {
        eprintln!(
            "not run: {} needs an NVIDIA GPU, and this machine has none",
            experiment.name
        );
    }
    Ok(here)
}

fn run(
    experiment: &'static Experiment,
    quick: bool,
    time: Option<Duration>,
    out: &Path,
) -> Result<()> {
    eprintln!("{}: {}", experiment.name, experiment.about);
    let run = Run::new(experiment.name, quick);
    let mut run = run.writing_to(out)?.within(time);
    let ended = (experiment.run)(&mut run);
    if run.cells_left() > 0 {
        eprintln!(
            "{} cells are left: run the same command again",
            run.cells_left()
        );
    }
    let failed = run.failed().to_vec();
    // Rows that were found before a failure are kept: the machine may not be had again.
    let rows = run.into_rows();
    if !rows.is_empty() {
        report::write_rows(out, &rows)?;
    }
    ended?;
    ensure!(failed.is_empty(), "cells failed: {}", failed.join("; "));
    ensure!(
        !rows.is_empty(),
        "experiment {} found nothing",
        experiment.name
    );
    Ok(())
}

fn all(chosen: &[&'static Experiment], quick: bool, out: &Path) -> Result<()> {
    std::fs::create_dir_all(out).with_context(|| format!("cannot make {}", out.display()))?;
    let mut rows = Vec::new();
    let mut failed = Vec::new();
    for experiment in chosen {
        let begun = Instant::now();
        match in_its_own_process(experiment, quick, out) {
            Ok(found) => rows.extend(found),
            Err(error) => {
                eprintln!("{}: {error:#}", experiment.name);
                failed.push(experiment.name);
            }
        }
        eprintln!("{} took {:.1?}", experiment.name, begun.elapsed());
    }
    let mut facts = machine::facts();
    if quick {
        facts.push("quick rows, not to quote from".to_owned());
    }
    report::write(out, &rows, &facts)?;
    print!("{}", report::table(&rows));
    println!("\n{0}/index.html\n{0}/report.json", out.display());
    if !failed.is_empty() {
        bail!("failed, and so not in the report: {}", failed.join(", "));
    }
    Ok(())
}

fn in_its_own_process(
    experiment: &Experiment,
    quick: bool,
    out: &Path,
) -> Result<Vec<report::Row>> {
    let path = out.join(format!("{}.rows.json", experiment.name));
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["run", experiment.name, "--out"]).arg(&path);
    if quick {
        command.arg("--quick");
    }
    let status = command.status()?;
    ensure!(status.success(), "{status}");
    let rows = report::read_rows(&path)?;
    std::fs::remove_file(&path)?;
    Ok(rows)
}
