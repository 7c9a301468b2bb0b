//! Tests which durable versions a retention keeps as new ones are written.

#![allow(clippy::unwrap_used)]

mod groups;
mod history;
mod home;

use history::{checkpoint, content, damage, listed, restored};
use home::home;
use std::time::{Duration, Instant};
use tierflow_device::{Choice, open};
use tierflow_engine::{Engine, EngineBuilder, Error, Group, Retention, Version};
use tierflow_store::{Options, Repository};

/// Bytes of a version that gets a file of its own.
const LARGE: usize = 2 << 20;

fn builder() -> EngineBuilder {
    Engine::builder(&open(Choice::Host).unwrap()).host_cache(16 << 20)
}

/// Checkpoints a version, and waits until it is durable.
fn save(engine: &Engine, version: Version, length: usize) {
    checkpoint(engine, version, &content(version, length));
    engine.wait().unwrap();
}

/// Waits until the retention has discarded a version, as calls do not wait for that.
fn await_given_up(engine: &Engine, version: Version) {
    let begun = Instant::now();
    while engine.versions().contains(&version) {
        assert!(begun.elapsed() < Duration::from_secs(60), "{version} stays");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn restore(engine: &Engine, version: Version) -> Result<(), Error> {
    let bytes = restored(engine, version)?;
    assert!(bytes == content(version, bytes.len()), "version {version}");
    Ok(())
}

#[test]
fn a_retention_holds_on_every_tier() {
    let home = home();
    let engine = builder().node_local(&home.near).external(&home.far);
    let engine = engine.retention(Retention::newest(3).and_every(10));
    let engine = engine.build().unwrap();
    (0..25).for_each(|version| save(&engine, version, 5_000));
    await_given_up(&engine, 5);
    assert!(matches!(restore(&engine, 5), Err(Error::Discarded { .. })));
    drop(engine);
    assert_eq!(listed(&home.near), [0, 10, 20, 22, 23, 24]);
    assert_eq!(listed(&home.far), [0, 10, 20, 22, 23, 24]);
}

#[test]
fn a_hinted_version_stays_until_it_was_restored() {
    let home = home();
    let engine = builder().node_local(&home.near).external(&home.far);
    let engine = engine.retention(Retention::newest(2)).build().unwrap();
    engine.hint([1, 3]);
    (0..8).for_each(|version| save(&engine, version, 5_000));
    await_given_up(&engine, 2);
    assert!(matches!(restore(&engine, 2), Err(Error::Discarded { .. })));
    restore(&engine, 1).unwrap();
    save(&engine, 8, 5_000);
    restore(&engine, 3).unwrap();
    await_given_up(&engine, 6);
    assert!(engine.metrics().pruned >= 5, "{}", engine.metrics());
    engine.hint([8, 7, 6]);
    drop(engine);
    assert_eq!(listed(&home.far), [7, 8], "hints end with the run");
    assert_eq!(listed(&home.near), [7, 8]);
}

#[test]
fn ranks_that_keep_a_version_longer_leave_nothing_behind() {
    let home = home();
    let ranks = groups::together(2, |rank| {
        let near = home.near.with_extension(rank.to_string());
        let engine = builder().node_local(near).external(&home.far);
        let engine = engine
            .group(Group::new(rank, 2, 1))
            .retention(Retention::newest(2));
        engine.build().unwrap()
    });
    ranks[0].hint([3]);
    for version in 0..20 {
        for rank in &ranks {
            save(rank, version, 5_000);
        }
    }
    restore(&ranks[0], 3).unwrap();
    // The other rank's piece is removed first.
    ranks.into_iter().rev().for_each(drop);
    assert_eq!(listed(&home.far), [18, 19]);
    for rank in 0..2 {
        let options = Options::default().rank(rank, 2);
        let repository = Repository::open(&home.far, options).unwrap();
        let pieces = repository.own_pieces().unwrap();
        let pieces: Vec<_> = pieces.iter().map(|piece| piece.version).collect();
        assert_eq!(pieces, [18, 19], "of rank {rank}");
    }
}

#[test]
fn the_last_version_that_verifies_is_never_given_up() {
    let home = home();
    let engine = builder().node_local(&home.near).build().unwrap();
    (10..14).for_each(|version| save(&engine, version, LARGE));
    drop(engine);
    damage(&home.near, 12);
    damage(&home.near, 13);
    let engine = builder().node_local(&home.near);
    let engine = engine.retention(Retention::newest(1)).build().unwrap();
    // Version 3 is older than the others, so no sound version that is kept came.
    save(&engine, 3, LARGE);
    drop(engine);
    let engine = builder().node_local(&home.near).build().unwrap();
    assert!(restore(&engine, 11).is_ok(), "{:?}", engine.versions());
}
