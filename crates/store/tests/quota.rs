//! A limited directory never has more bytes than its limit, whatever is saved and removed, and a save without room fails.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use tierflow_store::{Error, Faults, Options, Region, Repository, Snapshot};

/// Returns the bytes of the files of rank 0 in whole blocks.
fn bytes_of(directory: &Path) -> u64 {
    let files = std::fs::read_dir(directory.join("rank-0")).unwrap();
    let length = |file: std::fs::DirEntry| file.metadata().unwrap().len();
    files
        .map(|file| length(file.unwrap()).next_multiple_of(4096))
        .sum()
}

#[test]
fn saves_and_removals_stay_within_the_limit_and_are_counted() {
    for limit in [256 << 10, 1 << 20, 8 << 20] {
        let home = tempfile::tempdir().unwrap();
        let options = || Options::default().limit(Some(limit));
        let mut repository = Repository::open(home.path(), options()).unwrap();
        let mut there = BTreeSet::new();
        let mut refused = 0;
        for version in 0..400_u64 {
            let bytes = vec![version as u8; [100, 4096, 9_000, 70_000][version as usize % 4]];
            let regions = [Region::new("state", &bytes)];
            loop {
                let saved = repository.save(&Snapshot::new(version, &regions));
                assert!(bytes_of(home.path()) <= limit);
                match saved {
                    Ok(()) => break,
                    Err(Error::Full { .. }) => {}
                    failed => panic!("{failed:?}"),
                }
                refused += 1;
                // Every second version is removed, so that segments are rewritten.
                let gone: BTreeSet<u64> = there.iter().copied().step_by(2).take(8).collect();
                assert!(
                    !gone.is_empty(),
                    "version {version} finds no room in {limit}"
                );
                repository.remove(&gone).unwrap();
                there.retain(|one| !gone.contains(one));
                assert!(bytes_of(home.path()) <= limit);
            }
            there.insert(version);
            assert_eq!(repository.used(), Some(bytes_of(home.path())));
            if version % 97 == 96 {
                drop(repository);
                repository = Repository::open(home.path(), options()).unwrap();
            }
        }
        assert!(refused > 10, "{limit}: {refused}");
        let listed = repository.versions().unwrap();
        assert!(listed.iter().map(|info| info.version).eq(there));
    }
}

#[test]
fn more_that_is_found_than_the_limit_can_be_removed_and_nothing_is_added_before() {
    let home = tempfile::tempdir().unwrap();
    let save = |repository: &Repository, version: u64| {
        let bytes = vec![version as u8; 3_000];
        repository.save(&Snapshot::new(version, &[Region::new("state", &bytes)]))
    };
    let repository = Repository::open(home.path(), Options::default()).unwrap();
    (0..100).for_each(|version| save(&repository, version).unwrap());
    drop(repository);
    let options = Options::default().limit(Some(256 << 10));
    let repository = Repository::open(home.path(), options).unwrap();
    let refused = save(&repository, 100);
    assert!(matches!(refused, Err(Error::Full { .. })), "{refused:?}");
    repository.remove(&(0..99).collect()).unwrap();
    save(&repository, 100).unwrap();
    assert!(bytes_of(home.path()) < 64 << 10);
}

#[test]
fn a_segment_that_cannot_be_closed_takes_no_more_than_its_bytes() {
    let home = tempfile::tempdir().unwrap();
    let faults = Arc::<Faults>::default();
    let options = || Options::default().limit(Some(1 << 20));
    let open = || Repository::open(home.path(), options()).unwrap();
    let repository = faults.during(open);
    let regions = [Region::new("state", &[7; 100])];
    for version in 0..3 {
        repository.save(&Snapshot::new(version, &regions)).unwrap();
        faults.syncs_fail.store(true, Relaxed);
        // The version is in the current segment, which is closed before it is rewritten.
        assert!(repository.remove(&[version].into()).is_err());
        faults.syncs_fail.store(false, Relaxed);
        assert_eq!(repository.used(), Some(bytes_of(home.path())), "{version}");
    }
}
