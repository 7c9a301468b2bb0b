//! A group of engines keeps versions on nodes of their own. The versions of lost nodes are rebuilt when the group starts again.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod nodes;

use nodes::{Group, RANKS, checkpoint, is_there, state};
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Barrier};
use std::time::Duration;
use tierflow_device::{Choice, open};
use tierflow_engine::{Engine, Error as EngineError, Region, RegionMut};
use tierflow_redundancy::{Directory, Member, Redundancy, Sets};
use tierflow_store::Error as StoreError;
use tierflow_testing::assert_matches;

const SCHEMES: &[(Redundancy, &[u32])] = &[
    (Redundancy::Partner, &[1]),
    (Redundancy::Xor { set: 4 }, &[2]),
    (Redundancy::ReedSolomon { data: 2, parity: 2 }, &[0, 3]),
];

/// Asserts that all versions before `first` are there. Makes the eight versions from `first` on durable.
fn go_on(engine: &Engine, rank: u32, first: u64) {
    assert!(engine.damage().is_empty(), "{:?}", engine.damage());
    assert_eq!(engine.latest(None), first.checked_sub(1));
    assert!((0..first).all(|version| is_there(engine, rank, version)));
    (first..first + 8).for_each(|version| checkpoint(engine, rank, version));
    engine.wait().unwrap();
    engine.protect().unwrap();
    assert!((0..first + 8).all(|version| engine.is_durable(version)));
}

#[test]
fn a_group_goes_on_though_nodes_are_lost() {
    for (scheme, lost) in SCHEMES {
        let group = Group::new(*scheme);
        for first in [0, 8] {
            group.run(|rank, engine| go_on(engine, rank, first));
            lost.iter().for_each(|rank| group.lose(*rank));
        }
        group.run(|rank, engine| go_on(engine, rank, 16));
    }
}

#[test]
fn nodes_of_other_names_take_the_places_of_lost_ones() {
    for (scheme, lost) in SCHEMES {
        let group = Group::new(*scheme);
        group.run(|rank, engine| go_on(engine, rank, 0));
        // The new names sort before and behind all others, so the sets are chosen anew.
        for (rank, by) in lost.iter().zip(["another", "spare"]) {
            group.replace(*rank, by);
        }
        group.run(|rank, engine| go_on(engine, rank, 8));
        group.replace(lost[0], "zeta");
        group.run(|rank, engine| go_on(engine, rank, 16));
    }
}

#[test]
fn redundancy_that_is_driven_by_calls_sends_in_calls_alone() {
    for (scheme, lost) in SCHEMES {
        let mut group = Group::new(*scheme);
        group.is_driven = true;
        for first in [0, 8] {
            group.run(|rank, engine| {
                go_on(engine, rank, first);
                checkpoint(engine, rank, first + 100);
                engine.wait().unwrap();
                // No other member has a part of the version's parity yet.
                assert!(!engine.is_durable(first + 100));
                engine.discard(first + 100).unwrap();
            });
            lost.iter().for_each(|rank| group.lose(*rank));
        }
        group.run(|rank, engine| go_on(engine, rank, 16));
    }
}

/// Returns the error text of a rank for a lost version.
fn loss(engine: &Engine, version: u64) -> String {
    let error = engine.restore_size(version).unwrap_err();
    assert_matches!(error, EngineError::Storage(StoreError::Lost { .. }));
    let text = error.to_string();
    let damage = engine.damage();
    assert!(
        damage.iter().any(|damage| damage.what == text),
        "{damage:?}"
    );
    text
}

#[test]
fn more_losses_are_errors_and_the_group_starts_anew() {
    let group = Group::new(Redundancy::Xor { set: 4 });
    group.run(|rank, engine| {
        (0..3).for_each(|version| checkpoint(engine, rank, version));
        engine.wait().unwrap();
    });
    group.replace(0, "spare0");
    group.replace(1, "spare1");
    group.run(|rank, engine| {
        assert_eq!(engine.latest(None), None);
        for version in 0..3 {
            let text = loss(engine, version);
            assert!(
                text.contains("rank 0 on node0, rank 1 on node1 lost it"),
                "{text}"
            );
            assert!(text.contains("no version of all ranks is left"), "{text}");
        }
        checkpoint(engine, rank, 3);
        engine.wait().unwrap();
    });
    group.run(|rank, engine| assert!(is_there(engine, rank, 3)));
}

#[test]
fn versions_of_a_new_start_count_before_rebuilt_ones() {
    let group = Group::new(Redundancy::Partner);
    group.run(|rank, engine| {
        (0..4).for_each(|version| checkpoint(engine, rank, version));
        engine.wait().unwrap();
    });
    // The versions of rank 1 are rebuilt, and are of no use without those of ranks 2 and 3.
    for (rank, by) in [(1, "node1b"), (2, "node2b"), (3, "node3b")] {
        group.replace(rank, by);
    }
    // The next run writes other contents under the same numbers, in another order.
    let anew = |version| version + 40;
    group.run(|rank, engine| {
        assert_eq!(engine.latest(None), None);
        for version in [3, 2, 1, 0] {
            let state = state(rank, anew(version));
            let regions = [Region::from(state.as_slice())];
            engine.checkpoint(version, &regions).unwrap();
            engine.wait().unwrap();
        }
    });
    group.run(|rank, engine| {
        assert_eq!(engine.versions(), [0, 1, 2, 3]);
        for version in 0..4 {
            let expected = state(rank, anew(version));
            let mut bytes = vec![0; expected.len()];
            let into = &mut [RegionMut::from(bytes.as_mut_slice())];
            engine.restore(version, into).unwrap();
            assert!(bytes == expected, "rank {rank}, version {version}");
        }
    });
}

#[test]
fn more_losses_name_the_newest_version_on_external_storage() {
    let mut group = Group::new(Redundancy::Xor { set: 4 });
    group.has_external = true;
    group.run(|rank, engine| go_on(engine, rank, 0));
    // External storage fails, so later versions do not get there.
    let external = group.home.path().join("external");
    let (away, waits) = (group.home.path().join("away"), Barrier::new(RANKS as usize));
    group.run(|rank, engine| {
        if waits.wait().is_leader() {
            std::fs::rename(&external, &away).unwrap();
        }
        waits.wait();
        checkpoint(engine, rank, 8);
        engine.wait().unwrap_err();
        engine.protect().unwrap();
        waits.wait();
    });
    std::fs::rename(&away, &external).unwrap();
    group.lose(2);
    group.lose(3);
    group.run(|rank, engine| {
        assert_eq!(engine.latest(None), Some(7));
        assert!((0..8).all(|version| is_there(engine, rank, version)));
        let text = loss(engine, 8);
        assert!(text.contains("rank 2 on node2, rank 3 on node3"), "{text}");
        assert!(
            text.contains("the newest version that can still be had is 7"),
            "{text}"
        );
    });
}

#[test]
fn versions_on_nodes_alone_reach_external_storage_though_a_node_is_lost() {
    let mut group = Group::new(Redundancy::Partner);
    group.has_external = true;
    group.run(|rank, engine| go_on(engine, rank, 0));
    // External storage is lost with all versions.
    std::fs::remove_dir_all(group.home.path().join("external")).unwrap();
    group.run(|rank, engine| go_on(engine, rank, 8));
    std::fs::remove_dir_all(group.home.path().join("external")).unwrap();
    group.lose(1);
    group.run(|rank, engine| go_on(engine, rank, 16));
    (0..RANKS).for_each(|rank| group.lose(rank));
    group.run(|rank, engine| go_on(engine, rank, 24));
}

#[test]
fn a_version_that_a_rank_does_not_take_is_not_reported_durable() {
    let group = Group::new(Redundancy::Partner);
    let members = (0..RANKS).map(|rank| Member {
        rank,
        node: group.host(rank),
    });
    let sets = Sets::choose(&members.collect::<Vec<_>>(), group.scheme).unwrap();
    let set = sets.of(3).unwrap().members.iter();
    let partner = set
        .map(|member| member.rank)
        .find(|rank| *rank != 3)
        .unwrap();
    let waits = Barrier::new(RANKS as usize);
    group.run(|rank, engine| {
        // Rank 3's partner takes a version that rank 3 does not take.
        if rank == partner {
            checkpoint(engine, rank, 5);
            let waited = engine.call().within(Duration::from_millis(300)).wait();
            assert_matches!(waited, Err(EngineError::TimedOut { .. }));
            assert!(!engine.is_durable(5));
        }
        waits.wait();
        if rank != partner {
            checkpoint(engine, rank, 5);
        }
        engine.wait().unwrap();
        assert!(engine.is_durable(5));
    });
}

/// Overwrites all files in a directory and its subdirectories with zeros.
fn overwrite(directory: &Path) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => overwrite(&path),
            false => {
                let bytes = std::fs::metadata(&path).unwrap().len();
                std::fs::write(&path, vec![0; bytes as usize]).unwrap();
            }
        }
    }
}

#[test]
fn a_piece_that_cannot_be_read_is_an_error_of_all_members_and_not_protected() {
    let mut group = Group::new(Redundancy::Xor { set: 4 });
    group.is_driven = true;
    let waits = Barrier::new(RANKS as usize);
    group.run(|rank, engine| {
        checkpoint(engine, rank, 0);
        engine.wait().unwrap();
        if rank == 1 {
            overwrite(&group.node(rank).join("rank-1"));
        }
        waits.wait();
        let protected = engine.protect();
        assert!(protected.is_err(), "rank {rank}: {protected:?}");
        assert!(!engine.is_durable(0), "rank {rank}");
    });
}

#[test]
fn a_transport_that_panics_is_an_error_of_those_who_wait() {
    let group = Group::new(Redundancy::Partner);
    let waits = Barrier::new(RANKS as usize);
    group.run(|rank, engine| {
        checkpoint(engine, rank, 0);
        engine.wait().unwrap();
        waits.wait();
        group.panics.store(true, Relaxed);
        checkpoint(engine, rank, 1);
        let waited = engine.call().within(Duration::from_secs(60)).wait();
        assert_matches!(waited, Err(EngineError::Storage(StoreError::Unprotected(why))) if why.contains("no messages today"));
        assert!(engine.is_durable(0) && !engine.is_durable(1));
    });
}

#[test]
fn too_few_nodes_are_reported_and_versions_are_stored_without_parity() {
    let group = Group::new(Redundancy::ReedSolomon { data: 2, parity: 2 });
    for rank in 0..RANKS {
        // Three ranks share a node.
        group.hosts.lock().unwrap()[rank as usize] = format!("node{}", rank / 3);
    }
    group.run(|rank, engine| {
        let damage = engine.damage();
        assert_eq!(damage.len(), 1, "{damage:?}");
        assert!(damage[0].what.contains("too few nodes"), "{damage:?}");
        checkpoint(engine, rank, 0);
        engine.wait().unwrap();
    });
    group.run(|rank, engine| assert!(is_there(engine, rank, 0)));
}

#[test]
fn discarded_versions_do_not_come_back() {
    let group = Group::new(Redundancy::Xor { set: 4 });
    group.run(|rank, engine| {
        go_on(engine, rank, 0);
        [2, 7]
            .into_iter()
            .for_each(|version| engine.discard(version).unwrap());
    });
    group.lose(1);
    group.run(|_, engine| assert_eq!(engine.versions(), [0, 1, 3, 4, 5, 6]));
}

#[test]
fn redundancy_without_a_node_or_others_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let transport = || Arc::new(Directory::open(home.path(), 1, 0).unwrap());
    let engine = |local: bool, group: bool| {
        let mut builder = Engine::builder(&open(Choice::Host).unwrap())
            .external(home.path().join("external"))
            .redundancy(Redundancy::Partner.over(transport()));
        if local {
            builder = builder.node_local(home.path().join("node"));
        }
        if group {
            builder = builder.group(tierflow_engine::Group::new(0, 1, 1));
        }
        builder.build().map(drop)
    };
    let text = |local, group| engine(local, group).unwrap_err().to_string();
    assert!(text(false, true).contains("give it node_local"));
    assert!(text(true, false).contains("give it group"));
    engine(true, true).unwrap();
}
