//! Records in the place of which another one lies, of another length: no route hands its bytes on.

#![allow(clippy::unwrap_used, clippy::panic)]

mod history;

use history::{content, host, restored};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use tierflow_engine::{Engine, Error, Region, RegionMut, Result, Tier, Version};
use tierflow_store::{
    Error as StoreError, Options, Piece, Ready, Repository, Result as StoreResult, Snapshot, Vault,
    VersionInfo,
};

const LENGTH: usize = 300_000;
const VERSIONS: u64 = 12;

/// A directory whose pieces other ones take the place of.
#[derive(Debug)]
struct Replaced {
    directory: Repository,
    others: Repository,
    is_replaced: AtomicBool,
}

impl Vault for Replaced {
    fn versions(&self) -> StoreResult<Vec<VersionInfo>> {
        self.directory.versions()
    }

    fn piece(&self, version: u64) -> StoreResult<Piece> {
        match self.is_replaced.load(Relaxed) {
            true => self.others.own_piece(version),
            false => self.directory.own_piece(version),
        }
    }

    fn save(&self, snapshot: &Snapshot<'_>, ready: &Ready<'_>) -> StoreResult<()> {
        Vault::save(&self.directory, snapshot, ready)
    }

    fn copy(&self, piece: &Piece, ready: &Ready<'_>) -> StoreResult<()> {
        Vault::copy(&self.directory, piece, ready)
    }

    fn remove(&self, versions: &BTreeSet<u64>) -> StoreResult<()> {
        self.directory.remove(versions)
    }
}

/// Versions have different lengths, so that they lie in several pieces in the gaps of a cache.
fn length(version: Version) -> usize {
    LENGTH - version as usize % 3 * 60_000
}

fn bytes_of(version: Version) -> Vec<u8> {
    content(version, length(version))
}

fn to_device(engine: &Engine, version: Version) -> Result<Vec<u8>> {
    let all = 0..length(version);
    let memory = host().alloc(all.end).unwrap();
    engine.restore(version, &mut [RegionMut::Memory(&memory, all.clone())])?;
    let lent = memory.lend(all).unwrap();
    Ok(lent.bytes().unwrap().to_vec())
}

fn part(engine: &Engine, version: Version) -> Result<Vec<u8>> {
    let mut bytes = bytes_of(version);
    bytes[..1_000].fill(0);
    let mut regions = [("first", RegionMut::from(&mut bytes[..1_000]))];
    engine.call().restore_regions(version, &mut regions)?;
    Ok(bytes)
}

fn in_place(engine: &Engine, version: Version) -> Result<Vec<u8>> {
    match engine.call().consume(version) {
        Err(Error::NoMemoryTier) => restored(engine, version),
        slot => Ok(slot?.bytes()?.to_vec()),
    }
}

/// Reads versions in the place of whose records lie others, of so many more bytes.
fn read_replaced(cache: usize, more: isize, read: fn(&Engine, Version) -> Result<Vec<u8>>) {
    let which = format!("a cache of {cache} bytes, {more} bytes more");
    let [home, other] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let open = |home: &tempfile::TempDir| Repository::open(home.path(), Options::default());
    let vault = Arc::new(Replaced {
        directory: open(&home).unwrap(),
        others: open(&other).unwrap(),
        is_replaced: false.into(),
    });
    let builder = Engine::builder(&host()).tier(Tier::vault(Arc::clone(&vault) as _));
    let engine = builder.host_cache(cache).build().unwrap();
    for version in 0..VERSIONS {
        let bytes = bytes_of(version);
        let (first, rest) = bytes.split_at(1_000);
        let regions = [("first", first), ("rest", rest)];
        let regions = regions.map(|(name, bytes)| Region::from(bytes).named(name));
        engine.checkpoint(version, &regions).unwrap();
        let bytes = content(99, length(version).checked_add_signed(more).unwrap());
        let (first, rest) = bytes.split_at(1_000);
        let regions = [("first", first), ("rest", rest)];
        let regions = regions.map(|(name, bytes)| tierflow_store::Region::new(name, bytes));
        let other = Snapshot::new(version, &regions);
        vault.others.save(&other).unwrap();
    }
    engine.wait().unwrap();
    vault.is_replaced.store(true, Relaxed);
    let order = || (0..VERSIONS).map(|at| at * 7 % VERSIONS);
    engine.hint(order());
    engine.hints().prefetch_start();
    let mut refused = 0;
    for version in order() {
        match read(&engine, version) {
            // From a cache.
            Ok(bytes) => assert!(bytes == bytes_of(version), "{which}"),
            Err(Error::Storage(StoreError::Damaged { .. })) => refused += 1,
            Err(error) => panic!("{which}: {error:?}"),
        }
    }
    let tiers = engine.metrics().tiers;
    let damaged: u64 = tiers.iter().map(|tier| tier.damaged).sum();
    assert!(refused > 0 && damaged > 0, "{which}: {tiers:?}");
    // A version whose record is there again is read again.
    vault.is_replaced.store(false, Relaxed);
    for version in order() {
        assert!(
            read(&engine, version).unwrap() == bytes_of(version),
            "{which}"
        );
    }
}

#[test]
fn a_record_of_another_length_is_damage_on_every_route() {
    for read in [restored, to_device, part, in_place] {
        for cache in [0, 2 * LENGTH.next_multiple_of(4096)] {
            for more in [-5_000, 5_000] {
                read_replaced(cache, more, read);
            }
        }
    }
}
