//! The public interface of each library as text, `crates/*/api.txt`, so that reviewers see each change of it.

use crate::cargo::{Metadata, Package, cargo, stream};
use crate::semver;
use anyhow::{Context, Result, ensure};
use public_api::Builder;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Compares the interfaces with the texts, or writes the texts. Then compares the texts with those of the last release.
pub(crate) fn run(write: bool) -> Result<()> {
    let workspace = Metadata::read()?;
    let json = describe(&workspace.target_directory, &mut cargo())?;
    let mut changed = Vec::new();
    for package in workspace.members().filter(|package| package.is_published()) {
        let Some(library) = package.rust_library() else {
            continue;
        };
        let now = interface(&json.join(file_of(library)))?;
        let path = text_of(package);
        let before = fs::read_to_string(&path).unwrap_or_default();
        if now == before {
            continue;
        }
        if write {
            fs::write(&path, &now).with_context(|| format!("cannot write {}", path.display()))?;
            println!("wrote {}", path.display());
            continue;
        }
        println!("{}:", package.name);
        differences(&before, &now).for_each(|line| println!("  {line}"));
        changed.push(package.name.as_str());
    }
    ensure!(
        changed.is_empty(),
        "the public interface of {} is another: if that is meant, say so in CHANGELOG.md and run `cargo xtask api --write`",
        changed.join(", ")
    );
    semver::compare_texts(&workspace)
}

fn text_of(package: &Package) -> PathBuf {
    package.manifest_path.with_file_name("api.txt")
}

/// Lets rustdoc describe all libraries, with all features, as JSON in the folder `target` of this cargo. Returns the folder.
pub(crate) fn describe(target: &Path, cargo: &mut Command) -> Result<PathBuf> {
    let folder = target.join("api");
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    // JSON is unstable, so the variable is set for rustdoc alone. Build scripts that saw the variable would run again.
    let rustdoc = folder.join("rustdoc");
    fs::write(
        &rustdoc,
        "#!/bin/sh\nRUSTC_BOOTSTRAP=1 exec rustdoc \"$@\"\n",
    )?;
    fs::set_permissions(&rustdoc, fs::Permissions::from_mode(0o755))?;
    let described = cargo.args([
        "doc",
        "--quiet",
        "--no-deps",
        "--workspace",
        "--lib",
        "--all-features",
    ]);
    stream(
        described
            .env("CARGO_TARGET_DIR", target)
            .env("RUSTDOC", &rustdoc)
            .env("RUSTDOCFLAGS", "-Zunstable-options --output-format json"),
    )?;
    Ok(target.join("doc"))
}

/// Returns the name of the file that describes a library in that folder.
pub(crate) fn file_of(library: &str) -> String {
    format!("{}.json", library.replace('-', "_"))
}

/// Returns one line for each public item.
fn interface(described: &Path) -> Result<String> {
    let api = Builder::from_rustdoc_json(described)
        .sorted(true)
        .omit_blanket_impls(true)
        .omit_auto_trait_impls(true)
        .omit_auto_derived_impls(true)
        .build();
    let api = api.with_context(|| {
        format!(
            "cannot read {}: this chore reads what rustdoc 1.95 writes",
            described.display()
        )
    })?;
    Ok(api.to_string())
}

/// Returns the lines that were added or removed.
fn differences<'a>(before: &'a str, now: &'a str) -> impl Iterator<Item = String> + 'a {
    let gone = before
        .lines()
        .filter(|line| !now.lines().any(|other| other == *line));
    let came = now
        .lines()
        .filter(|line| !before.lines().any(|other| other == *line));
    gone.map(|line| format!("- {line}"))
        .chain(came.map(|line| format!("+ {line}")))
}
