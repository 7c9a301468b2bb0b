//! `cargo xtask tidy`: the checks that neither rustc nor clippy makes.

mod dependencies;
pub(crate) mod files;
pub(crate) mod links;
mod packaging;
mod rooms;
mod tree;
mod way;

use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::cargo::{Metadata, output};
use crate::words;

pub(crate) fn run() -> Result<()> {
    let workspace = Metadata::read()?;
    let files = files::File::read_all(&workspace)?;
    let manifests = tree::manifests(&workspace)?;
    let checks = [
        (
            "crates depend on those below them",
            rooms::complaints(&workspace)?,
        ),
        ("no build script", tree::build_scripts(&workspace)),
        ("nothing builds C", tree::c_builders(&workspace)?),
        ("all is from crates.io", dependencies::sources(&workspace)?),
        ("licences are allowed", dependencies::licences(&workspace)),
        (
            "no version is left open",
            dependencies::wildcards(&workspace),
        ),
        ("every shared dependency is used", tree::unused(&manifests)?),
        ("every crate tells what it is", tree::papers(&workspace)),
        (
            "unsafe only where it may be",
            files::unsafe_code(&workspace, &files),
        ),
        ("short files", files::long(&files)),
        ("ignored tests say what they need", files::ignored(&files)),
        ("files end with a newline", files::no_newline(&files)),
        ("plain words", words::complaints(&workspace, &files)?),
        (
            "a checkpoint takes the way that the book names",
            way::complaints(&files),
        ),
        ("links lead somewhere", links::complaints(&files)),
        (
            "packages of centres can be read",
            packaging::complaints(&workspace.workspace_root, &files)?,
        ),
    ];
    let mut failed = 0;
    for (name, complaints) in &checks {
        println!(
            "{} {name}",
            if complaints.is_empty() {
                "ok    "
            } else {
                "FAILED"
            }
        );
        for complaint in complaints {
            println!("         {complaint}");
        }
        failed += usize::from(!complaints.is_empty());
    }
    ensure!(failed == 0, "{failed} of {} checks failed", checks.len());
    Ok(())
}

/// Returns tracked files, and new files that git does not ignore.
fn listed(workspace: &Metadata) -> Result<Vec<String>> {
    let list = output(
        Command::new("git")
            .current_dir(&workspace.workspace_root)
            .args([
                "ls-files",
                "-z",
                "--cached",
                "--others",
                "--exclude-standard",
                "--deduplicate",
            ]),
    )
    .context("tidy looks at the files that git lists")?;
    Ok(list.split_terminator('\0').map(str::to_owned).collect())
}
