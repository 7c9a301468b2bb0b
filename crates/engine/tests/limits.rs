//! The node-local directory has no more bytes than its limit allows, at any time.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use tierflow_device::{Choice, open};
use tierflow_engine::{Engine, Region, Tier};

/// The bytes that the files below a directory have on the disk, at a moment at which none comes or goes.
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

/// The files below a directory, each with the bytes that it has on the disk.
fn files(directory: &Path) -> Vec<(u64, u64)> {
    let mut found = Vec::new();
    let Ok(entries) = std::fs::read_dir(directory) else {
        return found;
    };
    for entry in entries {
        let path = entry.unwrap().path();
        // Some are renamed or removed meanwhile.
        let Ok(metadata) = path.symlink_metadata() else {
            continue;
        };
        match metadata.is_dir() {
            true => found.append(&mut files(&path)),
            false => found.push((metadata.ino(), metadata.blocks() * 512)),
        }
    }
    found.sort_unstable();
    found
}

const LIMIT: u64 = 8 << 20;
const ALL: u64 = 96;
const THREADS: usize = 3;

/// Writes many times the limit by some threads. Returns the most bytes that the directory had meanwhile.
fn most(lengths: &[usize]) -> u64 {
    let home = tempfile::tempdir().unwrap();
    let (near, far) = (home.path().join("near"), home.path().join("far"));
    let device = open(Choice::Host).unwrap();
    let engine = Engine::builder(&device)
        .host_cache(8 << 20)
        .tier(Tier::node_local(&near).limit(LIMIT))
        .external(&far)
        .build()
        .unwrap();
    let checkpoint = |version: u64| {
        let bytes = vec![version as u8; lengths[version as usize % lengths.len()]];
        let regions = [Region::from(bytes.as_slice())];
        engine.checkpoint(version, &regions).unwrap();
    };
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
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
    })
}

#[test]
fn versions_in_flight_stay_within_the_limit() {
    for lengths in [
        &[2_200_000][..],
        &[1_100_000, 1_600_000, 2_200_000],
        &[1_100_000, 1_600_000, 2_200_000, 3_000],
    ] {
        // Small versions share files, which are written anew when some go, and of what goes a 64th may stay.
        let limit = match lengths.contains(&3_000) {
            true => LIMIT + LIMIT / 16,
            false => LIMIT,
        };
        let most = most(lengths);
        assert!(most <= limit, "{lengths:?}: {most} of {limit}");
    }
}
