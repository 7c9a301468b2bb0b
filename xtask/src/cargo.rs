//! The workspace as `cargo metadata` describes it, and commands that stop the chore when they fail.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

/// The parts of `cargo metadata` that the chores read.
#[derive(Debug, Deserialize)]
pub(crate) struct Metadata {
    pub(crate) packages: Vec<Package>,
    pub(crate) workspace_members: Vec<String>,
    pub(crate) resolve: Resolve,
    /// `[workspace.metadata]`; null if there is none.
    pub(crate) metadata: serde_json::Value,
    pub(crate) target_directory: PathBuf,
    pub(crate) workspace_root: PathBuf,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Package {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) description: Option<String>,
    /// The licence as an SPDX expression.
    pub(crate) license: Option<String>,
    /// The registry; `None` for a package of the workspace.
    pub(crate) source: Option<String>,
    pub(crate) categories: Vec<String>,
    /// `[package.metadata]`; null if there is none.
    pub(crate) metadata: serde_json::Value,
    pub(crate) manifest_path: PathBuf,
    pub(crate) dependencies: Vec<Dependency>,
    pub(crate) targets: Vec<Target>,
    pub(crate) features: BTreeMap<String, Vec<String>>,
    /// The registries that the package may be published to; `Some([])` is `publish = false`.
    pub(crate) publish: Option<Vec<String>>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Dependency {
    pub(crate) name: String,
    /// The allowed versions; `*` is any.
    pub(crate) req: String,
    /// `None` for a normal dependency, else `dev` or `build`.
    pub(crate) kind: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Target {
    pub(crate) name: String,
    pub(crate) kind: Vec<String>,
    pub(crate) src_path: PathBuf,
    /// True if `cargo doc` makes pages of the target.
    pub(crate) doc: bool,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Resolve {
    pub(crate) nodes: Vec<Node>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Node {
    pub(crate) id: String,
    pub(crate) dependencies: Vec<String>,
}

impl Metadata {
    /// Reads the metadata of the workspace, resolved for this machine's platform only: crates for other platforms are not checked.
    pub(crate) fn read() -> Result<Self> {
        Self::read_by(&mut cargo())
    }

    /// Reads the metadata by this cargo, which may be in another folder.
    pub(crate) fn read_by(cargo: &mut Command) -> Result<Self> {
        let version = output(Command::new("rustc").arg("-vV"))?;
        let host = version
            .lines()
            .find_map(|line| line.strip_prefix("host: "))
            .context("`rustc -vV` names no host")?;
        let json = output(cargo.args([
            "metadata",
            "--format-version=1",
            "--all-features",
            "--filter-platform",
            host,
        ]))?;
        serde_json::from_str(&json).context("cannot read what `cargo metadata` wrote")
    }

    pub(crate) fn members(&self) -> impl Iterator<Item = &Package> {
        self.packages
            .iter()
            .filter(|package| self.workspace_members.contains(&package.id))
    }

    /// Returns the member of this name.
    pub(crate) fn member(&self, name: &str) -> Result<&Package> {
        let found = self.members().find(|package| package.name == name);
        found.with_context(|| format!("the workspace has no {name}"))
    }

    pub(crate) fn by_id(&self) -> BTreeMap<&str, &Package> {
        self.packages
            .iter()
            .map(|package| (package.id.as_str(), package))
            .collect()
    }
}

impl Package {
    pub(crate) fn folder(&self) -> &Path {
        self.manifest_path.parent().unwrap_or(&self.manifest_path)
    }

    /// Returns the target name of the library that others use from Rust, if there is one.
    pub(crate) fn rust_library(&self) -> Option<&str> {
        let library = self.targets.iter().find(|target| target.is("lib"));
        library.map(|library| library.name.as_str())
    }

    pub(crate) fn is_published(&self) -> bool {
        self.publish
            .as_ref()
            .is_none_or(|registries| !registries.is_empty())
    }
}

impl Target {
    pub(crate) fn is(&self, kind: &str) -> bool {
        self.kind.iter().any(|own| own == kind)
    }
}

/// The arguments with which a Python runs `pip install` for the chores.
pub(crate) const PIP_INSTALL: [&str; 5] = [
    "-m",
    "pip",
    "install",
    "--quiet",
    "--disable-pip-version-check",
];

/// Returns the cargo that runs this chore.
pub(crate) fn cargo() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// Runs `command` with its output shown.
pub(crate) fn stream(command: &mut Command) -> Result<()> {
    let status = command
        .status()
        .with_context(|| format!("cannot start {command:?}"))?;
    ensure!(status.success(), "{command:?}: {status}");
    Ok(())
}

/// Runs `command` and returns its standard output. Shows its standard error.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let output = command
        .stderr(std::process::Stdio::inherit())
        .output()
        .with_context(|| format!("cannot start {command:?}"))?;
    ensure!(output.status.success(), "{command:?}: {}", output.status);
    String::from_utf8(output.stdout).with_context(|| format!("{command:?} did not print UTF-8"))
}
