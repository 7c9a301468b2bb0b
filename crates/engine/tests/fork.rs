//! An engine in a forked child: calls are refused, the parent's engine is not changed, and its drop does not wait.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod history;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tierflow_device::{Choice, open};
use tierflow_engine::{Cache, Engine, Error, Region, RegionMut};
use tierflow_tier_alloc::{HostArena, HostGrowth, HostPool, PoolOptions};

const MIB: usize = 1 << 20;

/// Runs `child` in a forked process. Returns its answer, or `None` if the process ended without one or took longer than `patience`.
fn in_child(patience: Duration, child: impl FnOnce() -> bool) -> Option<bool> {
    // SAFETY: the child calls `child`, and exits without running code of the parent. `child` allocates, which the C
    // library allows after a fork, and takes no lock that another thread of the parent holds.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        let code = if child() { 0 } else { 1 };
        // SAFETY: it does not return.
        unsafe { libc::_exit(code) };
    }
    assert!(pid > 0, "fork");
    let begun = Instant::now();
    loop {
        let mut status = -1;
        // SAFETY: `status` is a place for the answer.
        let ended = unsafe { libc::waitpid(pid, &raw mut status, libc::WNOHANG) };
        if ended == pid {
            return libc::WIFEXITED(status).then(|| libc::WEXITSTATUS(status) == 0);
        }
        if begun.elapsed() > patience {
            // SAFETY: it is this test's own child, and was not waited for yet.
            unsafe { libc::kill(pid, libc::SIGKILL) };
            // SAFETY: as above.
            unsafe { libc::waitpid(pid, &raw mut status, 0) };
            return None;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_fork_of_the_process_leaves_the_engine_alone() {
    let device = open(Choice::Host).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let engine = Engine::builder(&device)
        .device_cache(4 * MIB)
        .host_cache(8 * MIB)
        .node_local(directory.path())
        .build()
        .unwrap();
    let bytes = vec![5; MIB];
    for version in 0..10 {
        history::checkpoint(&engine, version, &bytes);
    }
    engine.wait().unwrap();
    let memory = device.alloc(MIB).unwrap();
    memory
        .lend_mut(0..MIB)
        .unwrap()
        .bytes_mut()
        .unwrap()
        .fill(9);

    // The child gets both as a fork hands them over, and drops them.
    let mut given = Some((engine, memory));
    let answer = in_child(Duration::from_secs(20), || {
        let Some((engine, memory)) = given.take() else {
            return false;
        };
        let mut back = vec![0; MIB];
        let other = |result: Result<(), Error>| matches!(result, Err(Error::OtherProcess { .. }));
        let told = [
            engine.checkpoint(11, &[Region::from(&memory)]),
            engine.restore(3, &mut [RegionMut::from(back.as_mut_slice())]),
            engine.wait(),
            engine.call().within(Duration::from_secs(60)).wait(),
            engine.discard(3),
            engine.call().produce(12, MIB).map(drop),
            engine.call().consume(3).map(drop),
            engine
                .resize(Cache::Host, MIB, Duration::from_secs(60))
                .map(drop),
        ];
        let all_told = told.into_iter().all(other);
        engine.hint([3, 2, 1]);
        let is_there = memory.lend(0..MIB).is_ok_and(|loan| {
            loan.bytes()
                .is_ok_and(|bytes| bytes.iter().all(|&b| b == 9))
        });
        drop(engine);
        all_told && is_there
    });
    assert_eq!(answer, Some(true), "the child died, hung, or was not told");

    // The parent's engine works as before.
    let (engine, _memory) = given.take().unwrap();
    for version in 0..10 {
        history::assert_restores(&engine, version, &bytes);
    }
    history::checkpoint(&engine, 11, &bytes);
    engine.wait().unwrap();
    drop(engine);
    let next = Engine::builder(&device)
        .host_cache(8 * MIB)
        .node_local(directory.path())
        .build()
        .unwrap();
    assert_eq!(next.latest(None), Some(11));
}

/// A child's drops do not affect the parent's engine: a slot that the child commits is not committed.
#[test]
fn a_slot_in_a_fork_is_the_parents() {
    let device = open(Choice::Host).unwrap();
    let engine = Engine::builder(&device)
        .host_cache(4 * MIB)
        .build()
        .unwrap();
    let mut slot = Some(engine.call().produce(1, MIB).unwrap());
    let answer = in_child(Duration::from_secs(20), || {
        slot.take().is_some_and(|mut slot| {
            let wrote = slot.bytes_mut().is_ok_and(|bytes| {
                bytes.fill(3);
                true
            });
            slot.commit();
            wrote
        })
    });
    assert_eq!(answer, Some(true));
    let mut slot = slot.take().unwrap();
    slot.bytes_mut().unwrap().fill(4);
    slot.commit();
    let slot = engine.call().consume(1).unwrap();
    assert!(slot.bytes().unwrap().iter().all(|&byte| byte == 4));
}

/// A thread of the parent may lend and give back memory at the moment of the fork.
#[test]
fn a_slot_in_a_fork_ends_whatever_other_threads_do() {
    let device = open(Choice::Host).unwrap();
    let engine = Engine::builder(&device)
        .host_cache(4 * MIB)
        .build()
        .unwrap();
    history::checkpoint(&engine, 1, &vec![5; MIB]);
    let mut slot = Some(engine.call().produce(2, MIB).unwrap());
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                engine.call().consume(1).unwrap().give_back();
            }
        });
        let hangs = (0..200).any(|_| {
            in_child(Duration::from_secs(20), || slot.take().map(drop).is_some()) != Some(true)
        });
        is_over.store(true, Ordering::Relaxed);
        assert!(!hangs, "a child waits for a thread that it does not have");
    });
    slot.take().unwrap().commit();
}

/// A child may drop its copies of leases and arenas, and the parent keeps all of them.
#[test]
fn leases_and_arenas_in_a_fork_are_the_parents() {
    let device = open(Choice::Host).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let options = PoolOptions::new(64 << 20);
    let pool = HostPool::of_node(Some(&directory.path().join("pool")), options).unwrap();
    let mut lease = pool.join(64 << 20).unwrap();
    let terms = lease.ask(64 << 20).unwrap();
    assert!(terms.held > 0);
    let arena = HostArena::start(&device, 64 * MIB, HostGrowth::default()).unwrap();
    let mut held = Some((lease, arena));
    let answer = in_child(Duration::from_secs(20), || {
        drop(held.take());
        true
    });
    assert_eq!(answer, Some(true));

    let (lease, arena) = held.take().unwrap();
    // The account of the parent is still in the pool.
    assert_eq!(pool.members().unwrap().len(), 1);
    arena.wait_grown();
    assert_eq!(lease.terms(), terms);
}
