//! Tests of group commit: threads save small versions at the same time, and each version is there when its call returns.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

mod histories;

use histories::{bytes_of, version_of};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use tierflow_store::{Error, Faults, Options, Region, Repository, Result, Snapshot};

const THREADS: u64 = 24;

fn length_of(version: u64) -> usize {
    (version * 53 % 6_000) as usize
}

fn try_to_save(repository: &Repository, versions: &[u64]) -> Result<()> {
    let bytes: Vec<Vec<u8>> = versions
        .iter()
        .map(|version| bytes_of(*version, length_of(*version)))
        .collect();
    let regions: Vec<_> = bytes
        .iter()
        .map(|bytes| [Region::new("state", bytes)])
        .collect();
    let snapshots = versions.iter().zip(&regions);
    let snapshots: Vec<_> = snapshots
        .map(|(version, regions)| Snapshot::new(*version, regions))
        .collect();
    repository.save_all(&snapshots)
}

/// Calls `work` with the number of each of many threads, at the same time.
fn side_by_side(work: impl Fn(u64) + Sync) {
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let work = &work;
            scope.spawn(move || work(thread));
        }
    });
}

/// Returns the versions of a thread. Later threads have fewer, so that fewer and fewer threads save at the same time.
fn versions_of(thread: u64) -> impl Iterator<Item = Vec<u64>> {
    let first = thread * 1_000;
    // Some calls save several versions.
    (0..40 - thread).map(move |call| {
        let from = first + 5 * call;
        (from..=from + (thread + call) % 5).collect()
    })
}

fn all_are_there(repository: &Repository) {
    let mut expected: Vec<u64> = (0..THREADS).flat_map(versions_of).flatten().collect();
    expected.sort_unstable();
    let listed = repository.versions().unwrap();
    let listed: Vec<u64> = listed.iter().map(|info| info.version).collect();
    assert_eq!(listed, expected);
    for version in expected {
        version_of(repository, version, length_of(version));
    }
}

#[test]
fn a_saved_version_is_there_when_the_call_returns() {
    let home = tempfile::tempdir().unwrap();
    let repository = Repository::open(home.path(), Options::default()).unwrap();
    side_by_side(|thread| {
        for versions in versions_of(thread) {
            try_to_save(&repository, &versions).unwrap();
            for version in &versions {
                version_of(&repository, *version, length_of(*version));
            }
            // Another process finds it, too.
            if versions[0] % 20 == 0 {
                let reader = Repository::read_only(home.path(), Options::default()).unwrap();
                for version in &versions {
                    version_of(&reader, *version, length_of(*version));
                }
            }
        }
    });
    all_are_there(&repository);
    drop(repository);
    all_are_there(&Repository::open(home.path(), Options::default()).unwrap());
}

#[test]
fn a_failure_reaches_each_caller_concerned_and_none_waits_for_ever() {
    for nth in [5, 11] {
        let home = tempfile::tempdir().unwrap();
        let faults = Arc::<Faults>::default();
        let options = Options::default().faults(Arc::clone(&faults));
        let repository = Repository::open(home.path(), options).unwrap();
        faults.every_nth.store(nth, Relaxed);
        side_by_side(|thread| {
            for versions in versions_of(thread) {
                while let Err(error) = try_to_save(&repository, &versions) {
                    assert!(!matches!(error, Error::Exists { .. }), "{error}");
                }
            }
        });
        faults.every_nth.store(0, Relaxed);
        all_are_there(&repository);
        drop(repository);
        all_are_there(&Repository::open(home.path(), Options::default()).unwrap());
    }
}
