//! Runs whole engines through orders of their threads' steps that no scheduler would choose: `RUSTFLAGS="--cfg shuttle"
//! cargo test -p tierflow-engine --release --test shuttle`. `TIERFLOW_SCHEDULES_TRIED` sets the number of schedules of
//! each kind, for a longer search.
//!
//! Shuttle reports a thread that waits for ever as a deadlock. Each history is checked to the byte. A failure prints the
//! schedule. `shuttle::replay` runs it again, except for the arenas, whose threads are real.

#![cfg(shuttle)]
#![allow(clippy::unwrap_used)]

#[path = "shuttle/store.rs"]
mod store;

use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::thread;
use shuttle::{Config, Runner};
use std::sync::Arc;
use std::time::Duration;
use store::Store;
use tierflow_device::{Choice, open};
use tierflow_engine::plan::AfterRestore;
use tierflow_engine::{Cache, Engine, Error, Flush, RegionMut, Tier, Version};
use tierflow_tier_alloc::{DeviceGrowth, HostPool, PoolOptions};

/// Bytes of a page: the alignment of the tiers and the size of a transfer's part.
const PAGE: usize = 4096;

/// Runs a scenario under many schedules: half drawn step by step, half with few changes of the threads' priorities.
fn explore(scenario: fn()) {
    explore_some(1, scenario);
}

/// Runs a scenario of many steps under a fraction of these schedules.
fn explore_some(part: usize, scenario: fn()) {
    let mut config = Config::default();
    config.stack_size = 1 << 19;
    config.silence_warnings = true;
    config.failure_persistence = shuttle::FailurePersistence::Print;
    let schedules = std::env::var("TIERFLOW_SCHEDULES_TRIED").ok();
    let schedules = schedules.and_then(|text| text.parse().ok()).unwrap_or(1000) / part;
    Runner::new(RandomScheduler::new(schedules), config.clone()).run(scenario);
    Runner::new(PctScheduler::new(3, schedules), config).run(scenario);
}

/// Returns an engine with a device cache of `pages` pages above a store.
fn engine(pages: usize, store: &Arc<Store>, after: AfterRestore) -> Engine {
    let at_once = DeviceGrowth::DirectAlloc;
    grown(at_once, pages, store, after)
}

fn grown(how: DeviceGrowth, pages: usize, store: &Arc<Store>, after: AfterRestore) -> Engine {
    let device = open(Choice::Host).unwrap();
    Engine::builder(&device)
        .tier(Tier::device(pages * PAGE).growth(how))
        .tier(Tier::storage(Arc::clone(store) as _))
        .flush(Flush::Eager)
        .after_restore(after)
        .build()
        .unwrap()
}

/// Returns the content of a version of `pages` pages.
fn content(version: Version, pages: usize) -> Vec<u8> {
    (0..pages * PAGE)
        .map(|at| (version as usize * 31 + at / 97) as u8)
        .collect()
}

fn checkpoint(engine: &Engine, version: Version, pages: usize) {
    let bytes = content(version, pages);
    engine
        .checkpoint(version, &[bytes.as_slice().into()])
        .unwrap();
}

fn restore(engine: &Engine, version: Version, pages: usize) {
    let mut bytes = vec![0; pages * PAGE];
    let mut regions = [RegionMut::from(bytes.as_mut_slice())];
    engine.restore(version, &mut regions).unwrap();
    assert!(bytes == content(version, pages), "version {version}");
}

/// Two callers with a history each want more room than there is: they wait for room, for arrivals and for each other, while several
/// workers report the parts of one transfer.
#[test]
fn callers_wait_while_workers_report() {
    explore(|| {
        let store = Store::new();
        let engine = Arc::new(engine(4, &store, AfterRestore::Discard));
        let callers = [0, 10].map(|first: Version| {
            let engine = Arc::clone(&engine);
            thread::spawn(move || {
                let versions = first..first + 3;
                engine.hint(versions.clone());
                for version in versions.clone() {
                    checkpoint(&engine, version, 2);
                }
                engine.hints().prefetch_start();
                for version in versions {
                    restore(&engine, version, 2);
                }
            })
        });
        for caller in callers {
            caller.join().unwrap();
        }
        engine.wait().unwrap();
        assert!(engine.versions().is_empty());
    });
}

/// The engine is dropped while it flushes and prefetches: its threads end, and no thread uses the store afterwards.
#[test]
fn an_engine_ends_with_transfers_in_flight() {
    explore(|| {
        let store = Store::new();
        let engine = engine(3, &store, AfterRestore::Keep);
        for version in 0..4 {
            checkpoint(&engine, version, 1);
        }
        engine.hint([0, 1, 2]);
        engine.hints().prefetch_start();
        drop(engine);
        store.close();
    });
}

/// A thread takes memory from the cache and gives it back, while another one writes and reads.
#[test]
fn a_cache_shrinks_and_grows_in_use() {
    explore(|| {
        let store = Store::new();
        let in_pages = DeviceGrowth::IncrementalVmm { chunk: Some(PAGE) };
        let engine = Arc::new(grown(in_pages, 4, &store, AfterRestore::Keep));
        let theirs = Arc::clone(&engine);
        let resizer = thread::spawn(move || {
            for pages in [1, 4, 0, 3] {
                let patience = Duration::from_secs(1);
                match theirs.resize(Cache::Device, pages * PAGE, patience) {
                    // The loop repeats a call that timed out.
                    Ok(_) | Err(Error::TimedOut { .. }) => {}
                    Err(error) => panic!("{error}"),
                }
            }
        });
        for version in 0..4 {
            checkpoint(&engine, version, 1);
        }
        engine.hint(0..4);
        for version in 0..4 {
            restore(&engine, version, 1);
        }
        resizer.join().unwrap();
        for version in (0..4).rev() {
            restore(&engine, version, 1);
        }
    });
}

/// Slots are lent, written, committed, given up and read, while other calls push copies out of the cache.
#[test]
fn lent_bytes_are_nobody_elses() {
    explore(|| {
        let store = Store::new();
        let engine = Arc::new(engine(3, &store, AfterRestore::Keep));
        let theirs = Arc::clone(&engine);
        let lender = thread::spawn(move || {
            for version in 0..3 {
                let mut slot = theirs.call().produce(version, PAGE).unwrap();
                thread::yield_now();
                slot.bytes_mut()
                    .unwrap()
                    .copy_from_slice(&content(version, 1));
                thread::yield_now();
                if version == 1 {
                    continue;
                }
                slot.commit();
            }
            for (version, keep) in [(0, true), (2, false), (0, false), (2, false)] {
                let slot = theirs.call().consume(version).unwrap();
                thread::yield_now();
                let is_whole = slot.bytes().unwrap() == content(version, 1);
                assert!(is_whole, "version {version}, while it is lent");
                if keep {
                    slot.give_back();
                }
            }
        });
        for version in 10..16 {
            checkpoint(&engine, version, 1);
        }
        for version in 10..16 {
            restore(&engine, version, 1);
        }
        lender.join().unwrap();
        let given_up = engine.restore_size(1);
        assert!(
            given_up.is_err(),
            "a slot that was dropped is no checkpoint"
        );
        restore(&engine, 0, 1);
    });
}

/// Two clients share a pool of host memory. The first ends in the middle of its work; the second gets its memory.
#[test]
fn a_client_goes_and_the_other_goes_on() {
    const SLAB: u64 = 2 << 20;
    const PAGES: usize = 256;
    explore_some(20, || {
        let pool = HostPool::in_process(PoolOptions::new(4 * SLAB).slab(SLAB)).unwrap();
        let device = open(Choice::Host).unwrap();
        let client = |store: &Arc<Store>| {
            let builder = Engine::builder(&device).tier(Tier::host(0).pool(&pool));
            let storage = Arc::clone(store) as _;
            let builder = builder.tier(Tier::storage(storage)).flush(Flush::Eager);
            builder.build().unwrap()
        };
        let store = Store::new();
        let leaving = client(&store);
        // The client uses more than its share as long as no other engine wants memory.
        for version in 0..7 {
            checkpoint(&leaving, version, PAGES);
        }
        let left = thread::spawn(move || {
            for version in (2..7).rev() {
                restore(&leaving, version, PAGES);
            }
            checkpoint(&leaving, 7, PAGES);
            drop(leaving);
            store.close();
        });
        let staying = client(&Store::new());
        for version in 0..5 {
            checkpoint(&staying, version, PAGES);
        }
        left.join().unwrap();
        for version in 0..5 {
            restore(&staying, version, PAGES);
        }
    });
}

/// Callers stop waiting at the moment at which the answer comes, and versions are discarded under way.
#[test]
fn callers_that_stop_waiting_hinder_no_other() {
    explore(|| {
        let store = Store::new();
        let engine = Arc::new(engine(2, &store, AfterRestore::Keep));
        let waiting = [1, 2].map(|_| {
            let engine = Arc::clone(&engine);
            thread::spawn(move || {
                for _ in 0..3 {
                    match engine.call().within(Duration::from_millis(1)).wait() {
                        Ok(()) | Err(Error::TimedOut { .. }) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
            })
        });
        for version in 0..4 {
            checkpoint(&engine, version, 1);
            if version % 2 == 0 {
                engine.hint([version]);
            }
        }
        engine.hints().prefetch_start();
        engine.discard(0).unwrap();
        engine.discard(3).unwrap();
        for waiting in waiting {
            waiting.join().unwrap();
        }
        engine.wait().unwrap();
        restore(&engine, 1, 1);
        restore(&engine, 2, 1);
        assert_eq!(engine.versions(), [1, 2]);
    });
}

/// Callers have little patience. The requests that they began at storage go on without them, are reported, and end before the engine.
#[test]
fn requests_without_a_waiting_caller_are_reported_and_end() {
    explore(|| {
        let store = Store::new();
        let engine = Arc::new(engine(2, &store, AfterRestore::Keep));
        for version in 0..4 {
            checkpoint(&engine, version, 1);
        }
        let patience = Duration::from_millis(1);
        let writer = {
            let engine = Arc::clone(&engine);
            // The version is too large for the cache, so it goes straight to storage.
            thread::spawn(move || {
                let bytes = content(9, 3);
                let within = engine.call().within(patience);
                match within.checkpoint(9, &[bytes.as_slice().into()]) {
                    Ok(()) => restore(&engine, 9, 3),
                    Err(Error::TimedOut { .. }) => {}
                    Err(error) => panic!("{error}"),
                }
            })
        };
        let reader = {
            let engine = Arc::clone(&engine);
            thread::spawn(move || {
                for version in 0..2 {
                    let mut bytes = vec![77; PAGE];
                    let mut regions = [RegionMut::from(bytes.as_mut_slice())];
                    match engine
                        .call()
                        .within(patience)
                        .restore(version, &mut regions)
                    {
                        Ok(()) => assert!(bytes == content(version, 1)),
                        Err(Error::TimedOut { .. }) => assert!(bytes == [77; PAGE]),
                        Err(error) => panic!("{error}"),
                    }
                }
            })
        };
        engine.call().wait_version(1).unwrap();
        assert!(engine.is_durable(1));
        match engine.call().within(patience).wait_version(3) {
            Ok(()) => assert!(engine.is_durable(3)),
            Err(Error::TimedOut { .. }) => {}
            Err(error) => panic!("{error}"),
        }
        writer.join().unwrap();
        reader.join().unwrap();
        engine.wait().unwrap();
        restore(&engine, 0, 1);
        drop(engine);
        store.close();
    });
}

/// The store is full: callers that wait for room get an error, and the versions in the cache stay.
#[test]
fn callers_hear_of_storage_that_fails() {
    explore(|| {
        let store = Store::new();
        let engine = Arc::new(engine(2, &store, AfterRestore::Discard));
        checkpoint(&engine, 0, 1);
        engine.wait().unwrap();
        store.refuse_writes();
        let callers = [10, 20].map(|first: Version| {
            let engine = Arc::clone(&engine);
            thread::spawn(move || {
                let mut kept = Vec::new();
                for version in first..first + 2 {
                    let bytes = content(version, 1);
                    match engine.checkpoint(version, &[bytes.as_slice().into()]) {
                        Ok(()) => kept.push(version),
                        Err(Error::NoRoom { .. } | Error::Storage(_)) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
                kept
            })
        });
        for caller in callers {
            for version in caller.join().unwrap() {
                restore(&engine, version, 1);
            }
        }
        restore(&engine, 0, 1);
    });
}
