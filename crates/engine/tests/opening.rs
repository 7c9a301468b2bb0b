//! A start reads, leaves its lock and reports. A start deletes nothing, needs no space, and changes no later decision,
//! wherever it ends.

#![allow(clippy::unwrap_used, clippy::panic)]

mod changing;
mod history;
mod home;

use history::restored;
use home::{Home, home};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use tierflow_dedup::Tree;
use tierflow_device::{Choice, open};
use tierflow_engine::{Engine, EngineBuilder, Tier, Version};
use tierflow_store::{Faults, Options, Region, Repository, Snapshot};
use tierflow_testing::copy_directory;

/// So many tries are made of one read.
const TRIES: u64 = 3;

/// Bytes of a version of a run; little differs from version to version.
fn content(run: u64, version: Version) -> Vec<u8> {
    let mut bytes = changing::content(version);
    bytes[..8].copy_from_slice(&run.to_le_bytes());
    bytes
}

fn checkpoint(engine: &Engine, run: u64, version: Version) {
    history::checkpoint(engine, version, &content(run, version));
}

fn write(builder: EngineBuilder, run: u64, versions: Range<Version>) {
    let engine = builder.build().unwrap();
    versions.for_each(|version| checkpoint(&engine, run, version));
    engine.wait().unwrap();
    engine.close().unwrap();
}

/// Of versions that are stored whole.
fn plain() -> EngineBuilder {
    let builder = Engine::builder(&open(Choice::Host).unwrap());
    let builder = builder.device_cache(2 * changing::SIZE);
    builder.host_cache(4 * changing::SIZE)
}

fn builder() -> EngineBuilder {
    plain().dedup(Tree { chunk: 64 })
}

fn near(home: &Home) -> EngineBuilder {
    builder().node_local(&home.near)
}

fn both(home: &Home) -> EngineBuilder {
    near(home).external(&home.far)
}

/// The versions that an engine offers, with the run that wrote each one's bytes.
fn offered(engine: &Engine) -> BTreeMap<Version, u64> {
    let run = |version| {
        let bytes = restored(engine, version);
        let bytes = bytes.unwrap_or_else(|error| panic!("version {version}: {error}"));
        let run = u64::from_le_bytes(bytes[..8].try_into().unwrap());
        assert!(bytes == content(run, version), "version {version} is torn");
        (version, run)
    };
    engine.versions().into_iter().map(run).collect()
}

fn of_run(run: u64, versions: Range<Version>) -> BTreeMap<Version, u64> {
    versions.map(|version| (version, run)).collect()
}

/// The pieces in a directory, whether or not what they build upon is there.
fn pieces(directory: &Path) -> Vec<Version> {
    let repository = Repository::read_only(directory, Options::default()).unwrap();
    let pieces = repository.own_pieces().unwrap();
    pieces.iter().map(|piece| piece.version).collect()
}

fn remove(directory: &Path, versions: Range<Version>) {
    let repository = Repository::open(directory, Options::default()).unwrap();
    let versions: BTreeSet<Version> = versions.collect();
    repository.remove_even_bases(&versions).unwrap();
}

/// Versions 0 to 11 are one chain. The node gave 0 to 5 up for room, and was left before 9 to 11 got below: the differences on the
/// node build upon version 5, which lies below alone.
fn without_bases() -> Home {
    let home = brought();
    remove(&home.far, 9..12);
    home
}

/// The same, had all of them got below.
fn brought() -> Home {
    let home = home();
    write(both(&home), 1, 0..12);
    remove(&home.near, 0..6);
    home
}

fn copy_of(from: &Home) -> Home {
    let home = home();
    copy_directory(&from.near, &home.near);
    copy_directory(&from.far, &home.far);
    home
}

#[test]
fn a_forgotten_option_deletes_nothing() {
    let home = without_bases();
    for _ in 0..2 {
        let engine = near(&home).build().unwrap();
        assert!(engine.versions().is_empty());
        let damage = engine.damage();
        let missing: Vec<_> = damage.iter().filter_map(|damage| damage.version).collect();
        assert_eq!(missing, (6..12).collect::<Vec<_>>(), "{damage:?}");
        for damage in &damage {
            assert!(damage.what.contains("version 5"), "{damage}");
            assert!(damage.path == home.near, "{damage}");
        }
        engine.close().unwrap();
    }
    assert_eq!(pieces(&home.near), (6..12).collect::<Vec<_>>());
    let engine = both(&home).build().unwrap();
    assert_eq!(offered(&engine), of_run(1, 0..12));
    assert!(engine.damage().is_empty(), "{:?}", engine.damage());
}

#[test]
fn storage_that_cannot_be_listed_costs_nothing_of_what_builds_upon_it() {
    let template = without_bases();
    let mut said = 0;
    for good in (0..).step_by(3) {
        let home = copy_of(&template);
        let faults = Arc::<Faults>::default();
        faults.good_reads.store(good, Relaxed);
        faults.bad_reads.store(4 * TRIES, Relaxed);
        let built = faults.during(|| both(&home).build());
        let met = faults.bad_reads.swap(0, Relaxed) < 4 * TRIES;
        if let Ok(engine) = built {
            said += usize::from(!engine.damage().is_empty());
        }
        let engine = both(&home).build().unwrap();
        assert_eq!(offered(&engine), of_run(1, 0..12), "after {good} reads");
        if !met {
            break;
        }
    }
    assert!(said > 0);
}

#[test]
fn what_builds_upon_a_number_that_is_written_anew_goes() {
    let home = without_bases();
    {
        // External storage was forgotten: the run begins anew, and gets beyond the first of those without their base.
        let engine = near(&home).build().unwrap();
        (0..7).for_each(|version| checkpoint(&engine, 2, version));
        engine.wait().unwrap();
        assert_eq!(offered(&engine), of_run(2, 0..7));
        engine.close().unwrap();
    }
    for life in 0..2 {
        let engine = near(&home).build().unwrap();
        assert_eq!(offered(&engine), of_run(2, 0..7), "life {life}");
        engine.close().unwrap();
        if life == 0 {
            // The versions stay while no known copy counts in their place.
            assert_eq!(pieces(&home.near), (0..12).collect::<Vec<_>>());
        }
        let engine = both(&home).build().unwrap();
        assert_eq!(offered(&engine), of_run(2, 0..7), "life {life}");
        engine.close().unwrap();
    }
    write(both(&home), 2, 7..8);
    assert_eq!(pieces(&home.near), (0..8).collect::<Vec<_>>());
    std::fs::remove_file(home.near.join("rank-0/superseded.note")).unwrap();
    assert_eq!(pieces(&home.near), (0..8).collect::<Vec<_>>(), "removed");
    let engine = both(&home).build().unwrap();
    assert_eq!(offered(&engine), of_run(2, 0..8));
    assert!(engine.damage().is_empty(), "{:?}", engine.damage());
}

#[test]
fn bases_count_wherever_they_lie() {
    let home = brought();
    // Written side by side, version 10 got below before version 9, and version 11 did not.
    remove(&home.far, 9..10);
    remove(&home.far, 11..12);
    let engine = both(&home).build().unwrap();
    assert_eq!(offered(&engine), of_run(1, 0..12));
}

/// A node on which run 1 left versions 4 to 6, which never got below and are too large for it by now; run 2 went on elsewhere,
/// from version 3, and wrote 4 and 5.
fn left() -> Home {
    let home = home();
    write(plain().node_local(&home.near).external(&home.far), 1, 0..7);
    remove(&home.far, 4..7);
    let elsewhere = plain().node_local(home.near.with_extension("other"));
    write(elsewhere.external(&home.far), 2, 4..6);
    home
}

fn counting() -> BTreeMap<Version, u64> {
    let mut counting = of_run(1, 0..4);
    counting.extend(of_run(2, 4..6));
    counting
}

fn limited(home: &Home) -> EngineBuilder {
    let near = Tier::node_local(&home.near).limit(changing::SIZE as u64 * 9 / 8);
    builder().tier(near).external(&home.far)
}

#[test]
fn a_start_removes_nothing() {
    for (world, expected) in [(brought(), of_run(1, 0..12)), (left(), counting())] {
        let before = pieces(&world.near);
        // As a kill leaves it, segments are open and a file is half-written.
        let half = world.near.join("rank-0/v00000000000000000077.tmp");
        std::fs::write(&half, [1; 100]).unwrap();
        for build in [both, limited] {
            let faults = Arc::<Faults>::default();
            faults.removals_fail.store(true, Relaxed);
            let engine = faults.during(|| build(&world).build()).unwrap();
            assert!(engine.versions().iter().eq(expected.keys()));
            engine.close().unwrap();
            assert_eq!(faults.removals.load(Relaxed), 0);
            assert_eq!(pieces(&world.near), before);
        }
        assert!(half.exists());
        let engine = both(&world).build().unwrap();
        assert_eq!(offered(&engine), expected);
        engine.close().unwrap();
        // The first version of its own lets it go.
        let next = expected.keys().last().unwrap() + 1;
        write(both(&world), 3, next..next + 1);
        assert!(!half.exists());
        let engine = both(&world).build().unwrap();
        let mut expected = expected;
        expected.insert(next, 3);
        assert_eq!(offered(&engine), expected);
    }
}

#[test]
fn a_start_that_ends_anywhere_changes_no_decision() {
    for (world, expected) in [(without_bases(), of_run(1, 0..12)), (left(), counting())] {
        let next = expected.keys().last().unwrap() + 1;
        // With a version of its own, whose first steps are those by which it becomes the last run; and without.
        for goes_on in [false, true] {
            for stop in 1.. {
                let home = copy_of(&world);
                let faults = Arc::<Faults>::default();
                faults.stops_at.store(stop, Relaxed);
                if let Ok(engine) = faults.during(|| both(&home).build()) {
                    if goes_on {
                        checkpoint(&engine, 3, next);
                        let _it_may_be_stopped = engine.wait();
                    }
                    drop(engine);
                }
                let is_stopped = faults.changes.load(Relaxed) >= stop;
                let which = format!("stopped at change {stop}, goes on: {goes_on}");
                let engine = both(&home).build().unwrap();
                let mut found = offered(&engine);
                if goes_on {
                    assert!(found.remove(&next).is_none_or(|run| run == 3), "{which}");
                }
                assert_eq!(found, expected, "{which}");
                engine.close().unwrap();
                if !is_stopped {
                    break;
                }
            }
        }
    }
}

#[test]
fn a_start_needs_no_space() {
    for (world, expected) in [(without_bases(), of_run(1, 0..12)), (left(), counting())] {
        for has_lock in [true, false] {
            for directory in [&world.near, &world.far].into_iter().filter(|_| !has_lock) {
                std::fs::remove_file(directory.join("rank-0/lock")).unwrap();
            }
            let faults = Arc::<Faults>::default();
            faults.full.store(true, Relaxed);
            let engine = faults.during(|| both(&world).build()).unwrap();
            assert_eq!(offered(&engine), expected, "with a lock: {has_lock}");
            // Another engine is kept out although there is no room for a file that says so.
            let second = both(&world).build();
            assert!(second.is_err(), "with a lock: {has_lock}");
        }
    }
}

#[test]
fn a_first_version_without_room_for_the_note_changes_no_decision() {
    for (world, expected) in [(without_bases(), of_run(1, 0..12)), (left(), counting())] {
        let next = expected.keys().last().unwrap() + 1;
        for goes_on in [false, true] {
            let home = copy_of(&world);
            let faults = Arc::<Faults>::default();
            let engine = faults.during(|| both(&home).build()).unwrap();
            faults.full.store(true, Relaxed);
            checkpoint(&engine, 3, next);
            assert!(engine.wait().is_err());
            assert!(!engine.is_durable(next));
            let mut expected = expected.clone();
            faults.full.store(false, Relaxed);
            if goes_on {
                engine.wait().unwrap();
                expected.insert(next, 3);
                drop(engine);
            } else {
                faults.stops_at.store(1, Relaxed);
                drop(engine);
            }
            for life in 0..2 {
                let engine = both(&home).build().unwrap();
                assert_eq!(
                    offered(&engine),
                    expected,
                    "goes on: {goes_on}, life {life}"
                );
                engine.close().unwrap();
            }
        }
    }
}

#[test]
fn external_storage_that_could_not_be_marked_is_said_and_marked_later() {
    for comes_back in [true, false] {
        let (home, mut expected) = (left(), counting());
        let next = expected.keys().last().unwrap() + 1;
        let faults = Arc::<Faults>::default();
        let engine = faults.during(|| both(&home).build()).unwrap();
        faults.refuse_marks(Some(&home.far));
        checkpoint(&engine, 3, next);
        assert!(engine.wait().is_err());
        let damage = engine.damage();
        let is_said =
            |damage: &tierflow_engine::Damage| damage.what.contains("the mark of this run");
        assert!(damage.iter().any(is_said), "{damage:?}");
        if comes_back {
            faults.refuse_marks(None);
            engine.wait().unwrap();
        }
        drop(engine);
        // The version is there wherever it got to, and what was decided stays decided.
        expected.insert(next, 3);
        for life in 0..2 {
            let engine = both(&home).build().unwrap();
            assert_eq!(
                offered(&engine),
                expected,
                "comes back: {comes_back}, life {life}"
            );
            engine.close().unwrap();
        }
        let elsewhere = builder().external(&home.far).build().unwrap();
        assert_eq!(elsewhere.latest(None) == Some(next), comes_back);
    }
}

#[test]
fn a_version_without_bytes_is_read_by_an_engine_without_a_group() {
    let home = home();
    let far = Repository::open(&home.far, Options::default()).unwrap();
    let regions = [Region::new("checkpoint", &[])];
    far.save(&Snapshot::new(9, &regions)).unwrap();
    drop(far);
    let engine = plain().external(&home.far).build().unwrap();
    assert_eq!(engine.restore_size(9).unwrap(), 0);
    engine.restore(9, &mut []).unwrap();
}
