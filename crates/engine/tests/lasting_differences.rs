//! Directories that outlive the engine hold versions as differences. The next engine restores and discards them, and builds on them.
//! A process that is killed loses no version that it reported.
//!
//! `TIERFLOW_KILLS=200` sets the number of kills; CI runs 12.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod changing;
mod history;
mod home;

use changing::{SIZE, checkpoint, content, content_near};
use history::restored as restore;
use home::{Home, home};
use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use tierflow_dedup::Tree;
use tierflow_device::{Choice, Device, open};
use tierflow_engine::{
    AfterRestore, BuildError, Compression, Engine, EngineBuilder, Error, Retention, Tier, Value,
    Version,
};
use tierflow_store::{Options, Repository};
use tierflow_testing::{Draws, Process, this_test, variable};

const DIRECTORY: &str = "TIERFLOW_DIFFERENCES_DIRECTORY";
/// Number of versions that the killed process keeps.
const NEWEST: usize = 12;

fn builder() -> EngineBuilder {
    of(&open(Choice::Host).unwrap())
}

fn of(device: &Device) -> EngineBuilder {
    Engine::builder(device)
        .device_cache(2 * SIZE)
        .host_cache(4 * SIZE)
        .dedup(Tree { chunk: 64 })
}

/// Returns the builder of an engine that also compresses. The changed bytes hardly shrink, but the first version of each chain does.
fn compressing(device: &Device) -> EngineBuilder {
    of(device).compress(Compression::lossless(Value::I64).always())
}

fn assert_restores(engine: &Engine, version: Version) {
    assert!(
        restore(engine, version).unwrap() == content(version),
        "version {version} came back wrong"
    );
}

fn listed(directory: &Path) -> Vec<(u64, Option<u64>)> {
    let repository = Repository::read_only(directory, Options::default()).unwrap();
    let versions = repository.versions().unwrap();
    assert!(
        repository
            .scrub(None, &|_, _| {})
            .unwrap()
            .damage
            .is_empty()
    );
    versions
        .iter()
        .map(|info| (info.version, info.base))
        .collect()
}

fn stored(directory: &Path) -> u64 {
    let repository = Repository::read_only(directory, Options::default()).unwrap();
    repository
        .versions()
        .unwrap()
        .iter()
        .map(|info| info.bytes)
        .sum()
}

#[test]
fn the_next_engine_restores_chains_and_begins_its_own() {
    let device = open(Choice::Host).unwrap();
    lives_of_chains(&|| of(&device));
}

#[test]
fn compressed_ones_outlive_the_engine_too() {
    let device = open(Choice::Host).unwrap();
    lives_of_chains(&|| compressing(&device));
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn differences_that_a_gpu_made_outlive_the_engine() {
    let device = open(Choice::Cuda { ordinal: 0 }).unwrap();
    lives_of_chains(&|| of(&device));
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn compressed_ones_that_a_gpu_made_outlive_the_engine_too() {
    let device = open(Choice::Cuda { ordinal: 0 }).unwrap();
    lives_of_chains(&|| compressing(&device));
}

fn lives_of_chains(build: &dyn Fn() -> EngineBuilder) {
    let tiers: [fn(&Home, EngineBuilder) -> EngineBuilder; 4] = [
        |home, builder| builder.node_local(&home.near),
        |home, builder| builder.node_local(&home.near).external(&home.far),
        |home, builder| builder.external(home.far.with_extension("only")),
        // Versions go from device memory to the directory at once.
        |home, builder| {
            builder
                .host_cache(0)
                .node_local(home.near.with_extension("device"))
        },
    ];
    for tiers in tiers {
        let home = home();
        let mut next = 0;
        for life in 0..3 {
            let engine = tiers(&home, build()).build().unwrap();
            assert_eq!(engine.latest(None), u64::checked_sub(next, 1));
            let order: Vec<u64> = match life {
                1 => (0..next).rev().collect(),
                _ => (0..next).map(|n| n * 17 % next).collect(),
            };
            engine.hint(order.iter().copied());
            order
                .iter()
                .for_each(|&version| assert_restores(&engine, version));
            (next..next + 20).for_each(|version| checkpoint(&engine, version));
            next += 20;
            engine.wait().unwrap();
            (0..next)
                .rev()
                .for_each(|version| assert_restores(&engine, version));
        }
        // Each engine stores two chains of a whole checkpoint and small differences.
        for directory in [&home.near, &home.far]
            .into_iter()
            .filter(|path| path.exists())
        {
            assert_eq!(listed(directory).len(), 60);
            assert!(
                listed(directory)
                    .iter()
                    .filter(|(_, base)| base.is_none())
                    .count()
                    <= 12
            );
            let bytes = stored(directory);
            assert!(bytes < 13 * SIZE as u64, "{bytes} bytes for 60 versions");
        }
    }
}

#[test]
fn a_lost_node_loses_no_version_that_was_waited_for() {
    let home = home();
    let both = || builder().node_local(&home.near).external(&home.far);
    let engine = both().build().unwrap();
    (0..20).for_each(|version| checkpoint(&engine, version));
    engine.wait().unwrap();
    drop(engine);
    assert_eq!(listed(&home.far).len(), 20);
    std::fs::remove_dir_all(&home.near).unwrap();
    let engine = both().build().unwrap();
    (0..20)
        .rev()
        .for_each(|version| assert_restores(&engine, version));
}

#[test]
fn bases_stay_and_go_with_the_versions_that_build_upon_them() {
    let home = home();
    let engine = builder().node_local(&home.near).build().unwrap();
    (0..12).for_each(|version| checkpoint(&engine, version));
    engine.wait().unwrap();
    (0..11).for_each(|version| engine.discard(version).unwrap());
    assert_eq!(engine.versions(), [11]);
    assert_restores(&engine, 11);
    drop(engine);
    assert_eq!(listed(&home.near).len(), 12);
    // The next engine finds them, and removes them once no version builds upon them.
    let engine = builder().node_local(&home.near).build().unwrap();
    assert_eq!(engine.versions(), (0..12).collect::<Vec<_>>());
    (0..12).for_each(|version| engine.discard(version).unwrap());
    drop(engine);
    assert!(listed(&home.near).is_empty());
    let engine = builder().node_local(&home.near).build().unwrap();
    checkpoint(&engine, 3);
    engine.wait().unwrap();
    assert_restores(&engine, 3);
}

#[test]
fn retention_keeps_the_newest_versions_and_their_bases_alone() {
    let home = home();
    for life in 0..3 {
        let engine = builder()
            .node_local(&home.near)
            .external(&home.far)
            .retention(Retention::newest(4))
            .build()
            .unwrap();
        (life * 40..life * 40 + 40).for_each(|version| checkpoint(&engine, version));
        engine.wait().unwrap();
        let newest = life * 40 + 39;
        (newest - 3..=newest).for_each(|version| assert_restores(&engine, version));
        drop(engine);
        for directory in [&home.near, &home.far] {
            let listed = listed(directory);
            let versions: Vec<u64> = listed.iter().map(|(version, _)| *version).collect();
            assert!(versions.ends_with(&[newest - 3, newest - 2, newest - 1, newest]));
            // A chain reads as at most two checkpoints, and the four newest belong to at most two chains.
            let bytes = stored(directory);
            assert!(bytes <= 4 * SIZE as u64, "{bytes} bytes: {listed:?}");
            assert!(versions[0] >= life * 40, "{listed:?}");
        }
    }
}

#[test]
fn a_limited_directory_of_the_node_gives_up_what_is_beyond_it() {
    let home = home();
    let limited = || {
        let near = Tier::node_local(&home.near).limit(3 * SIZE as u64);
        let builder = builder().tier(near).external(&home.far);
        builder.after_restore(AfterRestore::Keep)
    };
    // Each engine begins its own chain.
    let mut engine = limited().build().unwrap();
    for version in 0..100 {
        if version % 16 == 15 {
            drop(engine);
            engine = limited().build().unwrap();
        }
        checkpoint(&engine, version);
        engine.wait().unwrap();
    }
    (0..100)
        .rev()
        .for_each(|version| assert_restores(&engine, version));
    drop(engine);
    assert_eq!(listed(&home.far).len(), 100);
    let repository = Repository::read_only(&home.near, Options::default()).unwrap();
    let pieces = || repository.own_pieces().unwrap();
    let bytes: u64 = pieces().iter().map(|piece| piece.bytes).sum();
    assert!(bytes <= 3 * SIZE as u64, "{bytes} bytes on the node");
    // The node has some differences without their bases. The next engine finds the bases on external storage.
    assert!(pieces().len() > listed(&home.near).len());
    let engine = limited().build().unwrap();
    let tiers = engine.metrics().tiers;
    let near = tiers.iter().find(|tier| tier.name == "node-local").unwrap();
    assert!(near.used >= bytes, "{near:?}");
    (0..100).for_each(|version| assert_restores(&engine, version));
    engine.wait().unwrap();
    (0..100).for_each(|version| engine.discard(version).unwrap());
    drop(engine);
    assert_eq!((pieces().len(), listed(&home.far).len()), (0, 0));
}

#[test]
fn damage_to_one_is_damage_to_those_that_build_upon_it() {
    let home = home();
    // Each engine begins its own chain.
    for versions in [0..16, 16..20] {
        let engine = builder().node_local(&home.near).build().unwrap();
        versions.for_each(|version| checkpoint(&engine, version));
        engine.wait().unwrap();
    }
    let begins: Vec<u64> = listed(&home.near)
        .iter()
        .filter(|(_, base)| base.is_none())
        .map(|(version, _)| *version)
        .collect();
    let [first, second] = begins[..] else {
        panic!("{begins:?}")
    };
    // Small versions share a segment. The first bytes of its payload belong to the first version.
    let segments = std::fs::read_dir(home.near.join("rank-0")).unwrap();
    let segment = segments
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|end| end == "tfs"))
        .min();
    let segment = segment.unwrap();
    let mut bytes = std::fs::read(&segment).unwrap();
    bytes[100_000] ^= 1;
    std::fs::write(&segment, bytes).unwrap();
    let engine = builder().node_local(&home.near).build().unwrap();
    assert_eq!(first, 0);
    for version in first..second {
        assert!(
            matches!(restore(&engine, version), Err(Error::Storage(_))),
            "{version}"
        );
    }
    (second..20).for_each(|version| assert_restores(&engine, version));
}

#[test]
fn a_difference_without_its_base_never_takes_another_for_it() {
    for lost in ["near", "far"] {
        let home = home();
        let both = || builder().node_local(&home.near).external(&home.far);
        let engine = both().build().unwrap();
        (0..12).for_each(|version| checkpoint(&engine, version));
        engine.wait().unwrap();
        drop(engine);
        // The state after a crash at which differences were written, and their base was not.
        for directory in [&home.near, &home.far] {
            let repository = Repository::open(directory, Options::default()).unwrap();
            repository.remove_even_bases(&BTreeSet::from([5])).unwrap();
        }
        if lost == "near" {
            std::fs::remove_dir_all(&home.near).unwrap();
        }
        let engine = both().build().unwrap();
        assert_eq!(engine.latest(None), Some(4));
        (5..9).for_each(|version| checkpoint(&engine, version));
        engine.wait().unwrap();
        drop(engine);
        let engine = both().build().unwrap();
        assert_eq!(engine.latest(None), Some(8));
        (0..9).for_each(|version| assert_restores(&engine, version));
    }
}

#[test]
fn an_engine_without_the_stage_says_what_it_needs() {
    let home = home();
    let engine = builder().node_local(&home.near).build().unwrap();
    checkpoint(&engine, 0);
    engine.wait().unwrap();
    drop(engine);
    let device = open(Choice::Host).unwrap();
    let plain = Engine::builder(&device)
        .host_cache(4 * SIZE)
        .node_local(&home.near)
        .build();
    let Err(Error::Build(BuildError::NoDifferences { why })) = plain else {
        panic!("{plain:?}")
    };
    assert!(why.contains("dedup"), "{why}");
    // An engine with differences finds the versions of an engine without them.
    let plain = || {
        Engine::builder(&device)
            .host_cache(4 * SIZE)
            .node_local(&home.far)
    };
    let engine = plain().build().unwrap();
    (0..3).for_each(|version| checkpoint(&engine, version));
    engine.wait().unwrap();
    drop(engine);
    let engine = plain()
        .device_cache(2 * SIZE)
        .dedup(Tree { chunk: 64 })
        .build()
        .unwrap();
    (3..9).for_each(|version| checkpoint(&engine, version));
    engine.wait().unwrap();
    (0..9)
        .rev()
        .for_each(|version| assert_restores(&engine, version));
}

/// Returns the builder of an engine with differences. About every other process also compresses them.
fn both(directory: &Path) -> EngineBuilder {
    let device = open(Choice::Host).unwrap();
    let builder = match std::process::id().is_multiple_of(2) {
        true => compressing(&device),
        false => of(&device),
    };
    let builder = builder
        .node_local(directory.join("near"))
        .external(directory.join("far"));
    builder.retention(Retention::newest(NEWEST))
}

/// The process that is killed. Does nothing without a directory, as in an ordinary run of all tests.
#[test]
fn child() {
    let Some(directory) = std::env::var_os(DIRECTORY).map(PathBuf::from) else {
        return;
    };
    let engine = both(&directory).build().unwrap();
    let newest = engine.latest(None);
    if let Some(newest) = newest {
        assert!(restore(&engine, newest).unwrap() == content_near(newest));
    }
    let mut output = std::io::stdout();
    for version in newest.map_or(0, |newest| newest + 1).. {
        history::checkpoint(&engine, version, &content_near(version));
        // The process does not wait for every fourth version.
        if version % 4 != 1 {
            engine.wait().unwrap();
            writeln!(output, "durable {version}").unwrap();
            output.flush().unwrap();
        }
    }
}

#[test]
fn no_kill_loses_or_tears_a_version_that_was_durable() {
    let kills: u64 = variable("TIERFLOW_KILLS", 12);
    let home = tempfile::tempdir().unwrap();
    let mut draws = Draws::fresh();
    let mut reported = BTreeSet::new();
    for _ in 0..kills {
        let mut child = this_test("child");
        let mut child = Process::start(child.env(DIRECTORY, home.path()), "durable ");
        let mut reports = child.live(&mut draws, 20_000..420_000);
        reports.extend(child.kill());
        // The kill may cut off the last report.
        reported.extend(
            reports
                .iter()
                .filter_map(|report| report.parse::<u64>().ok()),
        );
        check(home.path(), &reported);
        if draws.once(16) {
            std::fs::remove_dir_all(home.path().join("near")).unwrap_or_default();
        }
    }
    println!(
        "{kills} kills, {} versions reported durable",
        reported.len()
    );
    assert!(!reported.is_empty(), "nothing was reported before a kill");
}

fn check(directory: &Path, reported: &BTreeSet<u64>) {
    if !directory.join("far").exists() {
        assert!(reported.is_empty());
        return;
    }
    let engine = both(directory).build().unwrap();
    let held = engine.versions();
    let newest = held.last().copied().unwrap_or_default();
    for &version in &held {
        match restore(&engine, version) {
            // The retention discarded this version for newer ones.
            Err(Error::Unknown { .. } | Error::Discarded { .. }) => {
                assert!(version + NEWEST as u64 <= newest, "version {version}");
            }
            bytes => assert!(bytes.unwrap() == content_near(version), "version {version}"),
        }
    }
    // Newer versions may push out one of these: the application was still running.
    for version in reported.iter().rev().take(NEWEST) {
        let kept = version + NEWEST as u64 > newest;
        assert!(
            held.contains(version) || !kept,
            "version {version} was reported and is lost: {held:?}"
        );
    }
}
