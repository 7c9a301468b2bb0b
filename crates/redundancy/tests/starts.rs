//! Tests of starts at which nodes are missing, come back, or have other places in the list of hosts.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod nodes;

use nodes::{Group, PATIENCE, checkpoint, is_there};
use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};
use tierflow_engine::{BuildError, Engine, Error};
use tierflow_redundancy::Redundancy;

/// Asserts that all versions before `end` are there without a report of damage. Makes `end` and the seven versions behind it durable.
fn go_on(engine: &Engine, rank: u32, end: u64) {
    offers(engine, rank, end);
    (end..end + 8).for_each(|version| checkpoint(engine, rank, version));
    engine.wait().unwrap();
}

fn offers(engine: &Engine, rank: u32, end: u64) {
    assert!(engine.damage().is_empty(), "{:?}", engine.damage());
    assert_eq!(engine.latest(None), end.checked_sub(1), "rank {rank}");
    assert!((0..end).all(|version| is_there(engine, rank, version)));
}

#[test]
fn versions_missing_at_one_start_are_offered_at_the_next() {
    let group = Group::new(Redundancy::Xor { set: 4 });
    group.run(|rank, engine| go_on(engine, rank, 0));
    // More nodes are missing than the code tolerates.
    group.unmount("node1");
    group.unmount("node2");
    group.run(|_, engine| assert_eq!(engine.latest(None), None));
    group.mount("node1");
    group.mount("node2");
    group.run(|rank, engine| go_on(engine, rank, 8));
    group.run(|rank, engine| offers(engine, rank, 16));
}

#[test]
fn versions_that_a_run_continued_without_do_not_come_back() {
    let group = Group::new(Redundancy::Partner);
    group.run(|rank, engine| go_on(engine, rank, 0));
    (0..3).for_each(|node| group.unmount(&format!("node{node}")));
    group.run(|rank, engine| {
        assert_eq!(engine.latest(None), None);
        (0..3).for_each(|version| checkpoint(engine, rank, version));
        engine.wait().unwrap();
    });
    (0..3).for_each(|node| group.mount(&format!("node{node}")));
    // Of the first run's versions, only rank 3 still counts, and its partner has the parity. The versions must not come back.
    group.run(|_, engine| assert!(engine.latest(None).is_none_or(|newest| newest < 3)));
}

#[test]
fn no_rank_offers_versions_that_one_rank_gave_up() {
    let group = Group::new(Redundancy::Xor { set: 4 });
    group.run(|rank, engine| go_on(engine, rank, 0));
    let of = |rank: u32| truncations(&group.node(rank).join(format!("rank-{rank}")));
    let before = [of(0), of(3)];
    group.unmount("node1");
    group.unmount("node2");
    group.run(|rank, engine| {
        // The other ranks end before they take the version.
        if rank == 3 {
            checkpoint(engine, rank, 0);
            let begun = Instant::now();
            while of(3) == before[1] {
                assert!(begun.elapsed() < PATIENCE);
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    });
    assert_eq!(of(0), before[0]);
    assert!(of(1).is_empty() && of(2).is_empty());
    group.mount("node1");
    group.mount("node2");
    group.run(|rank, engine| go_on(engine, rank, 0));
    group.lose(1);
    group.run(|rank, engine| offers(engine, rank, 8));
}

/// Returns the notes of truncations in a rank's directory.
fn truncations(directory: &Path) -> BTreeSet<String> {
    let names = std::fs::read_dir(directory).into_iter().flatten();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.ends_with(".cut")).collect()
}

#[test]
fn nodes_in_another_order_bring_their_versions() {
    for scheme in [Redundancy::Xor { set: 4 }, Redundancy::Partner] {
        let group = Group::new(scheme);
        group.run(|rank, engine| go_on(engine, rank, 0));
        group.place(&["node2", "node0", "node3", "node1"]);
        group.run(|rank, engine| go_on(engine, rank, 8));
        // The nodes have their first order again, and each rank finds its first files.
        group.place(&["node0", "node1", "node2", "node3"]);
        group.run(|rank, engine| go_on(engine, rank, 16));
    }
}

#[test]
fn directories_that_ranks_left_go_once_a_version_is_durable() {
    let group = Group::new(Redundancy::Xor { set: 4 });
    group.run(|rank, engine| go_on(engine, rank, 0));
    group.place(&["node2", "node0", "node3", "node1"]);
    let left = || {
        let pieces = (0..4).map(|rank| format!("node{rank}/rank-{rank}"));
        let parity = (0..4).map(|rank| format!("node{rank}/redundancy/{rank}"));
        let all = pieces.chain(parity);
        let there = all.filter(|path| group.home.path().join(path).exists());
        there.count()
    };
    group.run(|rank, engine| offers(engine, rank, 8));
    assert_eq!(left(), 8, "a start that writes nothing removes nothing");
    group.run(|rank, engine| go_on(engine, rank, 8));
    assert_eq!(left(), 0);
    group.lose(1);
    group.run(|rank, engine| offers(engine, rank, 16));
}

#[test]
fn a_directory_that_a_group_of_another_size_wrote_to_stays() {
    let mut group = Group::new(Redundancy::Partner);
    group.ranks = 2;
    group.run(|rank, engine| go_on(engine, rank, 0));
    group.ranks = 4;
    group.place(&["node1", "node0", "node3", "node2"]);
    group.run(|rank, engine| {
        checkpoint(engine, rank, 100);
        engine.wait().unwrap();
    });
    for rank in 0..2 {
        let left = group.home.path().join(format!("node{rank}/rank-{rank}"));
        assert!(left.exists(), "{}", left.display());
    }
}

#[test]
fn a_spare_node_may_take_any_place() {
    for scheme in [Redundancy::Xor { set: 4 }, Redundancy::Partner] {
        let group = Group::new(scheme);
        group.run(|rank, engine| go_on(engine, rank, 0));
        // Node 2 is lost, and node 3 takes its place.
        group.lose(2);
        group.place(&["node0", "node1", "node3", "node9"]);
        group.run(|rank, engine| go_on(engine, rank, 8));
        group.run(|rank, engine| offers(engine, rank, 16));
    }
}

#[test]
fn large_pieces_move_in_the_applications_calls_too() {
    let mut group = Group::new(Redundancy::Xor { set: 4 });
    group.is_driven = true;
    group.run(|rank, engine| {
        go_on(engine, rank, 0);
        engine.protect().unwrap();
    });
    group.place(&["node1", "node0", "node3", "node2"]);
    group.run(|rank, engine| offers(engine, rank, 8));
}

#[test]
fn losses_are_told_by_rank_0_and_refused_where_that_is_asked_for() {
    // The sets have two members. Ranks 0 and 2 still have their own pieces.
    let mut group = Group::new(Redundancy::Partner);
    group.run(|rank, engine| go_on(engine, rank, 0));
    group.unmount("node1");
    group.unmount("node3");
    let expected = "versions 0 to 7: rank 1 on node1, rank 3 on node3 lost";
    let lost_together = {
        let told = group.run(|_, engine| engine.damage());
        let line = told[0].iter().find(|damage| damage.version.is_none());
        line.map(|damage| damage.what.clone())
    };
    // Nodes 0 and 2 are partners by their names, and nodes 1 and 3 are.
    let line = lost_together.unwrap();
    assert!(
        line.contains("versions 0 to 7: rank 1 on node1, rank 3 on node3 lost"),
        "{line}"
    );
    group.refuses = true;
    for error in group.try_run() {
        let error = error.unwrap_err();
        let Error::Build(BuildError::Losses { losses }) = &error else {
            panic!("{error}");
        };
        assert!(losses.starts_with(expected), "{error}");
    }
    group.mount("node1");
    group.mount("node3");
    group.run(|rank, engine| go_on(engine, rank, 8));
}

#[test]
fn versions_of_another_number_of_ranks_are_named() {
    let mut group = Group::new(Redundancy::Xor { set: 4 });
    group.run(|rank, engine| go_on(engine, rank, 0));
    for ranks in [3, 6] {
        group.ranks = ranks;
        let hosts: Vec<String> = (0..ranks).map(|rank| format!("node{rank}")).collect();
        group.place(&hosts);
        let told = group.run(|_, engine| {
            assert_eq!(engine.latest(None), None);
            engine.damage()
        });
        for (rank, damage) in told.iter().enumerate() {
            let lines: Vec<&String> = damage.iter().map(|damage| &damage.what).collect();
            assert_eq!(lines.len(), usize::from(rank < 4), "{lines:?}");
            let expected = "versions 0 to 7 there are of a group of 4 ranks";
            assert!(
                lines.iter().all(|line| line.contains(expected)),
                "{lines:?}"
            );
        }
    }
    // The start of a group of another size deleted nothing.
    group.ranks = 4;
    group.place(&["node0", "node1", "node2", "node3"]);
    group.run(|rank, engine| go_on(engine, rank, 8));
}
