//! The node-local directory never has more bytes than its limit.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tierflow_device::{Choice, open};
use tierflow_engine::{Engine, Region, Tier};
use tierflow_store::{Faults, Options, Repository};

/// Returns the bytes of the files below a directory in whole blocks. Lists the files until two lists agree, so that none came or went
/// meanwhile.
fn used(directory: &Path) -> u64 {
    let mut before = files(directory);
    loop {
        let files = files(directory);
        if files == before {
            return files.into_iter().map(|(_, bytes)| bytes).sum();
        }
        before = files;
    }
}

/// Returns the files below a directory, each with its length in whole blocks of 4 KiB.
fn files(directory: &Path) -> Vec<(u64, u64)> {
    let mut found = Vec::new();
    let Ok(entries) = std::fs::read_dir(directory) else {
        return found;
    };
    for entry in entries {
        let path = entry.unwrap().path();
        // A file may be renamed or removed meanwhile.
        let Ok(metadata) = path.symlink_metadata() else {
            continue;
        };
        match metadata.is_dir() {
            true => found.append(&mut files(&path)),
            false => found.push((metadata.ino(), metadata.len().next_multiple_of(4096))),
        }
    }
    found.sort_unstable();
    found
}

const ALL: u64 = 96;
const THREADS: usize = 3;

/// Writes many versions by several threads. Returns the most bytes that the directory had meanwhile. Asserts that all versions reached
/// external storage, and that the directory was used.
fn most(limit: u64, lengths: &[usize]) -> u64 {
    let home = tempfile::tempdir().unwrap();
    let (near, far) = (home.path().join("near"), home.path().join("far"));
    let device = open(Choice::Host).unwrap();
    let engine = Engine::builder(&device)
        .host_cache(8 << 20)
        .tier(Tier::node_local(&near).limit(limit))
        .external(&far)
        .build()
        .unwrap();
    let checkpoint = |version: u64| {
        let bytes = vec![version as u8; lengths[version as usize % lengths.len()]];
        let regions = [Region::from(bytes.as_slice())];
        engine.checkpoint(version, &regions).unwrap();
    };
    let is_over = AtomicBool::new(false);
    let most = std::thread::scope(|scope| {
        let watch = scope.spawn(|| {
            let mut most = 0;
            while !is_over.load(Ordering::Relaxed) {
                most = most.max(used(&near));
            }
            most
        });
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let versions = (0..ALL).skip(thread).step_by(THREADS);
                scope.spawn(move || versions.for_each(checkpoint));
            }
        });
        engine.wait().unwrap();
        is_over.store(true, Ordering::Relaxed);
        watch.join().unwrap()
    });
    drop(engine);
    let near = Repository::read_only(&near, Options::default()).unwrap();
    assert!(
        !near.own_pieces().unwrap().is_empty(),
        "{limit}: {lengths:?}"
    );
    let far = Repository::read_only(&far, Options::default()).unwrap();
    assert_eq!(
        far.versions().unwrap().len() as u64,
        ALL,
        "{limit}: {lengths:?}"
    );
    most
}

#[test]
fn versions_in_flight_stay_within_the_limit() {
    for limit in [256 << 10, 1 << 20, 5_000_000, 8 << 20] {
        for lengths in [
            &[2_200_000, 150_000][..],
            &[1_100_000, 1_600_000, 2_200_000, 3_000],
            &[3_000],
            &[4_096, 100, 60_000],
            &[20_000, 70_000, 130_000, 1],
        ] {
            let most = most(limit, lengths);
            assert!(most <= limit, "{lengths:?}: {most} of {limit}");
        }
    }
}

/// A file of the node's directory cannot be removed, as it is busy or belongs to another user by now. The file counts against the limit.
#[test]
fn a_file_that_cannot_be_removed_counts_and_holds_nothing_up() {
    const LIMIT: u64 = 8 << 20;
    let home = tempfile::tempdir().unwrap();
    let (near, far) = (home.path().join("near"), home.path().join("far"));
    let device = open(Choice::Host).unwrap();
    let faults = Arc::<Faults>::default();
    let build = || {
        Engine::builder(&device)
            .host_cache(8 << 20)
            .tier(Tier::node_local(&near).limit(LIMIT))
            .external(&far)
            .build()
    };
    let engine = faults.during(build).unwrap();
    let checkpoint = |version: u64| {
        let bytes = vec![version as u8; 2_200_000];
        engine
            .checkpoint(version, &[Region::from(bytes.as_slice())])
            .unwrap();
        engine.wait().unwrap();
        assert!(used(&near) <= LIMIT);
    };
    checkpoint(0);
    faults.keep_file(Some(&near.join("rank-0/v00000000000000000000.tfc")));
    (1..12).for_each(checkpoint);
    let there = || {
        let near = Repository::read_only(&near, Options::default()).unwrap();
        let pieces = near.own_pieces().unwrap();
        pieces.iter().map(|one| one.version).collect::<Vec<_>>()
    };
    // Other versions still replace each other in the rest. The newest may have gone past the full node to external storage, as without such
    // a file.
    let now = there();
    assert!(
        now.contains(&0) && now.iter().any(|version| *version > 4),
        "{now:?}"
    );
    faults.keep_file(None);
    (12..20).for_each(checkpoint);
    assert_eq!(engine.versions().len(), 20);
    drop(engine);
    assert!(!there().contains(&0), "{:?}", there());
}
