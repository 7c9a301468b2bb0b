//! Builds choices of features without a warning, and counts the crates that light crates depend on.

use crate::cargo::{Metadata, Package, cargo, output, stream};
use anyhow::{Result, ensure};
use std::collections::BTreeSet;

/// The most crates of a build of a package, with the package itself: package, arguments, number.
const LIGHT: [(&str, &[&str], usize); 5] = [
    ("tierflow-plan", &["--no-default-features"], 15),
    ("tierflow-sim", &["--no-default-features"], 15),
    ("tierflow-engine", &["--no-default-features"], 36),
    ("tierflow-engine", &[], 38),
    // The README's first command.
    ("rtm", &[], 80),
];

pub(crate) fn run() -> Result<()> {
    let workspace = Metadata::read()?;
    for package in workspace.members().filter(|package| package.is_published()) {
        for features in choices(package) {
            println!("{} with [{features}]", package.name);
            // Clippy's flags apply to this package alone, so dependencies are built once for all packages.
            stream(
                cargo()
                    .args(["clippy", "--quiet", "--no-default-features", "--features"])
                    .args([&features, "-p", &package.name, "--", "-D", "warnings"]),
            )?;
        }
    }
    for (name, features, most) in LIGHT {
        let crates = crates(name, features)?;
        println!("{name} {}: {} crates", features.join(" "), crates.len());
        ensure!(
            crates.len() <= most,
            "{name} brings more than {most} crates: {crates:?}"
        );
    }
    Ok(())
}

/// Returns subsets of a package's features: up to two features, and all but one. The workspace's own build has all features.
fn choices(package: &Package) -> Vec<String> {
    let names: Vec<&str> = package.features.keys().map(String::as_str).collect();
    let names: Vec<&str> = names
        .into_iter()
        .filter(|name| *name != "default")
        .collect();
    let all = 1_u32 << names.len();
    let chosen = |subset: u32| {
        let names = names
            .iter()
            .enumerate()
            .filter(move |(at, _)| subset >> at & 1 == 1);
        names.map(|(_, name)| *name).collect::<Vec<_>>().join(",")
    };
    let is_told = |subset: &u32| {
        let count = subset.count_ones() as usize;
        count <= 2 || count + 1 == names.len()
    };
    (0..all - 1).filter(is_told).map(chosen).collect()
}

/// Returns the crates of a build of a package.
fn crates(name: &str, features: &[&str]) -> Result<BTreeSet<String>> {
    let tree = ["tree", "-e", "normal", "--prefix", "none", "-p", name];
    let tree = output(cargo().args(tree).args(features))?;
    let names = tree.lines().filter_map(|line| line.split(' ').next());
    Ok(names
        .filter(|name| !name.is_empty())
        .map(str::to_owned)
        .collect())
}
