//! Tests of objects that are cut off anywhere.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod common;

use common::{bytes_of, change, numbers, objects};
use object_store::ObjectStore;
use object_store::memory::InMemory;
use std::sync::Arc;
use tierflow_device::{Choice, open};
use tierflow_engine::{Engine, Tier};
use tierflow_objects::{Settings, repository};
use tierflow_store::{Error, Region, Snapshot};

/// An object is cut to every length. A vault that was opened before the cut and a new one return no wrong bytes, and always an error.
#[test]
fn objects_cut_anywhere_are_errors_and_never_read_wrong() {
    let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    let contents = [bytes_of(0, 700), bytes_of(1, 900)];
    let names = ["a", "b"];
    {
        let vault = objects(&store);
        for (version, bytes) in (0..).zip(&contents) {
            let parts = [&bytes[..333], &bytes[333..]];
            let regions = names.iter().zip(parts);
            let regions: Vec<_> = regions
                .map(|(name, part)| Region::new(name, part))
                .collect();
            let regions = &regions;
            vault.save(&Snapshot::new(version, regions)).unwrap();
        }
    }
    let path = "runs/7/rank-0/v00000000000000000001.tfc";
    let mut whole = Vec::new();
    change(&store, path, |bytes| whole = bytes.clone());
    for cut in 0..whole.len() {
        change(&store, path, |bytes| *bytes = whole.clone());
        let knew = objects(&store);
        assert_eq!(numbers(&knew), [0, 1]);
        let piece = knew.piece(1).unwrap();
        change(&store, path, |bytes| bytes.truncate(cut));
        for (name, expected) in names.iter().zip([&contents[1][..333], &contents[1][333..]]) {
            // A region before the cut may be read.
            if let Ok(bytes) = piece.read(name) {
                assert!(bytes == expected, "{name}, cut at {cut}");
            }
        }
        assert!(piece.verify(&|_| {}).is_err(), "cut at {cut}");
        for vault in [knew, objects(&store)] {
            assert_eq!(numbers(&vault), [0], "cut at {cut}");
            let error = vault.piece(1).unwrap_err();
            let is_named = matches!(&error, Error::Damaged { path: named, older: Some(0), .. } if named.ends_with(path));
            assert!(is_named, "cut at {cut}: {error}");
            let damage = vault.damage();
            assert_eq!(damage.len(), 1, "cut at {cut}: {damage:?}");
            assert_eq!(damage[0].version, Some(1));
            assert!(vault.piece(0).unwrap().read("a").unwrap() == contents[0][..333]);
        }
    }
    // An engine reports the damage, too, and continues from the version before.
    let device = open(Choice::Host).unwrap();
    let vault = Arc::new(objects(&store));
    let builder = Engine::builder(&device).host_cache(1 << 20);
    let engine = builder.tier(Tier::vault(vault)).build().unwrap();
    assert_eq!(engine.latest(None), Some(0));
    assert_eq!(engine.damage()[0].version, Some(1));
}

/// Each piece and the manifest of a group's version are cut to every length: the version is not whole.
#[test]
fn a_groups_objects_cut_anywhere_make_no_version() {
    let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    let rank = |rank| {
        let settings = Settings::default().group(rank, 2, 1);
        repository(Arc::clone(&store), "runs/7", &settings).unwrap()
    };
    for number in 0..2 {
        let vault = rank(number);
        for version in 0..2 {
            let bytes = bytes_of(version, 300 + number as usize);
            let regions = [Region::new("state", &bytes)];
            let (base, regions) = (None, &regions);
            vault
                .save(&Snapshot {
                    version,
                    base,
                    regions,
                })
                .unwrap();
        }
    }
    assert_eq!(numbers(&rank(0)), [0, 1]);
    for name in [
        "rank-0/v00000000000000000001.tfc",
        "rank-1/v00000000000000000001.tfc",
        "rank-1/v00000000000000000001.tfm",
    ] {
        let path = format!("runs/7/{name}");
        let mut whole = Vec::new();
        change(&store, &path, |bytes| whole = bytes.clone());
        for cut in 0..whole.len() {
            change(&store, &path, |bytes| bytes.truncate(cut));
            // A manifest only lists pieces that are there. A rank of the group that opens the history writes the manifest anew.
            let expected: &[u64] = if name.ends_with("tfm") { &[0, 1] } else { &[0] };
            let readers = [rank(0), rank(1)];
            for vault in &readers {
                assert_eq!(numbers(vault), expected, "{name} cut at {cut}");
                let bytes = vault.piece(0).unwrap().read("state").unwrap();
                assert!(bytes.starts_with(&bytes_of(0, 300)));
            }
            if !name.ends_with("tfm") {
                assert!(readers.iter().all(|vault| !vault.damage().is_empty()));
            }
            change(&store, &path, |bytes| *bytes = whole.clone());
        }
    }
}
