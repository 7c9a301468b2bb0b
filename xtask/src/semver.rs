//! The comparison of each library's public interface with that of the last release: by cargo-semver-checks in `cargo xtask semver`, and by
//! the kept texts alone in `cargo xtask api`, if the clone has that release. The texts show items that are gone or have another signature.
//! New items are not shown that break implementations of a trait or matches on an enum.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::cargo::{Metadata, cargo, output};
use crate::install::remove_folder;
use crate::{api, release};

/// Returns the commit of the last release.
fn released(workspace: &Metadata) -> Result<&str> {
    let named = workspace.metadata.get("released");
    named
        .and_then(|commit| commit.as_str())
        .context("[workspace.metadata] of Cargo.toml does not name the last release")
}

/// Compares each library's `api.txt`, which must be up to date, with that of the last release. If an item is gone, the library needs
/// another version.
pub(crate) fn compare_texts(workspace: &Metadata) -> Result<()> {
    let commit = released(workspace)?;
    let git = |arguments: &[&str]| {
        let mut git = Command::new("git");
        output(git.current_dir(&workspace.workspace_root).args(arguments))
    };
    let Ok(files) = git(&["ls-tree", "-r", "--name-only", commit, "crates"]) else {
        println!(
            "NOT RUN: the comparison with the last release, {commit}, which is not in this clone: fetch its whole history"
        );
        return Ok(());
    };
    let files: BTreeSet<&str> = files.lines().collect();
    let mut broken = Vec::new();
    for package in workspace.members().filter(|package| package.is_published()) {
        let folder = package.folder().strip_prefix(&workspace.workspace_root)?;
        let text = format!("{}/api.txt", folder.display());
        if !files.contains(text.as_str()) {
            continue;
        }
        let then = git(&["show", &format!("{commit}:{text}")])?;
        let now = fs::read_to_string(workspace.workspace_root.join(&text))?;
        let manifest = git(&["show", &format!("{commit}:{}/Cargo.toml", folder.display())])?;
        let mut lines = manifest.lines();
        let version = lines.find_map(|line| line.strip_prefix("version = "));
        let version = version.context("a crate of the last release has no version")?;
        if series(version.trim_matches('"')) != series(&package.version) {
            continue;
        }
        let gone = gone(&then, &now);
        if !gone.is_empty() {
            println!("{}: gone since the last release:", package.name);
            gone.iter().for_each(|line| println!("  - {line}"));
            broken.push(package.name.as_str());
        }
    }
    refuse(&broken)
}

/// Returns the part of a version that is the same in all compatible versions: `0.2` of 0.2.1, `1` of 1.2.1.
fn series(version: &str) -> &str {
    let parts = if version.starts_with("0.") { 2 } else { 1 };
    let end = version.match_indices('.').nth(parts - 1);
    end.and_then(|(end, _)| version.get(..end))
        .unwrap_or(version)
}

/// Returns the items of `then` that are not in `now`. Names of parameters do not count.
fn gone<'t>(then: &'t str, now: &str) -> Vec<&'t str> {
    let now: BTreeSet<_> = now.lines().map(without_names).collect();
    let is_gone = |line: &&str| !now.contains(&without_names(line));
    then.lines().filter(is_gone).collect()
}

fn without_names(item: &str) -> String {
    let Some((head, parameters)) = item
        .split_once('(')
        .filter(|(head, _)| head.contains("fn "))
    else {
        return item.to_owned();
    };
    let nameless = |parameter: &str| {
        let is_name = |name: &str| name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        let named = parameter.split_once(": ");
        let named = named.filter(|(name, _)| is_name(name));
        named.map_or(parameter, |(_, kind)| kind).to_owned()
    };
    let parameters: Vec<_> = parameters.split(", ").map(nameless).collect();
    format!("{head}({}", parameters.join(", "))
}

/// Compares the libraries with those of `commit`, or of the commit that `Cargo.toml` names.
pub(crate) fn run(commit: Option<&str>) -> Result<()> {
    let workspace = Metadata::read()?;
    let commit = commit.map_or_else(|| released(&workspace), Ok)?;
    let folder = workspace.target_directory.join("semver");
    let sources = folder.join("sources");
    remove_folder(&sources)?;
    fs::create_dir_all(&folder).with_context(|| format!("{}", folder.display()))?;
    release::unpack(&workspace.workspace_root, commit, &folder, "sources")
        .with_context(|| format!("{commit} is not in this clone: fetch its whole history"))?;
    // The old release has a separate folder, as cargo takes the packages of both for the same.
    let before = api::describe(&folder, cargo().current_dir(&sources))?;
    let now = api::describe(&workspace.target_directory, &mut cargo())?;
    let mut broken = Vec::new();
    for package in workspace.members().filter(|package| package.is_published()) {
        let Some(library) = package.rust_library() else {
            continue;
        };
        let file = api::file_of(library);
        // A library that is newer than the release breaks nothing.
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
    refuse(&broken)
}

fn refuse(broken: &[&str]) -> Result<()> {
    ensure!(
        broken.is_empty(),
        "others cannot go on as they are with {}, whose version is that of the last release: raise it (before 1.0 the minor one), or take the change back",
        broken.join(", ")
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_gone_or_has_another_signature_is_found() {
        let then = "pub fn a::f(x: u8, y: &str) -> u8\npub struct a::S\npub a::S::m: u8";
        assert!(gone(then, then).is_empty());
        let more = format!("pub fn a::g()\n{then}").replace("x: u8", "bytes: u8");
        assert!(gone(then, &more).is_empty(), "others can go on with that");
        for (part, other) in [
            ("x: u8", "x: u16"),
            ("pub struct a::S\n", ""),
            ("m: u8", "m: i8"),
        ] {
            assert_eq!(gone(then, &then.replace(part, other)).len(), 1, "{part}");
        }
    }

    #[test]
    fn a_version_may_break_if_its_first_number_that_counts_is_another() {
        let series = ["0.1.0", "0.1.7", "0.2.0", "1.0.0", "1.4.2", "2.0.0"].map(series);
        assert_eq!(series, ["0.1", "0.1", "0.2", "1", "1", "2"]);
    }
}
