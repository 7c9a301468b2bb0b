//! A run without a checkpoint writes nothing: neither a rank alone nor a group marks, notes, copies or removes anything.

#![allow(clippy::unwrap_used, clippy::panic)]

mod groups;
mod history;
mod home;

use groups::{InMemory, Member, together};
use history::restored;
use home::{Home, home};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;
use tierflow_device::{Choice, open};
use tierflow_engine::{Engine, EngineBuilder, Group, Tier, Version};
use tierflow_store::{
    Error, Faults, Options, Piece, PieceInfo, Ready, Repository, Result, Snapshot, Vault,
    VersionInfo,
};

fn content(run: u64, rank: u32, version: Version) -> Vec<u8> {
    let word = run << 48 | u64::from(rank) << 32 | version;
    let words = word.to_le_bytes().into_iter().cycle();
    words.take(3_000).collect()
}

fn checkpoint(engine: &Engine, run: u64, rank: u32, version: Version) {
    history::checkpoint(engine, version, &content(run, rank, version));
}

fn near(home: &Home, rank: u32) -> PathBuf {
    home.near.with_extension(rank.to_string())
}

fn builder(home: &Home, rank: u32, ranks: u32, run: u64) -> EngineBuilder {
    let builder = Engine::builder(&open(Choice::Host).unwrap()).host_cache(1 << 20);
    let builder = builder.node_local(near(home, rank)).external(&home.far);
    match ranks {
        1 => builder,
        ranks => builder.group(Group::new(rank, ranks, run)),
    }
}

/// Returns the engines of a group whose ranks meet in memory, so that the meeting leaves nothing on storage.
fn group(home: &Home, ranks: u32, run: u64, faults: &Arc<Faults>) -> Vec<Engine> {
    let all = InMemory::new(ranks as usize);
    together(ranks, |rank| {
        let builder = builder(home, rank, ranks, run);
        let member = Arc::new(Member(Arc::clone(&all), rank as usize));
        let own = Group::new(rank, ranks, run).collective(member);
        let builder = match ranks {
            1 => builder,
            _ => builder.group(own),
        };
        faults.during(|| builder.build()).unwrap()
    })
}

fn write(engines: &[Engine], run: u64, first: Version, ends: &[Version]) {
    for ((rank, engine), end) in (0..).zip(engines).zip(ends) {
        (first..*end).for_each(|version| checkpoint(engine, run, rank, version));
        engine.wait().unwrap();
    }
}

/// Removes versions of a rank from external storage, as if they had never reached it.
fn take_back(home: &Home, rank: u32, ranks: u32, versions: std::ops::Range<Version>) {
    let options = Options::default().rank(rank, ranks);
    let far = Repository::open(&home.far, options).unwrap();
    let versions: BTreeSet<Version> = versions.collect();
    far.remove_even_bases(&versions).unwrap();
}

/// Makes a history: rank 0 has versions 0 to 5, and each further rank one fewer. The last rank has those from 2 on only on its node.
fn left(ranks: u32) -> Home {
    let home = home();
    let ends: Vec<Version> = (0..ranks).map(|rank| Version::from(6 - rank)).collect();
    let engines = group(&home, ranks, 1, &Arc::default());
    write(&engines, 1, 0, &ends);
    drop(engines);
    take_back(&home, ranks - 1, ranks, 2..7);
    home
}

/// Adds the bytes of all files below a directory, except its locks, to `found`.
fn files(directory: &Path, found: &mut BTreeMap<PathBuf, Vec<u8>>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => files(&path, found),
            false if path.ends_with("lock") => {}
            false => drop(found.insert(path.clone(), std::fs::read(path).unwrap())),
        }
    }
}

fn all_files(home: &Home) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    files(home.near.parent().unwrap(), &mut found);
    found
}

fn newest(engines: &[Engine]) -> Vec<Option<Version>> {
    engines.iter().map(|engine| engine.latest(None)).collect()
}

#[test]
fn a_start_without_a_checkpoint_writes_nothing() {
    for ranks in [1, 2, 3] {
        let home = left(ranks);
        let common = Version::from(6 - ranks);
        let before = all_files(&home);
        for run in 2..4 {
            let faults = Arc::<Faults>::default();
            let engines = group(&home, ranks, run, &faults);
            assert_eq!(newest(&engines), vec![Some(common); ranks as usize]);
            for (rank, engine) in (0..).zip(&engines) {
                for version in [0, common] {
                    let bytes = restored(engine, version).unwrap();
                    assert!(
                        bytes == content(1, rank, version),
                        "{ranks} ranks: {version}"
                    );
                }
            }
            // After `close`, all files that a start writes are there.
            engines
                .into_iter()
                .for_each(|engine| engine.close().unwrap());
            assert_eq!(faults.changes.load(Relaxed), 0, "{ranks} ranks");
            assert!(all_files(&home) == before, "{ranks} ranks");
        }
    }
}

#[test]
fn versions_left_on_nodes_are_brought_once_a_version_is_begun() {
    for ranks in [1, 2] {
        let home = left(ranks);
        let common = Version::from(6 - ranks);
        let engines = group(&home, ranks, 2, &Arc::default());
        let ends = vec![common + 2; ranks as usize];
        write(&engines, 2, common + 1, &ends);
        drop(engines);
        // The nodes are lost. External storage has everything.
        for rank in 0..ranks {
            std::fs::remove_dir_all(near(&home, rank)).unwrap();
        }
        let engines = group(&home, ranks, 3, &Arc::default());
        for (rank, engine) in (0..).zip(&engines) {
            assert_eq!(engine.versions(), (0..common + 2).collect::<Vec<_>>());
            for version in 0..common + 2 {
                let run = if version > common { 2 } else { 1 };
                let bytes = restored(engine, version).unwrap();
                assert!(bytes == content(run, rank, version), "version {version}");
            }
        }
    }
}

#[test]
fn versions_left_on_nodes_are_brought_when_a_call_waits_for_them() {
    let home = left(2);
    let engines = group(&home, 2, 2, &Arc::default());
    assert!(!engines[1].is_durable(4));
    engines.iter().for_each(|engine| engine.wait().unwrap());
    assert!(engines[1].is_durable(4));
    drop(engines);
    std::fs::remove_dir_all(near(&home, 1)).unwrap();
    assert_eq!(
        newest(&group(&home, 2, 3, &Arc::default())),
        [Some(4), Some(4)]
    );
}

#[test]
fn a_groups_start_that_ends_anywhere_changes_no_decision() {
    for goes_on in [false, true] {
        for stop in 1.. {
            let home = left(2);
            let faults = Arc::<Faults>::default();
            let engines = group(&home, 2, 2, &faults);
            faults.stops_at.store(stop, Relaxed);
            if goes_on {
                for (rank, engine) in (0..).zip(&engines) {
                    checkpoint(engine, 2, rank, 5);
                    let _it_may_be_stopped = engine.call().within(Duration::from_secs(60)).wait();
                }
            }
            drop(engines);
            let is_stopped = faults.changes.load(Relaxed) >= stop;
            let engines = group(&home, 2, 3, &Arc::default());
            let newest = newest(&engines);
            assert!(
                newest[0] == newest[1],
                "stopped at change {stop}: {newest:?}"
            );
            assert!(newest[0] >= Some(4), "stopped at change {stop}: {newest:?}");
            for (rank, engine) in (0..).zip(&engines) {
                for version in engine.versions() {
                    let run = if version > 4 { 2 } else { 1 };
                    let bytes = restored(engine, version).unwrap();
                    assert!(bytes == content(run, rank, version), "version {version}");
                }
            }
            if !is_stopped {
                break;
            }
        }
    }
}

/// Storage that cannot keep notes, and counts the calls that change it.
#[derive(Debug)]
struct Counted(Repository, Arc<AtomicUsize>);

impl Counted {
    fn change<T>(&self, change: impl FnOnce(&Repository) -> Result<T>) -> Result<T> {
        self.1.fetch_add(1, Relaxed);
        change(&self.0)
    }
}

impl Vault for Counted {
    fn versions(&self) -> Result<Vec<VersionInfo>> {
        self.0.versions()
    }

    fn piece(&self, version: u64) -> Result<Piece> {
        self.0.own_piece(version)
    }

    fn pieces(&self) -> Result<Vec<PieceInfo>> {
        self.0.own_pieces()
    }

    fn save(&self, snapshot: &Snapshot<'_>, ready: &Ready<'_>) -> Result<()> {
        self.change(|all| Vault::save(all, snapshot, ready))
    }

    fn copy(&self, piece: &Piece, ready: &Ready<'_>) -> Result<()> {
        self.change(|all| Vault::copy(all, piece, ready))
    }

    fn remove(&self, versions: &BTreeSet<u64>) -> Result<()> {
        self.change(|all| all.remove(versions))
    }
}

#[test]
fn storage_without_notes_is_changed_by_the_first_version_and_not_before() {
    let home = left(2);
    let changes = Arc::<AtomicUsize>::default();
    let build = |run: u64| {
        let all = InMemory::new(2);
        together(2, |rank| {
            let options = Options::default().rank(rank, 2).run(run);
            let far = Repository::open(&home.far, options).unwrap();
            let far = Arc::new(Counted(far, Arc::clone(&changes)));
            let builder = Engine::builder(&open(Choice::Host).unwrap()).host_cache(1 << 20);
            let builder = builder.node_local(near(&home, rank)).tier(Tier::vault(far));
            let member = Arc::new(Member(Arc::clone(&all), rank as usize));
            let builder = builder.group(Group::new(rank, 2, run).collective(member));
            builder.build().unwrap()
        })
    };
    let before = all_files(&home);
    let engines = build(2);
    assert_eq!(newest(&engines), [Some(4); 2]);
    engines
        .into_iter()
        .for_each(|engine| engine.close().unwrap());
    assert_eq!(changes.load(Relaxed), 0);
    assert!(all_files(&home) == before);
    // Rank 0's version 5 of run 1 was discarded. The number is free, and it does not come back.
    let engines = build(3);
    write(&engines, 3, 5, &[6, 6]);
    drop(engines);
    let engines = build(4);
    assert_eq!(newest(&engines), [Some(5); 2]);
    for (rank, engine) in (0..).zip(&engines) {
        assert!(restored(engine, 5).unwrap() == content(3, rank, 5));
    }
    let gone = Repository::read_only(&home.far, Options::default()).unwrap();
    assert!(!matches!(gone.piece(5), Err(Error::NoVersion { .. })));
}
