//! Builds choices of features without a warning, and counts the crates that light crates bring.

use crate::cargo::{Metadata, Package, cargo, output, stream};
use anyhow::{Result, ensure};
use std::collections::BTreeSet;

/// The most crates, itself counted, that a crate brings into a build without features.
const LIGHT: [(&str, usize); 3] = [
    ("tierflow-plan", 15),
    ("tierflow-sim", 15),
    ("tierflow-engine", 35),
];

pub(crate) fn run() -> Result<()> {
    let workspace = Metadata::read()?;
    for package in workspace.members().filter(|package| package.is_published()) {
        for features in choices(package) {
            println!("{} with [{features}]", package.name);
            // Clippy's flags concern this package alone, so what others build is built once for all of them.
            stream(
                cargo()
                    .args(["clippy", "--quiet", "--no-default-features", "--features"])
                    .args([&features, "-p", &package.name, "--", "-D", "warnings"]),
            )?;
        }
    }
    for (name, most) in LIGHT {
        let crates = crates(name)?;
        println!("{name} without features: {} crates", crates.len());
        ensure!(
            crates.len() <= most,
            "{name} brings more than {most} crates: {crates:?}"
        );
    }
    Ok(())
}

/// Subsets of a package's features: of up to two of them, and of all but one. The workspace's own build has all of them.
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

/// Returns the crates that a build of a package without features takes.
fn crates(name: &str) -> Result<BTreeSet<String>> {
    let tree = [
        "tree",
        "-e",
        "normal",
        "--prefix",
        "none",
        "--no-default-features",
        "-p",
        name,
    ];
    let tree = output(cargo().args(tree))?;
    let names = tree.lines().filter_map(|line| line.split(' ').next());
    Ok(names
        .filter(|name| !name.is_empty())
        .map(str::to_owned)
        .collect())
}
