//! Tests of repositories of ranks on nodes of their own: lost and damaged pieces are rebuilt as they were.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tierflow_redundancy::{
    Directory, Error, Exchange, Member, ParityStore, Pieces, Rebuilt, Redundancy, Result, Sets,
};
use tierflow_store::{Options, Region, Repository, Snapshot};
use tierflow_testing::{as_ranks, assert_matches};

const RANKS: u32 = 4;
const PATIENCE: Duration = Duration::from_secs(120);

struct Nodes {
    home: tempfile::TempDir,
    sets: Sets,
    session: u64,
}

impl Nodes {
    fn new(scheme: Redundancy) -> Self {
        let members = (0..RANKS).map(|rank| Member {
            rank,
            node: format!("node{rank}"),
        });
        let members: Vec<Member> = members.collect();
        Self {
            home: tempfile::tempdir().unwrap(),
            sets: Sets::choose(&members, scheme).unwrap(),
            session: 0,
        }
    }

    fn node(&self, rank: u32) -> PathBuf {
        self.home.path().join(format!("node{rank}"))
    }

    /// Runs all ranks once.
    fn run<T: Send>(
        &mut self,
        body: impl Fn(u32, &Repository, &Pieces<'_>) -> Result<T> + Sync,
    ) -> Vec<Result<T>> {
        self.session += 1;
        let this = &*self;
        as_ranks(RANKS, |rank| {
            let node = this.node(rank);
            std::fs::create_dir_all(&node).unwrap();
            let options = Options::default().rank(rank, RANKS);
            let repository = Repository::open(node.join("run"), options).unwrap();
            let store = ParityStore::open(&node.join("parity")).unwrap();
            let shared = this.home.path().join("shared");
            let transport = Directory::open(&shared, this.session, rank).unwrap();
            let set = this.sets.of(rank).unwrap();
            let exchange = Exchange::new(set, rank, &transport, &store, PATIENCE).unwrap();
            body(
                rank,
                &repository,
                &Pieces::new(&repository, exchange, &store),
            )
        })
    }

    fn save(&mut self, versions: std::ops::Range<u64>) {
        for saved in self.run(|rank, repository, pieces| {
            for version in versions.clone() {
                let state = state(rank, version);
                let regions = [Region::new("state", &state)];
                repository.save(&Snapshot::new(version, &regions))?;
                pieces.protect(version)?.unwrap();
            }
            Ok(())
        }) {
            saved.unwrap();
        }
    }

    /// Starts all ranks again.
    fn restart(&mut self) -> Vec<Result<Vec<Rebuilt>>> {
        self.run(|rank, repository, pieces| {
            let versions = pieces.versions()?;
            let rebuilt = versions.iter().map(|version| pieces.rebuild(*version));
            let rebuilt = rebuilt.collect::<Result<Vec<_>>>()?;
            for version in versions {
                let piece = repository.own_piece(version)?;
                assert!(piece.read("state")? == state(rank, version));
            }
            Ok(rebuilt)
        })
    }
}

/// The number of a version whose payload has many rows of the code. The payload begins with a row.
const LONG: u64 = 100;

/// Returns the bytes of a version. Small versions share files with others, and large ones have files of their own.
fn state(rank: u32, version: u64) -> Vec<u8> {
    let bytes = match version % 3 {
        _ if version == LONG => (18 << 20) + 4097 * rank as usize,
        0 => 100 + rank as usize,
        1 => 3 << 20,
        _ => (1 << 20) + 4097 * rank as usize,
    };
    (0..bytes)
        .map(|at| (at * 31 + at / 253 + version as usize * 7 + rank as usize) as u8)
        .collect()
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(files(&path)),
            false => found.push(path),
        }
    }
    found.sort();
    found
}

#[test]
fn pieces_of_lost_nodes_are_there_again() {
    for (scheme, lost) in [
        (Redundancy::Partner, &[2][..]),
        (Redundancy::Xor { set: 4 }, &[3]),
        (Redundancy::ReedSolomon { data: 2, parity: 2 }, &[0, 3]),
    ] {
        let mut nodes = Nodes::new(scheme);
        nodes.save(0..5);
        // The second loss hits the files that the first rebuild made.
        for shift in 0..2 {
            for rank in lost {
                std::fs::remove_dir_all(nodes.node((rank + shift) % RANKS)).unwrap();
            }
            for (rank, rebuilt) in (0..).zip(nodes.restart()) {
                let is_lost = lost.iter().any(|lost| (lost + shift) % RANKS == rank);
                let rebuilt = rebuilt.unwrap();
                assert_eq!(rebuilt.len(), 5);
                assert!(rebuilt.iter().all(|rebuilt| rebuilt.part == is_lost));
            }
        }
        // A further restart has nothing to rebuild.
        let nothing = Rebuilt {
            is_protected: true,
            ..Rebuilt::default()
        };
        for rebuilt in nodes.restart() {
            assert!(rebuilt.unwrap().iter().all(|rebuilt| *rebuilt == nothing));
        }
    }
}

#[test]
fn saved_versions_without_protection_are_protected_at_the_restart() {
    let mut nodes = Nodes::new(Redundancy::Xor { set: 4 });
    nodes.save(0..2);
    for saved in nodes.run(|rank, repository, _| {
        // Rank 2 does not have version 3.
        for version in (2..4).filter(|version| (*version, rank) != (3, 2)) {
            let state = state(rank, version);
            let regions = [Region::new("state", &state)];
            repository.save(&Snapshot::new(version, &regions))?;
        }
        Ok(())
    }) {
        saved.unwrap();
    }
    for protected in nodes.run(|_, _, pieces| pieces.protect_rest(&BTreeSet::from([77]))) {
        assert_eq!(protected.unwrap(), [2]);
    }
    std::fs::remove_dir_all(nodes.node(1)).unwrap();
    for rebuilt in nodes.restart() {
        assert_eq!(rebuilt.unwrap().len(), 3);
    }
}

/// Changes a byte of a node's largest file, which has the payload.
fn damage(node: &Path) {
    let payload = files(&node.join("run")).into_iter();
    let payload = payload.max_by_key(|path| path.metadata().unwrap().len());
    let payload = payload.unwrap();
    let mut bytes = std::fs::read(&payload).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&payload, bytes).unwrap();
}

#[test]
fn a_damaged_piece_gives_way_to_what_it_was() {
    let mut nodes = Nodes::new(Redundancy::Xor { set: 4 });
    nodes.save(1..2);
    damage(&nodes.node(1));
    for (rank, rebuilt) in (0..RANKS).zip(nodes.restart()) {
        let rebuilt = rebuilt.unwrap();
        assert_eq!((rebuilt.len(), rebuilt[0].part), (1, rank == 1));
    }
}

#[test]
fn a_damaged_piece_on_which_a_difference_builds_is_rebuilt() {
    let mut nodes = Nodes::new(Redundancy::Xor { set: 4 });
    nodes.save(1..2);
    for saved in nodes.run(|rank, repository, pieces| {
        let state = state(rank, 3);
        let snapshot = Snapshot {
            version: 3,
            base: Some(1),
            regions: &[Region::new("state", &state)],
        };
        repository.save(&snapshot)?;
        pieces.protect(3)
    }) {
        saved.unwrap();
    }
    damage(&nodes.node(1));
    for (rank, rebuilt) in (0..RANKS).zip(nodes.restart()) {
        assert_eq!(rebuilt.unwrap()[0].part, rank == 1);
    }
}

#[test]
fn damage_that_a_rebuild_finds_is_rebuilt_with_it() {
    let mut nodes = Nodes::new(Redundancy::ReedSolomon { data: 2, parity: 2 });
    nodes.save(LONG..LONG + 1);
    std::fs::remove_dir_all(nodes.node(0)).unwrap();
    damage(&nodes.node(2));
    for (rank, rebuilt) in (0..RANKS).zip(nodes.restart()) {
        let rebuilt = rebuilt.unwrap();
        assert_eq!((rebuilt.len(), rebuilt[0].part), (1, rank % 2 == 0));
        assert_eq!(rebuilt[0].parity, rank == 0);
        let lost: Vec<u32> = rebuilt[0].lost.iter().map(|lost| lost.rank).collect();
        assert_eq!(lost, [0, 2]);
    }
    // The damage is known only when the part is read. With the lost node, it is more than the set tolerates.
    std::fs::remove_dir_all(nodes.node(1)).unwrap();
    std::fs::remove_dir_all(nodes.node(3)).unwrap();
    damage(&nodes.node(2));
    for result in nodes.restart() {
        assert_matches!(result, Err(Error::TooManyLost { lost, .. }) if lost.len() == 3);
    }
}

#[test]
fn more_losses_than_it_tolerates_are_errors_of_all_members_with_the_nodes() {
    let mut nodes = Nodes::new(Redundancy::Xor { set: 4 });
    nodes.save(7..8);
    for rank in [0, 2] {
        std::fs::remove_dir_all(nodes.node(rank)).unwrap();
    }
    for result in nodes.restart() {
        let error = result.unwrap_err();
        assert_matches!(
            error,
            Error::TooManyLost {
                version: 7,
                tolerates: 1,
                ..
            }
        );
        let text = error.to_string();
        assert!(
            text.contains("node0") && text.contains("node2") && !text.contains("node1"),
            "{text}"
        );
    }
}
