//! Producers, flushes and failures on real files.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tierflow_benches::papers::veloc::{Backend, Buffer};
use tierflow_benches::papers::veloc::{CacheOnly, HybridNaive, HybridOpt, HybridRoom, SsdOnly};
use tierflow_placement::stores::{Calibration, ShortestWait, StorePolicy};
use tierflow_store::{Error as StoreError, Faults, Faulty, Scratch, Storage, Throttled};
use tierflow_transfer::volume::{Effort, LocalStore, Points, VolumeError, calibrate, measure};

const CHUNK: usize = 64 << 10;

fn flat(bandwidth: f64) -> Calibration {
    Calibration::new(1, 1, &[bandwidth]).unwrap()
}

fn scratch(folder: &Path) -> Arc<dyn Storage> {
    Arc::new(Scratch::open(folder).unwrap())
}

fn faulty(folder: &Path) -> (Arc<dyn Storage>, Arc<Faults>) {
    let faults = Arc::new(Faults::default());
    let storage = Faulty::new(Scratch::open(folder).unwrap(), Arc::clone(&faults));
    (Arc::new(storage), faults)
}

fn store(storage: Arc<dyn Storage>, bandwidth: f64, chunks: usize) -> LocalStore {
    LocalStore {
        storage,
        calibration: flat(bandwidth),
        chunks,
    }
}

/// Alignment that direct I/O takes.
const PAGE: usize = 4096;

fn pattern(seed: usize, len: usize) -> Buffer {
    let mut pattern = Buffer::new(len, PAGE);
    for (at, byte) in pattern.bytes_mut().iter_mut().enumerate() {
        *byte = (at / 7 + at / 4096 + 31 * seed) as u8;
    }
    pattern
}

fn read(storage: &dyn Storage, offset: u64, len: usize) -> Buffer {
    let mut found = Buffer::new(len, PAGE);
    storage.read_at(offset, found.bytes_mut()).unwrap();
    found
}

fn policies() -> Vec<Box<dyn StorePolicy>> {
    vec![
        Box::new(CacheOnly),
        Box::new(SsdOnly),
        Box::new(HybridNaive),
        Box::new(HybridOpt),
        Box::new(HybridRoom),
        Box::new(ShortestWait),
    ]
}

#[test]
fn every_byte_of_every_producer_reaches_the_external_storage() {
    // Whole chunks, and one that is smaller.
    let len = 3 * CHUNK + 3 * PAGE;
    let distance = len.next_multiple_of(CHUNK);
    for policy in policies() {
        let name = policy.name();
        let folder = tempfile::tempdir().unwrap();
        let external = scratch(folder.path());
        let throttled = Throttled::new(Scratch::open(folder.path()).unwrap(), 100_000_000);
        let stores = vec![
            store(scratch(folder.path()), 4e9, 3),
            store(Arc::new(throttled), 1e8, 100),
        ];
        let backend = Backend::start(stores, Arc::clone(&external), policy, CHUNK).unwrap();
        std::thread::scope(|scope| {
            for writer in 0..6 {
                let backend = &backend;
                scope.spawn(move || {
                    let target = (writer * distance) as u64;
                    let data = pattern(writer, len);
                    backend.checkpoint(data.bytes(), target).unwrap();
                });
            }
        });
        backend.wait().unwrap();
        for writer in 0..6 {
            let found = read(external.as_ref(), (writer * distance) as u64, len);
            let wanted = pattern(writer, len);
            assert!(found.bytes() == wanted.bytes(), "{name}: writer {writer}");
        }
        let all = (6 * len) as u64;
        assert_eq!(backend.flushed_bytes(), all, "{name}");
        assert_eq!(backend.written_bytes().iter().sum::<u64>(), all, "{name}");
    }
}

#[test]
fn a_storage_that_fails_ends_the_run_with_its_error() {
    for fails_outside in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let (broken, faults) = faulty(folder.path());
        let sound = scratch(folder.path());
        let (local, external) = match fails_outside {
            true => (sound, broken),
            false => (broken, sound),
        };
        let stores = vec![store(local, 4e9, 1)];
        let backend = Backend::start(stores, external, Box::new(HybridOpt), CHUNK).unwrap();
        faults.writes_fail.store(true, Ordering::Relaxed);
        // The second chunk has to wait for the flush of the first.
        let data = pattern(2, 2 * CHUNK);
        let fails_with_its_error = |done: anyhow::Result<()>| {
            let error = done.unwrap_err();
            assert!(error.is::<StoreError>(), "{error:?}");
        };
        fails_with_its_error(backend.checkpoint(data.bytes(), 0));
        fails_with_its_error(backend.checkpoint(data.bytes(), 0));
        if fails_outside {
            fails_with_its_error(backend.wait());
        }
    }
}

#[test]
fn flushes_go_on_after_a_pause() {
    let folder = tempfile::tempdir().unwrap();
    let stores = vec![store(scratch(folder.path()), 4e9, 20)];
    let external = scratch(folder.path());
    let seen = Arc::clone(&external);
    let backend = Backend::start(stores, external, Box::new(HybridOpt), CHUNK).unwrap();
    for seed in 4..7 {
        let data = pattern(seed, 10 * CHUNK);
        backend.checkpoint(data.bytes(), 0).unwrap();
        backend.wait().unwrap();
        assert!(read(seen.as_ref(), 0, 10 * CHUNK).bytes() == data.bytes());
        std::thread::sleep(Duration::from_millis(300));
    }
}

#[test]
fn a_calibration_without_samples_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let storage = scratch(folder.path());
    let even = Points::Even {
        first: 1,
        step: 1,
        samples: 0,
    };
    for points in [even, Points::Doubling { samples: 0 }] {
        let none = calibrate(storage.as_ref(), CHUNK, quick(points));
        assert!(matches!(none, Err(VolumeError::Calibration(_))), "{none:?}");
    }
}

#[test]
fn a_calibration_sees_the_limit_of_a_store() {
    let folder = tempfile::tempdir().unwrap();
    let limit = 50_000_000;
    let throttled = Throttled::new(Scratch::open(folder.path()).unwrap(), limit);
    let even = Points::Even {
        first: 1,
        step: 3,
        samples: 3,
    };
    for points in [even, Points::Doubling { samples: 3 }] {
        let calibration = calibrate(&throttled, CHUNK, quick(points)).unwrap();
        for writers in [1, 2, 4, 6] {
            // No machine is faster than the limit, but for the first bytes of a burst.
            assert!(
                calibration.throughput(writers) < 1.5 * limit as f64,
                "{writers}"
            );
            assert!(calibration.throughput(writers) > 0.0);
        }
    }
    let measured = measure(&[(&throttled, 3), (&throttled, 1)], CHUNK, quick(even));
    let measured = measured.unwrap();
    assert_eq!(measured.len(), 2);
    assert!(measured.iter().all(|found| *found < 1.5 * limit as f64));
    assert_eq!(even.writers(), [1, 4, 7]);
    assert_eq!(Points::Doubling { samples: 4 }.writers(), [1, 2, 4, 8]);
}

fn quick(points: Points) -> Effort {
    Effort {
        points,
        trials: 1,
        at_least: Duration::from_millis(5),
    }
}
