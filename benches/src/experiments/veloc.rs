//! Several local stores in front of an external storage, with real bytes (VeloC, IPDPS'19, Figures 3 to 6), in two halves. The memory
//! store is a memory file system in both. In the first half, a *throttled* memory file system replaces the disk, so that other load of
//! the machine hardly matters. In the second half, the disk is the machine's disk, by direct I/O. The external storage is a *throttled*
//! memory file system in both, in place of a parallel file system.
//!
//! `TIERFLOW_MEMORY` and `TIERFLOW_DISK` name other folders than `/dev/shm` and the one for temporary files.

use anyhow::Result;

use super::Run;

mod checkpoint;
mod compare;
mod stores;

use compare::{Case, Tally, compare};
use stores::StoreMachine;

/// The number of nodes, and the share of a parallel file system that each node has, in multiples of the disk's bandwidth.
const SHARES: [(usize, f64); 3] = [(64, 3.0), (128, 1.5), (256, 0.75)];

/// Bandwidth of an external storage that is slower than the disk, in multiples of the disk's bandwidth.
const SLOW: f64 = 0.5;
/// Bandwidth of an external storage that is faster than the disk, in multiples of the disk's bandwidth.
const FAST: f64 = 3.0;

pub(crate) fn run(run: &mut Run) -> Result<()> {
    let machine = StoreMachine::with_throttled_disk(run)?;
    half(
        run,
        &machine,
        [cases(run.is_quick()), large_cases(run.is_quick())].concat(),
    )?;
    let machine = StoreMachine::with_disk(run)?;
    half(run, &machine, cases(run.is_quick()))
}

fn half(run: &mut Run, machine: &StoreMachine, cases: Vec<Case>) -> Result<()> {
    let mut tally = Tally::default();
    for case in cases {
        compare(run, machine, &case, &mut tally)?;
    }
    tally.report(run, machine)
}

/// Returns the cases that write too much for a real disk: Figure 6 with 64 writers, and Figure 7 at the size of one of its nodes. The node's
/// share of the file system falls with the number of nodes.
fn large_cases(is_quick: bool) -> Vec<Case> {
    if is_quick {
        return Vec::new();
    }
    let by_cache = [32, 64, 128].map(|cache_chunks| Case {
        figure: "64 writers",
        writers: 64,
        chunks_each: 4,
        cache_chunks,
        times: FAST,
        last: ("chunks in the cache", cache_chunks),
    });
    let by_nodes = SHARES.map(|(nodes, times)| Case {
        figure: "a node of many",
        writers: 16,
        chunks_each: 4,
        cache_chunks: 8,
        times,
        last: ("nodes", nodes),
    });
    [by_cache, by_nodes].concat()
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
    cases.extend([8, 16, 32].map(|cache_chunks| Case {
        figure: "16 writers",
        cache_chunks,
        last: ("chunks in the cache", cache_chunks),
        ..fixed_total(FAST, 16)
    }));
    cases
}
