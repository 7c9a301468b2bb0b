//! Measures the memory that saves take beside the caller's.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)]

use std::sync::Barrier;
use tierflow_store::{Options, Region, Repository, Snapshot};

const THREADS: usize = 4;
/// Bytes of a piece, enough for a part of each thread.
const SIZE: usize = 32 << 20;
/// Bytes of one buffer.
const BUFFER: u64 = 4 << 20;

/// Returns a number of bytes from this process's status by its name.
fn status(word: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(word)).unwrap();
    line.split_whitespace()
        .nth(1)
        .unwrap()
        .parse::<u64>()
        .unwrap()
        << 10
}

/// Pieces that are saved at the same time share the buffers of one. The file has one test, as it measures the memory of the process.
#[test]
fn pieces_that_are_saved_at_a_time_share_the_buffers_of_one() {
    let home = tempfile::tempdir().unwrap();
    let repository = Repository::open(home.path(), Options::default().threads(THREADS)).unwrap();
    let bytes = vec![7; SIZE];
    let save = |version| {
        let regions = [Region::new("state", &bytes)];
        repository.save(&Snapshot::new(version, &regions)).unwrap();
    };
    // The first save loads code, and allocates the catalog's memory.
    save(0);
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
    let before = status("VmRSS");
    let start = Barrier::new(8);
    std::thread::scope(|scope| {
        for version in 1..9 {
            let (save, start) = (&save, &start);
            scope.spawn(move || {
                start.wait();
                save(version);
            });
        }
    });
    let beside = status("VmHWM") - before;
    let most = THREADS as u64 * BUFFER + BUFFER;
    assert!(beside <= most, "{} KiB beside", beside >> 10);
}
