//! The number of an engine's threads is a function of its tiers: the table of `docs/src/threads.md`.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};
use tierflow_device::{Choice, open};
use tierflow_engine::{Engine, EngineBuilder};

/// Threads of this process by the kind that their names say: the kernel keeps 15 characters of a name.
fn threads() -> BTreeMap<&'static str, usize> {
    let kinds = [
        "tierflow-down",
        "tierflow-up",
        "tierflow-commit",
        "tierflow-tidy",
        "tierflow-call",
    ];
    let mut counts = BTreeMap::new();
    for task in std::fs::read_dir("/proc/self/task").unwrap() {
        // A thread may end between the listing and the look.
        let name = std::fs::read_to_string(task.unwrap().path().join("comm")).unwrap_or_default();
        if let Some(kind) = kinds.iter().find(|kind| name.starts_with(**kind)) {
            *counts.entry(*kind).or_default() += 1;
        }
    }
    counts
}

/// The threads of an engine with so many tiers of each kind below the fastest.
fn expected(memory: usize, scratch: usize, directories: usize) -> BTreeMap<&'static str, usize> {
    let links = 2 * memory + 4 * (scratch + directories);
    let all = [
        ("tierflow-down", links),
        ("tierflow-up", links),
        ("tierflow-commit", 3 * directories),
        ("tierflow-tidy", usize::from(directories > 0)),
    ];
    all.into_iter().filter(|(_, count)| *count > 0).collect()
}

#[test]
fn threads_are_a_function_of_the_tiers() {
    let home = tempfile::tempdir().unwrap();
    let at = |name: &str| home.path().join(name);
    let builder = || Engine::builder(&open(Choice::Host).unwrap()).device_cache(1 << 20);
    let readme = |scratch: &Path| builder().host_cache(4 << 20).scratch(scratch);
    let check = |builder: EngineBuilder, expected: BTreeMap<&'static str, usize>| {
        let engine = builder.build().unwrap();
        // A thread takes its name when it runs for the first time.
        let begun = Instant::now();
        while threads() != expected && begun.elapsed() < Duration::from_secs(60) {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(threads(), expected);
        engine.close().unwrap();
        assert_eq!(threads(), BTreeMap::new(), "threads end with their engine");
    };
    check(builder(), expected(0, 0, 0));
    check(builder().host_cache(4 << 20), expected(1, 0, 0));
    assert_eq!(expected(1, 1, 0).values().sum::<usize>(), 12);
    check(readme(home.path()), expected(1, 1, 0));
    let external = readme(home.path()).external(at("external"));
    check(external, expected(1, 1, 1));
    let both = readme(home.path()).node_local(at("near"));
    check(both.external(at("far")), expected(1, 1, 2));
}
