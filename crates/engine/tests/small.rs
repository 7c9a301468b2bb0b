//! Many small versions: what lies side by side on storage goes there and comes back in requests of many, whatever else moves
//! and whatever fails.

#![allow(clippy::unwrap_used)]

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex};
use tierflow_device::{Choice, open};
use tierflow_engine::{AfterRestore, Engine, Error, Flush, Region, RegionMut};
use tierflow_store::{Faults, Faulty, Result, Scratch, Storage};

/// Storage that counts its requests, and answers none before it is told to begin.
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

/// Lengths of all kinds: less than a block, several, and now and then a large one.
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

fn restored(engine: &Engine, version: u64) -> std::result::Result<Vec<u8>, Error> {
    let mut bytes = vec![0; engine.restore_size(version)? as usize];
    engine.restore(version, &mut [RegionMut::from(bytes.as_mut_slice())])?;
    Ok(bytes)
}

const VERSIONS: u64 = 2_000;
/// So many fit into the cache, and wait for storage together.
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
        let builder = builder.storage(Arc::clone(&storage) as Arc<dyn Storage>);
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
                // Requests fail now and then: what waits is tried again.
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
