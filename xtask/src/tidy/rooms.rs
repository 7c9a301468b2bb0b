//! The crates that each crate may depend on, as in the table of docs/src/architecture.md.

use std::collections::BTreeMap;

use anyhow::{Context, Result};

use crate::cargo::Metadata;

/// By crate: the crates of ours that it may depend on. Names are without their first part.
type Rooms = BTreeMap<String, Vec<String>>;

/// The file of the table, from the root of the workspace.
const FILE: &str = "xtask/rooms.toml";

/// Crates that may depend on other projects' crates in their tests only.
const ALONE: &[&str] = &["lifecycle", "schedule"];

/// The helpers of every crate's tests. The crate is not published, so nothing else may use it.
const TESTING: &str = "testing";

/// A dependency of a crate, as its manifest states it.
struct Edge<'a> {
    from: &'a str,
    to: &'a str,
    is_ours: bool,
    only_tests: bool,
}

fn read() -> Result<Rooms> {
    toml::from_str(include_str!("../../rooms.toml")).context(FILE)
}

fn short(name: &str) -> &str {
    name.strip_prefix("tierflow-").unwrap_or(name)
}

pub(crate) fn complaints(workspace: &Metadata) -> Result<Vec<String>> {
    let rooms = read()?;
    let ours: Vec<&str> = workspace
        .members()
        .map(|package| package.name.as_str())
        .collect();
    let strangers = ours
        .iter()
        .filter(|name| !rooms.contains_key(short(name)))
        .map(|name| format!("{name} has no line in {FILE}"));
    let edges = workspace.members().flat_map(|package| {
        package.dependencies.iter().map(|dependency| Edge {
            from: short(&package.name),
            to: short(&dependency.name),
            is_ours: ours.contains(&dependency.name.as_str()),
            only_tests: dependency.kind.as_deref() == Some("dev"),
        })
    });
    let wrong = edges.filter_map(|edge| complaint(&rooms, &edge));
    Ok(strangers.chain(wrong).collect())
}

fn complaint(rooms: &Rooms, edge: &Edge<'_>) -> Option<String> {
    let ours = rooms.get(edge.from)?;
    let allowed = if edge.is_ours {
        // The tests of a crate may depend on the crate itself, with other features.
        let in_tests = edge.to == TESTING || edge.to == edge.from;
        ours.iter().any(|own| own == edge.to) || (in_tests && edge.only_tests)
    } else {
        !ALONE.contains(&edge.from) || edge.only_tests
    };
    (!allowed).then(|| format!("{} may not depend on {}", edge.from, edge.to))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_allowed(from: &str, to: &str, is_ours: bool, only_tests: bool) -> bool {
        let edge = Edge {
            from,
            to,
            is_ours,
            only_tests,
        };
        complaint(&read().unwrap(), &edge).is_none()
    }

    #[test]
    fn dependencies_point_down() {
        assert!(is_allowed("tier-alloc", "device", true, false));
        assert!(is_allowed("sim", "plan", true, false));
        assert!(!is_allowed("sim", "engine", true, false));
        assert!(!is_allowed("device", "tier-alloc", true, false));
        assert!(!is_allowed("evict", "lifecycle", true, true));
        assert!(!is_allowed("engine", "sim", true, false));
        assert!(!is_allowed("sim", "store", true, false));
        assert!(is_allowed("store", TESTING, true, true));
        assert!(!is_allowed("store", TESTING, true, false));
    }

    #[test]
    fn lifecycle_has_dependencies_in_its_tests_only() {
        assert!(is_allowed("lifecycle", "proptest", false, true));
        assert!(!is_allowed("lifecycle", "hashbrown", false, false));
        assert!(is_allowed("evict", "hashbrown", false, false));
    }
}
