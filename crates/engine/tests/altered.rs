//! Storage returns other bytes than were written: no route of a version passes them on.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod history;

use history::restored;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use tierflow_device::{Choice, open};
use tierflow_engine::{Engine, EngineBuilder, Error, Region, RegionMut, Result, Tier, Version};
use tierflow_store::{Scratch, Storage};
use tierflow_testing::noise as content;

/// Bytes of a version that takes more than one buffer.
const LENGTH: usize = (4 << 20) + 212_345;
const SMALL: usize = 3_000;

/// A scratch file. While `lies` is true, each read flips one bit, a different one each time.
#[derive(Debug)]
struct Flipping {
    inner: Scratch,
    lies: Arc<AtomicBool>,
    reads: AtomicUsize,
}

impl Storage for Flipping {
    fn alignment(&self) -> usize {
        self.inner.alignment()
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> tierflow_store::Result<()> {
        self.inner.write_at(offset, bytes)
    }

    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> tierflow_store::Result<()> {
        self.inner.read_at(offset, bytes)?;
        if self.lies.load(Relaxed) {
            let bit = self.reads.fetch_add(1, Relaxed) * 1_000_003 % (8 * bytes.len().min(SMALL));
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        Ok(())
    }
}

struct Rig {
    directory: tempfile::TempDir,
    lies: Arc<AtomicBool>,
}

impl Rig {
    fn new() -> Self {
        Self {
            directory: tempfile::tempdir().unwrap(),
            lies: Arc::default(),
        }
    }

    fn storage(&self) -> Arc<dyn Storage> {
        Arc::new(Flipping {
            inner: Scratch::open(self.directory.path()).unwrap(),
            lies: Arc::clone(&self.lies),
            reads: AtomicUsize::new(0),
        })
    }

    fn external(&self) -> &Path {
        self.directory.path()
    }
}

/// A way of versions of this length to the storage and back.
struct Route {
    name: &'static str,
    length: usize,
    builder: fn(EngineBuilder) -> EngineBuilder,
    read: fn(&Engine, Version) -> Result<Vec<u8>>,
}

/// Restores parts of a version: its first bytes, some across blocks, and its last ones. Fills the rest with the right bytes.
fn named(engine: &Engine, version: Version) -> Result<Vec<u8>> {
    let mut bytes = content(version, LENGTH);
    let (_, rest) = bytes.split_at_mut(LENGTH / 3);
    let (middle, end) = rest.split_at_mut(LENGTH / 3);
    middle.fill(0);
    end.fill(0);
    let mut regions = [("b", RegionMut::from(middle)), ("c", RegionMut::from(end))];
    engine.call().restore_regions(version, &mut regions)?;
    Ok(bytes)
}

fn in_place(engine: &Engine, version: Version) -> Result<Vec<u8>> {
    let slot = engine.call().consume(version)?;
    Ok(slot.bytes()?.to_vec())
}

/// Restores a version into memory of the device.
fn on_device(engine: &Engine, version: Version) -> Result<Vec<u8>> {
    let memory = open(Choice::Host).unwrap().alloc(LENGTH).unwrap();
    engine.restore(version, &mut [RegionMut::Memory(&memory, 0..LENGTH)])?;
    let lent = memory.lend(0..LENGTH).unwrap();
    Ok(lent.bytes().unwrap().to_vec())
}

/// Restores a version that was prefetched.
fn prefetched(engine: &Engine, version: Version) -> Result<Vec<u8>> {
    engine.hint([version]);
    engine.hints().prefetch_start();
    restored(engine, version)
}

const ROUTES: [Route; 8] = [
    Route {
        name: "past no cache",
        length: LENGTH,
        builder: |builder| builder,
        read: restored,
    },
    Route {
        name: "regions",
        length: LENGTH,
        builder: |builder| builder,
        read: named,
    },
    Route {
        name: "to device memory",
        length: LENGTH,
        builder: |builder| builder,
        read: on_device,
    },
    Route {
        name: "through the host cache",
        length: LENGTH,
        builder: |builder| builder.host_cache(2 * LENGTH.next_multiple_of(4096)),
        read: prefetched,
    },
    Route {
        name: "through the device cache",
        length: LENGTH,
        builder: |builder| builder.device_cache(16 << 20),
        read: prefetched,
    },
    Route {
        name: "in place in the host cache",
        length: LENGTH,
        builder: |builder| builder.host_cache(2 * LENGTH.next_multiple_of(4096)),
        read: in_place,
    },
    Route {
        name: "in place in the device cache",
        length: LENGTH,
        builder: |builder| builder.device_cache(16 << 20),
        read: in_place,
    },
    Route {
        name: "small ones together",
        length: SMALL,
        builder: |builder| builder.host_cache(8 * 4096),
        read: prefetched,
    },
];

const VERSIONS: u64 = 12;

fn fill(engine: &Engine, length: usize) {
    for version in 0..VERSIONS {
        let bytes = content(version, length);
        let (a, rest) = bytes.split_at(length / 3);
        let (b, c) = rest.split_at(length / 3);
        let regions = [("a", a), ("b", b), ("c", c)];
        let regions = regions.map(|(name, bytes)| Region::from(bytes).named(name));
        engine.checkpoint(version, &regions).unwrap();
    }
    engine.wait().unwrap();
}

#[test]
fn the_only_copy_is_an_error_and_never_wrong_bytes() {
    for route in &ROUTES {
        let rig = Rig::new();
        let builder =
            Engine::builder(&open(Choice::Host).unwrap()).tier(Tier::storage(rig.storage()));
        let engine = (route.builder)(builder).build().unwrap();
        fill(&engine, route.length);
        rig.lies.store(true, Relaxed);
        let mut errors = 0;
        for version in 0..VERSIONS {
            match (route.read)(&engine, version) {
                // The version was in a cache.
                Ok(bytes) => {
                    let expected = content(version, route.length);
                    assert!(bytes == expected, "{}: version {version}", route.name);
                }
                Err(error @ Error::Damaged(_)) => {
                    let text = error.to_string();
                    let is_named = text.contains(&format!("version {version} "));
                    assert!(is_named && text.contains("file"), "{text}");
                    errors += 1;
                }
                Err(error) => panic!("{}: version {version}: {error:?}", route.name),
            }
        }
        assert!(errors > 0, "{}: nothing was read from storage", route.name);
        // The stored bytes are right: the storage altered only the bytes of reads.
        rig.lies.store(false, Relaxed);
        for version in 0..VERSIONS {
            let bytes = (route.read)(&engine, version).unwrap();
            assert!(bytes == content(version, route.length), "{}", route.name);
        }
    }
}

#[test]
fn the_copy_below_is_read_instead() {
    for route in &ROUTES {
        let rig = Rig::new();
        let builder =
            Engine::builder(&open(Choice::Host).unwrap()).tier(Tier::storage(rig.storage()));
        let builder = builder.external(rig.external());
        let engine = (route.builder)(builder).build().unwrap();
        fill(&engine, route.length);
        rig.lies.store(true, Relaxed);
        for version in 0..VERSIONS {
            let bytes = (route.read)(&engine, version).unwrap();
            let expected = content(version, route.length);
            assert!(bytes == expected, "{}: version {version}", route.name);
        }
        let tiers = engine.metrics().tiers;
        let damaged: u64 = tiers.iter().map(|tier| tier.damaged).sum();
        assert!(damaged > 0, "{}: nothing was read from storage", route.name);
    }
}

#[test]
fn checksums_can_be_left_out() {
    let rig = Rig::new();
    let tier = Tier::storage(rig.storage()).checksums(false);
    let builder = Engine::builder(&open(Choice::Host).unwrap()).tier(tier);
    let engine = builder.build().unwrap();
    fill(&engine, LENGTH);
    rig.lies.store(true, Relaxed);
    assert!(restored(&engine, 3).unwrap() != content(3, LENGTH));
}
