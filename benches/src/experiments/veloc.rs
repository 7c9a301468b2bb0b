//! Several local stores in front of an external one, for real (VeloC, IPDPS'19, Figures 3 to 6), in two halves.
//! Memory is a memory file system in both. In the first, a *throttled* memory file system stands for the disk, so that
//! what else the machine does hardly matters; in the second it is the machine's disk, by direct I/O. The external storage is a
//! *throttled* memory file system that stands for a parallel file system, in both.
//!
//! `TIERFLOW_MEMORY` and `TIERFLOW_DISK` name other folders than `/dev/shm` and the one for temporary files.

use anyhow::Result;

use super::Run;

mod checkpoint;
mod compare;
mod stores;

use compare::{Case, Tally, compare};
use stores::StoreMachine;

/// An external storage that is slower than the disk, and one that is faster: times the disk's bandwidth.
const SLOW: f64 = 0.5;
const FAST: f64 = 3.0;

pub(crate) fn run(run: &mut Run) -> Result<()> {
    half(run, &StoreMachine::with_throttled_disk)?;
    half(run, &StoreMachine::with_disk)
}

fn half(run: &mut Run, calibrated: &dyn Fn(&mut Run) -> Result<StoreMachine>) -> Result<()> {
    let machine = calibrated(run)?;
    let mut tally = Tally::default();
    for case in cases(run.is_quick()) {
        compare(run, &machine, &case, &mut tally)?;
    }
    tally.report(run, &machine)
}

fn cases(is_quick: bool) -> Vec<Case> {
    let chunks = if is_quick { 16 } else { 64 };
    let fixed_total = |times, writers| Case {
        figure: "fixed total",
        writers,
        chunks_each: chunks / writers,
        cache_chunks: 4,
        times,
        last: ("writers", writers),
    };
    if is_quick {
        return vec![fixed_total(FAST, 16)];
    }
    let mut cases = Vec::new();
    // Figure 5.
    for times in [SLOW, FAST] {
        cases.extend([1, 4, 16, 64].map(|writers| fixed_total(times, writers)));
    }
    // Figure 4: the point with 16 writers is that of Figure 5.
    cases.push(Case {
        figure: "4 chunks a writer",
        writers: 32,
        chunks_each: 4,
        cache_chunks: 8,
        times: FAST,
        last: ("writers", 32),
    });
    // Figure 6, with 16 writers.
    cases.extend([8, 16].map(|cache_chunks| Case {
        figure: "16 writers",
        cache_chunks,
        last: ("chunks in the cache", cache_chunks),
        ..fixed_total(FAST, 16)
    }));
    cases
}
