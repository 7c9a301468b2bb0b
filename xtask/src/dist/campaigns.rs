//! The campaigns with the programs of all interfaces (doors), in one folder that needs neither Rust nor a compiler nor an installed
//! package.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::Item;
use crate::cargo::{Metadata, cargo, stream};
use crate::install::files_below;

/// The package whose name in `--only` asks for the campaigns.
pub(super) const PACKAGE: &str = "tierflow-campaigns";

/// The folder of the doors' programs, which `run.sh campaigns` names to the test.
const DOORS: &str = "campaigns";

/// Builds the test and the doors at once, with the same features. Returns the files and their places.
pub(super) fn items(workspace: &Metadata) -> Result<Vec<Item>> {
    let mut build = cargo();
    build.args(["build", "--profile=dist", "--lib", "--bin=door"]);
    for package in [PACKAGE, "tierflow-capi", "tierflow-python"] {
        build.args(["--package", package]);
    }
    // The name of a test's executable contains a hash, so cargo's messages tell the name.
    let test = super::executables(build.args(["--test=campaigns", super::MESSAGES]))?;
    let test = test.into_iter().find(|built| built.is_test);
    let test = test.map(|built| built.path);
    let built = workspace.target_directory.join("dist");
    let member = |name: &str| {
        workspace
            .member(name)
            .map(|package| package.folder().to_owned())
    };
    let children = member(PACKAGE)?.join("children");
    let item = |from: PathBuf, to: &str| Item {
        from,
        to: Path::new(to).into(),
    };
    let mut items = vec![
        item(
            test.context("cargo built no test of the campaigns")?,
            "tests/tierflow-campaigns.campaigns",
        ),
        item(built.join("door"), "campaigns/door"),
        item(built.join("libtierflow.so"), "campaigns/libtierflow.so"),
        item(
            built.join("lib_tierflow.so"),
            "campaigns/tierflow/_tierflow.abi3.so",
        ),
    ];
    for name in ["tierflow", "veloc"] {
        let program = built.join(format!("campaigns-{name}"));
        let mut compile = Command::new("sh");
        compile.arg(children.join("compile.sh")).arg(name);
        stream(compile.arg(&built).arg(&program)).context("the doors in C need cc")?;
        items.push(Item {
            from: program,
            to: Path::new(DOORS).join(format!("campaigns-{name}")),
        });
    }
    for name in ["door.py", "s3.py"] {
        items.push(Item {
            from: children.join(name),
            to: Path::new(DOORS).join(name),
        });
    }
    let package = member("tierflow-python")?.join("tierflow");
    let is_module = |file: &PathBuf| file.extension().is_some_and(|ending| ending == "py");
    for from in files_below(&package)?.into_iter().filter(is_module) {
        let to = Path::new(DOORS).join("tierflow");
        let to = to.join(from.strip_prefix(&package)?);
        items.push(Item { from, to });
    }
    Ok(items)
}
