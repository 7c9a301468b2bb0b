//! Random histories of groups of two to four nodes: mounts are missing at some starts, nodes come in other orders, spares take any
//! place, and nodes are lost within the tolerance of the code. No acknowledged version is lost, and no start deletes one.
//! `TIERFLOW_HISTORIES` sets the number of histories.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod nodes;

use nodes::{Group, checkpoint, is_there};
use std::collections::BTreeSet;
use tierflow_redundancy::Redundancy;
use tierflow_testing::{Draws, variable};

/// Runs a history. After each start, all acknowledged versions must be there, unless more nodes are away than the code tolerates.
fn history(seed: u64) -> (usize, usize) {
    let mut draws = Draws(seed);
    draws.index(2);
    let ranks = 2 + draws.index(3);
    let schemes = [
        Redundancy::Partner,
        Redundancy::Xor { set: ranks },
        Redundancy::ReedSolomon { data: 2, parity: 2 },
    ];
    let scheme = schemes[draws.index(if ranks == 4 { 3 } else { 2 })];
    let group = Group::of(ranks as u32, scheme);
    let mut hosts: Vec<String> = (0..ranks).map(|rank| format!("node{rank}")).collect();
    // Number of nodes that may be lost before all versions are protected again.
    let mut spares = 0;
    let mut acknowledged = 0_u64;
    let (mut starts, mut missing) = (0, 0);
    for _ in 0..3 + draws.index(4) {
        starts += 1;
        let mut order = hosts.clone();
        if draws.once(2) {
            draws.shuffle(&mut order);
        }
        if draws.once(4) {
            // More nodes are away than the code tolerates, at a start that writes nothing.
            let away: BTreeSet<usize> = (0..ranks).filter(|_| !draws.once(3)).collect();
            missing += usize::from(away.len() > scheme.tolerates());
            away.iter().for_each(|at| group.unmount(&hosts[*at]));
            group.place(&order);
            group.run(|rank, engine| {
                let newest = engine.latest(None);
                assert!(newest < Some(acknowledged), "seed {seed}");
                let newest = newest.into_iter();
                newest.for_each(|version| assert!(is_there(engine, rank, version)));
            });
            away.iter().for_each(|at| group.mount(&hosts[*at]));
            continue;
        }
        if draws.once(2) {
            // A node is lost, and a spare takes any place.
            let lost = draws.index(ranks);
            let name = hosts[lost].clone();
            std::fs::remove_dir_all(group.home.path().join(&name)).unwrap_or_default();
            spares += 1;
            hosts[lost] = format!("spare{spares}");
            let at = order.iter().position(|host| *host == name).unwrap();
            order[at].clone_from(&hosts[lost]);
            if draws.once(2) {
                draws.shuffle(&mut order);
            }
        }
        group.place(&order);
        let more = draws.index(4) as u64;
        group.run(|rank, engine| {
            let end = acknowledged;
            assert!(
                engine.damage().is_empty(),
                "seed {seed}: {:?}",
                engine.damage()
            );
            assert_eq!(
                engine.latest(None),
                end.checked_sub(1),
                "seed {seed}, rank {rank}"
            );
            assert!(
                (0..end).all(|version| is_there(engine, rank, version)),
                "seed {seed}"
            );
            (end..end + more).for_each(|version| checkpoint(engine, rank, version));
            engine.wait().unwrap();
        });
        acknowledged += more;
    }
    (starts, missing)
}

#[test]
fn nothing_acknowledged_is_lost_and_no_start_deletes() {
    let count: u64 = variable("TIERFLOW_HISTORIES", 12);
    let (mut starts, mut missing) = (0, 0);
    for seed in 1..=count {
        let (more_starts, more_missing) = history(seed * 7919);
        starts += more_starts;
        missing += more_missing;
    }
    println!("{count} histories, {starts} starts, {missing} of them without too many nodes");
    assert!(missing > 0);
}
