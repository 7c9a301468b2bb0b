//! Checks of the packages and of their dependencies.

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use toml::{Table, Value};

use crate::cargo::{Metadata, cargo, output};

/// Crates whose build compiles or looks for C, C++ or Fortran code, or that help with this.
const C_BUILDERS: &[&str] = &[
    "autotools",
    "bindgen",
    "bindgen_cuda",
    "cc",
    "cmake",
    "cpp_build",
    "cxx-build",
    "nasm-rs",
    "pkg-config",
    "system-deps",
    "vcpkg",
];

pub(crate) fn build_scripts(workspace: &Metadata) -> Vec<String> {
    let has_script = |package: &&crate::cargo::Package| {
        package
            .targets
            .iter()
            .any(|target| target.is("custom-build"))
    };
    workspace
        .members()
        .filter(has_script)
        .map(|package| format!("{} has one", package.name))
        .collect()
}

/// Returns a line for each of these crates in a build on this platform, with tests and benches.
pub(crate) fn c_builders(workspace: &Metadata) -> Result<Vec<String>> {
    // The metadata would also name crates of features that are not turned on.
    let tree = ["tree", "--workspace", "--all-features", "--prefix", "none"];
    let tree = output(cargo().args(tree))?;
    let built: BTreeSet<&str> = tree
        .lines()
        .filter_map(|line| line.split(' ').next())
        .collect();
    let packages = workspace.by_id();
    let name = |id: &str| packages.get(id).map_or("", |package| package.name.as_str());
    let edges = workspace.resolve.nodes.iter().flat_map(|node| {
        node.dependencies
            .iter()
            .map(|to| (name(&node.id), name(to)))
    });
    Ok(edges
        .filter(|(_, to)| C_BUILDERS.contains(to) && built.contains(to))
        .map(|(from, to)| format!("{from} builds with {to}; see `cargo tree --workspace -i {to}`"))
        .collect())
}

pub(crate) fn papers(workspace: &Metadata) -> Vec<String> {
    let mut complaints = Vec::new();
    for package in workspace.members().filter(|package| package.is_published()) {
        let name = &package.name;
        if package.description.as_deref().is_none_or(str::is_empty) {
            complaints.push(format!("{name} has no description"));
        }
        if package.categories.is_empty() {
            complaints.push(format!("{name} has no categories"));
        }
        if package.metadata.pointer("/docs/rs/targets").is_none() {
            complaints.push(format!("{name} does not say what docs.rs builds"));
        }
        for file in ["README.md", "LICENSE-APACHE", "LICENSE-MIT"] {
            if !package.folder().join(file).is_file() {
                complaints.push(format!("{name} has no {file}"));
            }
        }
        let changes =
            std::fs::read_to_string(package.folder().join("CHANGELOG.md")).unwrap_or_default();
        if !tells_of(&changes, &package.version) {
            complaints.push(format!(
                "{name} has no CHANGELOG.md with a heading `## {}`",
                package.version
            ));
        }
    }
    complaints
}

fn tells_of(changes: &str, version: &str) -> bool {
    let headings = changes.lines().filter_map(|line| line.strip_prefix("## "));
    headings
        .filter_map(|heading| heading.split_whitespace().next())
        .any(|word| word == version)
}

/// Returns the manifests, the root's first, then the members'.
pub(crate) fn manifests(workspace: &Metadata) -> Result<Vec<Table>> {
    let members = workspace
        .members()
        .map(|package| package.manifest_path.clone());
    std::iter::once(workspace.workspace_root.join("Cargo.toml"))
        .chain(members)
        .map(|path| {
            let text = std::fs::read_to_string(&path)
                .with_context(|| format!("cannot read {}", path.display()))?;
            text.parse()
                .with_context(|| format!("cannot read {}", path.display()))
        })
        .collect()
}

/// Returns the entries of `[workspace.dependencies]` that no member uses.
pub(crate) fn unused(manifests: &[Table]) -> Result<Vec<String>> {
    let (root, members) = manifests.split_first().context("there is no manifest")?;
    let shared = root
        .get("workspace")
        .and_then(|workspace| workspace.get("dependencies"));
    let shared = shared
        .and_then(Value::as_table)
        .context("there is no [workspace.dependencies]")?;
    let mut used = BTreeSet::new();
    members.iter().for_each(|member| taken(member, &mut used));
    let unused = shared.keys().filter(|name| !used.contains(name.as_str()));
    Ok(unused
        .map(|name| format!("no crate takes {name}"))
        .collect())
}

/// Collects the names with `workspace = true` in all tables of dependencies, with those of `[target.…]`.
fn taken<'a>(table: &'a Table, used: &mut BTreeSet<&'a str>) {
    for (key, value) in table {
        let Some(inner) = value.as_table() else {
            continue;
        };
        if key.ends_with("dependencies") {
            let inherits =
                |entry: &Value| entry.get("workspace").and_then(Value::as_bool) == Some(true);
            used.extend(
                inner
                    .iter()
                    .filter(|(_, entry)| inherits(entry))
                    .map(|(name, _)| name.as_str()),
            );
        } else {
            taken(inner, used);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dependency_that_no_member_takes_is_found() {
        let manifests: Vec<Table> = [
            "[workspace.dependencies]\na = '1'\nb = '1'\nc = '1'\nd = '1'",
            "[dependencies]\na.workspace = true\nd = '1'",
            "[target.'cfg(unix)'.dev-dependencies]\nb = { workspace = true, features = ['x'] }",
        ]
        .iter()
        .map(|text| text.parse().unwrap())
        .collect();
        assert_eq!(
            unused(&manifests).unwrap(),
            ["no crate takes c", "no crate takes d"]
        );
    }

    #[test]
    fn a_changelog_must_have_the_version_itself() {
        assert!(tells_of("# Changelog\n\n## 0.1.0 (unreleased)\n", "0.1.0"));
        assert!(!tells_of("# Changelog\n\n## 0.1.0-rc.1\n", "0.1.0"));
        assert!(!tells_of("", "0.1.0"));
    }
}
