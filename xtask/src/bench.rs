//! `cargo xtask bench`: criterion's benches, then the experiments, then one report of both.
//!
//! The report itself is made by the `experiments` binary of benches/, so that a machine without Rust can
//! make the same one from `cargo xtask dist`.

use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use crate::cargo::{Metadata, Package, cargo, output, stream};

const PACKAGE: &str = "tierflow-benches";

/// Arguments for a quick criterion. Benches must not set these times themselves: that would override it.
pub(crate) const QUICK_CRITERION: &[&str] = &[
    "--warm-up-time=0.03",
    "--measurement-time=0.06",
    "--sample-size=10",
    "--nresamples=1000",
];

pub(crate) fn run(quick: bool, names: &[String]) -> Result<()> {
    let workspace = Metadata::read()?;
    let package = workspace.member(PACKAGE)?;
    stream(cargo().args([
        "build",
        "--release",
        "--bin=experiments",
        "--package",
        PACKAGE,
    ]))?;
    let binary = workspace.target_directory.join("release/experiments");
    let known = output(Command::new(&binary).args(["list", "--names"]))?;
    let experiments: Vec<&str> = known.lines().collect();
    let benches = benches(package);
    for name in names.iter().map(String::as_str) {
        ensure!(
            benches.contains(&name) || experiments.contains(&name),
            "no bench or experiment is called {name:?}; benches: {benches:?}, experiments: {experiments:?}",
        );
    }
    let wanted = |known: &[&str]| -> Vec<String> {
        let is_wanted = |name: &&&str| names.is_empty() || names.iter().any(|own| own == **name);
        known
            .iter()
            .filter(is_wanted)
            .map(|name| (*name).to_owned())
            .collect()
    };

    let report = workspace.target_directory.join("bench");
    let measured = report.join("criterion");
    // An earlier run's measurements are no part of this run's report.
    if measured.exists() {
        std::fs::remove_dir_all(&measured)
            .with_context(|| format!("cannot remove {}", measured.display()))?;
    }
    let benches = wanted(&benches);
    if !benches.is_empty() {
        let mut command = cargo();
        command.env("CRITERION_HOME", &measured);
        command.args(["bench", "--package", PACKAGE]);
        for bench in &benches {
            command.args(["--bench", bench]);
        }
        if quick {
            command.arg("--").args(QUICK_CRITERION);
        }
        let begun = Instant::now();
        stream(&mut command)?;
        eprintln!("criterion's benches took {:.1?}", begun.elapsed());
    }

    let mut command = Command::new(&binary);
    command
        .arg("all")
        .arg("--criterion")
        .arg(&measured)
        .arg("--out")
        .arg(&report);
    if quick {
        command.arg("--quick");
    }
    match (names.is_empty(), wanted(&experiments)) {
        (true, _) => {}
        (false, chosen) if chosen.is_empty() => drop(command.arg("--only-criterion")),
        (false, chosen) => drop(command.args(chosen)),
    }
    stream(&mut command)
}

/// Has the `experiments` binary write the tables of Markdown files.
pub(crate) fn tables() -> Result<()> {
    let root = Metadata::read()?.workspace_root;
    let mut command = cargo();
    command.args(["run", "--quiet", "--package", PACKAGE, "--bin=experiments"]);
    stream(command.args(["--", "tables"]).arg(root))
}

fn benches(package: &Package) -> Vec<&str> {
    let targets = package.targets.iter().filter(|target| target.is("bench"));
    targets.map(|target| target.name.as_str()).collect()
}
