//! `cargo xtask bench`: criterion's benches, which print their times, then the experiments and their report.
//!
//! The `experiments` binary of benches/ makes the report, so that a machine without Rust can make the same report from
//! `cargo xtask dist`.

use std::process::Command;

use anyhow::{Result, ensure};

use crate::cargo::{Metadata, Package, cargo, output, stream};

const PACKAGE: &str = "tierflow-benches";

/// Arguments for a quick criterion. Benches must not set these times themselves, as their times would override these.
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

    let benches = wanted(&benches);
    if !benches.is_empty() {
        let mut command = cargo();
        command.args(["bench", "--package", PACKAGE]);
        for bench in &benches {
            command.args(["--bench", bench]);
        }
        if quick {
            command.arg("--").args(QUICK_CRITERION);
        }
        stream(&mut command)?;
    }
    let chosen = wanted(&experiments);
    if chosen.is_empty() {
        return Ok(());
    }
    let mut command = Command::new(&binary);
    command
        .args(["all", "--out"])
        .arg(workspace.target_directory.join("bench"));
    if quick {
        command.arg("--quick");
    }
    // Without names, experiments that need a GPU are left out on a machine without one.
    if !names.is_empty() {
        command.args(chosen);
    }
    stream(&mut command)
}

/// Lets the `experiments` binary write the tables of Markdown files.
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
