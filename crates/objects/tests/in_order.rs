//! Versions are published in the order that their `ready` functions choose, while their bytes are uploaded side by side.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod common;
mod faulty;

use common::{bytes_of, numbers};
use faulty::Faulty;
use object_store::ObjectStore;
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use tierflow_objects::{Settings, repository};
use tierflow_store::{Error, Region, Snapshot, Vault};

fn snapshot<'a>(version: u64, regions: &'a [Region<'a>]) -> Snapshot<'a> {
    Snapshot::new(version, regions)
}

/// Bytes of a version that is uploaded in three parts.
const LONG: usize = 36 << 20;

#[test]
fn all_parts_are_there_before_a_version_is_published() {
    let faulty = Arc::new(Faulty::default());
    let store: Arc<dyn ObjectStore> = Arc::clone(&faulty) as _;
    let open = || repository(Arc::clone(&store), "runs/7", &Settings::default()).unwrap();
    let objects = open();
    let bytes = bytes_of(2, LONG);
    let regions = [Region::new("state", &bytes)];
    let asked = Cell::new(0);
    Vault::save(&objects, &snapshot(2, &regions), &|| {
        asked.set(asked.get() + 1);
        assert_eq!(faulty.parts.load(Relaxed), 3);
        assert!(numbers(&open()).is_empty());
        // Meanwhile a small version with a smaller number is saved.
        let small = [Region::new("state", &bytes[..100])];
        objects.save(&snapshot(1, &small))
    })
    .unwrap();
    assert_eq!(asked.get(), 1);
    assert_eq!(numbers(&open()), [1, 2]);
    assert!(open().piece(2).unwrap().read("state").unwrap() == bytes);
    // A copy, too, is published last. If it is cancelled, the version is not there.
    let parts = faulty.parts.load(Relaxed);
    let elsewhere = Arc::new(object_store::memory::InMemory::new()) as Arc<dyn ObjectStore>;
    let other = repository(elsewhere, "runs/8", &Settings::default()).unwrap();
    let long = bytes_of(3, LONG);
    other
        .save(&snapshot(3, &[Region::new("state", &long)]))
        .unwrap();
    let piece = other.piece(3).unwrap();
    for is_wanted in [false, true] {
        let copied = Vault::copy(&objects, &piece, &|| match is_wanted {
            false => Err(Error::Cancelled),
            true => Ok(()),
        });
        assert_eq!(copied.is_ok(), is_wanted);
        assert_eq!(numbers(&open()).contains(&3), is_wanted);
    }
    assert_eq!(faulty.parts.load(Relaxed), parts + 6);
    assert!(open().piece(3).unwrap().read("state").unwrap() == long);
    // A small version is not published either if its `ready` refuses.
    let small = [Region::new("state", &bytes[..100])];
    let refused = Vault::save(&objects, &snapshot(4, &small), &|| Err(Error::Cancelled));
    assert!(matches!(refused, Err(Error::Cancelled)));
    assert_eq!(numbers(&open()), [1, 2, 3]);
}
