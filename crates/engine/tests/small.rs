//! Many small versions that lie side by side on storage are written and read in requests of many versions, whatever else moves or
//! fails.

#![allow(clippy::unwrap_used)]

mod history;

use history::restored;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex};
use tierflow_device::{Choice, open};
use tierflow_engine::{AfterRestore, Engine, Error, Flush, Region, RegionMut, Tier};
use tierflow_store::{Faults, Faulty, Result, Scratch, Storage};

/// Storage that counts its requests, and answers none until the test lets it begin.
#[derive(Debug)]
struct Counted {
    storage: Faulty<Scratch>,
    writes: AtomicU64,
    reads: AtomicU64,
    has_begun: Mutex<bool>,
    begins: Condvar,
}

impl Counted {
    fn begin(&self) {
        *self.has_begun.lock().unwrap() = true;
        self.begins.notify_all();
    }
}

impl Storage for Counted {
    fn alignment(&self) -> usize {
        self.storage.alignment()
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.writes.fetch_add(1, Relaxed);
        let has_begun = self.has_begun.lock().unwrap();
        drop(
            self.begins
                .wait_while(has_begun, |has_begun| !*has_begun)
                .unwrap(),
        );
        self.storage.write_at(offset, bytes)
    }

    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        self.reads.fetch_add(1, Relaxed);
        self.storage.read_at(offset, bytes)
    }
}

/// Returns the bytes of a version: less than a block, several blocks, or now and then a large version.
fn length_of(version: u64) -> usize {
    match version % 97 {
        96 => 300_000,
        50..60 => 9_000,
        rest => 100 + 40 * rest as usize,
    }
}

fn content(version: u64) -> Vec<u8> {
    let word = (version + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let byte = |at: usize| (word.rotate_left(at as u32 % 64) >> 8) as u8;
    (0..length_of(version)).map(byte).collect()
}

const VERSIONS: u64 = 2_000;
/// Versions that fit into the cache, and wait for storage together.
const WAITING: u64 = 90;

#[test]
fn small_versions_go_to_storage_and_come_back_in_requests_of_many() {
    let device = open(Choice::Host).unwrap();
    for nth in [0, 29] {
        let directory = tempfile::tempdir().unwrap();
        let faults = Arc::<Faults>::default();
        let storage = Arc::new(Counted {
            storage: Faulty::new(
                Scratch::open(directory.path()).unwrap(),
                Arc::clone(&faults),
            ),
            writes: AtomicU64::new(0),
            reads: AtomicU64::new(0),
            has_begun: Mutex::new(false),
            begins: Condvar::new(),
        });
        let builder = Engine::builder(&device)
            .host_cache(2 << 20)
            .flush(Flush::Eager);
        let builder = builder.tier(Tier::storage(Arc::clone(&storage) as Arc<dyn Storage>));
        let engine = builder
            .after_restore(AfterRestore::Discard)
            .build()
            .unwrap();
        engine.hint((0..VERSIONS).rev());
        faults.every_nth.store(nth, Relaxed);
        for version in 0..VERSIONS {
            if version == WAITING {
                storage.begin();
                while let Err(error) = engine.wait() {
                    assert!(nth > 0, "{error}");
                }
                let writes = storage.writes.load(Relaxed);
                assert!(nth > 0 || writes < WAITING / 4, "{writes} requests");
            }
            let bytes = content(version);
            let regions = [Region::from(bytes.as_slice())];
            while let Err(error) = engine.checkpoint(version, &regions) {
                // Requests fail now and then. A version that waits is tried again.
                assert!(nth > 0, "{error}");
                let _tried_again = engine.wait();
            }
        }
        while let Err(error) = engine.wait() {
            assert!(nth > 0, "{error}");
        }
        for version in (0..VERSIONS).rev() {
            let bytes = loop {
                match restored(&engine, version) {
                    Ok(bytes) => break bytes,
                    Err(error) => assert!(nth > 0, "{error}"),
                }
            };
            assert!(bytes == content(version), "version {version}");
        }
        let (writes, reads) = (storage.writes.load(Relaxed), storage.reads.load(Relaxed));
        println!("{VERSIONS} versions: {writes} writes, {reads} reads");
    }
}

/// Each of many threads waits for its own versions. The next engine finds the versions that were durable when a wait returned, whole and
/// with the names of their regions.
#[test]
fn small_versions_of_many_threads_are_kept_together_and_outlive_the_engine() {
    const THREADS: u64 = 16;
    const EACH: u64 = 30;
    let device = open(Choice::Host).unwrap();
    for in_order in [false, true] {
        let home = tempfile::tempdir().unwrap();
        let build = || {
            Engine::builder(&device)
                .host_cache(4 << 20)
                .node_local(home.path())
                .durable_in_order(in_order)
                .build()
                .unwrap()
        };
        let engine = build();
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let engine = &engine;
                scope.spawn(move || {
                    for version in (0..EACH).map(|nth| nth * THREADS + thread) {
                        let bytes = content(version);
                        let (head, tail) = bytes.split_at(bytes.len() / 3);
                        let regions = [Region::from(head), Region::from(tail)];
                        let regions = match version % 3 {
                            0 => regions,
                            _ => regions.map(|region| match region.len() == head.len() {
                                true => region.named("head"),
                                false => region.named("tail"),
                            }),
                        };
                        engine.checkpoint(version, &regions).unwrap();
                        engine.call().wait_version(version).unwrap();
                        assert!(engine.is_durable(version));
                    }
                });
            }
        });
        drop(engine);
        let engine = build();
        assert_eq!(engine.versions().len() as u64, THREADS * EACH);
        for version in 0..THREADS * EACH {
            assert!(restored(&engine, version).unwrap() == content(version));
            if version % 3 > 0 {
                let bytes = content(version);
                let mut tail = vec![0; bytes.len() - bytes.len() / 3];
                let into = RegionMut::from(tail.as_mut_slice());
                engine
                    .call()
                    .restore_regions(version, &mut [("tail", into)])
                    .unwrap();
                assert!(tail == bytes[bytes.len() / 3..]);
            }
        }
    }
}

/// All calls that wait for a version which cannot be stored get the error, and none waits for ever.
#[test]
fn a_directory_that_takes_nothing_is_told_to_each_thread() {
    let device = open(Choice::Host).unwrap();
    let home = tempfile::tempdir().unwrap();
    let directory = home.path().join("kept");
    let builder = Engine::builder(&device).host_cache(4 << 20);
    let engine = builder.node_local(&directory).build().unwrap();
    let first = [7; 100];
    engine.checkpoint(0, &[Region::from(&first[..])]).unwrap();
    engine.call().wait_version(0).unwrap();
    std::fs::remove_dir_all(&directory).unwrap();
    std::thread::scope(|scope| {
        for version in 1..9 {
            let engine = &engine;
            scope.spawn(move || {
                let bytes = content(version);
                let regions = [Region::from(bytes.as_slice())];
                engine.checkpoint(version, &regions).unwrap();
                let waited = engine.call().wait_version(version);
                assert!(
                    matches!(waited, Err(Error::Stalled { .. })),
                    "{version}: {waited:?}"
                );
                assert!(!engine.is_durable(version));
                assert!(restored(engine, version).unwrap() == bytes);
            });
        }
    });
}
