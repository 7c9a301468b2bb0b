//! Several engines, in one process and in several, share a pool of host memory.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod history;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tierflow_device::{Choice, open};
use tierflow_engine::{BuildError, Engine, EngineBuilder, Error, Tier, Version};
use tierflow_testing::{Process, assert_matches, this_test};
use tierflow_tier_alloc::{Baseline, HostPool, PoolOptions};

const MIB: usize = 1 << 20;
const SLAB: u64 = 2 << 20;
/// Bytes of the pool.
const POOL: u64 = 32 << 20;

fn options() -> PoolOptions {
    PoolOptions::new(POOL).slab(SLAB)
}

fn builder() -> EngineBuilder {
    Engine::builder(&open(Choice::Host).unwrap()).device_cache(2 * MIB)
}

/// Returns the content of a version of one client, which differs from that of every other version and client.
fn content(client: u64, version: Version) -> Vec<u8> {
    let word = (client << 32 | version).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    word.to_le_bytes().repeat(MIB / 8)
}

fn checkpoint(engine: &Engine, client: u64, versions: std::ops::Range<Version>) {
    for version in versions {
        history::checkpoint(engine, version, &content(client, version));
    }
}

fn assert_restores(engine: &Engine, client: u64, versions: std::ops::Range<Version>) {
    for version in versions.rev() {
        history::assert_restores(engine, version, &content(client, version));
    }
}

/// Returns the bytes of the pool that the engine may use.
fn limit(engine: &Engine) -> u64 {
    let tiers = engine.metrics().tiers;
    tiers.iter().find(|t| t.name == "host").unwrap().limit
}

fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(60), "never: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn two_engines_have_half_of_the_pool_each_once_both_want_it() {
    let scratch = tempfile::tempdir().unwrap();
    let pool = HostPool::in_process(options()).unwrap();
    let engine = || {
        builder()
            .tier(Tier::host(0).pool(&pool))
            .scratch(scratch.path())
            .build()
            .unwrap()
    };
    let one = engine();
    checkpoint(&one, 1, 0..50);
    wait_until("the first borrows all", || limit(&one) == POOL);
    let two = engine();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                // The accounts never exceed the pool, as one account is raised only after another was lowered.
                let held: u64 = pool.members().unwrap().iter().map(|m| m.held).sum();
                assert!(held <= POOL);
            }
        });
        checkpoint(&two, 2, 0..50);
        assert_restores(&one, 1, 0..50);
        wait_until("both have half", || {
            (limit(&one), limit(&two)) == (POOL / 2, POOL / 2)
        });
        done.store(true, Ordering::Relaxed);
    });
    wait_until("the first gave its memory back", || {
        let touched = one.reports().host.unwrap().touched as u64;
        touched <= POOL / 2
    });
    assert_restores(&two, 2, 0..50);
    assert_restores(&one, 1, 0..50);
    drop(one);
    wait_until("the second borrows all", || limit(&two) == POOL);
    assert_restores(&two, 2, 0..50);
    drop(two);
    assert!(pool.members().unwrap().is_empty());
}

#[test]
fn a_small_history_leaves_the_rest_to_others() {
    let scratch = tempfile::tempdir().unwrap();
    let pool = HostPool::in_process(options()).unwrap();
    let engine = || {
        builder()
            .tier(Tier::host(0).pool(&pool))
            .scratch(scratch.path())
            .build()
            .unwrap()
    };
    let (small, large) = (engine(), engine());
    checkpoint(&small, 1, 0..4);
    checkpoint(&large, 2, 0..60);
    // The small history has its four versions in host memory, as the device flushes from half its room on, and keeps four slabs ready.
    let wanted = 4 * MIB as u64 + 4 * SLAB;
    wait_until("the large one has the rest", || {
        limit(&large) >= POOL - wanted
    });
    assert_restores(&large, 2, 0..60);
    checkpoint(&small, 1, 4..60);
    wait_until("both have half", || {
        (limit(&small), limit(&large)) == (POOL / 2, POOL / 2)
    });
    assert_restores(&small, 1, 0..60);
    assert_restores(&large, 2, 0..60);
}

#[test]
fn many_threads_come_and_go() {
    let scratch = tempfile::tempdir().unwrap();
    let pool = HostPool::in_process(options()).unwrap();
    std::thread::scope(|scope| {
        for client in 0..5 {
            let (pool, scratch) = (&pool, scratch.path());
            scope.spawn(move || {
                for round in 0..3 {
                    let client = client * 10 + round;
                    let engine = builder()
                        .tier(Tier::host(0).pool(pool))
                        .scratch(scratch)
                        .build()
                        .unwrap();
                    let count = 10 + 7 * (client % 4);
                    engine.hint((0..count).rev());
                    checkpoint(&engine, client, 0..count);
                    assert_restores(&engine, client, 0..count);
                }
            });
        }
    });
    assert!(pool.members().unwrap().is_empty());
}

#[test]
fn a_pool_needs_somewhere_to_flush_to_and_memory_that_can_shrink() {
    let pool = HostPool::in_process(options()).unwrap();
    let alone = builder().tier(Tier::host(0).pool(&pool)).build();
    assert_matches!(alone, Err(Error::Build(BuildError::NothingBelowPool)));
    let scratch = tempfile::tempdir().unwrap();
    let fixed = builder()
        .tier(Tier::host(0).pool(&pool).growth(Baseline::DirectPin))
        .scratch(scratch.path())
        .build();
    assert!(matches!(fixed, Err(Error::Build(BuildError::Tier(_)))));
    assert!(pool.members().unwrap().is_empty());
}

/// Variable that names the pool of a child process.
const DIRECTORY: &str = "TIERFLOW_TEST_CLIENTS";

fn client_of(directory: &Path) -> Engine {
    let pool = HostPool::of_node(Some(&directory.join("pool")), options()).unwrap();
    let engine = builder().tier(Tier::host(0).pool(&pool)).scratch(directory);
    engine.build().unwrap()
}

/// A client. In a child process, it reports when its cache is full, and continues until it is killed.
#[test]
fn a_client_of_a_node() {
    let given = std::env::var_os(DIRECTORY).map(PathBuf::from);
    let folder = tempfile::tempdir().unwrap();
    let directory = given.clone().unwrap_or_else(|| folder.path().to_owned());
    let engine = client_of(&directory);
    let client = u64::from(std::process::id());
    checkpoint(&engine, client, 0..40);
    assert_restores(&engine, client, 0..40);
    if given.is_some() {
        println!("filled");
        loop {
            assert_restores(&engine, client, 0..40);
        }
    }
}

/// Starts a process, and waits until its client has filled its cache.
fn process(directory: &Path) -> Process {
    let mut test = this_test("a_client_of_a_node");
    let process = Process::start(test.env(DIRECTORY, directory), "filled");
    process.report();
    process
}

#[test]
fn the_others_get_the_memory_of_a_killed_process() {
    let folder = tempfile::tempdir().unwrap();
    let engine = client_of(folder.path());
    checkpoint(&engine, 1, 0..50);
    wait_until("it borrows all", || limit(&engine) == POOL);
    let (mut first, mut second) = (process(folder.path()), process(folder.path()));
    // Three clients share 16 slabs.
    wait_until("each has a third", || limit(&engine) <= 6 * SLAB);
    assert!(limit(&engine) >= 5 * SLAB);
    assert_restores(&engine, 1, 0..50);
    first.kill();
    wait_until("each has half", || limit(&engine) == 8 * SLAB);
    assert_restores(&engine, 1, 0..50);
    second.kill();
    wait_until("it borrows all", || limit(&engine) == POOL);
    assert_restores(&engine, 1, 0..50);
}
