//! A sweep of a seed is always the same, it has every kind of cell, and no run of it goes below the bound.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::HashSet;
use tierflow_plan::{AfterRestore, Fifo, Lru};
use tierflow_sim::sweep::{Cell, cells, cells_with, wide_cells};
use tierflow_sim::{Error, Op, Simulation, fluid_bound};

/// FNV-1a (Fowler, Noll and Vo) over 64-bit words.
struct Hash(u64);

impl Hash {
    fn word(&mut self, word: u64) {
        for byte in word.to_le_bytes() {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        }
    }

    fn words(&mut self, words: impl IntoIterator<Item = u64>) {
        words.into_iter().for_each(|word| self.word(word));
    }
}

/// Returns a hash of all values on which a run depends. The layout of the types in Rust does not count.
fn hash(cells: &[Cell]) -> u64 {
    let mut hash = Hash(0xcbf2_9ce4_8422_2325);
    for cell in cells {
        hash.words(cell.name.bytes().map(u64::from));
        for (tier, hop) in cell.hardware.tiers.iter().zip(&cell.hardware.hops) {
            hash.words([tier.capacity, tier.alignment, hop.latency_ns]);
            for link in &hop.links {
                hash.words([link.down, link.up, link.both, link.gpus as u64]);
            }
        }
        hash.word(u64::from(cell.workload.after_restore == AfterRestore::Keep));
        for op in &cell.workload.ops {
            match op {
                Op::Compute(ns) => hash.words([0, *ns]),
                Op::Checkpoint { version, bytes } => hash.words([1, *version, *bytes]),
                Op::Restore(version) => hash.words([2, *version]),
                Op::Drop(version) => hash.words([3, *version]),
                Op::Hint(versions) => {
                    hash.words([4, versions.len() as u64]);
                    hash.words(versions.iter().copied());
                }
                Op::PrefetchStart => hash.word(5),
                Op::Wait => hash.word(6),
                Op::Barrier => hash.word(7),
                Op::HintNext(versions) => {
                    hash.words([9, versions.len() as u64]);
                    hash.words(versions.iter().copied());
                }
                Op::ForgetHints(versions) => {
                    hash.words([8, versions.len() as u64]);
                    hash.words(versions.iter().copied());
                }
            }
        }
    }
    hash.0
}

#[test]
fn the_recorded_sweeps_can_be_drawn_again() {
    // The recorded figures in data/ belong to exactly these cells. Read the README there before you change them.
    assert_eq!(hash(&cells(1, 600)), 0xae94_b243_ad05_1f1f);
    assert_eq!(hash(&cells(2, 600)), 0x602f_e734_f618_0520);
}

#[test]
fn a_cell_depends_on_its_seed_and_place_alone() {
    assert_eq!(cells(5, 20)[..10], cells(5, 10));
    let names: HashSet<_> = cells(5, 200).into_iter().map(|cell| cell.name).collect();
    assert_eq!(names.len(), 200);
    assert!(cells(6, 200).iter().all(|cell| !names.contains(&cell.name)));
    assert!(names.iter().all(|name| !name.contains(',')));
}

#[test]
fn every_kind_is_drawn() {
    let names: Vec<_> = cells(5, 400).into_iter().map(|cell| cell.name).collect();
    let has = |word: &str| names.iter().any(|name| name.contains(word));
    for word in [
        "MB/s versions",
        "shared",
        "sizes=uniform",
        "sizes=made-up",
        "sizes=growing",
        "sizes=shrinking",
        "sizes=random",
        "sizes=bimodal",
        "order=sequential",
        "order=reverse ",
        "order=irregular ",
        "order=reverse-blocks(32)",
        "order=irregular-blocks(4)",
        "order=strides(16)",
        "shots=1",
        "shots=2",
        "shots=3",
        "hints=all",
        "hints=single",
        "hints=none",
        "hints=late(0%)",
        "hints=late(50%)",
        "hints=parts(2)",
        "hints=wrong(25% misplaced)",
        "hints=wrong(5% unwritten)",
        "wait=true",
        "wait=false",
        "keep=false passes=1",
        "keep=true passes=1",
        "keep=true passes=2",
    ] {
        assert!(has(word), "{word}");
    }
    assert!(
        !has("keep=false passes=2"),
        "what is discarded cannot be read again"
    );
}

#[test]
fn wide_cells_depend_on_their_seed_alone_and_cover_every_kind() {
    assert_eq!(wide_cells(5, 20)[..10], wide_cells(5, 10));
    let names: Vec<_> = wide_cells(5, 400)
        .into_iter()
        .map(|cell| cell.name)
        .collect();
    let distinct: HashSet<_> = names.iter().chain(&wide_names(6)).cloned().collect();
    assert_eq!(distinct.len(), 800);
    assert!(names.iter().all(|name| !name.contains(',')));
    for word in [
        "sizes=thousandfold",
        "sizes=bimodal",
        "+shared",
        "read=20%",
        "keep=true passes=2 wait=true",
        "again=4",
        "recent=90%",
        "revolve=2 ",
        "hints=all",
        "hints=none",
        "hints=single",
        "hints=late(",
        "hints=parts(",
        "hints=wrong(",
    ] {
        assert!(names.iter().any(|name| name.contains(word)), "{word}");
    }
}

fn wide_names(seed: u64) -> Vec<String> {
    wide_cells(seed, 400)
        .into_iter()
        .map(|cell| cell.name)
        .collect()
}

#[test]
fn recorded_sizes_take_the_place_of_made_up_ones() {
    let recorded = [vec![1, 2, 3], vec![5, 4]];
    let (made_up, with) = (cells(5, 60), cells_with(5, 60, &recorded));
    let differs: Vec<_> = made_up.iter().zip(&with).filter(|(a, b)| a != b).collect();
    assert!(!differs.is_empty());
    for (made_up, with) in differs {
        assert!(made_up.name.contains("sizes=made-up"));
        assert!(with.name.contains("sizes=recorded("));
        assert!(with.workload.bytes().abs_diff(made_up.workload.bytes()) < 10_000);
    }
}

/// Returns the number of cells to run: `TIERFLOW_SWEEP_CELLS`, or a few.
fn count() -> usize {
    tierflow_testing::variable("TIERFLOW_SWEEP_CELLS", 12)
}

#[test]
fn no_run_goes_below_the_bound() {
    let mut ran = 0;
    for Cell {
        name,
        hardware,
        workload,
        ..
    } in cells(3, count()).into_iter().chain(wide_cells(3, count()))
    {
        let workloads = [workload];
        let bound = fluid_bound(&hardware, &workloads).unwrap();
        assert!(0 < bound.copies_ns && bound.copies_ns <= bound.lost_ns + 1);
        let own = Simulation::new(hardware.clone());
        let fifo = Simulation::new(hardware.clone()).policy(|| Fifo);
        let lru = Simulation::new(hardware).policy(|| Lru);
        for simulation in [own, fifo, lru] {
            match simulation.run(&workloads) {
                Ok(outcome) => {
                    ran += 1;
                    assert!(outcome.lost_ns() >= bound.lost_ns, "{bound:?} in {name}");
                }
                Err(Error::Stalled { .. }) => {}
                Err(error) => panic!("{error} in {name}"),
            }
        }
    }
    assert!(ran > count() * 4);
}
