//! Tests with disks that are full, fail, write only a part, or cannot rename.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod histories;

use histories::{try_to_save, version_of};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use tierflow_store::{Error, Faults, Options, Repository, Retention};
use tierflow_testing::assert_matches;

fn length_of(version: u64) -> usize {
    if version.is_multiple_of(3) {
        200_000
    } else {
        5_000
    }
}

fn numbers(repository: &Repository) -> Vec<u64> {
    let versions = repository.versions().unwrap();
    versions.into_iter().map(|info| info.version).collect()
}

/// Returns options with which a version of 100 kB and more has a file of its own.
fn options() -> Options {
    Options::default().packed_below(100_000)
}

/// Asserts that after faults each version that was reported as saved is listed, that each listed version is whole, and that no
/// half-written file is left.
fn check(directory: &std::path::Path, saved: &[u64]) {
    for repository in [
        Repository::read_only(directory, Options::default()).unwrap(),
        Repository::open(directory, Options::default()).unwrap(),
    ] {
        let listed = numbers(&repository);
        assert!(
            saved.iter().all(|version| listed.contains(version)),
            "{saved:?} {listed:?}"
        );
        for version in listed {
            version_of(&repository, version, length_of(version));
        }
        assert_eq!(repository.scrub(None, &|_, _| {}).unwrap().damage, []);
        // The first change of the directory removes half-written files. The opening does not.
        repository.remove(&BTreeSet::new()).unwrap();
    }
    let files = std::fs::read_dir(directory.join("rank-0")).unwrap();
    let mut names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    assert!(!names.any(|name| name.ends_with(".tmp") || name.ends_with(".open")));
}

#[test]
fn no_fault_is_taken_for_success() {
    type Switch = fn(&Faults) -> &std::sync::atomic::AtomicBool;
    let switches: [(Switch, bool); 5] = [
        (|faults| &faults.full, true),
        (|faults| &faults.writes_fail, true),
        (|faults| &faults.short_writes, true),
        (|faults| &faults.syncs_fail, true),
        (|faults| &faults.renames_fail, false),
    ];
    for (switch, stops_packed) in switches {
        let directory = tempfile::tempdir().unwrap();
        let faults = Arc::<Faults>::default();
        let options = options().faults(Arc::clone(&faults));
        let repository = Repository::open(directory.path(), options).unwrap();
        let mut saved = vec![1, 3];
        for version in &saved {
            try_to_save(&repository, *version, length_of(*version)).unwrap();
        }
        switch(&faults).store(true, Relaxed);
        let large = try_to_save(&repository, 6, length_of(6)).unwrap_err();
        assert_eq!(
            matches!(large, Error::Full { .. }),
            faults.full.load(Relaxed),
            "{large}"
        );
        if stops_packed {
            try_to_save(&repository, 7, length_of(7)).unwrap_err();
        }
        assert_eq!(numbers(&repository), [1, 3]);
        assert!(
            !histories::path_of(directory.path(), 6).exists(),
            "nothing under the final name"
        );
        // The repository works again once the disk does.
        switch(&faults).store(false, Relaxed);
        for version in [6, 7, 8] {
            try_to_save(&repository, version, length_of(version)).unwrap();
            saved.push(version);
        }
        assert_eq!(numbers(&repository), saved);
        drop(repository);
        check(directory.path(), &saved);
    }
}

#[test]
fn a_fault_at_any_step_loses_nothing_that_was_reported() {
    for step in 2..60 {
        let directory = tempfile::tempdir().unwrap();
        let faults = Arc::<Faults>::default();
        let options = options().faults(Arc::clone(&faults)).threads(1);
        let repository = Repository::open(directory.path(), options).unwrap();
        faults.every_nth.store(step, Relaxed);
        let mut saved = Vec::new();
        for version in 1..=12 {
            if try_to_save(&repository, version, length_of(version)).is_ok() {
                saved.push(version);
            }
        }
        if repository.prune(&Retention::newest(6)).is_ok() && saved.len() > 6 {
            saved.drain(..saved.len() - 6);
        } else {
            // A failed removal may have removed some of the versions.
            saved.drain(..saved.len().saturating_sub(6));
        }
        faults.every_nth.store(0, Relaxed);
        drop(repository);
        check(directory.path(), &saved);
    }
}

#[test]
fn a_piece_that_cannot_be_read_now_is_not_called_lost() {
    let directory = tempfile::tempdir().unwrap();
    let faults = Arc::<Faults>::default();
    let options = options().faults(Arc::clone(&faults));
    let repository = Repository::open(directory.path(), options.clone()).unwrap();
    for version in [1, 3] {
        try_to_save(&repository, version, length_of(version)).unwrap();
    }
    faults.reads_fail.store(true, Relaxed);
    for version in [1, 3] {
        assert_matches!(
            repository
                .piece(version)
                .and_then(|piece| piece.read("state")),
            Err(Error::Read { .. })
        );
    }
    drop(repository);
    let reader = Repository::read_only(directory.path(), options).unwrap();
    assert_eq!(numbers(&reader), []);
    assert_eq!(reader.damage()[0].what, "it cannot be read");
    faults.reads_fail.store(false, Relaxed);
    assert_eq!(numbers(&reader), [1, 3]);
    assert_eq!(reader.damage(), []);
    version_of(&reader, 3, length_of(3));
}
