//! The ranks of a group are processes that are killed at random instants while they start, agree or write, together or one after the
//! other, and start again at either of two nodes. All of them always continue from the same version of the same run, and no version
//! that was reported durable to all ranks is lost.
//!
//! `TIERFLOW_RESTARTS=200` sets the number of restarts; CI makes 15.

#![allow(clippy::unwrap_used, clippy::panic)]

mod home;

mod history;

use home::home;
use std::io::Write;
use std::path::PathBuf;
use tierflow_device::{Choice, open};
use tierflow_engine::{Damage, Engine, Group, RegionMut};
use tierflow_testing::{Draws, Process, this_test, variable};

const CHILD: &str = "TIERFLOW_AGREEMENT_START";

/// Returns the content of a version that a start of the group writes.
fn content(start: u64, rank: u32, version: u64) -> Vec<u8> {
    let words = [start, u64::from(rank), version];
    let length = if version % 7 == 6 { 1_100_000 } else { 2_400 };
    let bytes = words.into_iter().flat_map(u64::to_le_bytes).cycle();
    bytes.take(length).collect()
}

/// A rank. Does nothing without the number of its start, as in an ordinary run of all tests.
#[test]
fn rank() {
    let Ok(start) = std::env::var(CHILD) else {
        return;
    };
    let number = |name| std::env::var(name).unwrap().parse::<u64>().unwrap();
    let path = |name| PathBuf::from(std::env::var_os(name).unwrap());
    let start: u64 = start.parse().unwrap();
    let (rank, ranks) = (
        number("TIERFLOW_RANK") as u32,
        number("TIERFLOW_RANKS") as u32,
    );
    let mut output = std::io::stdout();
    let mut report = |text: String| {
        writeln!(output, "rank: {text}").unwrap();
        output.flush().unwrap();
    };
    // A rank that panics may be killed before the panic ends its process, so the panic is printed at once.
    std::panic::set_hook(Box::new(|panic| {
        let _ends_anyway = writeln!(std::io::stdout(), "rank: panicked: {panic}");
    }));
    let device = open(Choice::Host).unwrap();
    let engine = Engine::builder(&device)
        .host_cache(4 << 20)
        .node_local(path("TIERFLOW_NEAR"))
        .external(path("TIERFLOW_FAR"))
        // Two starts in a row have the same run number, as a job that is queued again.
        .group(Group::new(rank, ranks, start / 2))
        .build()
        .unwrap();
    // A rank that was killed before its first version has nothing on the node. The engine reports that others have, which is no damage.
    let is_damage = |found: &Damage| !found.what.contains(&format!("none of rank {rank},"));
    let damage: Vec<Damage> = engine.damage().into_iter().filter(is_damage).collect();
    assert!(damage.is_empty(), "{damage:?}");
    let newest = engine.latest(None);
    let writer = newest.map(|newest| {
        let mut bytes = vec![0; engine.restore_size(newest).unwrap() as usize];
        let regions = &mut [RegionMut::from(bytes.as_mut_slice())];
        engine.restore(newest, regions).unwrap();
        let writer = u64::from_le_bytes(*bytes.first_chunk().unwrap());
        assert!(bytes == content(writer, rank, newest), "version {newest}");
        writer
    });
    report(format!("agreed {newest:?} of {writer:?}"));
    for version in newest.map_or(0, |newest| newest + 1).. {
        history::checkpoint(&engine, version, &content(start, rank, version));
        if !(version + u64::from(rank)).is_multiple_of(3) {
            engine.wait().unwrap();
            report(format!("durable {version}"));
        }
    }
}

#[test]
fn all_ranks_go_on_from_the_same_version_whenever_they_are_killed() {
    let restarts: u64 = variable("TIERFLOW_RESTARTS", 15);
    let mut draws = Draws::fresh();
    let (mut starts, mut agreements, mut splits, mut durable) = (0, 0, 0, 0);
    for ranks in 2..=8_u32 {
        let home = home();
        // The newest version that was reported durable to all ranks.
        let mut acknowledged: Option<u64> = None;
        for _ in 0..restarts.div_ceil(7) {
            starts += 1;
            let node = draws.below(2).to_string();
            let start = |rank: u32| {
                let mut child = this_test("rank");
                let child = child
                    .env(CHILD, starts.to_string())
                    .env("TIERFLOW_RANK", rank.to_string())
                    .env("TIERFLOW_RANKS", ranks.to_string())
                    .env("TIERFLOW_NEAR", home.near.with_extension(&node))
                    .env("TIERFLOW_FAR", &home.far);
                Process::start(child, "rank: ")
            };
            std::fs::create_dir_all(&home.far).unwrap();
            let mut group: Vec<Process> = (0..ranks).map(start).collect();
            let mut reports: Vec<Vec<String>> = vec![Vec::new(); ranks as usize];
            if draws.once(3) {
                draws.pause(0..60_000);
            } else {
                // The kills come soon after each rank has reported its agreement and up to two durable versions, however slow the disk is.
                let count = draws.within(1..4);
                for (rank, reports) in group.iter().zip(&mut reports) {
                    let own = (0..count).map(|_| rank.report());
                    own.for_each(|report| {
                        assert!(!report.starts_with("panicked"), "{report}");
                        reports.push(report);
                    });
                }
                draws.pause(0..200_000);
            }
            let mut order: Vec<usize> = (0..ranks as usize).collect();
            while !order.is_empty() {
                let next = order.swap_remove(draws.index(order.len()));
                reports[next].extend(group[next].kill());
                draws.pause(0..5_000);
            }
            let panicked = |text: &&String| text.starts_with("panicked");
            let panicked = reports.iter().flatten().find(panicked);
            assert!(panicked.is_none(), "start {starts}: {panicked:?}");
            let agreed = reports.iter().filter_map(|reports| reports.first());
            let mut agreed: Vec<&String> = agreed.collect();
            let told = agreed.len();
            agreed.dedup();
            assert!(agreed.len() <= 1, "start {starts} of {ranks}: {agreed:?}");
            agreements += usize::from(told == ranks as usize);
            splits += usize::from(told > 0 && told < ranks as usize);
            if let Some(agreed) = agreed.first() {
                let newest = agreed.strip_prefix("agreed Some(");
                let newest = newest.and_then(|text| text.split_once(')')?.0.parse::<u64>().ok());
                assert!(newest >= acknowledged, "{agreed} after {acknowledged:?}");
            }
            let newest = reports.iter().map(|reports| {
                let versions = reports
                    .iter()
                    .filter_map(|text| text.strip_prefix("durable "));
                versions
                    .map(|version| version.parse::<u64>().unwrap())
                    .max()
            });
            let newest = newest.min().flatten();
            durable += usize::from(newest.is_some());
            acknowledged = acknowledged.max(newest);
        }
    }
    println!(
        "{starts} starts: all ranks agreed in {agreements}, were killed while some had in {splits}; all had durable versions in \
         {durable}"
    );
    assert!(
        agreements > 0 && durable > 0,
        "nothing was agreed on before a kill"
    );
}
