//! The ranks of a group are processes that are killed at random instants, and some of their nodes are lost with them. No version that was
//! reported durable to a rank is lost, and no version that the ranks were discarding is reported as lost. `TIERFLOW_RESTARTS` sets the
//! number of restarts, and `TIERFLOW_SEED` the seed of the random draws.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tierflow_device::{Choice, open};
use tierflow_engine::{Engine, Group, Region, RegionMut};
use tierflow_redundancy::{Directory, Redundancy};
use tierflow_store::{NodeDirectory, Options, Protection, Repository, Snapshot};
use tierflow_testing::{Draws, Process, this_test, variable};

const START: &str = "TIERFLOW_REDUNDANCY_START";
const HOME: &str = "TIERFLOW_REDUNDANCY_HOME";
const RANK: &str = "TIERFLOW_REDUNDANCY_RANK";
const RANKS: u32 = 4;
const PATIENCE: Duration = Duration::from_secs(120);

/// The schemes, which take turns. Each has all ranks in one set.
const SCHEMES: &[Redundancy] = &[
    Redundancy::Xor { set: 4 },
    Redundancy::ReedSolomon { data: 2, parity: 2 },
];

fn content(rank: u32, version: u64) -> Vec<u8> {
    let length = if version % 7 == 6 {
        1_100_000
    } else {
        2_400 + 8 * rank as usize
    };
    let words = [u64::from(rank), version];
    words
        .into_iter()
        .flat_map(u64::to_le_bytes)
        .cycle()
        .take(length)
        .collect()
}

fn node(home: &Path, rank: u32) -> PathBuf {
    home.join(format!("node{rank}"))
}

/// A rank. Does nothing without the number of its start, as in an ordinary run of all tests.
#[test]
fn rank() {
    let Ok(start) = std::env::var(START) else {
        return;
    };
    let (scheme, run) = start.split_once('-').unwrap();
    let scheme = SCHEMES[scheme.parse::<usize>().unwrap()];
    let run: u64 = run.parse().unwrap();
    let rank: u32 = std::env::var(RANK).unwrap().parse().unwrap();
    let home = PathBuf::from(std::env::var_os(HOME).unwrap());
    let mut output = std::io::stdout();
    let mut report = |text: String| {
        writeln!(output, "rank: {text}").unwrap();
        output.flush().unwrap();
    };
    let shared = home.join("shared");
    let transport = Arc::new(Directory::open(&shared, run, rank).unwrap());
    let own = format!("node{rank}");
    let engine = Engine::builder(&open(Choice::Host).unwrap())
        .host_cache(8 << 20)
        .node_local(node(&home, rank))
        .group(Group::new(rank, RANKS, run).patience(PATIENCE))
        .redundancy(scheme.over(transport).failure_domain(own))
        .durable_in_order(true)
        .build()
        .unwrap();
    assert!(engine.damage().is_empty(), "{:?}", engine.damage());
    let newest = engine.latest(None);
    if let Some(newest) = newest {
        for version in newest.saturating_sub(5)..=newest {
            let mut bytes = vec![0; engine.restore_size(version).unwrap() as usize];
            engine
                .restore(version, &mut [RegionMut::from(bytes.as_mut_slice())])
                .unwrap();
            assert!(bytes == content(rank, version), "version {version}");
        }
    }
    report(format!("agreed {newest:?}"));
    for version in newest.map_or(0, |newest| newest + 1).. {
        let bytes = content(rank, version);
        engine
            .checkpoint(version, &[Region::from(bytes.as_slice())])
            .unwrap();
        engine.call().wait_version(version).unwrap();
        report(format!("durable {version}"));
    }
}

/// Returns the number in a report such as `durable 7` or `agreed Some(7)`.
fn number(report: &str) -> Option<u64> {
    let digits = |c: char| c.is_ascii_digit();
    report
        .split(|c| !digits(c))
        .find(|word| !word.is_empty())?
        .parse()
        .ok()
}

#[test]
fn nothing_durable_is_lost_with_ranks_and_nodes() {
    let restarts: u64 = variable("TIERFLOW_RESTARTS", 12);
    let mut draws = Draws(variable("TIERFLOW_SEED", 1));
    let (mut nodes, mut newest) = (0, 0);
    for (at, scheme) in (0..).zip(SCHEMES) {
        let home = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(home.path().join("shared")).unwrap();
        let mut durable: Option<u64> = None;
        for run in 1..=restarts.div_ceil(2) {
            let start = |rank: u32| {
                let mut child = this_test("rank");
                let child = child.env(START, format!("{at}-{run}"));
                Process::start(
                    child.env(RANK, rank.to_string()).env(HOME, home.path()),
                    "rank: ",
                )
            };
            let mut group: Vec<Process> = (0..RANKS).map(start).collect();
            let mut reports: Vec<Vec<String>> = vec![Vec::new(); group.len()];
            let is_early = draws.below(4) == 0;
            if is_early {
                draws.pause(0..100_000);
            } else {
                for (rank, reports) in group.iter().zip(&mut reports) {
                    reports.push(rank.report());
                }
                // The kill comes after a number of versions, however fast the machine is, and somewhere within the next version.
                let ahead = draws.index(group.len());
                for _ in 0..draws.below(8) {
                    reports[ahead].push(group[ahead].report());
                }
                draws.pause(0..20_000);
            }
            let mut order: Vec<usize> = (0..group.len()).collect();
            while !order.is_empty() {
                let next = order.swap_remove(draws.index(order.len()));
                reports[next].extend(group[next].kill());
                draws.pause(0..5_000);
            }
            let agreed: Vec<&String> = reports
                .iter()
                .filter_map(|reports| reports.first())
                .collect();
            for agreed in &agreed {
                assert!(agreed.starts_with("agreed"), "{agreed}");
                assert!(number(agreed) >= durable, "{agreed} after {durable:?}");
                assert_eq!(
                    *agreed,
                    reports.iter().find_map(|reports| reports.first()).unwrap()
                );
            }
            let told = reports
                .iter()
                .flatten()
                .filter_map(|report| number(report))
                .max();
            durable = durable.max(told);
            // Nodes are lost only if the group has rebuilt the earlier losses.
            if agreed.len() == group.len() {
                for _ in 0..draws.below(scheme.tolerates() as u64 + 1) {
                    let lost = draws.below(u64::from(RANKS)) as u32;
                    if std::fs::remove_dir_all(node(home.path(), lost)).is_ok() {
                        nodes += 1;
                    }
                }
            }
        }
        newest = newest.max(durable.unwrap_or_default());
    }
    println!("{restarts} restarts, {nodes} nodes lost, up to version {newest}");
    assert!(restarts < 10 || (nodes > 0 && newest > 0));
}

/// A rank that saves versions and discards older ones at once, without an engine, which would remove many together. Does nothing in an
/// ordinary run of all tests.
#[test]
fn discarding_rank() {
    let Ok(run) = std::env::var(START) else {
        return;
    };
    let run: u64 = run.parse().unwrap();
    let rank: u32 = std::env::var(RANK).unwrap().parse().unwrap();
    let home = PathBuf::from(std::env::var_os(HOME).unwrap());
    let mut output = std::io::stdout();
    let mut report = |text: String| {
        writeln!(output, "rank: {text}").unwrap();
        output.flush().unwrap();
    };
    let transport = Arc::new(Directory::open(&home.join("shared"), run, rank).unwrap());
    let path = node(&home, rank);
    let repository = Repository::open(&path, Options::default().rank(rank, RANKS)).unwrap();
    let scheme = SCHEMES[0].over(transport);
    let vault = scheme
        .failure_domain(format!("node{rank}"))
        .open(NodeDirectory {
            path: &path,
            repository: Arc::new(repository),
            rank,
            ranks: RANKS,
            elsewhere: &BTreeSet::new(),
            collective: None,
            patience: PATIENCE,
        });
    let vault = vault.unwrap();
    assert!(vault.gone().is_empty(), "{:?}", vault.gone());
    let pieces = vault.pieces().unwrap().into_iter();
    let held: BTreeSet<u64> = pieces.map(|piece| piece.version).collect();
    for version in &held {
        let read = vault.piece(*version).unwrap().read("state").unwrap();
        assert!(read == content(rank, *version), "version {version}");
    }
    let mine: Vec<u8> = held
        .iter()
        .flat_map(|version| version.to_le_bytes())
        .collect();
    let all = vault
        .collective()
        .unwrap()
        .all_gather(&mine, PATIENCE)
        .unwrap();
    let versions = |bytes: &Vec<u8>| -> BTreeSet<u64> {
        let (words, _) = bytes.as_chunks();
        words.iter().map(|word| u64::from_le_bytes(*word)).collect()
    };
    let common = all
        .iter()
        .map(versions)
        .reduce(|common, next| &common & &next);
    let newest = common.unwrap().last().copied();
    vault.truncate(newest).unwrap();
    report(format!("agreed {newest:?}"));
    for version in newest.map_or(0, |newest| newest + 1).. {
        let bytes = content(rank, version);
        let regions = [tierflow_store::Region::new("state", &bytes)];
        vault
            .save(&Snapshot::new(version, &regions), &|| Ok(()))
            .unwrap();
        assert!(vault.wait(Some(version), PATIENCE).unwrap());
        report(format!("durable {version}"));
        // The discarded versions lie between others that stay, so each has its own note.
        let old = [1, 3, 5].map(|before| version.saturating_sub(before));
        if version % 6 == 5 {
            vault.discard(&old.into()).unwrap();
            vault.remove(&old.into()).unwrap();
        }
    }
}

#[test]
fn versions_under_removal_are_not_lost_with_ranks_and_nodes() {
    let restarts: u64 = variable("TIERFLOW_RESTARTS", 12);
    let mut draws = Draws(variable("TIERFLOW_SEED", 1));
    let home = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(home.path().join("shared")).unwrap();
    let mut durable: Option<u64> = None;
    let mut nodes = 0;
    for run in 1..=restarts {
        let start = |rank: u32| {
            let mut child = this_test("discarding_rank");
            let child = child.env(START, run.to_string());
            let child = child.env(RANK, rank.to_string()).env(HOME, home.path());
            Process::start(child, "rank: ")
        };
        let mut group: Vec<Process> = (0..RANKS).map(start).collect();
        let mut reports: Vec<String> = Vec::new();
        for rank in &group {
            let agreed = rank.report();
            assert!(agreed.starts_with("agreed"), "{agreed}");
            assert!(number(&agreed) >= durable, "{agreed} after {durable:?}");
        }
        let ahead = draws.index(group.len());
        for _ in 0..draws.below(8) {
            reports.push(group[ahead].report());
        }
        draws.pause(0..20_000);
        let mut order: Vec<usize> = (0..group.len()).collect();
        while !order.is_empty() {
            let next = order.swap_remove(draws.index(order.len()));
            reports.extend(group[next].kill());
            draws.pause(0..5_000);
        }
        durable = durable.max(reports.iter().filter_map(|report| number(report)).max());
        if draws.below(2) == 0 {
            let lost = draws.below(u64::from(RANKS)) as u32;
            std::fs::remove_dir_all(node(home.path(), lost)).unwrap();
            nodes += 1;
        }
    }
    println!("{restarts} restarts, {nodes} nodes lost, up to version {durable:?}");
    assert!(restarts < 10 || (nodes > 0 && durable > Some(0)));
}
