//! Who may depend on whom. The table is the one of docs/src/architecture.md.

use crate::cargo::Metadata;

struct Room {
    package: &'static str,
    /// The crates of ours that it may depend on, whether to build or to test.
    ours: &'static [&'static str],
    /// Whether crates of others may be used in more than its tests.
    others: bool,
}

const ROOMS: &[Room] = &[
    Room {
        package: "tierflow-lifecycle",
        ours: &[],
        others: false,
    },
    Room {
        package: "tierflow-evict",
        ours: &[],
        others: true,
    },
    Room {
        package: "tierflow-placement",
        ours: &[],
        others: true,
    },
    Room {
        package: "tierflow-timeline",
        ours: &[],
        others: false,
    },
    Room {
        package: "tierflow-device",
        ours: &[],
        others: true,
    },
    Room {
        package: "tierflow-local-stores",
        ours: &["tierflow-store"],
        others: true,
    },
    Room {
        package: "tierflow-peers",
        ours: &["tierflow-device", "tierflow-placement"],
        others: true,
    },
    Room {
        package: "tierflow-tier-alloc",
        ours: &["tierflow-device"],
        others: true,
    },
    Room {
        package: "tierflow-dedup",
        ours: &["tierflow-device"],
        others: true,
    },
    Room {
        package: "tierflow-codec",
        ours: &["tierflow-device"],
        others: true,
    },
    Room {
        package: "tierflow-store",
        ours: &[],
        others: true,
    },
    Room {
        package: "tierflow-plan",
        ours: &["tierflow-evict", "tierflow-lifecycle"],
        others: true,
    },
    Room {
        package: "tierflow-engine",
        ours: &[
            "tierflow-plan",
            "tierflow-placement",
            "tierflow-device",
            "tierflow-tier-alloc",
            "tierflow-codec",
            "tierflow-dedup",
            "tierflow-store",
            "tierflow-local-stores",
            "tierflow-objects",
            "tierflow-peers",
            "tierflow-timeline",
        ],
        others: true,
    },
    Room {
        package: "tierflow-sim",
        ours: &["tierflow-plan", "tierflow-timeline"],
        others: true,
    },
    Room {
        package: "tierflow-objects",
        // The engine in its tests.
        ours: &["tierflow-store", "tierflow-device", "tierflow-engine"],
        others: true,
    },
    Room {
        package: "tierflow-agent",
        // The engine in its tests.
        ours: &["tierflow-store", "tierflow-device", "tierflow-engine"],
        others: true,
    },
    Room {
        package: "tierflow-redundancy",
        // The engine in its tests.
        ours: &["tierflow-store", "tierflow-device", "tierflow-engine"],
        others: true,
    },
    Room {
        package: "tierflow-cli",
        ours: &[
            "tierflow-store",
            "tierflow-objects",
            "tierflow-agent",
            "tierflow-codec",
            "tierflow-dedup",
        ],
        others: true,
    },
    Room {
        package: "tierflow-python",
        ours: &[
            "tierflow-device",
            "tierflow-tier-alloc",
            "tierflow-dedup",
            "tierflow-redundancy",
            "tierflow-store",
            "tierflow-objects",
            "tierflow-engine",
        ],
        others: true,
    },
    Room {
        package: "tierflow-capi",
        ours: &[
            "tierflow-device",
            "tierflow-tier-alloc",
            "tierflow-dedup",
            "tierflow-redundancy",
            "tierflow-store",
            "tierflow-objects",
            "tierflow-engine",
        ],
        others: true,
    },
    Room {
        package: "tierflow-benches",
        ours: &[
            "tierflow-lifecycle",
            "tierflow-evict",
            "tierflow-placement",
            "tierflow-device",
            "tierflow-tier-alloc",
            "tierflow-codec",
            "tierflow-dedup",
            "tierflow-store",
            "tierflow-local-stores",
            "tierflow-peers",
            "tierflow-plan",
            "tierflow-redundancy",
            "tierflow-engine",
            "tierflow-sim",
        ],
        others: true,
    },
    Room {
        package: TESTING,
        ours: &[],
        others: true,
    },
    Room {
        package: "xtask",
        ours: &[],
        others: true,
    },
];

/// What tests of every crate may share. It is not published, so nothing else may.
const TESTING: &str = "tierflow-testing";

/// One dependency of a crate, as its manifest states it.
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
        .filter(|name| !ROOMS.iter().any(|room| room.package == **name))
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
    let room = ROOMS.iter().find(|room| room.package == edge.from)?;
    let allowed = if edge.is_ours {
        // In its tests, a crate has itself with its features.
        let in_tests = edge.to == TESTING || edge.to == edge.from;
        room.ours.contains(&edge.to) || (in_tests && edge.only_tests)
    } else {
        room.others || edge.only_tests
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
