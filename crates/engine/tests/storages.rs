//! Tests of storage that the application implements. The engine checks the properties of the storage before it stores anything there.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod history;

use parking_lot::{Condvar, Mutex};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use tierflow_device::{Choice, open};
use tierflow_engine::{BuildError, Engine, Error, Region, RegionMut, Tier};
use tierflow_store::{Error as StoreError, Storage};
use tierflow_testing::assert_matches;

/// Storage in memory with a chosen alignment.
#[derive(Debug)]
struct Blocks {
    alignment: usize,
    bytes: Mutex<Vec<u8>>,
    /// Bytes that were read.
    read: AtomicU64,
    /// True if reads fail, though the bytes are there.
    is_away: AtomicBool,
}

impl Blocks {
    fn new(alignment: usize) -> Self {
        Self {
            alignment,
            bytes: Mutex::default(),
            read: AtomicU64::new(0),
            is_away: AtomicBool::new(false),
        }
    }
}

impl Storage for Blocks {
    fn alignment(&self) -> usize {
        self.alignment
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> tierflow_store::Result<()> {
        let mut all = self.bytes.lock();
        let end = offset as usize + bytes.len();
        if all.len() < end {
            all.resize(end, 0);
        }
        all[end - bytes.len()..end].copy_from_slice(bytes);
        Ok(())
    }

    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> tierflow_store::Result<()> {
        if self.is_away.load(Relaxed) {
            return Err(StoreError::Remote("it is away".to_owned()));
        }
        self.read.fetch_add(bytes.len() as u64, Relaxed);
        let start = offset as usize;
        let length = bytes.len();
        bytes.copy_from_slice(&self.bytes.lock()[start..start + length]);
        Ok(())
    }
}

fn engine(alignment: usize) -> Result<Engine, Error> {
    let storage = Blocks::new(alignment);
    let device = open(Choice::Host).unwrap();
    Engine::builder(&device)
        .tier(Tier::storage(Arc::new(storage)))
        .build()
}

#[test]
fn an_alignment_that_is_none_is_refused() {
    for alignment in [0, 3, 12, 4095, 8192, usize::MAX] {
        match engine(alignment) {
            Err(Error::Build(BuildError::Alignment {
                alignment: told, ..
            })) => assert_eq!(told, alignment),
            other => panic!("{alignment}: {other:?}"),
        }
    }
}

#[test]
fn every_alignment_that_is_one_works() {
    for shift in 0..=12 {
        let engine = engine(1 << shift).unwrap();
        let bytes: Vec<u8> = (0..10_001_u32).map(|i| (i % 251) as u8).collect();
        for version in 0..3 {
            history::checkpoint(&engine, version, &bytes);
        }
        history::assert_restores(&engine, 1, &bytes);
    }
}

/// Storage whose first requests wait until two of them are under way.
#[derive(Debug)]
struct Meeting {
    blocks: Blocks,
    under_way: Mutex<(usize, bool)>,
    came: Condvar,
}

impl Meeting {
    fn during<T>(&self, act: impl FnOnce() -> T) -> T {
        let mut here = self.under_way.lock();
        here.0 += 1;
        here.1 |= here.0 > 1;
        self.came.notify_all();
        // A request that stays alone continues after a while, so that the test fails and does not hang.
        let alone = |here: &mut (usize, bool)| !here.1;
        self.came
            .wait_while_for(&mut here, alone, Duration::from_secs(10));
        drop(here);
        let done = act();
        self.under_way.lock().0 -= 1;
        done
    }
}

impl Storage for Meeting {
    fn alignment(&self) -> usize {
        self.blocks.alignment()
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> tierflow_store::Result<()> {
        self.during(|| self.blocks.write_at(offset, bytes))
    }

    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> tierflow_store::Result<()> {
        self.during(|| self.blocks.read_at(offset, bytes))
    }
}

#[test]
fn calls_past_the_caches_have_several_requests_at_a_time() {
    let storage = Arc::new(Meeting {
        blocks: Blocks::new(512),
        under_way: Mutex::default(),
        came: Condvar::new(),
    });
    let device = open(Choice::Host).unwrap();
    let engine = Engine::builder(&device).tier(Tier::storage(Arc::clone(&storage) as _));
    let engine = engine.build().unwrap();
    let bytes: Vec<u8> = (0..30_000_001_u32).map(|i| (i % 251) as u8).collect();
    let met = || std::mem::take(&mut storage.under_way.lock().1);
    history::checkpoint(&engine, 0, &bytes);
    assert!(met(), "a checkpoint is written one part after the other");
    let mut back = vec![0; bytes.len()];
    engine
        .restore(0, &mut [RegionMut::from(back.as_mut_slice())])
        .unwrap();
    assert!(met(), "a restore reads one part after the other");
    assert!(back == bytes);
}

/// Storage whose requests fail once `left` have succeeded.
#[derive(Debug)]
struct Failing {
    blocks: Blocks,
    left: Mutex<usize>,
}

impl Failing {
    fn next(&self) -> tierflow_store::Result<()> {
        let mut left = self.left.lock();
        *left = left.checked_sub(1).ok_or_else(|| {
            let why = "not any more".to_owned();
            tierflow_store::Error::Remote(why)
        })?;
        Ok(())
    }
}

impl Storage for Failing {
    fn alignment(&self) -> usize {
        self.blocks.alignment()
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> tierflow_store::Result<()> {
        self.next()?;
        self.blocks.write_at(offset, bytes)
    }

    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> tierflow_store::Result<()> {
        self.next()?;
        self.blocks.read_at(offset, bytes)
    }
}

#[test]
fn a_call_whose_request_fails_ends_and_can_be_made_again() {
    let storage = Arc::new(Failing {
        blocks: Blocks::new(1),
        left: Mutex::new(0),
    });
    let device = open(Choice::Host).unwrap();
    let engine = Engine::builder(&device).tier(Tier::storage(Arc::clone(&storage) as _));
    let engine = engine.build().unwrap();
    let bytes: Vec<u8> = (0..30_000_001_u32).map(|i| (i % 253) as u8).collect();
    let mut back = vec![0; bytes.len()];
    for requests in 0..8 {
        *storage.left.lock() = requests;
        let failed = engine.checkpoint(0, &[Region::from(bytes.as_slice())]);
        assert!(matches!(failed, Err(Error::Storage(_))), "{failed:?}");
    }
    *storage.left.lock() = 1000;
    history::checkpoint(&engine, 0, &bytes);
    for requests in 0..8 {
        *storage.left.lock() = requests;
        let failed = engine.restore(0, &mut [RegionMut::from(back.as_mut_slice())]);
        assert!(matches!(failed, Err(Error::Storage(_))), "{failed:?}");
    }
    *storage.left.lock() = 1000;
    engine
        .restore(0, &mut [RegionMut::from(back.as_mut_slice())])
        .unwrap();
    assert!(back == bytes);
}

#[test]
fn several_directories_are_one_tier() {
    let home = tempfile::tempdir().unwrap();
    let device = open(Choice::Host).unwrap();
    let tier = Tier::scratch_over([home.path(), home.path()]).limit(64 << 20);
    let engine = Engine::builder(&device).host_cache(2 << 20).tier(tier);
    let engine = engine.build().unwrap();
    let content = |version: u64| -> Vec<u8> {
        let word = |i: u64| (i * 31 + version * 7) as u8;
        (0..500_000 + 4097 * version).map(word).collect()
    };
    for version in 0..30 {
        history::checkpoint(&engine, version, &content(version));
    }
    for version in (0..30).rev() {
        history::assert_restores(&engine, version, &content(version));
    }
    let tier =
        |directories: Vec<PathBuf>| Engine::builder(&device).tier(Tier::scratch_over(directories));
    let none = tier(Vec::new()).build();
    assert_matches!(none, Err(Error::Build(BuildError::Scratch(_))));
    let missing = tier(vec![home.path().to_owned(), home.path().join("none")]).build();
    assert_matches!(missing, Err(Error::Storage(StoreError::Open { .. })));
}

#[test]
fn a_source_that_fails_for_a_time_is_read_again() {
    let (home, device) = (tempfile::tempdir().unwrap(), open(Choice::Host).unwrap());
    let storage = Arc::new(Blocks::new(512));
    let engine = Engine::builder(&device)
        .host_cache(2 << 20)
        .tier(Tier::storage(storage.clone()).limit(64 << 20))
        .node_local(home.path())
        .build()
        .unwrap();
    let bytes = vec![3; 1 << 20];
    storage.is_away.store(true, Relaxed);
    (0..8).for_each(|version| history::checkpoint(&engine, version, &bytes));
    let stalled = engine.wait();
    assert_matches!(stalled, Err(Error::Stalled { cause: Some(cause), .. }) if cause.to_string().contains("it is away"));
    storage.is_away.store(false, Relaxed);
    engine.wait().unwrap();
    assert!((0..8).all(|version| engine.is_durable(version)));
    assert!(engine.damage().is_empty());
}

#[test]
fn regions_are_read_alone_within_a_time_limit_too() {
    let storage = Arc::new(Blocks::new(512));
    let device = open(Choice::Host).unwrap();
    let engine = Engine::builder(&device)
        .tier(Tier::storage(storage.clone()))
        .build()
        .unwrap();
    let (large, small) = (history::content(1, 16 << 20), history::content(2, 5000));
    let regions = [
        Region::from(large.as_slice()).named("large"),
        Region::from(small.as_slice()).named("small"),
        Region::from(&large[7..]).named("behind"),
    ];
    engine.checkpoint(1, &regions).unwrap();
    let (mut back, mut end) = (vec![0; small.len()], vec![0; large.len() - 7]);
    let call = engine.call().within(Duration::from_secs(60));
    let wanted = &mut [("small", RegionMut::from(back.as_mut_slice()))];
    call.restore_regions(1, wanted).unwrap();
    assert!(back == small);
    assert!(storage.read.load(Relaxed) < 1 << 20);
    back.fill(0);
    let wanted = &mut [
        ("behind", RegionMut::from(end.as_mut_slice())),
        ("small", RegionMut::from(back.as_mut_slice())),
    ];
    call.restore_regions(1, wanted).unwrap();
    assert!(back == small && end == large[7..]);
}
