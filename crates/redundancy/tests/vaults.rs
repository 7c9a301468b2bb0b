//! Tests of protected vaults of a group without engines: numbers that are used again, pieces that are also elsewhere, and ranks that have
//! discarded all their versions.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, Barrier, Mutex};
use std::time::Duration;
use tierflow_redundancy::{Directory, Redundancy, Transport};
use tierflow_store::{
    LostVersion, NodeDirectory, Options, Protection, Protector, Region, Repository, Snapshot,
};
use tierflow_testing::as_ranks;

const PATIENCE: Duration = Duration::from_secs(120);
const RANKS: u32 = 4;
const XOR: Redundancy = Redundancy::Xor { set: 4 };

/// Holds a message of rank 0 back while another thread works.
#[derive(Debug)]
struct Hold {
    /// Number of messages before the one to hold back. `None` if none is to be held back.
    before: Mutex<Option<u32>>,
    /// The message waits here for the other thread, before and after its work.
    meets: Barrier,
}

/// A transport that is used in the application's calls alone.
#[derive(Debug)]
struct Driven(Directory, Option<Arc<Hold>>);

impl Transport for Driven {
    fn send(&self, to: u32, message: &[u8], patience: Duration) -> tierflow_redundancy::Result<()> {
        if let Some(hold) = &self.1 {
            let mut before = hold.before.lock().unwrap();
            let is_it = *before == Some(0);
            *before = before.and_then(|before| before.checked_sub(1));
            drop(before);
            if is_it {
                hold.meets.wait();
                hold.meets.wait();
            }
        }
        self.0.send(to, message, patience)
    }

    fn receive(&self, from: u32, patience: Duration) -> tierflow_redundancy::Result<Vec<u8>> {
        self.0.receive(from, patience)
    }

    fn is_concurrent(&self) -> bool {
        false
    }
}

struct Nodes {
    home: tempfile::TempDir,
    scheme: Redundancy,
    /// The failure domain of each rank.
    domains: [&'static str; RANKS as usize],
    /// If set, versions are protected in calls alone, and a message may be held back.
    hold: Option<Arc<Hold>>,
    starts: u64,
}

impl Nodes {
    fn new(scheme: Redundancy) -> Self {
        let home = tempfile::tempdir().unwrap();
        Self {
            home,
            scheme,
            domains: ["0", "1", "2", "3"],
            hold: None,
            starts: 0,
        }
    }

    fn node(&self, rank: u32) -> PathBuf {
        self.home.path().join(format!("node{rank}"))
    }

    fn lose(&self, rank: u32) {
        std::fs::remove_dir_all(self.node(rank)).unwrap();
    }

    /// Starts all ranks, and ends them after `body`. The ranks in `elsewhere` have version 0 on other storage, too.
    fn start<T: Send>(
        &mut self,
        elsewhere: &[u32],
        body: impl Fn(u32, &dyn Protector) -> T + Sync,
    ) -> Vec<T> {
        self.starts += 1;
        let this = &*self;
        as_ranks(RANKS, |rank| {
            let shared = this.home.path().join("shared");
            let directory = Directory::open(&shared, this.starts, rank).unwrap();
            let transport: Arc<dyn Transport> = match &this.hold {
                Some(hold) => Arc::new(Driven(directory, (rank == 0).then(|| Arc::clone(hold)))),
                None => Arc::new(directory),
            };
            let domain = this.domains[rank as usize];
            let scheme = this.scheme.over(transport).failure_domain(domain);
            let path = this.node(rank);
            let options = Options::default().rank(rank, RANKS);
            let elsewhere = elsewhere.iter().filter(|other| **other == rank);
            let node = NodeDirectory {
                path: &path,
                repository: Arc::new(Repository::open(&path, options).unwrap()),
                rank,
                ranks: RANKS,
                elsewhere: &elsewhere.map(|_| 0).collect(),
                collective: None,
                patience: PATIENCE,
            };
            body(rank, &*scheme.open(node).unwrap())
        })
    }

    /// Returns the versions that every rank reports as lost after a start.
    fn gone(&mut self, elsewhere: &[u32]) -> Vec<u64> {
        let all = self.start(elsewhere, |_, vault| vault.gone());
        assert!(all.iter().all(|gone| gone == &all[0]), "{all:?}");
        let version = |gone: &LostVersion| gone.version;
        all[0].iter().map(version).collect()
    }
}

fn save(vault: &dyn Protector, version: u64, content: u8) {
    let bytes = [content; 3000];
    let regions = [Region::new("state", &bytes)];
    let saved = vault.save(&Snapshot::new(version, &regions), &|| Ok(()));
    saved.unwrap();
    assert!(vault.wait(Some(version), PATIENCE).unwrap());
}

fn discard(vault: &dyn Protector, version: u64) {
    vault.discard(&BTreeSet::from([version])).unwrap();
    vault.remove(&BTreeSet::from([version])).unwrap();
}

#[test]
fn a_number_that_is_used_again_in_the_same_run_is_protected() {
    let mut nodes = Nodes::new(XOR);
    nodes.start(&[], |_, vault| {
        (0..5).for_each(|version| save(vault, version, 1));
        (1..4).for_each(|version| discard(vault, version));
        save(vault, 2, 7);
    });
    nodes.lose(1);
    nodes.start(&[], |rank, vault| {
        assert!(vault.gone().is_empty(), "{:?}", vault.gone());
        let pieces = vault.pieces().unwrap().into_iter();
        let pieces: Vec<u64> = pieces.map(|piece| piece.version).collect();
        assert_eq!(pieces, [0, 2, 4], "rank {rank}");
        let read = vault.piece(2).unwrap().read("state").unwrap();
        assert_eq!(read, [7; 3000], "rank {rank}");
    });
}

#[test]
fn a_rank_that_discarded_all_that_it_had_lost_nothing() {
    // Ranks 0 and 2 form a set, and ranks 1 and 3 another.
    let mut nodes = Nodes::new(Redundancy::Partner);
    nodes.start(&[], |rank, vault| {
        save(vault, 0, 1);
        match rank % 2 {
            0 => discard(vault, 0),
            _ => save(vault, 1, 1),
        }
    });
    assert_eq!(nodes.gone(&[]), [] as [u64; 0]);
    // After the loss of their nodes, these ranks look like ranks that had the version.
    nodes.lose(0);
    nodes.lose(2);
    assert_eq!(nodes.gone(&[]), [0, 1]);
}

#[test]
fn a_version_is_not_lost_as_long_as_each_piece_lies_somewhere() {
    let mut nodes = Nodes::new(XOR);
    nodes.start(&[], |rank, vault| {
        save(vault, 0, 1);
        save(vault, 1, 1);
        // More pieces of version 0 are removed than the code tolerates. The removed pieces are also elsewhere.
        if rank < 2 {
            vault.remove(&BTreeSet::from([0])).unwrap();
        }
    });
    assert_eq!(nodes.gone(&[0, 1]), [] as [u64; 0]);
    nodes.lose(2);
    assert_eq!(nodes.gone(&[0, 1]), [0]);
}

#[test]
fn a_rank_alone_in_its_set_hides_no_number_that_is_used_again() {
    let mut nodes = Nodes::new(Redundancy::Partner);
    nodes.domains = ["a", "a", "a", "b"];
    nodes.start(&[], |_, vault| {
        save(vault, 0, 1);
        save(vault, 1, 1);
        discard(vault, 1);
        save(vault, 1, 7);
    });
    nodes.lose(3);
    nodes.start(&[], |rank, vault| {
        assert!(vault.gone().is_empty(), "{:?}", vault.gone());
        let read = vault.piece(1).unwrap().read("state").unwrap();
        assert_eq!(read, [7; 3000], "rank {rank}");
    });
}

#[test]
fn a_version_that_is_discarded_while_it_is_protected_does_not_come_back() {
    let mut nodes = Nodes::new(Redundancy::Partner);
    let hold = Arc::new(Hold {
        before: Mutex::default(),
        meets: Barrier::new(2),
    });
    nodes.hold = Some(Arc::clone(&hold));
    nodes.start(&[], |rank, vault| {
        save(vault, 0, 1);
        vault.protect().unwrap();
        save(vault, 1, 1);
        if rank > 0 {
            return vault.protect().unwrap();
        }
        // The first message says that the version is there, and the second that its piece can be read.
        *hold.before.lock().unwrap() = Some(1);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                hold.meets.wait();
                vault.discard(&BTreeSet::from([1])).unwrap();
                hold.meets.wait();
            });
            vault.protect().unwrap();
        });
        vault.remove(&BTreeSet::from([1])).unwrap();
    });
    nodes.start(&[], |rank, vault| {
        assert!(vault.gone().is_empty(), "{:?}", vault.gone());
        let pieces = vault.pieces().unwrap().into_iter();
        let has_it = pieces
            .map(|piece| piece.version)
            .any(|version| version == 1);
        assert_eq!(has_it, rank > 0, "rank {rank}");
    });
}

#[test]
fn discarded_versions_stay_away_where_nothing_can_be_rebuilt() {
    let mut nodes = Nodes::new(XOR);
    nodes.start(&[], |_, vault| save(vault, 0, 1));
    let manifest = nodes
        .node(0)
        .join(format!("redundancy/0/{:020}.manifest", 0));
    let old = std::fs::read(&manifest).unwrap();
    nodes.start(&[], |rank, vault| {
        vault.truncate(None).unwrap();
        save(vault, 0, 7);
        // More pieces leave the nodes than the code tolerates. The removed pieces are also elsewhere.
        if rank < 2 {
            vault.remove(&BTreeSet::from([0])).unwrap();
        }
    });
    std::fs::write(&manifest, old).unwrap();
    nodes.start(&[0, 1], |_, vault| {
        assert!(vault.gone().is_empty(), "{:?}", vault.gone());
        save(vault, 1, 1);
    });
    assert!(!manifest.exists(), "it is of the version that was given up");
}

/// The lists of nodes serve messages alone.
#[test]
fn a_start_needs_no_space_for_the_names_of_nodes() {
    let mut nodes = Nodes::new(XOR);
    nodes.start(&[], |_, vault| save(vault, 0, 1));
    let names = nodes.node(1).join("redundancy/1/nodes");
    std::fs::remove_file(&names).unwrap();
    // No file can take the place of a directory.
    std::fs::create_dir(&names).unwrap();
    let there = nodes.start(&[], |_, vault| vault.pieces().unwrap().len());
    assert_eq!(there, [1; RANKS as usize]);
}

/// All ranks were killed before they had protected a version, and one of them cannot write its parity now.
#[test]
fn a_start_needs_no_space_for_parity() {
    let mut nodes = Nodes::new(XOR);
    for rank in 0..RANKS {
        let path = nodes.node(rank);
        let repository = Repository::open(&path, Options::default().rank(rank, RANKS)).unwrap();
        let regions = [Region::new("state", &[1; 3000])];
        repository.save(&Snapshot::new(0, &regions)).unwrap();
    }
    let parity = nodes
        .node(1)
        .join("redundancy/1/00000000000000000000.parity");
    std::fs::create_dir_all(&parity).unwrap();
    let started = nodes.start(&[], |_, vault| {
        (vault.pieces().unwrap().len(), vault.weakness())
    });
    for (count, weakness) in started {
        assert_eq!(count, 1);
        assert!(
            weakness
                .unwrap()
                .contains("rank 1 could not store its parity of version 0")
        );
    }
    std::fs::remove_dir(&parity).unwrap();
    let weaknesses = nodes.start(&[], |_, vault| vault.weakness());
    assert!(weaknesses.iter().all(Option::is_none), "{weaknesses:?}");
    nodes.lose(2);
    assert_eq!(
        nodes.start(&[], |_, vault| vault.pieces().unwrap().len()),
        [1; RANKS as usize]
    );
}
