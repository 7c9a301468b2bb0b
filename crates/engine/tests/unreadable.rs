//! Each read fails in turn while an engine is built. A version that cannot be read is not absent: the newest version never changes without
//! a report, and a version that is acknowledged afterwards, under whatever number, is restored from then on.
//!
//! `TIERFLOW_READS=1` lets every read fail in every way. CI leaves some out.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod history;

use history::restored;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tierflow_dedup::Tree;
use tierflow_device::{Choice, open};
use tierflow_engine::{Engine, EngineBuilder, Error, Group, Region, Version};
use tierflow_store::{Faults, Options, Order, Repository};
use tierflow_testing::{copy_directory, variable};

/// Tries that the engine makes of one read.
const TRIES: u64 = 3;
const LENGTH: usize = 6_000;

/// Returns the content of a version that a run writes. Versions differ in few bytes.
fn content(run: u64, version: Version) -> Vec<u8> {
    let word = |at: u64| (at + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15 | (run << 1)) >> 23;
    let mut bytes: Vec<u8> = (0..LENGTH as u64).map(|at| word(at) as u8).collect();
    let at = version as usize * 100;
    bytes[at..at + 8].copy_from_slice(&(version + 1).to_le_bytes());
    bytes
}

/// Acknowledged versions, each with the run that wrote it last.
type Acknowledged = BTreeMap<Version, u64>;

fn builder() -> EngineBuilder {
    Engine::builder(&open(Choice::Host).unwrap()).host_cache(1 << 20)
}

fn checkpoint(engine: &Engine, run: u64, version: Version) -> Result<(), Error> {
    let bytes = content(run, version);
    engine.checkpoint(version, &[Region::from(bytes.as_slice())])
}

/// Makes a directory in memory if the machine has one, as many engines are built, and each synchronises.
fn fast_home() -> tempfile::TempDir {
    let memory = tempfile::tempdir_in("/dev/shm");
    memory.or_else(|_| tempfile::tempdir()).unwrap()
}

/// The places of a history, and the configuration of its engines.
#[derive(Debug, Clone, Copy)]
struct World {
    near: bool,
    far: bool,
    differences: bool,
}

impl World {
    fn on(self, home: &Path, near: &str) -> EngineBuilder {
        let mut builder = builder();
        if self.near {
            builder = builder.node_local(home.join(near));
        }
        if self.far {
            builder = builder.external(home.join("far"));
        }
        if self.differences {
            builder = builder.dedup(Tree { chunk: 64 });
        }
        builder
    }

    /// Writes a history. Run 2 continues from run 1 on the node, and is killed before its versions leave the node. With `elsewhere`, run 3
    /// continues from the same version on another node.
    fn written(self, home: &Path, elsewhere: bool) -> Acknowledged {
        let run = |builder: EngineBuilder, run, versions: std::ops::Range<Version>| {
            let engine = builder.build().unwrap();
            versions.for_each(|version| checkpoint(&engine, run, version).unwrap());
            engine.close().unwrap();
        };
        run(self.on(home, "near"), 1, 0..3);
        let alone = Self {
            far: self.far && !self.near,
            ..self
        };
        run(alone.on(home, "near"), 2, 3..6);
        let mut acknowledged: Acknowledged = (0..6).map(|v| (v, 1 + u64::from(v > 2))).collect();
        if elsewhere {
            run(self.on(home, "other"), 3, 3..5);
            // Versions of run 2 with other numbers are still there.
            acknowledged.extend([(3, 3), (4, 3)]);
        }
        acknowledged
    }
}

#[derive(Debug, Default)]
struct Seen {
    injected: u64,
    refused: u64,
    said: u64,
    /// Acknowledged numbers that were used again.
    again: u64,
}

/// Asserts that each acknowledged version is restored as its run wrote it.
fn assert_all(engine: &Engine, acknowledged: &Acknowledged, which: &str) {
    for (&version, &run) in acknowledged {
        let bytes = restored(engine, version);
        let bytes = bytes.unwrap_or_else(|error| panic!("{which}, version {version}: {error}"));
        assert!(
            bytes == content(run, version),
            "{which}: version {version} is not run {run}'s"
        );
    }
}

/// Builds an engine while `bad` reads fail after `good` successful ones, and continues the history. Returns true if a read failed.
fn strike(
    world: World,
    template: (&Path, &Acknowledged),
    (good, bad): (u64, u64),
    seen: &mut Seen,
) -> bool {
    let which = format!("{world:?}, {bad} failures after {good}");
    let home = fast_home();
    copy_directory(template.0, home.path());
    let mut acknowledged = template.1.clone();
    let mut built_upon = Acknowledged::new();
    let newest = *acknowledged.keys().last().unwrap();
    let faults = Arc::<Faults>::default();
    faults.good_reads.store(good, Relaxed);
    faults.bad_reads.store(bad, Relaxed);
    let built = faults.during(|| world.on(home.path(), "near").build());
    let met = faults.bad_reads.swap(0, Relaxed) < bad;
    seen.injected += u64::from(met);
    match built {
        Err(error) => {
            seen.refused += 1;
            assert!(
                bad >= TRIES,
                "{which}: a moment's failure is waited for, {error}"
            );
        }
        Ok(engine) => {
            let is_said = !engine.damage().is_empty();
            seen.said += u64::from(is_said);
            let latest = engine.latest(None);
            assert!(
                latest == Some(newest) || is_said,
                "{which}: back to {latest:?}, silently"
            );
            // Every offered version has the bytes of the last run that wrote the number.
            for version in engine.versions() {
                if let Ok(bytes) = restored(&engine, version) {
                    let run = acknowledged.get(&version).copied().unwrap_or_default();
                    assert!(
                        bytes == content(run, version),
                        "{which}: version {version} is stale"
                    );
                }
            }
            let next = latest.map_or(0, |latest| latest + 1);
            if checkpoint(&engine, 9, next).is_ok() && engine.wait().is_ok() {
                let before = acknowledged.insert(next, 9);
                seen.again += u64::from(before.is_some());
                assert!(
                    before.is_none() || is_said,
                    "{which}: {next} was given twice, silently"
                );
                if before.is_some() && world.differences {
                    // Versions that build upon the replaced one may go with it.
                    built_upon = acknowledged.split_off(&(next + 1));
                }
            }
        }
    }
    for life in 0..2 {
        let engine = world.on(home.path(), "near").build().unwrap();
        assert_all(&engine, &acknowledged, &format!("{which}, life {life}"));
        for (&version, &run) in &built_upon {
            if let Ok(bytes) = restored(&engine, version) {
                assert!(
                    bytes == content(run, version),
                    "{which}: {version} is wrong"
                );
            }
        }
        assert!(engine.latest(None) >= acknowledged.keys().last().copied());
        // Only a call that waits brings versions that were left on the node to external storage.
        engine.wait().unwrap();
        engine.close().unwrap();
    }
    if world.far {
        let engine = world.on(home.path(), "third").build().unwrap();
        assert_all(&engine, &acknowledged, &format!("{which}, elsewhere"));
    }
    met
}

/// Lets each read of a build fail: once, through all tries of the read, for several reads, and for all reads after it.
fn strike_every_read(world: World, elsewhere: bool) -> Seen {
    let home = fast_home();
    let acknowledged = world.written(home.path(), elsewhere);
    let mut seen = Seen::default();
    for (bad, stride) in [(1, 17), (TRIES, 2), (12 * TRIES, 7), (1 << 40, 11)] {
        let stride = variable("TIERFLOW_READS", stride);
        let mut steps = (0..).step_by(stride);
        while strike(
            world,
            (home.path(), &acknowledged),
            (steps.next().unwrap(), bad),
            &mut seen,
        ) {}
    }
    println!("{world:?}, elsewhere {elsewhere}: {seen:?}");
    assert!(seen.injected > 20, "{seen:?}");
    seen
}

const DIRECTORIES: World = World {
    near: true,
    far: true,
    differences: false,
};

#[test]
fn reads_that_fail_on_the_node_and_beyond_it() {
    let seen = strike_every_read(DIRECTORIES, false);
    assert!(seen.said > 0);
}

#[test]
fn reads_that_fail_where_another_node_went_on() {
    let seen = strike_every_read(DIRECTORIES, true);
    assert!(seen.said > 0);
}

#[test]
fn reads_that_fail_of_one_directory() {
    for near in [true, false] {
        let world = World {
            near,
            far: !near,
            differences: false,
        };
        let seen = strike_every_read(world, false);
        assert!(seen.said + seen.refused > 0);
    }
}

/// A run saw versions that another node wrote anew, and left its marks. The run was killed before it removed its node's old versions of these
/// numbers. The next run on the node must restore those of the other node.
#[test]
fn versions_of_another_node_count_though_the_run_that_saw_them_removed_nothing() {
    let home = fast_home();
    let home = home.path();
    let run = |builder: EngineBuilder, run, versions: &[Version]| {
        let engine = builder.build().unwrap();
        for &version in versions {
            checkpoint(&engine, run, version).unwrap();
            engine.wait().unwrap();
        }
        engine.close().unwrap();
    };
    run(DIRECTORIES.on(home, "near"), 1, &[0, 1, 2]);
    // Run 2 uses the node alone, so that no other run knows of it. In this order, version 3 is the last that it writes.
    let alone = World {
        far: false,
        ..DIRECTORIES
    };
    run(alone.on(home, "near"), 2, &[5, 4, 3]);
    run(DIRECTORIES.on(home, "other"), 3, &[3, 4]);
    let order = Order::default();
    let options = Options::default().order(&order);
    let open = |name| Repository::open(home.join(name), options.clone()).unwrap();
    let both = [open("near"), open("far")];
    for directory in &both {
        order.see(directory.last_run().unwrap().epoch, 0);
    }
    for directory in &both {
        directory.mark(order.mark()).unwrap();
    }
    drop(both);
    let engine = DIRECTORIES.on(home, "near").build().unwrap();
    for (version, run) in [(0, 1), (1, 1), (2, 1), (3, 3), (4, 3)] {
        let bytes = restored(&engine, version).unwrap();
        assert!(bytes == content(run, version), "version {version}");
    }
}

/// A group of two ranks, each with a node of its own, and common external storage. Reads of the second rank fail.
#[test]
fn reads_that_fail_of_one_rank_of_two() {
    let group = |home: &Path, run: u64, rank: u32| {
        let builder = DIRECTORIES.on(home, &format!("near-{rank}"));
        builder.group(Group::new(rank, 2, run))
    };
    let both = |go_on: &(dyn Fn(u32) -> Option<Version> + Sync)| {
        std::thread::scope(|scope| {
            [0, 1]
                .map(|rank| scope.spawn(move || go_on(rank)))
                .map(|rank| rank.join().unwrap())
        })
    };
    let template = fast_home();
    let home = template.path();
    both(&|rank| {
        let engine = group(home, 1, rank).build().unwrap();
        (0..4).for_each(|version| checkpoint(&engine, 1, version).unwrap());
        engine.close().unwrap();
        None
    });
    let (mut refused, mut step) = (0, 0);
    loop {
        let home = fast_home();
        copy_directory(template.path(), home.path());
        let home = home.path();
        let faults = Arc::<Faults>::default();
        faults.good_reads.store(step, Relaxed);
        faults.bad_reads.store(12 * TRIES, Relaxed);
        // The version from which each rank continued, if it did.
        let went_on = both(&|rank| {
            let builder = group(home, 2, rank);
            let own = Group::new(rank, 2, 2).patience(Duration::from_millis(500));
            let builder = builder.group(own);
            let built = match rank {
                0 => builder.build(),
                _ => faults.during(|| builder.build()),
            };
            let engine = built.ok()?;
            let latest = engine.latest(None);
            assert!(
                latest == Some(3),
                "after {step}: rank {rank} goes on from {latest:?}"
            );
            latest
        });
        let met = faults.bad_reads.swap(0, Relaxed) < 12 * TRIES;
        refused += u64::from(went_on.contains(&None));
        let agreed = both(&|rank| {
            let engine = group(home, 3, rank).build().unwrap();
            (0..4).for_each(|version| {
                let bytes = restored(&engine, version).unwrap();
                assert!(
                    bytes == content(1, version),
                    "after {step}: version {version}"
                );
            });
            engine.latest(None)
        });
        assert_eq!(agreed, [Some(3); 2], "after {step}");
        if !met {
            break;
        }
        step += variable("TIERFLOW_READS", 9);
    }
    assert!(refused > 0);
}

#[test]
fn reads_that_fail_of_differences() {
    let differences = true;
    strike_every_read(
        World {
            differences,
            ..DIRECTORIES
        },
        false,
    );
    let near = World {
        far: false,
        differences,
        ..DIRECTORIES
    };
    strike_every_read(near, false);
}
