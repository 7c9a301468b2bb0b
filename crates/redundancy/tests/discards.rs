//! Ranks end while they discard versions. The next start finds each version whole on all ranks or on none, and reports none as lost.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod nodes;

use nodes::{Group, RANKS, checkpoint, is_there};
use std::path::PathBuf;
use tierflow_redundancy::Redundancy;
use tierflow_store::{Options, Repository};

/// The files of a version in the redundancy's directory. A rank may fail to remove any of them.
const KINDS: [&str; 3] = ["manifest", "parity", "piece"];

/// Number of versions before any is discarded.
const COUNT: u64 = 3;

/// The first removals of all ranks, up to the point at which a rank ends.
#[derive(Debug, Clone, Copy)]
struct Prefix {
    /// The ranks before this one have removed all files.
    rank: u32,
    /// The file at which this rank stopped. `None` if it has removed nothing.
    stops_at: Option<&'static str>,
}

impl Prefix {
    fn discards(self, rank: u32) -> bool {
        rank < self.rank || (rank == self.rank && self.stops_at.is_some())
    }

    fn all() -> impl Iterator<Item = Self> {
        (0..=RANKS).flat_map(|rank| {
            let at = KINDS.iter().copied().map(Some);
            let at = at.filter(move |_| rank < RANKS);
            let prefix = move |stops_at| Self { rank, stops_at };
            std::iter::once(None).chain(at).map(prefix)
        })
    }
}

fn path(group: &Group, rank: u32, version: u64, kind: &str) -> PathBuf {
    let store = group.node(rank).join(format!("redundancy/{rank}"));
    store.join(format!("{version:020}.{kind}"))
}

/// Replaces a file by a directory that is not empty, so that the rank fails to remove it.
fn obstruct(path: &PathBuf) {
    if path.exists() {
        std::fs::rename(path, path.with_extension("away")).unwrap();
    }
    std::fs::create_dir_all(path.join("in the way")).unwrap();
}

fn clear(path: &PathBuf) {
    std::fs::remove_dir_all(path).unwrap();
    let away = path.with_extension("away");
    if away.exists() {
        std::fs::rename(away, path).unwrap();
    }
}

/// Makes a group whose ranks took `COUNT` versions, and ended while they removed some of them.
fn ended(scheme: Redundancy, discarded: &[u64], prefix: Prefix) -> Group {
    ended_of(Group::new(scheme), discarded, prefix)
}

fn ended_of(mut group: Group, discarded: &[u64], prefix: Prefix) -> Group {
    group.run(|rank, engine| {
        (0..COUNT).for_each(|version| checkpoint(engine, rank, version));
        engine.wait().unwrap();
        engine.protect().unwrap();
    });
    let obstacles = discarded.iter().flat_map(|version| {
        let kinds = prefix.stops_at.into_iter();
        kinds.map(|kind| path(&group, prefix.rank, *version, kind))
    });
    let obstacles: Vec<PathBuf> = obstacles.collect();
    group.run(|rank, engine| {
        if rank == prefix.rank {
            obstacles.iter().for_each(obstruct);
        }
        if prefix.discards(rank) {
            let versions = discarded.iter();
            versions.for_each(|version| engine.discard(*version).unwrap());
        }
    });
    obstacles.iter().for_each(clear);
    group.refuses = true;
    group
}

/// Returns the versions that the ranks offer. Asserts that they are whole, and the same on all ranks.
fn offered(group: &Group, case: &str) -> Vec<u64> {
    let offered = group.threads(|rank, run| {
        let built = group.builder(rank, run).build();
        let engine = built.unwrap_or_else(|error| panic!("{case}: {error}"));
        assert!(engine.damage().is_empty(), "{case}: {:?}", engine.damage());
        let versions = engine.versions();
        let is_whole = |version: &u64| is_there(&engine, rank, *version);
        assert!(versions.iter().all(is_whole), "{case}: {versions:?}");
        versions
    });
    for (rank, versions) in offered.iter().enumerate() {
        assert_eq!(versions, &offered[0], "{case}: rank {rank}");
    }
    offered[0].clone()
}

#[test]
fn a_version_whose_removal_was_cut_short_is_whole_or_gone_and_not_lost() {
    let xor = Redundancy::Xor { set: 4 };
    for (scheme, discarded) in [
        (xor, &[1][..]),
        (xor, &[0, 1, 2]),
        (Redundancy::Partner, &[0, 2]),
    ] {
        for prefix in Prefix::all() {
            let case = format!("{scheme:?}, {discarded:?} discarded, {prefix:?}");
            let group = ended(scheme, discarded, prefix);
            let there = offered(&group, &case);
            let is_there = |version: &u64| there.contains(version);
            let mut kept = (0..COUNT).filter(|version| !discarded.contains(version));
            assert!(kept.all(|version| is_there(&version)), "{case}: {there:?}");
            // Versions that were discarded together stay or go together. No version comes back once a rank has removed its piece.
            let left = discarded.iter().filter(|version| is_there(version)).count();
            let may_be_left = prefix.rank == 0 && left == discarded.len();
            assert!(left == 0 || may_be_left, "{case}: {there:?}");
        }
    }
}

#[test]
fn a_version_whose_removal_was_cut_short_is_not_lost_with_a_node() {
    for (at, prefix) in (0..).zip(Prefix::all()) {
        let scheme = match at % 2 {
            0 => Redundancy::Xor { set: 4 },
            _ => Redundancy::Partner,
        };
        for lost in [prefix.rank, prefix.rank + 1].map(|rank| rank % RANKS) {
            let case = format!("{scheme:?}, {prefix:?}, node {lost} lost");
            let group = ended(scheme, &[1], prefix);
            group.lose(lost);
            let there = offered(&group, &case);
            assert!(there == [0, 2] || there == [0, 1, 2], "{case}: {there:?}");
        }
    }
}

#[test]
fn remains_of_a_discarded_version_go_with_the_next_one() {
    for rank in 1..RANKS {
        let case = format!("ranks before {rank} have discarded it");
        let stops_at = None;
        let group = ended(Redundancy::Xor { set: 4 }, &[1], Prefix { rank, stops_at });
        assert_eq!(offered(&group, &case), [0, 2]);
        let left = || {
            let kinds = |rank| KINDS.map(|kind| path(&group, rank, 1, kind));
            let left = (0..RANKS).flat_map(kinds).filter(|path| path.exists());
            left.count()
        };
        assert!(left() > 0, "{case}: a start removed something");
        group.run(|rank, engine| {
            checkpoint(engine, rank, COUNT);
            engine.wait().unwrap();
        });
        assert_eq!(left(), 0, "{case}");
        assert_eq!(offered(&group, &case), [0, 2, COUNT]);
    }
}

#[test]
fn a_number_that_is_used_again_is_protected() {
    let group = Group::new(Redundancy::Xor { set: 4 });
    group.run(|rank, engine| {
        (0..COUNT).for_each(|version| checkpoint(engine, rank, version));
        engine.wait().unwrap();
    });
    group.run(|rank, engine| {
        engine.discard(1).unwrap();
        checkpoint(engine, rank, COUNT);
        engine.wait().unwrap();
    });
    group.run(|rank, engine| {
        checkpoint(engine, rank, 1);
        engine.wait().unwrap();
    });
    group.lose(2);
    assert_eq!(offered(&group, "used again"), [0, 1, 2, COUNT]);
}

#[test]
fn above_external_storage_a_discarded_version_is_neither_lost_nor_back() {
    for scheme in [Redundancy::Xor { set: 4 }, Redundancy::Partner] {
        for rank in 0..=RANKS {
            let case = format!("{scheme:?}, ranks before {rank} have discarded it");
            let mut group = Group::new(scheme);
            group.has_external = true;
            let stops_at = None;
            let group = ended_of(group, &[1], Prefix { rank, stops_at });
            let there = offered(&group, &case);
            let is_kept = rank == 0;
            assert_eq!(there.contains(&1), is_kept, "{case}: {there:?}");
            assert!(
                there.contains(&0) && there.contains(&2),
                "{case}: {there:?}"
            );
        }
    }
}

/// Returns the number of a rank's notes of discarded versions.
fn notes(group: &Group, rank: u32) -> usize {
    let store = group.node(rank).join(format!("redundancy/{rank}"));
    let names = std::fs::read_dir(store)
        .unwrap()
        .map(|entry| entry.unwrap().file_name());
    let names = names.map(|name| name.into_string().unwrap());
    // The other notes belong to runs that continue from older versions, and name only their first version.
    let is_of_discarded = |name: &String| name.ends_with(".cut") && name.matches('-').count() == 2;
    names.filter(is_of_discarded).count()
}

#[test]
fn a_piece_that_external_storage_has_goes_from_the_node_without_a_note() {
    let mut group = Group::new(Redundancy::Xor { set: 4 });
    group.has_external = true;
    group.node_limit = Some(16_000);
    group.run(|rank, engine| {
        for version in [0, 1, 2, 4, 5, 6, 8, 9, 10] {
            checkpoint(engine, rank, version);
            engine.wait().unwrap();
        }
    });
    for rank in 0..RANKS {
        let options = Options::default().rank(rank, RANKS);
        let node = Repository::read_only(group.node(rank), options).unwrap();
        assert!(node.own_pieces().unwrap().len() < 9);
        assert_eq!(notes(&group, rank), 0, "rank {rank}");
    }
    assert_eq!(offered(&group, "evicted").len(), 9);
}
