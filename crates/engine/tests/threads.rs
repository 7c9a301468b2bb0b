//! The number of an engine's threads depends on its tiers and on the links in use alone: the table of `docs/src/threads.md`.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};
use tierflow_device::{Choice, open};
use tierflow_engine::{Engine, EngineBuilder, Region, RegionMut};

/// Returns the number of this process's threads of each kind. The names tell the kind: the kernel keeps 15 characters of a name.
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
        // A thread may end between the listing and the read.
        let name = std::fs::read_to_string(task.unwrap().path().join("comm")).unwrap_or_default();
        if let Some(kind) = kinds.iter().find(|kind| name.starts_with(**kind)) {
            *counts.entry(*kind).or_default() += 1;
        }
    }
    counts
}

/// Returns the threads of an engine that has done nothing yet, with these numbers of tiers of each kind below the fastest.
fn at_start(memory: usize, scratch: usize, directories: usize) -> BTreeMap<&'static str, usize> {
    let links = memory + scratch + directories;
    let all = [
        ("tierflow-down", links),
        ("tierflow-up", links),
        ("tierflow-commit", directories),
        ("tierflow-tidy", usize::from(directories > 0)),
    ];
    all.into_iter().filter(|(_, count)| *count > 0).collect()
}

/// Waits until `is_so`: a thread takes its name when it runs for the first time.
fn wait_until(is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() && begun.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn builder() -> EngineBuilder {
    Engine::builder(&open(Choice::Host).unwrap()).device_cache(1 << 20)
}

/// Both parts are one test, as they count the threads of the process.
#[test]
fn threads_are_a_function_of_the_tiers_and_of_the_links_in_use() {
    at_start_each_link_has_one();
    links_in_use_have_more();
}

fn at_start_each_link_has_one() {
    let home = tempfile::tempdir().unwrap();
    let at = |name: &str| home.path().join(name);
    let readme = |scratch: &Path| builder().host_cache(4 << 20).scratch(scratch);
    let check = |builder: EngineBuilder, expected: BTreeMap<&'static str, usize>| {
        let engine = builder.build().unwrap();
        wait_until(|| threads() == expected);
        assert_eq!(threads(), expected);
        engine.close().unwrap();
        assert_eq!(threads(), BTreeMap::new(), "threads end with their engine");
    };
    check(builder(), at_start(0, 0, 0));
    check(builder().host_cache(4 << 20), at_start(1, 0, 0));
    check(readme(home.path()), at_start(1, 1, 0));
    let external = readme(home.path()).external(at("external"));
    check(external, at_start(1, 1, 1));
    let both = readme(home.path()).node_local(at("near"));
    check(both.external(at("far")), at_start(1, 1, 2));
}

/// Takes checkpoints that are too large to be committed with others, and restores them by the next engine. The number of workers that find
/// a task varies. Each worker that finds one has started the next worker.
fn links_in_use_have_more() {
    let home = tempfile::tempdir().unwrap();
    let device = open(Choice::Host).unwrap();
    let build = || {
        let builder = Engine::builder(&device).host_cache(1 << 20);
        builder.external(home.path()).build().unwrap()
    };
    let mut bytes = vec![7_u8; 128 << 10];
    let engine = build();
    for version in 0..32 {
        engine
            .checkpoint(version, &[Region::from(&bytes[..])])
            .unwrap();
    }
    engine.wait().unwrap();
    let now = threads();
    assert!((2..=4).contains(&now["tierflow-down"]), "{now:?}");
    let others = ["tierflow-up", "tierflow-commit", "tierflow-tidy"];
    assert_eq!(
        others.map(|kind| now[kind]),
        [1; 3],
        "unused links have one"
    );
    engine.close().unwrap();

    let engine = build();
    engine.hint(0..32);
    for version in 0..32 {
        let mut regions = [RegionMut::from(&mut bytes[..])];
        engine.restore(version, &mut regions).unwrap();
    }
    wait_until(|| threads()["tierflow-up"] > 1);
    let now = threads();
    assert!((2..=4).contains(&now["tierflow-up"]), "{now:?}");
    assert_eq!(now["tierflow-down"], 1);
    engine.close().unwrap();
    assert_eq!(threads(), BTreeMap::new(), "also those that began later");
}
