//! Cancelled transfers stop between two blocks, on every way.

#![allow(clippy::unwrap_used)]

mod history;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, Weak};
use std::time::{Duration, Instant};
use tierflow_dedup::Tree;
use tierflow_device::{Choice, open};
use tierflow_engine::{
    AfterRestore, Compression, Engine, EngineBuilder, Error, Region, RegionMut, Tier, Value,
};
use tierflow_store::container::Source;
use tierflow_store::{
    Error as StoreError, Options, Piece, Ready, Repository, Result, Scratch, Snapshot, Storage,
    Vault, VersionInfo,
};
use tierflow_testing::{assert_matches, noise as content};

const MIB: usize = 1 << 20;

/// Bytes of a version: six blocks.
const SIZE: usize = 24 * MIB;

/// The meter does not count smaller requests, such as reads of heads.
const SMALL: usize = MIB;

/// Counts blocks. At the second block, `end` cancels its transfer.
#[derive(Default)]
struct Meter {
    blocks: Mutex<usize>,
    engine: OnceLock<Weak<Engine>>,
    end: Mutex<Option<fn(&Engine)>>,
    halted: Mutex<bool>,
    changed: Condvar,
    /// True if each block from the second on waits for the engine's end.
    drags: AtomicBool,
}

impl std::fmt::Debug for Meter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Meter")
    }
}

impl Meter {
    /// Counts blocks from now on, and calls `end` at the second.
    fn begin(&self, end: fn(&Engine)) {
        *self.blocks.lock().unwrap() = 0;
        *self.end.lock().unwrap() = Some(end);
    }

    fn blocks(&self) -> usize {
        *self.blocks.lock().unwrap()
    }

    /// Lets each block from the second on wait until the engine is dropped, and then for 200 ms, in which the engine cancels the transfer.
    fn drag(&self) {
        self.drags.store(true, Ordering::Relaxed);
    }

    fn halt(&self, halted: bool) {
        *self.halted.lock().unwrap() = halted;
        self.changed.notify_all();
    }

    fn count(&self, bytes: usize) {
        if bytes < SMALL {
            return;
        }
        let halted = self.halted.lock().unwrap();
        drop(self.changed.wait_while(halted, |halted| *halted).unwrap());
        let blocks = {
            let mut blocks = self.blocks.lock().unwrap();
            *blocks += 1;
            *blocks
        };
        let end = match blocks {
            2 => self.end.lock().unwrap().take(),
            _ => None,
        };
        let is_there = || self.engine.get().is_some_and(|one| one.strong_count() > 0);
        if self.drags.load(Ordering::Relaxed) && blocks > 1 {
            while is_there() {
                std::thread::sleep(Duration::from_millis(1));
            }
            std::thread::sleep(Duration::from_millis(200));
        }
        let Some(end) = end else { return };
        if let Some(engine) = self.engine.get().and_then(Weak::upgrade) {
            end(&engine);
        }
    }
}

/// Storage, or a vault, whose blocks are counted.
#[derive(Debug)]
struct Metered<T>(T, Arc<Meter>);

impl Storage for Metered<Scratch> {
    fn alignment(&self) -> usize {
        self.0.alignment()
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.1.count(bytes.len());
        self.0.write_at(offset, bytes)
    }

    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        self.1.count(bytes.len());
        self.0.read_at(offset, bytes)
    }
}

/// A record's file, read as an object is.
#[derive(Debug)]
struct Object(Vec<u8>, Arc<Meter>);

impl Source for Object {
    type Error = StoreError;

    fn size(&self) -> Result<u64> {
        Ok(self.0.len() as u64)
    }

    fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        self.1.count(bytes.len());
        let from = offset as usize;
        bytes.copy_from_slice(&self.0[from..from + bytes.len()]);
        Ok(())
    }
}

/// A vault with the required methods alone.
impl Vault for Metered<Repository> {
    fn versions(&self) -> Result<Vec<VersionInfo>> {
        self.0.versions()
    }

    fn piece(&self, version: u64) -> Result<Piece> {
        let path: PathBuf = self.0.own_piece(version)?.path().into();
        let bytes = std::fs::read(&path).unwrap();
        Piece::elsewhere(Object(bytes, Arc::clone(&self.1)), path, 1, None)
    }

    fn save(&self, snapshot: &Snapshot<'_>, ready: &Ready<'_>) -> Result<()> {
        Vault::save(&self.0, snapshot, ready)
    }

    fn copy(&self, piece: &Piece, ready: &Ready<'_>) -> Result<()> {
        for region in piece.regions() {
            piece.read_through(&region.name, &mut |_, bytes| {
                self.1.count(bytes.len());
                Ok(())
            })?;
        }
        Vault::copy(&self.0, piece, ready)
    }

    fn remove(&self, versions: &BTreeSet<u64>) -> Result<()> {
        self.0.remove(versions)
    }
}

/// An engine, and the meter of its slow tier.
struct Rig {
    engine: Arc<Engine>,
    meter: Arc<Meter>,
    _kept: tempfile::TempDir,
}

impl Rig {
    fn of(build: impl FnOnce(EngineBuilder, &Arc<Meter>, PathBuf) -> EngineBuilder) -> Self {
        let kept = tempfile::tempdir().unwrap();
        let meter = Arc::<Meter>::default();
        let builder =
            Engine::builder(&open(Choice::Host).unwrap()).after_restore(AfterRestore::Keep);
        let builder = build(builder, &meter, kept.path().to_owned());
        let engine = Arc::new(builder.build().unwrap());
        meter.engine.set(Arc::downgrade(&engine)).unwrap();
        Self {
            engine,
            meter,
            _kept: kept,
        }
    }

    /// Returns an engine over scratch storage.
    fn over_storage(build: impl FnOnce(EngineBuilder) -> EngineBuilder) -> Self {
        Self::of(|builder, meter, path| {
            let scratch = Scratch::open(&path).unwrap();
            build(builder).tier(Tier::storage(Arc::new(Metered(scratch, Arc::clone(meter)))))
        })
    }

    /// Returns an engine over a vault that has version 0.
    fn over_vault() -> Self {
        Self::of(|builder, meter, path| {
            let repository = Repository::open(path, Options::default()).unwrap();
            let bytes = content(0, SIZE);
            let regions = [tierflow_store::Region::new("checkpoint", &bytes)];
            let snapshot = Snapshot::new(0, &regions);
            repository.save(&snapshot).unwrap();
            let vault = Metered(repository, Arc::clone(meter));
            builder
                .host_cache(2 * SIZE)
                .tier(Tier::vault(Arc::new(vault)))
        })
    }

    fn checkpoint(&self, version: u64) {
        history::checkpoint(&self.engine, version, &content(version, SIZE));
    }

    fn prefetch(&self, end: fn(&Engine)) {
        self.meter.begin(end);
        self.engine.hint([0]);
        self.engine.hints().prefetch_start();
    }

    /// Waits until a transfer was cancelled. Asserts that it began at most one more block.
    fn assert_stops(&self) {
        let cancelled = || {
            let hops = self.engine.metrics().hops;
            hops.iter()
                .map(|hop| hop.cancelled + hop.failed)
                .sum::<u64>()
        };
        let begun = Instant::now();
        while cancelled() == 0 && begun.elapsed() < Duration::from_secs(20) {
            std::thread::sleep(Duration::from_millis(1));
        }
        let hops = self.engine.metrics().hops;
        assert!(hops.iter().any(|hop| hop.cancelled == 1), "{hops:?}");
        let blocks = self.meter.blocks();
        assert!((2..=3).contains(&blocks), "{blocks} blocks of 6");
    }
}

fn discard(engine: &Engine) {
    engine.discard(0).unwrap();
}

#[test]
fn a_prefetch_from_a_vault_stops() {
    let suspend = |engine: &Engine| {
        let far = Instant::now() + Duration::from_secs(600);
        let _not_waited_for = engine.suspend(None, far).unwrap();
    };
    for end in [discard as fn(&Engine), suspend] {
        let rig = Rig::over_vault();
        rig.prefetch(end);
        rig.assert_stops();
    }
}

#[test]
fn a_copy_to_a_vault_without_cancellation_stops() {
    let rig = Rig::of(|builder, meter, path| {
        let far = Repository::open(path.join("far"), Options::default()).unwrap();
        meter.begin(discard);
        builder
            .host_cache(2 * SIZE)
            .node_local(path.join("near"))
            .tier(Tier::vault(Arc::new(Metered(far, Arc::clone(meter)))))
    });
    rig.checkpoint(0);
    rig.assert_stops();
    // The next version can be copied.
    rig.checkpoint(1);
    rig.engine.wait().unwrap();
}

fn differences() -> Rig {
    Rig::over_storage(|builder| {
        let builder = builder.device_cache(SIZE + SIZE / 2);
        builder
            .dedup(Tree { chunk: 4096 })
            .flush(tierflow_engine::Flush::Eager)
    })
}

#[test]
fn a_difference_on_its_way_down_stops() {
    let rig = differences();
    rig.meter.begin(discard);
    rig.checkpoint(0);
    rig.assert_stops();
    rig.checkpoint(1);
    rig.engine.wait().unwrap();
}

#[test]
fn a_difference_on_its_way_up_stops() {
    let rig = differences();
    rig.checkpoint(0);
    rig.engine.wait().unwrap();
    // Version 1 takes the memory of the first one.
    rig.checkpoint(1);
    rig.engine.wait().unwrap();
    rig.engine.discard(1).unwrap();
    rig.prefetch(discard);
    rig.assert_stops();
}

#[test]
fn a_version_that_is_decompressed_stops() {
    let rig = Rig::over_storage(|builder| {
        builder
            .device_cache(SIZE + SIZE / 2)
            .compress(Compression::lossless(Value::F32))
            .flush(tierflow_engine::Flush::Eager)
    });
    for version in 0..2 {
        // Half of the bytes are zero, so that fewer blocks are stored.
        let mut bytes = content(version, SIZE);
        bytes[SIZE / 2..].fill(0);
        history::checkpoint(&rig.engine, version, &bytes);
        rig.engine.wait().unwrap();
    }
    rig.engine.discard(1).unwrap();
    rig.prefetch(discard);
    rig.assert_stops();
}

#[test]
fn transfers_stop_when_the_engine_is_dropped() {
    // A block is an extent here, of 16 MiB at most. Version 1 leaves one extent of version 0 in the cache, so seven or more are read.
    // Each of four workers has one under way when the engine is dropped.
    let size = 8 * 16 * MIB;
    for is_read in [true, false] {
        let rig = Rig::over_storage(|builder| {
            builder
                .device_cache(size + 16 * MIB)
                .flush(tierflow_engine::Flush::Eager)
        });
        let checkpoint =
            |version| history::checkpoint(&rig.engine, version, &content(version, size));
        if is_read {
            (0..2).for_each(checkpoint);
            rig.engine.wait().unwrap();
            rig.engine.discard(1).unwrap();
        }
        rig.meter.drag();
        match is_read {
            true => rig.prefetch(|_| ()),
            false => {
                rig.meter.begin(|_| ());
                checkpoint(0);
            }
        }
        let Rig { engine, meter, .. } = rig;
        while meter.blocks() < 2 {
            std::thread::sleep(Duration::from_millis(1));
        }
        drop(engine);
        let blocks = meter.blocks();
        assert!(blocks < 7, "{blocks} blocks of 7 or more, read: {is_read}");
    }
}

/// Blocks that a call past the caches has under way at a time, and one more.
const AHEAD: usize = 7;

#[test]
fn a_call_past_the_caches_stops_when_its_caller_leaves() {
    let rig = Rig::over_storage(|builder| builder.host_cache(MIB));
    let size = 16 * 4 * MIB;
    let bytes = vec![1; size];
    let soon = Duration::from_millis(50);
    let is_late = |outcome: tierflow_engine::Result<()>| {
        assert_matches!(outcome, Err(Error::TimedOut { .. }));
        rig.meter.halt(false);
    };
    let settled = || {
        // The number is free again when the work of the call that timed out has ended.
        let begun = Instant::now();
        while rig.engine.restore_size(0).is_ok() && begun.elapsed() < Duration::from_secs(20) {
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    rig.meter.halt(true);
    is_late(
        rig.engine
            .call()
            .within(soon)
            .checkpoint(0, &[Region::from(bytes.as_slice())]),
    );
    settled();
    let blocks = rig.meter.blocks();
    assert!(blocks <= AHEAD, "{blocks} blocks of 16 were written");
    history::checkpoint(&rig.engine, 0, &bytes);
    let mut back = vec![0; size];
    *rig.meter.blocks.lock().unwrap() = 0;
    rig.meter.halt(true);
    is_late(
        rig.engine
            .call()
            .within(soon)
            .restore(0, &mut [RegionMut::from(back.as_mut_slice())]),
    );
    let Rig { engine, meter, .. } = rig;
    // The drop waits for work under way.
    drop(engine);
    let blocks = meter.blocks();
    assert!(blocks <= AHEAD, "{blocks} blocks of 16 were read");
}
