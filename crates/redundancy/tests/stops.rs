//! Cancelled copies and saves to a protected node stop between two blocks, as they do without protection.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tierflow_redundancy::{Directory, Redundancy};
use tierflow_store::{
    Error, NodeDirectory, Options, Protection, Protector, Region, Repository, Result, Snapshot,
    Vault,
};

/// Bytes of a version: six blocks.
const SIZE: usize = 24 << 20;

fn protected(home: &Path) -> Arc<dyn Protector> {
    let path = home.join("node");
    let transport = Directory::open(&home.join("shared"), 1, 0).unwrap();
    let scheme = Redundancy::Partner.over(Arc::new(transport));
    let repository = Repository::open(&path, Options::default()).unwrap();
    let node = NodeDirectory {
        path: &path,
        repository: Arc::new(repository),
        rank: 0,
        ranks: 1,
        elsewhere: &BTreeSet::new(),
        collective: None,
        patience: Duration::from_secs(60),
    };
    scheme.open(node).unwrap()
}

fn save(vault: &dyn Vault, region: Region<'_>, ready: &dyn Fn() -> Result<()>) -> Result<()> {
    let regions = [region];
    let (version, base) = (0, None);
    let snapshot = Snapshot {
        version,
        base,
        regions: &regions,
    };
    vault.save(&snapshot, &|| ready())
}

#[test]
fn a_copy_that_is_not_wanted_any_more_stops_at_its_next_block() {
    let home = tempfile::tempdir().unwrap();
    let from = Repository::open(home.path().join("from"), Options::default()).unwrap();
    save(&from, Region::new("state", &vec![7; SIZE]), &|| Ok(())).unwrap();
    let vault = protected(home.path());
    let blocks = Arc::<AtomicUsize>::default();
    let counter = Arc::clone(&blocks);
    let is_stopped = move || counter.fetch_add(1, Ordering::Relaxed) > 0;
    let piece = from.piece(0).unwrap().unless(is_stopped);
    let published = AtomicUsize::new(0);
    let copied = vault.copy(&piece, &|| {
        published.fetch_add(1, Ordering::Relaxed);
        Ok(())
    });
    assert!(matches!(copied, Err(Error::Cancelled)), "{copied:?}");
    // Each of the threads may read a block before it asks again.
    let blocks = blocks.load(Ordering::Relaxed);
    assert!(blocks < 6, "{blocks} blocks of 6");
    assert_eq!(published.load(Ordering::Relaxed), 0);
    assert!(vault.pieces().unwrap().is_empty());
    vault.copy(&from.piece(0).unwrap(), &|| Ok(())).unwrap();
    assert_eq!(vault.pieces().unwrap().len(), 1);
}

#[test]
fn a_save_that_is_not_wanted_any_more_is_not_published() {
    let home = tempfile::tempdir().unwrap();
    let vault = protected(home.path());
    let is_ready = AtomicUsize::new(0);
    let pull = |at: u64, into: &mut [u8]| match at {
        0 => {
            into.fill(7);
            Ok(())
        }
        _ => Err(Error::Cancelled),
    };
    let region = Region::pulled("state", SIZE as u64, &pull);
    let saved = save(&*vault, region, &|| {
        is_ready.fetch_add(1, Ordering::Relaxed);
        Ok(())
    });
    assert!(matches!(saved, Err(Error::Cancelled)), "{saved:?}");
    assert_eq!(is_ready.load(Ordering::Relaxed), 0);
    // A version whose turn does not come is written, and not published.
    let saved = save(&*vault, Region::new("state", &vec![7; SIZE]), &|| {
        Err(Error::Cancelled)
    });
    assert!(matches!(saved, Err(Error::Cancelled)), "{saved:?}");
    assert!(vault.pieces().unwrap().is_empty());
    assert!(vault.is_protected(0), "it waits to be protected");
}
