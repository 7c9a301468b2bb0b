//! An application is killed at random instants, and continues on either of two nodes that share external storage, with
//! differences or without, with space on the node or without. Versions that were reported durable come back unchanged.
//!
//! `TIERFLOW_KILLS=1000` sets the number of kills; CI runs 15.

#![allow(clippy::unwrap_used, clippy::panic)]

mod home;

mod history;

use home::{Home, home};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use tierflow_device::{Choice, open};
use tierflow_engine::{Damage, Engine, EngineBuilder, RegionMut, Tier};
use tierflow_testing::{Draws, Process, this_test, variable};

const CHILD: &str = "TIERFLOW_IDENTITY_RUN";

fn length_of(version: u64) -> usize {
    match version % 11 {
        0 => 1_500_000,
        5 => 120_000,
        _ => 3_000 + version as usize % 700,
    }
}

/// Returns the content of a version that a run writes. Much of it is common to all versions.
fn content(run: u64, version: u64) -> Vec<u8> {
    let mut bytes = vec![7; length_of(version)];
    let word = (run + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ version;
    for at in (0..bytes.len()).step_by(2_000) {
        let end = bytes.len().min(at + 8);
        bytes[at..end].copy_from_slice(&word.to_le_bytes()[..end - at]);
    }
    bytes
}

fn engine(near: &Path, far: &Path, limited: bool, differences: bool) -> Engine {
    let device = open(Choice::Host).unwrap();
    let mut builder: EngineBuilder = Engine::builder(&device).host_cache(8 << 20);
    let near = Tier::node_local(near).limit(limited.then_some(2 << 20));
    builder = builder.tier(near).external(far);
    if differences {
        builder = builder.dedup(tierflow_dedup::Tree { chunk: 256 });
    }
    builder.build().unwrap()
}

fn restored(engine: &Engine, version: u64) -> Vec<u8> {
    let mut bytes = vec![0; engine.restore_size(version).unwrap() as usize];
    let restored = engine.restore(version, &mut [RegionMut::from(bytes.as_mut_slice())]);
    restored.unwrap_or_else(|error| panic!("version {version}: {error}"));
    bytes
}

/// The application. Does nothing without the number of its run, as in an ordinary run of all tests.
#[test]
fn child() {
    let Ok(run) = std::env::var(CHILD) else {
        return;
    };
    let run: u64 = run.parse().unwrap();
    let path = |name| PathBuf::from(std::env::var_os(name).unwrap());
    let differences = std::env::var_os("TIERFLOW_DIFFERENCES").is_some();
    let (near, far) = (path("TIERFLOW_NEAR"), path("TIERFLOW_FAR"));
    let engine = engine(&near, &far, run % 3 == 1, differences);
    let mut output = std::io::stdout();
    for version in engine.latest(None).map_or(0, |newest| newest + 1).. {
        history::checkpoint(&engine, version, &content(run, version));
        if version % 4 != 1 {
            engine.wait().unwrap();
            // All versions up to this one are durable.
            writeln!(output, "durable {version}").unwrap();
            output.flush().unwrap();
        }
    }
}

fn near(home: &Home, node: u64) -> PathBuf {
    home.near.with_extension(node.to_string())
}

/// Asserts that each acknowledged version is there as the run that is given for it wrote it.
fn check(home: &Home, node: u64, differences: bool, acknowledged: &BTreeMap<u64, u64>) {
    let engine = engine(&near(home, node), &home.far, false, differences);
    // A kill may leave differences whose base is missing. Such differences stay, and none of them was acknowledged.
    let damage = engine.damage();
    let is_orphan = |damage: &Damage| {
        let version = damage
            .version
            .filter(|_| damage.what.contains("which was not found"));
        version.is_some_and(|version| !acknowledged.contains_key(&version))
    };
    assert!(damage.iter().all(is_orphan), "{damage:?}");
    for (version, run) in acknowledged.iter().rev().take(40) {
        let bytes = restored(&engine, *version);
        assert!(
            bytes == content(*run, *version),
            "version {version} is not run {run}'s"
        );
    }
}

#[test]
fn no_kill_makes_an_acknowledged_version_stale() {
    let kills: u64 = variable("TIERFLOW_KILLS", 15);
    let mut home = home();
    let mut draws = Draws::fresh();
    let (mut acknowledged, mut all): (BTreeMap<u64, u64>, usize) = (BTreeMap::new(), 0);
    // Only engines with differences open directories that hold differences.
    let (each, mut differences) = ((kills / 2).clamp(1, 60), true);
    for run in 1..=kills {
        let node = draws.below(2);
        let before = acknowledged.last_key_value().map(|(version, _)| *version);
        let mut child = this_test("child");
        let child = child
            .env(CHILD, run.to_string())
            .env("TIERFLOW_NEAR", near(&home, node))
            .env("TIERFLOW_FAR", &home.far)
            .envs(differences.then_some(("TIERFLOW_DIFFERENCES", "1")));
        let mut child = Process::start(child, "durable ");
        let mut reports = child.live(&mut draws, 5_000..305_000);
        reports.extend(child.kill());
        let reports = reports
            .iter()
            .filter_map(|report| report.parse::<u64>().ok());
        let reports: Vec<u64> = reports.collect();
        if let (Some(oldest), Some(newest)) = (reports.first(), reports.last()) {
            let engine = engine(&near(&home, node), &home.far, false, differences);
            for version in before.map_or(0, |before| before + 1)..=*newest {
                // Versions that the start found may belong to other runs, may never have been acknowledged, and may have gaps.
                let writer = match version < *oldest {
                    true if engine.restore_size(version).is_err() => continue,
                    true => {
                        let bytes = restored(&engine, version);
                        (0..=run)
                            .rev()
                            .find(|run| bytes == content(*run, version))
                            .unwrap()
                    }
                    false => run,
                };
                acknowledged.insert(version, writer);
            }
        }
        check(&home, draws.below(2), differences, &acknowledged);
        if run % each == 0 {
            differences = !differences;
            all += acknowledged.len();
            acknowledged.clear();
            home = self::home();
        }
    }
    all += acknowledged.len();
    println!("{kills} kills, {all} versions acknowledged");
    assert!(all > 0, "nothing was acknowledged before a kill");
}
