//! The crates that each crate may depend on. The table is the one of docs/src/architecture.md.

use crate::cargo::Metadata;

/// Each crate, and those of ours that it may depend on, whether to build or to test.
const ROOMS: &[(&str, &[&str])] = &[
    ("tierflow-lifecycle", &[]),
    ("tierflow-evict", &[]),
    ("tierflow-placement", &[]),
    // The engine by a feature.
    (
        "tierflow-schedule",
        &["tierflow-engine", "tierflow-device", "tierflow-store"],
    ),
    ("tierflow-sync", &[]),
    ("tierflow-device", &["tierflow-sync"]),
    (
        "tierflow-peers",
        &["tierflow-device", "tierflow-placement", "tierflow-sync"],
    ),
    ("tierflow-tier-alloc", &["tierflow-device", "tierflow-sync"]),
    (
        "tierflow-transfer",
        &[
            "tierflow-device",
            "tierflow-placement",
            "tierflow-tier-alloc",
            "tierflow-store",
            "tierflow-sync",
        ],
    ),
    ("tierflow-dedup", &["tierflow-device"]),
    ("tierflow-codec", &["tierflow-device"]),
    ("tierflow-store", &["tierflow-sync"]),
    ("tierflow-plan", &["tierflow-evict", "tierflow-lifecycle"]),
    (
        "tierflow-engine",
        &[
            "tierflow-plan",
            "tierflow-device",
            "tierflow-tier-alloc",
            "tierflow-codec",
            "tierflow-dedup",
            "tierflow-store",
            "tierflow-objects",
            "tierflow-peers",
            "tierflow-transfer",
            "tierflow-sync",
        ],
    ),
    // Schedules are played in tests.
    ("tierflow-sim", &["tierflow-plan", "tierflow-schedule"]),
    // The engine is in the tests of the next three.
    (
        "tierflow-objects",
        &["tierflow-store", "tierflow-device", "tierflow-engine"],
    ),
    (
        "tierflow-agent",
        &["tierflow-store", "tierflow-device", "tierflow-engine"],
    ),
    (
        "tierflow-redundancy",
        &[
            "tierflow-store",
            "tierflow-sync",
            "tierflow-device",
            "tierflow-engine",
        ],
    ),
    (
        "tierflow-cli",
        &[
            "tierflow-store",
            "tierflow-objects",
            "tierflow-agent",
            "tierflow-codec",
            "tierflow-dedup",
            "tierflow-redundancy",
            // `doctor` measures, and predicts.
            "tierflow-device",
            "tierflow-plan",
            "tierflow-sim",
            "tierflow-transfer",
            // In tests.
            "tierflow-engine",
        ],
    ),
    (
        "tierflow-bind",
        &[
            "tierflow-agent",
            "tierflow-device",
            "tierflow-tier-alloc",
            "tierflow-dedup",
            "tierflow-peers",
            "tierflow-redundancy",
            "tierflow-store",
            "tierflow-engine",
        ],
    ),
    ("tierflow-python", BINDINGS),
    ("tierflow-capi", BINDINGS),
    (
        "tierflow-benches",
        &[
            "tierflow-lifecycle",
            "tierflow-evict",
            "tierflow-placement",
            "tierflow-device",
            "tierflow-tier-alloc",
            "tierflow-codec",
            "tierflow-dedup",
            "tierflow-store",
            "tierflow-peers",
            "tierflow-plan",
            "tierflow-redundancy",
            "tierflow-engine",
            "tierflow-sim",
            "tierflow-transfer",
            // A rank by VELOC's interface.
            "tierflow-capi",
        ],
    ),
    (TESTING, &[]),
    // Every door.
    (
        "tierflow-campaigns",
        &[
            "tierflow-device",
            "tierflow-dedup",
            "tierflow-store",
            "tierflow-redundancy",
            "tierflow-engine",
            "tierflow-capi",
        ],
    ),
    (
        "rtm",
        &[
            "tierflow-device",
            "tierflow-engine",
            "tierflow-schedule",
            // The tests throttle storage.
            "tierflow-store",
        ],
    ),
    ("xtask", &[]),
];

/// The crates that other languages are bound to.
const BINDINGS: &[&str] = &[
    "tierflow-bind",
    // In tests.
    "tierflow-agent",
    "tierflow-device",
    "tierflow-tier-alloc",
    "tierflow-redundancy",
    "tierflow-store",
    "tierflow-objects",
    "tierflow-engine",
    "tierflow-schedule",
];

/// Crates that may use crates of others in their tests alone.
const ALONE: &[&str] = &["tierflow-lifecycle", "tierflow-schedule"];

/// The helpers of every crate's tests. The crate is not published, so nothing else may use it.
const TESTING: &str = "tierflow-testing";

/// A dependency of a crate, as its manifest states it.
struct Edge<'a> {
    from: &'a str,
    to: &'a str,
    is_ours: bool,
    only_tests: bool,
}

pub(crate) fn complaints(workspace: &Metadata) -> Vec<String> {
    let ours: Vec<&str> = workspace
        .members()
        .map(|package| package.name.as_str())
        .collect();
    let strangers = ours
        .iter()
        .filter(|name| !ROOMS.iter().any(|(package, _)| package == *name))
        .map(|name| format!("{name} has no line in xtask/src/tidy/rooms.rs"));
    let edges = workspace.members().flat_map(|package| {
        package.dependencies.iter().map(|dependency| Edge {
            from: &package.name,
            to: &dependency.name,
            is_ours: ours.contains(&dependency.name.as_str()),
            only_tests: dependency.kind.as_deref() == Some("dev"),
        })
    });
    strangers
        .chain(edges.filter_map(|edge| complaint(&edge)))
        .collect()
}

fn complaint(edge: &Edge<'_>) -> Option<String> {
    let (package, ours) = ROOMS.iter().find(|(package, _)| *package == edge.from)?;
    let allowed = if edge.is_ours {
        // In its tests, a crate has itself with its features.
        let in_tests = edge.to == TESTING || edge.to == edge.from;
        ours.contains(&edge.to) || (in_tests && edge.only_tests)
    } else {
        !ALONE.contains(package) || edge.only_tests
    };
    (!allowed).then(|| format!("{} may not depend on {}", edge.from, edge.to))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_allowed(from: &str, to: &str, is_ours: bool, only_tests: bool) -> bool {
        complaint(&Edge {
            from,
            to,
            is_ours,
            only_tests,
        })
        .is_none()
    }

    #[test]
    fn dependencies_point_down() {
        assert!(is_allowed(
            "tierflow-tier-alloc",
            "tierflow-device",
            true,
            false
        ));
        assert!(is_allowed("tierflow-sim", "tierflow-plan", true, false));
        assert!(!is_allowed("tierflow-sim", "tierflow-engine", true, false));
        assert!(!is_allowed(
            "tierflow-device",
            "tierflow-tier-alloc",
            true,
            false
        ));
        assert!(!is_allowed(
            "tierflow-evict",
            "tierflow-lifecycle",
            true,
            true
        ));
        assert!(!is_allowed("tierflow-engine", "tierflow-sim", true, false));
        assert!(!is_allowed("tierflow-sim", "tierflow-store", true, false));
        assert!(is_allowed("tierflow-store", TESTING, true, true));
        assert!(!is_allowed("tierflow-store", TESTING, true, false));
    }

    #[test]
    fn lifecycle_has_dependencies_in_its_tests_only() {
        assert!(is_allowed("tierflow-lifecycle", "proptest", false, true));
        assert!(!is_allowed("tierflow-lifecycle", "hashbrown", false, false));
        assert!(is_allowed("tierflow-evict", "hashbrown", false, false));
    }
}
