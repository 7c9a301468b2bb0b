//! Memory that pieces take beside the caller's.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)]

use std::sync::Barrier;
use tierflow_store::{Options, Region, Repository, Snapshot};

const THREADS: usize = 4;
/// Bytes of a piece: parts for all threads.
const SIZE: usize = 32 << 20;
/// Bytes of one buffer.
const BUFFER: u64 = 4 << 20;

/// Bytes of this process, as the kernel counts them.
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

/// The only test of this file, as it looks at the memory of the whole process.
#[test]
fn pieces_that_are_saved_at_a_time_share_the_buffers_of_one() {
    let home = tempfile::tempdir().unwrap();
    let repository = Repository::open(home.path(), Options::default().threads(THREADS)).unwrap();
    let bytes = vec![7; SIZE];
    let save = |version| {
        let regions = [Region::new("state", &bytes)];
        repository.save(&Snapshot::new(version, &regions)).unwrap();
    };
    // Code and the catalog's memory are there after the first.
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
