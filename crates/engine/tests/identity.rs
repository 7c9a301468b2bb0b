//! Several versions may have the same number. The one that was acknowledged last is restored, wherever older ones of its number lie.

#![allow(clippy::unwrap_used, clippy::panic)]

mod history;
mod home;

use history::restored;
use home::{Home, home};
use std::path::Path;
use tierflow_device::{Choice, open};
use tierflow_engine::{AfterRestore, Engine, EngineBuilder, Error, Region, Tier};
use tierflow_store::{Error as StoreError, Options, Region as Stored, Repository, Snapshot};
use tierflow_testing::assert_matches;

const LENGTH: usize = 50_000;

/// Returns the content of a version that a run writes.
fn content(run: u64, version: u64) -> Vec<u8> {
    let word = |i: u64| {
        (version + 1)
            .wrapping_mul(0x9E37_79B9_7F4A_7C15)
            .rotate_left((run * 7 + i) as u32 % 64)
    };
    (0..LENGTH as u64)
        .map(|i| (word(i / 64) >> 8) as u8)
        .collect()
}

fn builder() -> EngineBuilder {
    Engine::builder(&open(Choice::Host).unwrap()).host_cache(8 << 20)
}

/// Returns the builder of an engine on one of the nodes that share external storage.
fn on_node(home: &Home, node: u64) -> EngineBuilder {
    let near = home.near.with_extension(node.to_string());
    builder().node_local(near).external(&home.far)
}

fn checkpoint(engine: &Engine, run: u64, version: u64) {
    history::checkpoint(engine, version, &content(run, version));
}

fn assert_restores(engine: &Engine, run: u64, version: u64) {
    history::assert_restores(engine, version, &content(run, version));
}

/// Saves versions on a node alone, as an engine that was killed before it flushed them leaves them.
fn left_on_node(home: &Home, node: u64, run: u64, versions: std::ops::Range<u64>) {
    let near = home.near.with_extension(node.to_string());
    let engine = builder().node_local(near).build().unwrap();
    versions.for_each(|version| checkpoint(&engine, run, version));
    engine.wait().unwrap();
}

#[test]
fn leftovers_do_not_replace_versions_that_another_node_acknowledged() {
    let home = home();
    {
        let engine = on_node(&home, 1).build().unwrap();
        (0..3).for_each(|version| checkpoint(&engine, 1, version));
        engine.wait().unwrap();
    }
    left_on_node(&home, 1, 1, 3..5);
    {
        let engine = on_node(&home, 2).build().unwrap();
        assert_eq!(engine.latest(None), Some(2));
        checkpoint(&engine, 2, 3);
        checkpoint(&engine, 2, 4);
        engine.wait().unwrap();
    }
    for _ in 0..2 {
        let engine = on_node(&home, 1).build().unwrap();
        assert_restores(&engine, 1, 2);
        assert_restores(&engine, 2, 3);
        assert_restores(&engine, 2, 4);
    }
    // The node removes its own copies once a version of this run is durable.
    let engine = on_node(&home, 1).build().unwrap();
    checkpoint(&engine, 3, 5);
    engine.wait().unwrap();
    drop(engine);
    let local = Repository::read_only(home.near.with_extension("1"), Options::default()).unwrap();
    for version in [3, 4] {
        // The engine may have fetched the versions of run 2.
        let own = local.own_piece(version);
        assert!(own.is_err() || own.unwrap().read("checkpoint").unwrap() == content(2, version));
    }
}

#[test]
fn leftovers_that_were_acknowledged_stay_though_another_node_has_newer_ones_that_never_were() {
    let home = home();
    {
        let engine = on_node(&home, 1).build().unwrap();
        checkpoint(&engine, 1, 0);
        engine.wait().unwrap();
    }
    left_on_node(&home, 1, 1, 1..2);
    // Node 2 continues from version 0, and is lost before any of its versions reaches external storage.
    {
        let engine = on_node(&home, 2).build().unwrap();
        assert_eq!(engine.latest(None), Some(0));
    }
    left_on_node(&home, 2, 2, 1..2);
    // Node 1 continues from its own version 1, and makes version 2 durable.
    {
        let engine = on_node(&home, 1).build().unwrap();
        assert_eq!(engine.latest(None), Some(1));
        checkpoint(&engine, 3, 2);
        engine.wait().unwrap();
    }
    let engine = on_node(&home, 2).build().unwrap();
    assert_restores(&engine, 1, 1);
    assert_restores(&engine, 3, 2);
}

#[test]
fn no_run_continues_from_leftovers_behind_another_nodes_version() {
    for goes_on in [true, false] {
        let home = home();
        {
            let engine = on_node(&home, 1).build().unwrap();
            (0..7).for_each(|version| checkpoint(&engine, 1, version));
            engine.wait().unwrap();
        }
        // Versions 3 to 6 never reached external storage.
        let far = Repository::open(&home.far, Options::default()).unwrap();
        far.remove(&(3..7).collect()).unwrap();
        drop(far);
        {
            let engine = on_node(&home, 2).build().unwrap();
            assert_eq!(engine.latest(None), Some(2));
            if goes_on {
                (3..5).for_each(|version| checkpoint(&engine, 2, version));
                engine.wait().unwrap();
            }
        }
        let engine = on_node(&home, 1).build().unwrap();
        (0..3).for_each(|version| assert_restores(&engine, 1, version));
        if !goes_on {
            assert_eq!(engine.latest(None), Some(6));
            continue;
        }
        // Versions 5 and 6 follow a version 4 that the other node replaced.
        assert_eq!(engine.latest(None), Some(4));
        (3..5).for_each(|version| assert_restores(&engine, 2, version));
        checkpoint(&engine, 3, 5);
        engine.wait().unwrap();
        drop(engine);
        let engine = on_node(&home, 2).build().unwrap();
        assert_eq!(engine.latest(None), Some(5));
        assert_restores(&engine, 3, 5);
    }
}

#[test]
fn a_version_of_the_last_run_on_the_node_replaces_an_older_one_below() {
    let home = home();
    {
        let engine = on_node(&home, 1).build().unwrap();
        (0..3).for_each(|version| checkpoint(&engine, 1, version));
        engine.wait().unwrap();
    }
    // The next run discards version 2 and writes another one, while external storage is missing.
    {
        let near = home.near.with_extension("1");
        let engine = builder().node_local(near).build().unwrap();
        engine.discard(2).unwrap();
        checkpoint(&engine, 2, 2);
        engine.wait().unwrap();
    }
    {
        let engine = on_node(&home, 1).build().unwrap();
        assert_restores(&engine, 2, 2);
        engine.wait().unwrap();
    }
    let engine = on_node(&home, 2).build().unwrap();
    assert_restores(&engine, 2, 2);
    assert_restores(&engine, 1, 1);
}

#[test]
fn runs_that_were_killed_early_here_count_for_nothing_against_one_elsewhere() {
    let home = home();
    // Each of these runs is newer than the one before, and leaves a version on this node alone.
    for run in 0..5 {
        let engine = on_node(&home, 1).build().unwrap();
        drop(engine);
        left_on_node(&home, 1, 1, run..run + 1);
    }
    {
        let engine = on_node(&home, 2).build().unwrap();
        // Some versions of these runs may have reached external storage.
        let first = engine.latest(None).map_or(0, |newest| newest + 1);
        assert!(first <= 4);
        (first..6).for_each(|version| checkpoint(&engine, 2, version));
        engine.wait().unwrap();
    }
    let engine = on_node(&home, 1).build().unwrap();
    (4..6).for_each(|version| assert_restores(&engine, 2, version));
}

#[test]
fn histories_that_were_given_up_leave_their_order() {
    let home = home();
    left_on_node(&home, 1, 1, 0..2);
    {
        let engine = on_node(&home, 2)
            .after_restore(AfterRestore::Discard)
            .build()
            .unwrap();
        (0..2).for_each(|version| checkpoint(&engine, 2, version));
        engine.wait().unwrap();
        (0..2).for_each(|version| assert_restores(&engine, 2, version));
    }
    // A third node knows of these histories from external storage alone.
    {
        let engine = on_node(&home, 3).build().unwrap();
        assert_eq!(engine.latest(None), None);
        checkpoint(&engine, 3, 1);
        engine.wait().unwrap();
    }
    let engine = on_node(&home, 1).build().unwrap();
    assert_restores(&engine, 3, 1);
}

#[test]
fn a_version_on_the_disk_keeps_its_number_where_it_does_not_fit() {
    for with_external in [false, true] {
        let home = home();
        left_on_node(&home, 1, 1, 0..6);
        let tiers = |limit: u64| {
            let near = home.near.with_extension("1");
            let builder = builder().tier(Tier::node_local(near).limit(limit));
            match with_external {
                true => builder.external(&home.far),
                false => builder,
            }
        };
        {
            let engine = tiers(2 * LENGTH as u64 + 20_000).build().unwrap();
            assert_eq!(engine.latest(None), Some(5));
            let again = engine.checkpoint(3, &[Region::from([1_u8].as_slice())]);
            assert!(matches!(again, Err(Error::VersionUsed { .. })), "{again:?}");
            (0..6).for_each(|version| assert_restores(&engine, 1, version));
            if with_external {
                checkpoint(&engine, 2, 6);
                engine.wait().unwrap();
            }
        }
        let engine = tiers(u64::MAX).build().unwrap();
        (0..6).for_each(|version| assert_restores(&engine, 1, version));
        assert_eq!(engine.latest(None), Some(5 + u64::from(with_external)));
    }
}

#[test]
fn differences_whose_base_was_written_anew_elsewhere_fall_back_to_external_storage() {
    let home = home();
    let differing = |builder: EngineBuilder| builder.dedup(tierflow_dedup::Tree { chunk: 256 });
    let near = home.near.with_extension("1");
    // Later versions have much in common with version 1, so they are stored as differences.
    let of = |run: u64, version: u64| {
        let mut bytes = content(run, 1);
        bytes[version as usize * 100] ^= version as u8 - 1;
        bytes
    };
    let write = |engine: &Engine, run: u64, versions: std::ops::Range<u64>| {
        for version in versions {
            let bytes = of(run, version);
            let regions = [Region::from(bytes.as_slice())];
            engine.checkpoint(version, &regions).unwrap();
        }
        engine.wait().unwrap();
    };
    {
        let engine = differing(on_node(&home, 1)).build().unwrap();
        checkpoint(&engine, 1, 0);
        engine.wait().unwrap();
    }
    // Versions 1 to 4 of run 1 never left node 1.
    write(
        &differing(builder().node_local(&near)).build().unwrap(),
        1,
        1..5,
    );
    // Run 2 continues on node 2, and makes versions 1 to 3 durable.
    write(&differing(on_node(&home, 2)).build().unwrap(), 2, 1..4);
    let engine = differing(on_node(&home, 1)).build().unwrap();
    assert_restores(&engine, 1, 0);
    for version in [3, 2, 1] {
        let bytes = restored(&engine, version);
        let bytes = bytes.unwrap_or_else(|error| panic!("version {version}: {error}"));
        assert!(bytes == of(2, version), "version {version} is another");
    }
    // Run 1's version 4 is a difference from a version that no longer counts.
    if let Ok(bytes) = restored(&engine, 4) {
        assert!(bytes == of(1, 4), "version 4 is put together from others");
    }
}

#[test]
fn unusable_storage_is_left_out_and_named() {
    let home = home();
    {
        let engine = on_node(&home, 1).build().unwrap();
        (0..3).for_each(|version| checkpoint(&engine, 1, version));
        engine.wait().unwrap();
        assert!(engine.damage().is_empty());
    }
    // A file has the path of the node's directory.
    std::fs::write(home.near.with_extension("9"), b"mine").unwrap();
    let engine = on_node(&home, 9).build().unwrap();
    (0..3).for_each(|version| assert_restores(&engine, 1, version));
    let damage = engine.damage();
    assert_eq!(damage[0].tier, "node-local", "{damage:?}");
    checkpoint(&engine, 1, 3);
    engine.wait().unwrap();
    drop(engine);
    // A second engine on the same directory is an error of the caller.
    let engine = on_node(&home, 1).build().unwrap();
    let second = on_node(&home, 1).build();
    assert_matches!(second, Err(Error::Storage(StoreError::Busy { .. })));
    drop(engine);
    // External storage may not be written: the engine restores the versions there.
    if rustix_is_root() {
        return;
    }
    let far = home.far.join("rank-0");
    let mode = std::os::unix::fs::PermissionsExt::from_mode;
    std::fs::set_permissions(&far, mode(0o500)).unwrap();
    std::fs::remove_file(far.join("lock")).unwrap_or_default();
    let engine = builder().external(&home.far).build().unwrap();
    assert_restores(&engine, 1, 2);
    assert_eq!(engine.damage()[0].tier, "external");
    std::fs::set_permissions(&far, mode(0o700)).unwrap();
}

fn rustix_is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self").unwrap().uid() == 0
}

#[test]
fn a_clock_that_was_set_back_decides_nothing() {
    let home = home();
    let near = home.near.with_extension("1");
    let options = Options::default();
    // A piece that claims to be from the future, and one of a later run.
    let save = |directory: &Path, bytes: &[u8]| {
        let repository = Repository::open(directory, options.clone()).unwrap();
        let regions = [Stored::new("checkpoint", bytes)];
        let snapshot = Snapshot::new(5, &regions);
        repository.save(&snapshot).unwrap();
        repository.own_piece(5).unwrap()
    };
    let old = save(&near, &content(1, 5));
    {
        let external = Repository::open(&home.far, options.clone()).unwrap();
        external.copy(&old).unwrap();
        external.remove(&[5].into()).unwrap();
    }
    let new = save(&home.far, &content(2, 5));
    assert!(new.head().epoch > old.head().epoch);
    let engine = on_node(&home, 1).build().unwrap();
    assert_restores(&engine, 2, 5);
}
