//! A panic in code of the application fails a transfer. Every call returns, and the engine continues.

#![allow(clippy::unwrap_used, clippy::panic)]

mod history;

use history::{content, restored as restore};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use tierflow_device::{Choice, open};
use tierflow_engine::plan::{Policy, Score, Standing, Usage, evict};
use tierflow_engine::{Engine, Error, Region, Tier};
use tierflow_store::{
    Error as StoreError, Options, Piece, Ready, Repository, Result, Scratch, Snapshot, Storage,
    Vault, VersionInfo,
};
use tierflow_testing::assert_matches;

const MIB: usize = 1 << 20;

/// Switches of a storage whose writes or reads panic.
#[derive(Debug, Default)]
struct Switches {
    writes: AtomicBool,
    reads: AtomicBool,
}

impl Switches {
    fn write(&self) {
        assert!(!self.writes.load(Relaxed), "no writing today");
    }

    fn read(&self) {
        assert!(!self.reads.load(Relaxed), "no reading today");
    }
}

#[derive(Debug)]
struct Panicking<T>(T, Arc<Switches>);

impl Storage for Panicking<Scratch> {
    fn alignment(&self) -> usize {
        self.0.alignment()
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.1.write();
        self.0.write_at(offset, bytes)
    }

    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        self.1.read();
        self.0.read_at(offset, bytes)
    }
}

impl Vault for Panicking<Repository> {
    fn versions(&self) -> Result<Vec<VersionInfo>> {
        self.1.read();
        self.0.versions()
    }

    fn piece(&self, version: u64) -> Result<Piece> {
        self.1.read();
        self.0.piece(version)
    }

    fn save(&self, snapshot: &Snapshot<'_>, ready: &Ready<'_>) -> Result<()> {
        self.1.write();
        Vault::save(&self.0, snapshot, ready)
    }

    fn copy(&self, piece: &Piece, ready: &Ready<'_>) -> Result<()> {
        self.1.write();
        Vault::copy(&self.0, piece, ready)
    }

    fn remove(&self, versions: &BTreeSet<u64>) -> Result<()> {
        self.1.write();
        self.0.remove(versions)
    }
}

fn checkpoint(engine: &Engine, version: u64, length: usize) -> tierflow_engine::Result<()> {
    let bytes = content(version, length);
    engine.checkpoint(version, &[Region::from(bytes.as_slice())])
}

fn is_panic(error: &Error, word: &str) -> bool {
    matches!(error, Error::Storage(StoreError::Panicked { message, .. }) if message.contains(word))
}

/// Returns an engine with a cache of `cache` bytes over storage that panics.
fn engine(cache: usize) -> (Engine, Arc<Switches>, tempfile::TempDir) {
    let (switches, directory) = (Arc::<Switches>::default(), tempfile::tempdir().unwrap());
    let scratch = Scratch::open(directory.path()).unwrap();
    let storage = Arc::new(Panicking(scratch, Arc::clone(&switches)));
    let device = open(Choice::Host).unwrap();
    let builder = Engine::builder(&device)
        .host_cache(cache)
        .tier(Tier::storage(storage));
    (builder.build().unwrap(), switches, directory)
}

fn patience() -> Duration {
    Duration::from_secs(60)
}

#[test]
fn writing_in_the_background() {
    let (engine, switches, _kept) = engine(16 * MIB);
    switches.writes.store(true, Relaxed);
    for version in 0..3 {
        checkpoint(&engine, version, MIB).unwrap();
    }
    let error = engine.call().within(patience()).wait().unwrap_err();
    let Error::Stalled {
        versions: 3,
        cause: Some(cause),
    } = &error
    else {
        panic!("{error}");
    };
    assert!(is_panic(cause, "no writing"), "{cause}");
    // There are more versions than workers, so each worker met a panic.
    for version in 3..40 {
        match checkpoint(&engine, version, MIB) {
            Ok(()) => {}
            Err(Error::NoRoom { .. }) => break,
            Err(error) => panic!("{error}"),
        }
    }
    switches.writes.store(false, Relaxed);
    engine.call().within(patience()).wait().unwrap();
    assert!(restore(&engine, 1).unwrap() == content(1, MIB));
}

#[test]
fn writing_and_reading_by_the_caller() {
    let (engine, switches, _kept) = engine(MIB);
    // The version is too large for the cache, so the call writes it straight to storage. Several threads read it back.
    let length = 24 * MIB;
    switches.writes.store(true, Relaxed);
    let error = checkpoint(&engine, 7, length).unwrap_err();
    assert!(is_panic(&error, "no writing"), "{error}");
    switches.writes.store(false, Relaxed);
    checkpoint(&engine, 7, length).unwrap();
    switches.reads.store(true, Relaxed);
    for _ in 0..5 {
        let error = restore(&engine, 7).unwrap_err();
        assert!(is_panic(&error, "no reading"), "{error}");
    }
    switches.reads.store(false, Relaxed);
    assert!(restore(&engine, 7).unwrap() == content(7, length));
}

#[test]
fn reading_in_the_background() {
    let (engine, switches, _kept) = engine(4 * MIB);
    for version in 0..12 {
        checkpoint(&engine, version, MIB).unwrap();
    }
    engine.call().within(patience()).wait().unwrap();
    switches.reads.store(true, Relaxed);
    engine.hint(0..12);
    engine.hints().prefetch_start();
    let mut failed = 0;
    for version in 0..12 {
        match restore(&engine, version) {
            Ok(bytes) => assert!(bytes == content(version, MIB), "{version}"),
            Err(error) if is_panic(&error, "no reading") => failed += 1,
            Err(error) => panic!("{error}"),
        }
    }
    assert!(failed >= 8, "the cache holds four: {failed} failed");
    switches.reads.store(false, Relaxed);
    for version in 0..12 {
        assert!(restore(&engine, version).unwrap() == content(version, MIB));
    }
}

#[test]
fn vaults() {
    let (home, switches) = (tempfile::tempdir().unwrap(), Arc::<Switches>::default());
    let device = open(Choice::Host).unwrap();
    let build = || {
        let far = Repository::open(home.path(), Options::default()).unwrap();
        let far = Arc::new(Panicking(far, Arc::clone(&switches)));
        let builder = Engine::builder(&device).host_cache(2 * MIB);
        builder.tier(Tier::vault(far)).build()
    };
    let engine = build().unwrap();
    switches.writes.store(true, Relaxed);
    checkpoint(&engine, 0, MIB).unwrap();
    assert_matches!(
        engine.call().within(patience()).wait(),
        Err(Error::Stalled { cause: Some(cause), .. })
            if is_panic(cause, "no writing")
    );
    switches.writes.store(false, Relaxed);
    engine.call().within(patience()).wait().unwrap();
    for version in 1..6 {
        checkpoint(&engine, version, MIB).unwrap();
    }
    engine.call().within(patience()).wait().unwrap();
    switches.reads.store(true, Relaxed);
    let failed = (0..6).filter(|version| restore(&engine, *version).is_err());
    assert!(failed.count() >= 4);
    // Discards and the end of the engine meet panics, too.
    switches.writes.store(true, Relaxed);
    engine.discard(0).unwrap();
    drop(engine);
    switches.writes.store(false, Relaxed);
    let error = build().unwrap_err();
    assert!(is_panic(&error, "no reading"), "{error}");
    switches.reads.store(false, Relaxed);
    let engine = build().unwrap();
    for version in 1..6 {
        assert!(restore(&engine, version).unwrap() == content(version, MIB));
    }
}

/// A policy that panics after a number of questions, and changes its answer to `follows_hints` each time.
#[derive(Debug)]
struct Fickle {
    left: AtomicU64,
    payload: fn(),
    follows: AtomicBool,
}

/// A panic payload whose drop panics, too.
struct Spiteful;

impl Drop for Spiteful {
    fn drop(&mut self) {
        assert!(std::thread::panicking(), "once more");
    }
}

impl Policy for Fickle {
    fn standing(&self, usage: &Usage) -> Standing {
        let left = self.left.fetch_sub(1, Relaxed);
        assert!(left <= FAR, "it is asked after it panicked");
        if left == 0 {
            (self.payload)();
        }
        Standing::Recent(usage.written)
    }

    fn follows_hints(&self) -> bool {
        self.follows.fetch_xor(true, Relaxed)
    }

    fn name(&self) -> &'static str {
        "fickle"
    }
}

const FAR: u64 = 1 << 40;

/// A policy that chooses windows of neighbours a number of times, and then panics.
#[derive(Debug, Clone)]
struct Windows {
    left: Arc<AtomicU64>,
    asked: Arc<AtomicU64>,
}

impl Policy for Windows {
    fn standing(&self, usage: &Usage) -> Standing {
        Score.standing(usage)
    }

    fn windows(&self) -> Option<Box<dyn evict::Policy + Send>> {
        Some(Box::new(self.clone()))
    }

    fn name(&self) -> &'static str {
        "windows of its own"
    }
}

impl evict::Policy for Windows {
    fn choose_victims(
        &mut self,
        candidates: &evict::Candidates,
        size: u64,
    ) -> Option<evict::Window> {
        self.asked.fetch_add(1, Relaxed);
        let left = self.left.fetch_sub(1, Relaxed);
        assert!(left > 0, "no window today");
        evict::Score.choose_victims(candidates, size)
    }
}

#[test]
fn windows() {
    let device = open(Choice::Host).unwrap();
    for left in [FAR, 2] {
        let windows = Windows {
            left: Arc::new(left.into()),
            asked: Arc::default(),
        };
        let engine = Engine::builder(&device)
            .device_cache(3 * MIB)
            .host_cache(32 * MIB)
            .policy(windows.clone())
            .build()
            .unwrap();
        for version in 0..12 {
            checkpoint(&engine, version, MIB).unwrap();
        }
        for version in 0..12 {
            assert_eq!(restore(&engine, version).unwrap(), content(version, MIB));
        }
        assert!(windows.asked.load(Relaxed) > 1, "windows are chosen by it");
        assert_eq!(engine.metrics().policy_panic.is_some(), left == 2);
    }
}

#[test]
fn policies() {
    let device = open(Choice::Host).unwrap();
    let payloads: [(fn(), &str); 2] = [
        (|| panic!("no order today"), "no order today"),
        (|| std::panic::panic_any(Spiteful), "without a message"),
    ];
    // Callers of checkpoints, hints and restores ask the policy, and so do the threads that flush and prefetch.
    for good in [0, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89, FAR] {
        let (payload, message) = payloads[good as usize % 2];
        let directory = tempfile::tempdir().unwrap();
        let builder = Engine::builder(&device)
            .device_cache(2 * MIB)
            .host_cache(4 * MIB);
        let builder = builder.scratch(directory.path()).policy(Fickle {
            left: AtomicU64::new(good),
            payload,
            follows: AtomicBool::new(good % 4 < 2),
        });
        let engine = builder.build().unwrap();
        std::thread::scope(|scope| {
            for thread in 0..2 {
                let engine = &engine;
                scope.spawn(move || {
                    let versions = || (0..24).map(move |number| 2 * number + thread);
                    engine.hint(versions());
                    for version in versions() {
                        let bytes = content(version, MIB / 2);
                        let regions = [Region::from(bytes.as_slice())];
                        engine
                            .call()
                            .within(patience())
                            .checkpoint(version, &regions)
                            .unwrap();
                    }
                    engine.call().within(patience()).wait().unwrap();
                    for version in versions() {
                        assert!(restore(engine, version).unwrap() == content(version, MIB / 2));
                    }
                });
            }
        });
        let expected = (good < FAR).then_some(message);
        assert_eq!(engine.metrics().policy_panic.as_deref(), expected, "{good}");
    }
}
