//! Calls wait no longer than their time limit, even for storage that hangs, and the engine continues. Callers can wait for single
//! versions, and withdraw hints.

#![allow(clippy::unwrap_used, clippy::panic)]

mod hanging;
mod history;
mod vaults;

use hanging::Hanging;
use history::{content, restored};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tierflow_device::{Choice, open};
use tierflow_engine::{Engine, EngineBuilder, Error, Region, RegionMut, Tier, Version};
use tierflow_store::{Options, Repository, Vault};
use tierflow_testing::assert_matches;
use vaults::Watched;

const MIB: usize = 1 << 20;
const SHORT: Duration = Duration::from_millis(30);

/// Returns an engine with a host cache of `cache` bytes over a vault that hangs.
fn engine(cache: usize) -> (Engine, Arc<Watched<Hanging>>, tempfile::TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let vault = Watched::new(directory.path(), Hanging::default());
    (over(&vault, cache), vault, directory)
}

fn over(vault: &Arc<Watched<Hanging>>, cache: usize) -> Engine {
    let builder: EngineBuilder = Engine::builder(&open(Choice::Host).unwrap()).host_cache(cache);
    builder.tier(Tier::vault(vault.clone())).build().unwrap()
}

/// Returns such an engine with `count` versions that only the vault has.
fn cold(
    cache: usize,
    versions: u64,
    length: usize,
) -> (Engine, Arc<Watched<Hanging>>, tempfile::TempDir) {
    let (engine, vault, directory) = engine(cache);
    (0..versions).for_each(|version| checkpoint(&engine, version, length));
    engine.close().unwrap();
    let engine = over(&vault, cache);
    vault.state().came.clear();
    (engine, vault, directory)
}

fn checkpoint(engine: &Engine, version: Version, length: usize) {
    history::checkpoint(engine, version, &content(version, length));
}

#[test]
fn a_restore_from_storage_that_hangs() {
    let (engine, vault, _kept) = engine(2 * MIB);
    (0..6).for_each(|version| checkpoint(&engine, version, MIB));
    engine.wait().unwrap();
    vault.hold(0..6);
    let mut timed_out = Vec::new();
    for version in 0..6 {
        let mut bytes = vec![77; MIB];
        let regions = &mut [RegionMut::from(bytes.as_mut_slice())];
        match engine.call().within(SHORT).restore(version, regions) {
            Ok(()) => assert!(bytes == content(version, MIB)),
            Err(Error::TimedOut {
                patience: SHORT, ..
            }) => {
                timed_out.push(version);
                assert!(bytes == [77; MIB], "they are as they were");
            }
            Err(error) => panic!("{error}"),
        }
    }
    assert!(timed_out.len() >= 4, "the cache holds two: {timed_out:?}");
    // The engine works meanwhile, and the failed restore consumed nothing.
    vault.release_all();
    for version in timed_out {
        let mut bytes = vec![0; MIB];
        let regions = &mut [RegionMut::from(bytes.as_mut_slice())];
        engine
            .call()
            .within(Duration::MAX)
            .restore(version, regions)
            .unwrap();
        assert!(bytes == content(version, MIB));
    }
    checkpoint(&engine, 6, MIB);
    engine
        .call()
        .within(Duration::from_secs(60))
        .wait()
        .unwrap();
    assert!(restored(&engine, 6).unwrap() == content(6, MIB));
}

#[test]
fn a_version_that_is_not_held_is_looked_for_on_storage_that_hangs() {
    let (engine, vault, _kept) = engine(MIB);
    vault.hold([7]);
    let restore = |patience| engine.call().within(patience).restore(7, &mut []);
    let restore_regions = |patience| engine.call().within(patience).restore_regions(7, &mut []);
    let consume = |patience| engine.call().within(patience).consume(7).map(drop);
    let calls: [&dyn Fn(Duration) -> Result<(), Error>; 3] = [&restore, &restore_regions, &consume];
    for call in calls {
        assert_matches!(call(SHORT), Err(Error::TimedOut { .. }));
        // A call without time does not ask storage.
        assert_matches!(call(Duration::ZERO), Err(Error::Unknown { version: 7 }));
    }
    vault.release_all();
    for call in calls {
        for patience in [Duration::MAX, Duration::from_secs(60)] {
            assert_matches!(call(patience), Err(Error::Unknown { version: 7 }));
        }
    }
}

#[test]
fn a_suspension_to_a_version_that_is_not_held_looks_for_nothing() {
    let (engine, vault, _kept) = engine(MIB);
    let soon = Instant::now() + Duration::from_secs(60);
    let suspended = engine.suspend(Some(7), soon).map(drop);
    assert_matches!(suspended, Err(Error::Unknown { version: 7 }));
    let needed = engine.time_to_durable(7);
    assert_matches!(needed, Err(Error::Unknown { version: 7 }));
    assert!(vault.state().came.is_empty());
}

#[test]
fn calls_that_look_for_versions_on_storage_that_hangs_leave_one_thread() {
    let (engine, vault, _kept) = engine(MIB);
    vault.hold(7..17);
    for version in 7..17 {
        let restored = engine.call().within(SHORT).restore(version, &mut []);
        assert_matches!(restored, Err(Error::TimedOut { .. }));
    }
    let looking = || {
        let threads = std::fs::read_dir("/proc/self/task").unwrap();
        let names = threads.filter_map(|thread| {
            let thread = thread.unwrap().path();
            std::fs::read_to_string(thread.join("comm")).ok()
        });
        let looking = ["tierflow-look", "tierflow-call"];
        names.filter(|name| looking.contains(&name.trim())).count()
    };
    // Such threads of other tests end meanwhile.
    let since = Instant::now();
    while looking() > 1 && since.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(looking(), 1);
    vault.state().came.clear();
    vault.release_all();
    let restored = engine
        .call()
        .within(Duration::from_secs(60))
        .restore(17, &mut []);
    assert_matches!(restored, Err(Error::Unknown { version: 17 }));
    assert_eq!(vault.state().came, [17], "nobody waits for the others");
}

#[test]
fn regions_of_a_version_of_an_earlier_engine_on_storage_that_hangs() {
    let (engine, vault, _kept) = cold(2 * MIB, 1, MIB);
    let mut bytes = vec![77; MIB];
    let mut restore = |patience| {
        let regions = &mut [("checkpoint", RegionMut::from(bytes.as_mut_slice()))];
        let restored = engine.call().within(patience).restore_regions(0, regions);
        (restored, bytes.clone())
    };
    vault.hold([0]);
    let (late, bytes) = restore(SHORT);
    assert_matches!(late, Err(Error::TimedOut { .. }));
    assert!(bytes == [77; MIB], "they are as they were");
    vault.release_all();
    let (in_time, bytes) = restore(Duration::from_secs(60));
    in_time.unwrap();
    assert!(bytes == content(0, MIB));
}

#[test]
fn a_checkpoint_that_goes_straight_to_storage_that_hangs() {
    let (engine, vault, kept) = engine(MIB);
    vault.hold([3]);
    let bytes = content(3, 5 * MIB);
    let regions = [Region::from(bytes.as_slice())];
    let error = engine
        .call()
        .within(SHORT)
        .checkpoint(3, &regions)
        .unwrap_err();
    assert!(matches!(error, Error::TimedOut { .. }), "{error}");
    let text = error.to_string();
    assert!(
        text.starts_with("checkpoint 3 was not over within"),
        "{text}"
    );
    // Other checkpoints are not held up by the first.
    checkpoint(&engine, 4, MIB / 2);
    checkpoint(&engine, 5, 3 * MIB);
    assert!(engine.is_durable(5) && !engine.is_durable(3));
    vault.release(3);
    // The number is free once the save has ended.
    loop {
        match engine
            .call()
            .within(Duration::from_secs(60))
            .checkpoint(3, &regions)
        {
            Err(Error::VersionUsed { .. }) => std::thread::yield_now(),
            done => break done.unwrap(),
        }
    }
    engine.wait().unwrap();
    assert!(restored(&engine, 3).unwrap() == bytes);
    // A version that arrives too late is not kept.
    vault.hold([9]);
    assert_matches!(
        engine.call().within(SHORT).checkpoint(9, &regions),
        Err(Error::TimedOut { .. })
    );
    vault.release(9);
    drop((engine, vault));
    let repository = Repository::read_only(kept.path(), Options::default()).unwrap();
    let versions = repository.versions().unwrap();
    let versions: Vec<_> = versions.iter().map(|info| info.version).collect();
    assert_eq!(versions, [3, 4, 5]);
}

#[test]
fn room_that_does_not_come() {
    let (engine, vault, _kept) = engine(2 * MIB);
    vault.hold(0..100);
    (0..2).for_each(|version| checkpoint(&engine, version, MIB));
    let error = engine.call().within(SHORT).produce(2, MIB).unwrap_err();
    assert!(matches!(error, Error::TimedOut { .. }), "{error}");
    let bytes = content(2, MIB);
    let regions = [Region::from(bytes.as_slice())];
    assert_matches!(
        engine.call().within(SHORT).checkpoint(2, &regions),
        Err(Error::TimedOut { .. })
    );
    assert_eq!(engine.versions(), [0, 1]);
    let patience = Duration::from_secs(60);
    let interrupted = engine.call().within(patience).unless(&|| true);
    assert_matches!(interrupted.checkpoint(2, &regions), Err(Error::Interrupted));
    let interrupted = engine.call().within(SHORT).unless(&|| false);
    let error = interrupted.checkpoint(2, &regions).unwrap_err();
    assert!(matches!(error, Error::TimedOut { .. }), "{error}");
    vault.release_all();
    engine
        .call()
        .within(patience)
        .checkpoint(2, &regions)
        .unwrap();
    let mut slot = engine.call().within(patience).produce(3, MIB).unwrap();
    slot.bytes_mut().unwrap().fill(9);
    slot.commit();
    engine.wait().unwrap();
    assert!(restored(&engine, 2).unwrap() == bytes);
    assert!(restored(&engine, 3).unwrap() == [9; MIB]);
}

/// A call whose `unless` panics leaves the queue, and gives back room that it got at the last moment.
#[test]
fn an_interrupt_that_panics_ends_its_call() {
    let (engine, vault, _kept) = engine(2 * MIB);
    vault.hold(0..100);
    (0..2).for_each(|version| checkpoint(&engine, version, MIB));
    let bytes = content(2, MIB);
    let regions = [Region::from(bytes.as_slice())];
    let at_once = || -> bool { panic!("not today") };
    let with_room = || -> bool {
        vault.release_all();
        engine.call().wait_version(0).unwrap();
        engine.call().wait_version(1).unwrap();
        panic!("not today")
    };
    let interrupts: [&(dyn Fn() -> bool + Sync); 2] = [&at_once, &with_room];
    for interrupt in interrupts {
        let call = engine.call().unless(interrupt);
        let called = || call.checkpoint(2, &regions);
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(called));
        assert!(panicked.is_err());
    }
    let call = engine.call().within(Duration::from_secs(60));
    call.checkpoint(2, &regions).unwrap();
    engine.wait().unwrap();
    assert!(restored(&engine, 2).unwrap() == bytes);
}

#[test]
fn an_interruption_does_not_stop_a_write_that_has_begun() {
    let (engine, vault, _kept) = engine(MIB);
    vault.hold([3]);
    let bytes = content(3, 5 * MIB);
    std::thread::scope(|scope| {
        let writing = scope.spawn(|| {
            let call = engine
                .call()
                .within(Duration::from_secs(60))
                .unless(&|| true);
            call.checkpoint(3, &[Region::from(bytes.as_slice())])
        });
        vault.wait_until_it_came(3);
        // The sleep is longer than the time between two calls of `unless`.
        std::thread::sleep(3 * SHORT);
        vault.release(3);
        writing.join().unwrap().unwrap();
    });
    assert!(restored(&engine, 3).unwrap() == bytes);
}

#[test]
fn a_discard_ends_the_waits_for_its_version() {
    let (engine, vault, _kept) = cold(2 * MIB, 6, MIB);
    vault.hold([1]);
    engine.hint([1]);
    engine.hints().prefetch_start();
    vault.wait_until_it_came(1);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let mut bytes = vec![0; MIB];
            let regions = &mut [RegionMut::from(bytes.as_mut_slice())];
            engine.restore(1, regions)
        });
        // The restore most likely waits by now. If it comes later, it finds the version discarded.
        std::thread::sleep(SHORT);
        engine.discard(1).unwrap();
        let error = waiting.join().unwrap().unwrap_err();
        assert!(matches!(error, Error::Discarded { version: 1 }), "{error}");
    });
    vault.release_all();
}

#[test]
fn one_version_is_waited_for() {
    let (engine, vault, _kept) = engine(16 * MIB);
    vault.hold([1, 3]);
    (0..4).for_each(|version| checkpoint(&engine, version, MIB));
    for version in [0, 2] {
        engine.call().wait_version(version).unwrap();
        assert!(engine.is_durable(version));
    }
    assert!(!engine.is_durable(1) && !engine.is_durable(3) && !engine.is_durable(7));
    let error = engine.call().within(SHORT).wait_version(1).unwrap_err();
    assert!(matches!(error, Error::TimedOut { .. }), "{error}");
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| engine.call().wait_version(1));
        vault.release(1);
        waiting.join().unwrap().unwrap();
        // Version 3 is discarded while the call waits.
        let waiting = scope.spawn(|| engine.call().wait_version(3));
        engine.discard(3).unwrap();
        let error = waiting.join().unwrap().unwrap_err();
        assert!(matches!(error, Error::Discarded { version: 3 }), "{error}");
    });
    assert!(engine.is_durable(1) && !engine.is_durable(3));
    let error = engine.call().wait_version(7).unwrap_err();
    assert!(matches!(error, Error::Unknown { version: 7 }), "{error}");
    vault.release_all();
    engine.wait().unwrap();
}

#[test]
fn hints_are_withdrawn_all_or_some() {
    let all = |engine: &Engine| {
        engine.hint(0..4);
        engine.hints().clear();
        engine.hint([5]);
    };
    let some = |engine: &Engine| {
        engine.hint([0, 5, 1, 2]);
        engine.hints().forget(&[2, 0, 1, 77]);
    };
    let ways: [&dyn Fn(&Engine); 2] = [&all, &some];
    for hint in ways {
        let (engine, vault, _kept) = cold(MIB, 9, MIB / 2);
        hint(&engine);
        engine.hints().prefetch_start();
        vault.wait_until_it_came(5);
        // The cache has room for two. The second place is for versions that wait for their first use, the newest first.
        let came = vault.state().came.clone();
        assert!(came.iter().all(|version| *version > 4), "{came:?}");
    }
}

#[test]
fn closing_tells_whether_all_is_durable() {
    let (engine, vault, _kept) = engine(16 * MIB);
    (0..3).for_each(|version| checkpoint(&engine, version, MIB));
    engine.close().unwrap();
    assert_eq!(vault.versions().unwrap().len(), 3);
    let closing = |hangs: bool| {
        let device = open(Choice::Host).unwrap();
        let builder = Engine::builder(&device).host_cache(16 * MIB);
        let builder = builder.closing_patience(if hangs { SHORT } else { Duration::MAX });
        let engine = builder.tier(Tier::vault(vault.clone())).build().unwrap();
        checkpoint(&engine, if hangs { 9 } else { 10 }, MIB);
        engine.close()
    };
    vault.hold([9]);
    let error = closing(true).unwrap_err();
    // The error's text names the lost version, and advises nothing that the caller can no longer do.
    let Error::Lost {
        versions, cause, ..
    } = &error
    else {
        panic!("{error}");
    };
    assert_eq!(versions, &[9]);
    assert_matches!(
        **cause,
        Error::TimedOut {
            patience: SHORT,
            ..
        }
    );
    assert!(
        error.to_string().starts_with("version 9 is lost"),
        "{error}"
    );
    vault.release_all();
    closing(false).unwrap();
    // Closing does not wait for versions that need not outlive the engine.
    let device = open(Choice::Host).unwrap();
    let engine = Engine::builder(&device).host_cache(MIB).build().unwrap();
    checkpoint(&engine, 0, MIB);
    engine.close().unwrap();
}

#[test]
fn a_version_lent_from_storage_that_hangs() {
    let (engine, vault, _kept) = cold(2 * MIB, 4, MIB);
    // The cache has room for two versions. Both are lent, so there is no room for others.
    let patience = Duration::from_secs(60);
    let slots = [0, 1].map(|version| engine.call().within(patience).consume(version).unwrap());
    vault.hold([2]);
    let error = engine.call().within(SHORT).consume(2).unwrap_err();
    assert!(matches!(error, Error::TimedOut { .. }), "{error}");
    assert!(engine.versions().contains(&2));
    vault.release_all();
    let slot = engine.call().within(patience).consume(2).unwrap();
    assert!(slot.bytes().unwrap() == content(2, MIB));
    assert!(slots[1].bytes().unwrap() == content(1, MIB));
}

/// A caller that checks for signals while it waits keeps its place in the queue: later calls wait behind it, even if there is room for
/// them.
#[test]
fn a_wait_that_looks_after_signals_keeps_its_place() {
    let (engine, vault, _kept) = engine(4 * MIB);
    vault.hold(0..100);
    (0..4).for_each(|version| checkpoint(&engine, version, MIB));
    let asked = AtomicUsize::new(0);
    let (large_is_in, small_is_in) = (AtomicBool::new(false), AtomicBool::new(false));
    let asks_again = |times: usize| {
        let seen = asked.load(Ordering::SeqCst);
        while asked.load(Ordering::SeqCst) < seen + times && !large_is_in.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let bytes = content(10, 4 * MIB);
            let regions = [Region::from(bytes.as_slice())];
            let count = || asked.fetch_add(1, Ordering::SeqCst) == usize::MAX;
            let call = engine.call().within(Duration::from_secs(60)).unless(&count);
            call.checkpoint(10, &regions).unwrap();
            large_is_in.store(true, Ordering::SeqCst);
        });
        asks_again(2);
        scope.spawn(|| {
            checkpoint(&engine, 11, MIB);
            small_is_in.store(true, Ordering::SeqCst);
        });
        // Room for the small one, and not for the large one.
        (0..2).for_each(|version| vault.release(version));
        (0..2).for_each(|version| engine.call().wait_version(version).unwrap());
        asks_again(6);
        let overtaken = small_is_in.load(Ordering::SeqCst);
        vault.release_all();
        assert!(!overtaken, "it came later");
    });
    engine.wait().unwrap();
    assert!(restored(&engine, 10).unwrap() == content(10, 4 * MIB));
    assert!(restored(&engine, 11).unwrap() == content(11, MIB));
}
