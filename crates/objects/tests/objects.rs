//! Tests of versions in object stores: in memory, in a directory, and in stores that fail, hang, or hold damaged objects.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

mod common;
mod faulty;

use common::{bytes_of, change, numbers, objects};
use faulty::Faulty;
use object_store::ObjectStore;
use object_store::local::LocalFileSystem;
use object_store::memory::InMemory;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tierflow_device::{Choice, open};
use tierflow_engine::{Engine, Region as EngineRegion, RegionMut, Tier};
use tierflow_objects::{Settings, repository};
use tierflow_store::{Error, Options, Region, Repository, Snapshot, Vault};

/// Returns the bytes of a version: none, few, or more than one part of an upload.
fn length_of(version: u64) -> usize {
    [0, 5_000, 18_000_001][version as usize % 3]
}

fn save(vault: &dyn Vault, version: u64, base: Option<u64>) -> Result<(), Error> {
    let bytes = bytes_of(version, length_of(version));
    let regions = [Region::new("state", &bytes)];
    vault.save(
        &Snapshot {
            version,
            base,
            regions: &regions,
        },
        &|| Ok(()),
    )
}

fn assert_right(vault: &dyn Vault, version: u64) {
    let bytes = vault.piece(version).unwrap().read("state").unwrap();
    assert!(
        bytes == bytes_of(version, length_of(version)),
        "version {version}"
    );
}

#[test]
fn saved_versions_come_back_from_every_store() {
    let directory = tempfile::tempdir().unwrap();
    let stores: [Arc<dyn ObjectStore>; 2] = [
        Arc::new(InMemory::new()),
        Arc::new(LocalFileSystem::new_with_prefix(directory.path()).unwrap()),
    ];
    for store in stores {
        {
            let objects = objects(&store);
            assert!(numbers(&objects).is_empty());
            (0..6).for_each(|version| save(&objects, version, None).unwrap());
            let again = save(&objects, 4, None);
            assert!(
                matches!(again, Err(Error::Exists { version: 4 })),
                "{again:?}"
            );
            // Version 11 counts only once its base is there, which never comes.
            save(&objects, 11, Some(10)).unwrap();
            save(&objects, 9, Some(3)).unwrap();
        }
        // A second vault of the store finds the same.
        let objects = objects(&store);
        assert_eq!(numbers(&objects), [0, 1, 2, 3, 4, 5, 9]);
        (0..6).for_each(|version| assert_right(&objects, version));
        objects.remove(&BTreeSet::from([1, 2, 3, 77])).unwrap();
        assert_eq!(numbers(&objects), [0, 3, 4, 5, 9], "3 is a base");
        let missing = objects.piece(2).unwrap_err();
        assert!(
            matches!(
                missing,
                Error::NoVersion {
                    version: 2,
                    older: Some(0)
                }
            ),
            "{missing}"
        );
    }
}

#[test]
fn damage_is_named_and_an_older_version_offered() {
    let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    let vault = objects(&store);
    (0..3).for_each(|version| save(&vault, version, None).unwrap());
    let path = "runs/7/rank-0/v00000000000000000002.tfc";
    change(&store, path, |bytes| bytes[10_000_000] ^= 1);
    let error = vault.piece(2).unwrap().read("state").unwrap_err();
    assert!(
        matches!(&error, Error::Damaged { path: named, older: Some(1), .. } if named.ends_with(path)),
        "{error}"
    );
    // The head is damaged, the object is cut, or replaced by a foreign one.
    let path = "runs/7/rank-0/v00000000000000000001.tfc";
    change(&store, path, |bytes| bytes[40] ^= 1);
    assert_eq!(numbers(&vault), [0, 2]);
    let error = vault.piece(1).unwrap_err();
    assert!(
        matches!(&error, Error::Damaged { older: Some(0), .. }),
        "{error}"
    );
    save(&vault, 1, None).unwrap();
    assert_eq!(
        numbers(&vault),
        [0, 1, 2],
        "what is damaged may be written again"
    );
    for cut in [0, 1, 255, 256, 400] {
        change(&store, path, |bytes| bytes.truncate(cut));
        assert_eq!(numbers(&vault), [0, 2]);
        save(&vault, 1, None).unwrap();
    }
    change(&store, path, |bytes| bytes.clear());
    change(&store, "runs/7/rank-0/v00000000000000000000.tfc", |_| {});
    assert_eq!(numbers(&vault), [0, 2]);
}

#[test]
fn a_version_of_a_group_counts_when_all_pieces_do() {
    let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    let rank = |rank, run| {
        let settings = Settings::default().group(rank, 3, run);
        repository(Arc::clone(&store), "group", &settings).unwrap()
    };
    let ranks = [rank(0, 1), rank(1, 1), rank(2, 1)];
    for (at, rank) in ranks.iter().enumerate() {
        assert!(numbers(rank).is_empty());
        save(rank, 1, None).unwrap();
        if at < 2 {
            save(rank, 4, None).unwrap();
        }
    }
    assert_eq!(numbers(&ranks[1]), [1]);
    // The next run writes the version that was never whole.
    let ranks = [rank(0, 2), rank(1, 2), rank(2, 2)];
    for rank in &ranks {
        save(rank, 4, None).unwrap();
    }
    assert_eq!(numbers(&rank(2, 3)), [1, 4]);
    assert_right(&ranks[2], 4);
    ranks[1].remove(&BTreeSet::from([1])).unwrap();
    assert_eq!(numbers(&ranks[0]), [4]);
}

#[test]
fn pieces_are_copied_with_their_checksums() {
    let directory = tempfile::tempdir().unwrap();
    let local = Repository::open(directory.path(), Options::default()).unwrap();
    let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    let vault = objects(&store);
    for version in 0..3 {
        save(&local, version, None).unwrap();
        let piece = local.own_piece(version).unwrap();
        vault.copy(&piece).unwrap();
        vault.copy(&piece).unwrap();
        assert_right(&vault, version);
        assert_eq!(
            vault.piece(version).unwrap().head().blocks,
            piece.head().blocks
        );
    }
    // The piece is copied back to a directory.
    let other = tempfile::tempdir().unwrap();
    let other = Repository::open(other.path(), Options::default()).unwrap();
    for version in 0..3 {
        other.copy(&vault.piece(version).unwrap()).unwrap();
        assert_right(&other, version);
    }
}

#[test]
fn an_engine_keeps_its_versions_there() {
    let home = tempfile::tempdir().unwrap();
    let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    let device = open(Choice::Host).unwrap();
    for run in 0..2_u64 {
        // Each run is on another node.
        let near = home.path().join(run.to_string());
        let engine = Engine::builder(&device)
            .host_cache(64 << 20)
            .node_local(near)
            .tier(Tier::vault(Arc::new(objects(&store))))
            .build()
            .unwrap();
        assert_eq!(engine.latest(None), (3 * run).checked_sub(1));
        for version in 0..3 * run {
            let mut bytes = vec![0; engine.restore_size(version).unwrap() as usize];
            engine
                .restore(version, &mut [RegionMut::from(bytes.as_mut_slice())])
                .unwrap();
            assert!(bytes == bytes_of(version, 5_000 << (version % 3 * 4)));
        }
        for version in 3 * run..3 * run + 3 {
            let bytes = bytes_of(version, 5_000 << (version % 3 * 4));
            engine
                .checkpoint(version, &[EngineRegion::from(bytes.as_slice())])
                .unwrap();
        }
        engine.wait().unwrap();
    }
}

#[test]
fn a_faulty_store_loses_nothing_and_blocks_no_caller_for_ever() {
    let faulty = Arc::new(Faulty::default());
    let store: Arc<dyn ObjectStore> = Arc::clone(&faulty) as Arc<dyn ObjectStore>;
    let settings = Settings::default().patience(Duration::from_millis(500));
    let vault = repository(Arc::clone(&store), "runs/7", &settings).unwrap();
    save(&vault, 1, None).unwrap();
    for switch in [&faulty.fails, &faulty.hangs] {
        switch.store(true, Relaxed);
        for version in [4, 5] {
            let error = save(&vault, version, None).unwrap_err();
            assert!(matches!(error, Error::Remote(_)), "{error}");
        }
        assert!(matches!(vault.versions(), Err(Error::Remote(_))));
        switch.store(false, Relaxed);
        assert_eq!(numbers(&vault), [1]);
    }
    for version in [4, 5] {
        save(&vault, version, None).unwrap();
        assert_right(&vault, version);
    }
    // An upload whose part fails leaves nothing behind.
    for fail_after in 1..12 {
        faulty.fail_after.store(fail_after, Relaxed);
        let failed = save(&vault, 8, None).is_err();
        faulty.fail_after.store(u64::MAX, Relaxed);
        assert_eq!(numbers(&vault).contains(&8), !failed);
        vault.remove(&BTreeSet::from([8])).unwrap();
    }
}

#[test]
fn an_engine_is_built_without_a_store_that_does_not_answer_and_says_so() {
    let home = tempfile::tempdir().unwrap();
    let faulty = Arc::new(Faulty::default());
    let store: Arc<dyn ObjectStore> = Arc::clone(&faulty) as Arc<dyn ObjectStore>;
    let device = open(Choice::Host).unwrap();
    let engine = || {
        Engine::builder(&device)
            .host_cache(1 << 20)
            .node_local(home.path())
            .tier(Tier::vault(Arc::new(objects(&store))))
            .build()
            .unwrap()
    };
    let first = engine();
    first
        .checkpoint(1, &[EngineRegion::from([7; 100].as_slice())])
        .unwrap();
    first.wait().unwrap();
    assert_eq!(first.damage(), []);
    drop(first);
    faulty.fails.store(true, Relaxed);
    let second = engine();
    assert!(
        second
            .damage()
            .iter()
            .any(|damage| damage.tier == "external")
    );
    let mut bytes = [0; 100];
    second
        .restore(1, &mut [RegionMut::from(bytes.as_mut_slice())])
        .unwrap();
    assert_eq!(bytes, [7; 100]);
    second
        .checkpoint(2, &[EngineRegion::from([8; 100].as_slice())])
        .unwrap();
    assert!(second.wait().is_err(), "it is not there");
    faulty.fails.store(false, Relaxed);
    second.wait().unwrap();
    drop(second);
    assert_eq!(numbers(&objects(&store)), [1, 2]);
}

#[test]
fn an_answer_that_was_lost_is_no_failure() {
    let faulty = Arc::new(Faulty::default());
    let store: Arc<dyn ObjectStore> = Arc::clone(&faulty) as Arc<dyn ObjectStore>;
    let vault = objects(&store);
    // A client on the way tries the request again.
    faulty.retries.store(true, Relaxed);
    save(&vault, 1, None).unwrap();
    faulty.retries.store(false, Relaxed);
    // The caller tries the save again.
    faulty.loses_answers.store(true, Relaxed);
    assert!(matches!(save(&vault, 4, None), Err(Error::Remote(_))));
    faulty.loses_answers.store(false, Relaxed);
    save(&vault, 4, None).unwrap();
    assert_eq!(numbers(&vault), [1, 4]);
    [1, 4]
        .iter()
        .for_each(|version| assert_right(&vault, *version));
    // The version is known by now, so its number is taken.
    let again = save(&vault, 4, None);
    assert!(
        matches!(again, Err(Error::Exists { version: 4 })),
        "{again:?}"
    );
    // The answer to the copy of a piece is lost, too.
    let directory = tempfile::tempdir().unwrap();
    let local = Repository::open(directory.path(), Options::default()).unwrap();
    save(&local, 7, None).unwrap();
    let piece = local.own_piece(7).unwrap();
    faulty.loses_answers.store(true, Relaxed);
    assert!(matches!(vault.copy(&piece), Err(Error::Remote(_))));
    faulty.loses_answers.store(false, Relaxed);
    vault.copy(&piece).unwrap();
    assert_right(&vault, 7);
    // Other bytes under the number are another version, so the save fails.
    let regions = [Region::new("state", b"other")];
    let other = Snapshot::new(7, &regions);
    let taken = vault.save(&other);
    assert!(
        matches!(taken, Err(Error::Exists { version: 7 })),
        "{taken:?}"
    );
}

#[test]
fn a_number_is_given_once_as_in_a_directory() {
    let near = tempfile::tempdir().unwrap();
    tierflow_store::conformance::vault(&|| {
        Box::new(Repository::open(near.path(), Options::default()).unwrap())
    });
    let (without, directory) = (Arc::new(Faulty::default()), tempfile::tempdir().unwrap());
    without.no_conditions.store(true, Relaxed);
    let stores: [Arc<dyn ObjectStore>; 3] = [
        Arc::new(InMemory::new()),
        Arc::new(LocalFileSystem::new_with_prefix(directory.path()).unwrap()),
        without,
    ];
    for store in stores {
        tierflow_store::conformance::vault(&|| Box::new(objects(&store)));
    }
}

#[test]
fn a_save_is_one_request_and_an_open_no_long_row_of_them() {
    let faulty = Arc::new(Faulty::default());
    let store: Arc<dyn ObjectStore> = Arc::clone(&faulty) as Arc<dyn ObjectStore>;
    {
        let vault = objects(&store);
        (0..60).for_each(|version| save(&vault, 3 * version + 1, None).unwrap());
        let count = |counter: &std::sync::atomic::AtomicU64| counter.load(Relaxed);
        assert_eq!(count(&faulty.puts), 60);
        assert_eq!((count(&faulty.lists), count(&faulty.gets)), (1, 0));
        assert_eq!(numbers(&vault).len(), 60);
        assert_eq!(count(&faulty.gets), 0, "it knows what it wrote");
    }
    let before = faulty.lists.load(Relaxed);
    let vault = objects(&store);
    // Requests for heads run side by side: each waits here until there are twelve.
    faulty.gets_meet.store(true, Relaxed);
    assert_eq!(numbers(&vault).len(), 60);
    assert_eq!(faulty.gets.load(Relaxed), 60, "one for each head");
    assert_eq!(faulty.lists.load(Relaxed), before + 1);
}

#[test]
fn a_url_whose_store_is_not_built_in_or_wrong_says_what_to_do() {
    let error = |url| {
        tierflow_objects::open(url, &Settings::default())
            .unwrap_err()
            .to_string()
    };
    if cfg!(feature = "cloud") {
        assert!(
            error("s3:///prefix").contains("s3://"),
            "{}",
            error("s3:///prefix")
        );
        assert!(error("ftp://host/x").contains("write s3://bucket/prefix"));
    } else {
        assert!(error("s3://bucket/prefix").contains("feature `cloud`"));
    }
}

#[test]
fn a_newer_piece_takes_the_place_of_an_older_one() {
    let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    let vault = objects(&store);
    let directory = tempfile::tempdir().unwrap();
    let mut old = None;
    for run in 0..2_u8 {
        let local = Repository::open(directory.path(), Options::default()).unwrap();
        let bytes = [run; 100];
        let regions = [Region::new("state", &bytes)];
        local.remove(&BTreeSet::from([1])).unwrap();
        let snapshot = Snapshot::new(1, &regions);
        local.save(&snapshot).unwrap();
        let piece = local.own_piece(1).unwrap();
        vault.copy(&piece).unwrap();
        assert_eq!(vault.piece(1).unwrap().read("state").unwrap(), bytes);
        if let Some(old) = old.replace(piece) {
            assert!(matches!(
                vault.copy(&old),
                Err(Error::Exists { version: 1 })
            ));
        }
    }
}

#[tokio::test]
async fn a_store_may_be_used_within_the_callers_runtime() {
    let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    let vault = objects(&store);
    save(&vault, 1, None).unwrap();
    assert_right(&vault, 1);
    drop(vault);
}

#[test]
fn a_head_longer_than_a_part_is_sent_in_parts() {
    let faulty = Arc::new(Faulty::default());
    let store: Arc<dyn ObjectStore> = Arc::clone(&faulty) as Arc<dyn ObjectStore>;
    let vault = objects(&store);
    let names: Vec<String> = (0..60_000).map(|number| format!("{number:0300}")).collect();
    let bytes = bytes_of(1, names.len());
    let regions = names.iter().zip(bytes.chunks(1));
    let regions: Vec<_> = regions
        .map(|(name, byte)| Region::new(name, byte))
        .collect();
    vault.save(&Snapshot::new(1, &regions)).unwrap();
    assert!(faulty.parts.load(Relaxed) > 1);
    let piece = objects(&store).piece(1).unwrap();
    piece.verify(&|_| {}).unwrap();
    for number in [0, 7, 59_999] {
        assert_eq!(piece.read(&names[number]).unwrap(), [bytes[number]]);
    }
}

#[test]
fn an_upload_that_cannot_be_completed_is_aborted() {
    let faulty = Arc::new(Faulty::default());
    let store: Arc<dyn ObjectStore> = Arc::clone(&faulty) as Arc<dyn ObjectStore>;
    let vault = objects(&store);
    faulty.no_completions.store(true, Relaxed);
    save(&vault, 2, None).unwrap_err();
    assert_eq!(faulty.aborts.load(Relaxed), 1);
    faulty.no_completions.store(false, Relaxed);
    save(&vault, 2, None).unwrap();
    assert_right(&vault, 2);
    assert_eq!(faulty.aborts.load(Relaxed), 1);
}
