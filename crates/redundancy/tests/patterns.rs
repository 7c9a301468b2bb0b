//! Ranks are threads, and nodes are directories. Lost files are rebuilt as they were if the code tolerates the loss. Otherwise every rank
//! gets the same error. `TIERFLOW_PATTERNS` sets the number of patterns of losses that are drawn for each scheme.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tierflow_redundancy::{
    Directory, Error, Exchange, Lost, Member, ParityStore, Part, Rebuilt, Redundancy, Result, Sets,
};
use tierflow_testing::{Draws, as_ranks, variable};

const PATIENCE: Duration = Duration::from_secs(120);
/// Number of patterns that a group goes through before the next group is made.
const PATTERNS_OF_A_GROUP: usize = 20;

fn bytes(draws: &mut Draws) -> Vec<u8> {
    // The length is 0, small, or around a chunk of the code.
    let length = match draws.below(8) {
        0 => 0,
        1 => draws.index(4),
        2 => tierflow_redundancy::CHUNK * 2 - 3 + draws.index(6),
        _ => draws.index(3_000),
    };
    draws.bytes(length)
}

struct Group {
    home: tempfile::TempDir,
    sets: Sets,
    parts: Vec<Vec<u8>>,
    sessions: AtomicU64,
}

impl Group {
    fn new(nodes: &[usize], scheme: Redundancy, draws: &mut Draws) -> Self {
        let all = nodes
            .iter()
            .enumerate()
            .flat_map(|(node, count)| vec![node; *count]);
        let members = (0..).zip(all).map(|(rank, node)| Member {
            rank,
            node: format!("node{node}"),
        });
        let members: Vec<Member> = members.collect();
        Self {
            home: tempfile::tempdir().unwrap(),
            sets: Sets::choose(&members, scheme).unwrap(),
            parts: members.iter().map(|_| bytes(draws)).collect(),
            sessions: AtomicU64::new(0),
        }
    }

    fn node(&self, rank: u32) -> PathBuf {
        self.home.path().join(format!("rank{rank}"))
    }

    fn part(&self, rank: u32) -> PathBuf {
        self.node(rank).join("part")
    }

    /// Lets all ranks make a call, each in its own thread.
    fn run<T: Send>(
        &self,
        call: impl Fn(u32, &Exchange<'_>) -> Result<T> + Sync,
    ) -> Vec<Result<T>> {
        let session = self.sessions.fetch_add(1, Ordering::Relaxed);
        let shared = self.home.path().join("shared");
        let results = as_ranks(self.parts.len() as u32, |rank| {
            let store = ParityStore::open(&self.node(rank).join("parity")).unwrap();
            let transport = Directory::open(&shared, session, rank).unwrap();
            let set = self.sets.of(rank).unwrap();
            call(
                rank,
                &Exchange::new(set, rank, &transport, &store, PATIENCE)?,
            )
        });
        std::fs::remove_dir_all(shared).unwrap();
        results
    }

    fn protect(&self, version: u64) {
        for (rank, part) in (0..).zip(&self.parts) {
            std::fs::create_dir_all(self.node(rank)).unwrap();
            std::fs::write(self.part(rank), part).unwrap();
        }
        for protected in self.run(|rank, exchange| {
            let part = std::fs::File::open(self.part(rank)).unwrap();
            exchange.protect(version, &part)
        }) {
            protected.unwrap();
        }
    }

    fn rebuild(&self, version: u64) -> Vec<Result<Rebuilt>> {
        self.run(|rank, exchange| {
            let file = std::fs::File::open(self.part(rank)).ok();
            let part = file.as_ref().map(|file| file as &dyn Part);
            exchange.rebuild(version, part, &self.part(rank))
        })
    }
}

fn patterns(few: usize) -> usize {
    variable("TIERFLOW_PATTERNS", few)
}

/// Changes a byte of a file. Returns false if the file is empty.
fn damage(path: &Path, draws: &mut Draws) -> bool {
    let mut bytes = std::fs::read(path).unwrap();
    if bytes.is_empty() {
        return false;
    }
    let at = draws.index(bytes.len());
    bytes[at] ^= 1 + draws.below(255) as u8;
    std::fs::write(path, bytes).unwrap();
    true
}

/// Applies one pattern of losses after the other, each to the files that the rebuild before left.
fn lose_and_rebuild(nodes: &[usize], scheme: Redundancy, seed: u64, count: usize) {
    let mut draws = Draws(seed);
    let (mut tolerated, mut refused) = (0, 0);
    for begun in (0..count).step_by(PATTERNS_OF_A_GROUP) {
        let group = Group::new(nodes, scheme, &mut draws);
        let version = draws.below(1 << 40);
        group.protect(version);
        for _ in begun..count.min(begun + PATTERNS_OF_A_GROUP) {
            let ranks: Vec<u32> = (0..group.parts.len() as u32).collect();
            // Whole nodes are lost, and single files are changed.
            let most = (scheme.tolerates() + 2).min(ranks.len() + 1);
            let gone: BTreeSet<u32> = (0..draws.index(most))
                .map(|_| ranks[draws.index(ranks.len())])
                .collect();
            for &rank in &gone {
                std::fs::remove_dir_all(group.node(rank)).unwrap();
                std::fs::create_dir_all(group.node(rank)).unwrap();
            }
            let mut hurt = BTreeSet::new();
            for rank in ranks.iter().filter(|rank| !gone.contains(rank)) {
                if draws.below(12) == 0 {
                    let parity = group
                        .node(*rank)
                        .join(format!("parity/{version:020}.parity"));
                    let is_part = draws.below(2) == 0 || !parity.exists();
                    let path = if is_part { group.part(*rank) } else { parity };
                    hurt.extend(damage(&path, &mut draws).then_some(*rank));
                }
            }
            let results = group.rebuild(version);
            let mut is_whole = true;
            for set in &group.sets.sets {
                let of_set = |rank: &u32| set.place_of(*rank).is_some();
                let (all_gone, hit) = (
                    gone.iter().filter(|rank| of_set(rank)).count(),
                    hurt.iter().chain(&gone).filter(|rank| of_set(rank)).count(),
                );
                for member in &set.members {
                    let result = &results[member.rank as usize];
                    if hit <= set.tolerates {
                        let rebuilt = result.as_ref().unwrap();
                        let of: BTreeSet<u32> = rebuilt.lost.iter().map(|lost| lost.rank).collect();
                        assert_eq!(of, hurt.union(&gone).copied().filter(of_set).collect());
                    } else if all_gone > set.tolerates {
                        // No file of these members is left, so that no row can be rebuilt.
                        let error = result.as_ref().unwrap_err();
                        match error {
                            Error::TooManyLost { lost, .. } => {
                                let is_named = |rank: &u32| {
                                    lost.iter().any(|Lost { rank: other, .. }| rank == other)
                                };
                                assert!(gone.iter().filter(|rank| of_set(rank)).all(is_named));
                                assert!(error.to_string().contains("node"));
                            }
                            Error::Unknown { .. } => assert_eq!(all_gone, set.members.len()),
                            other => panic!("{other}"),
                        }
                    }
                    is_whole &= result.is_ok();
                    if result.is_ok() {
                        let part = std::fs::read(group.part(member.rank)).unwrap();
                        assert!(
                            part == group.parts[member.rank as usize],
                            "rank {}",
                            member.rank
                        );
                    }
                }
                // All members of a set succeed, or none.
                let succeeded = set
                    .members
                    .iter()
                    .filter(|member| results[member.rank as usize].is_ok())
                    .count();
                assert!(succeeded == 0 || succeeded == set.members.len());
            }
            tolerated += usize::from(is_whole);
            refused += usize::from(!is_whole);
            if !is_whole {
                group.protect(version);
            }
        }
    }
    eprintln!("{scheme}: {tolerated} patterns were tolerated, {refused} were too much");
    assert!(count < 100 || (tolerated > 0 && refused > 0));
}

#[test]
fn partners() {
    lose_and_rebuild(&[1, 1, 1, 1, 1], Redundancy::Partner, 1, patterns(120));
}

#[test]
fn exclusive_or() {
    lose_and_rebuild(&[2, 2, 2, 1], Redundancy::Xor { set: 4 }, 2, patterns(120));
}

#[test]
fn reed_solomon() {
    lose_and_rebuild(
        &[1, 1, 1, 1, 1, 1],
        Redundancy::ReedSolomon { data: 4, parity: 2 },
        3,
        patterns(100),
    );
}

#[test]
fn a_version_that_is_written_again_replaces_the_first() {
    let mut draws = Draws(9);
    let mut group = Group::new(&[1, 1, 1], Redundancy::Xor { set: 3 }, &mut draws);
    group.parts = vec![vec![1; 500], vec![2; 10], vec![3; 100]];
    group.protect(5);
    group.parts = vec![vec![4; 20], vec![5; 900], vec![6; 64]];
    group.protect(5);
    std::fs::remove_dir_all(group.node(1)).unwrap();
    std::fs::create_dir_all(group.node(1)).unwrap();
    for rebuilt in group.rebuild(5) {
        assert_eq!(
            rebuilt.unwrap().lost,
            [Lost {
                rank: 1,
                node: "node1".to_owned()
            }]
        );
    }
    assert_eq!(std::fs::read(group.part(1)).unwrap(), vec![5; 900]);
    let store = ParityStore::open(&group.node(1).join("parity")).unwrap();
    assert_eq!(store.versions().unwrap(), [5]);
    store.remove(5).unwrap();
    // The node has files that a killed process left.
    let left = group
        .node(1)
        .join("parity/00000000000000000005.parity.part");
    std::fs::write(&left, [0]).unwrap();
    ParityStore::open(&group.node(1).join("parity")).unwrap();
    assert!(!left.exists());
    assert_eq!(
        (store.versions().unwrap(), store.manifest(5).unwrap()),
        (vec![], None)
    );
}

#[test]
fn a_version_that_was_not_protected_is_unknown_to_all_members() {
    let group = Group::new(&[1, 1, 1], Redundancy::Partner, &mut Draws(3));
    for rank in 0..3 {
        std::fs::create_dir_all(group.node(rank)).unwrap();
    }
    for result in group.rebuild(8) {
        assert!(matches!(result, Err(Error::Unknown { version: 8 })));
    }
}

#[test]
fn a_set_of_one_member_has_no_parity() {
    let group = Group::new(&[1], Redundancy::Partner, &mut Draws(3));
    let protected = group.run(|_, exchange| exchange.protect(1, &vec![1_u8, 2]));
    assert!(matches!(protected.as_slice(), [Ok(None)]));
}

#[test]
fn a_member_that_does_not_come_is_named() {
    let group = Group::new(&[1, 1], Redundancy::Partner, &mut Draws(3));
    let store = ParityStore::open(&group.node(0)).unwrap();
    let transport = Directory::open(group.home.path(), 1, 0).unwrap();
    let set = group.sets.of(0).unwrap();
    let exchange = Exchange::new(set, 0, &transport, &store, Duration::ZERO).unwrap();
    let error = exchange.protect(1, &vec![1_u8]).unwrap_err();
    assert!(matches!(error, Error::Absent { rank: 1, .. }));
    assert!(Exchange::new(set, 7, &transport, &store, PATIENCE).is_err());
}
