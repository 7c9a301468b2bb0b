//! `cargo xtask semver`: the public interface of each library beside that of the last release, by cargo-semver-checks.

use std::fs;

use anyhow::{Context, Result, ensure};

use crate::cargo::{Metadata, cargo};
use crate::{api, release};

/// Compares the libraries with those of `commit`, or of the commit that `Cargo.toml` names.
pub(crate) fn run(commit: Option<&str>) -> Result<()> {
    let workspace = Metadata::read()?;
    let named = workspace.metadata.get("released");
    let commit = commit
        .or(named.and_then(|commit| commit.as_str()))
        .context("[workspace.metadata] of Cargo.toml does not name the last release")?;
    let folder = workspace.target_directory.join("semver");
    let sources = folder.join("sources");
    if sources.exists() {
        fs::remove_dir_all(&sources).with_context(|| format!("{}", sources.display()))?;
    }
    fs::create_dir_all(&folder).with_context(|| format!("{}", folder.display()))?;
    release::unpack(&workspace.workspace_root, commit, &folder, "sources")
        .with_context(|| format!("{commit} is not in this clone: fetch its whole history"))?;
    // A folder of its own: cargo takes the packages of both for the same ones.
    let before = api::describe(&folder, cargo().current_dir(&sources))?;
    let now = api::describe(&workspace.target_directory, &mut cargo())?;
    let mut broken = Vec::new();
    for package in workspace.members().filter(|package| package.is_published()) {
        let Some(library) = package.rust_library() else {
            continue;
        };
        let file = api::file_of(library);
        // A library that came since breaks nothing.
        if !before.join(&file).exists() {
            continue;
        }
        let mut check = cargo();
        let check = check
            .arg("semver-checks")
            .arg("--baseline-rustdoc")
            .arg(before.join(&file))
            .arg("--current-rustdoc")
            .arg(now.join(&file));
        let status = check
            .status()
            .with_context(|| format!("cannot start {check:?}"))?;
        if !status.success() {
            broken.push(package.name.as_str());
        }
    }
    ensure!(
        broken.is_empty(),
        "others cannot go on as they are with {}, whose version is that of the last release: raise it (before 1.0 the minor one), or take the change back",
        broken.join(", ")
    );
    Ok(())
}
