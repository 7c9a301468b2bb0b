//! Producers, flushes and failures on real files.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tierflow_benches::papers::veloc::{Backend, Error, Options};
use tierflow_benches::papers::veloc::{CacheOnly, HybridNaive, HybridOpt, HybridRoom, SsdOnly};
use tierflow_placement::stores::{Calibration, ShortestWait, StorePolicy};
use tierflow_store::{Faults, Faulty, Scratch, Storage, Throttled};
use tierflow_transfer::volume::{Effort, LocalStore, Points, VolumeError, calibrate, measure};

const CHUNK: usize = 64 << 10;

fn options() -> Options {
    Options::default().chunk_size(CHUNK)
}

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

fn pattern(seed: usize, len: usize) -> Vec<u8> {
    (0..len)
        .map(|at| (at / 7 + at / 4096 + 31 * seed) as u8)
        .collect()
}

/// What lies in the storage, read in whole blocks.
fn read(storage: &dyn Storage, offset: u64, len: usize) -> Vec<u8> {
    let (alignment, padded) = (
        storage.alignment(),
        len.next_multiple_of(storage.alignment()),
    );
    let mut memory = vec![0; padded + alignment];
    let start = memory.as_ptr().align_offset(alignment);
    storage
        .read_at(offset, &mut memory[start..start + padded])
        .unwrap();
    memory[start..start + len].to_vec()
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
    // Whole chunks, and one that is not even whole blocks.
    let len = 3 * CHUNK + 12_345;
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
        let backend = Backend::start(stores, Arc::clone(&external), policy, options()).unwrap();
        std::thread::scope(|scope| {
            for writer in 0..6 {
                let mut producer = backend.producer();
                scope.spawn(move || {
                    let target = (writer * distance) as u64;
                    let bytes = pattern(writer, len);
                    producer.checkpoint(&bytes, target).unwrap();
                });
            }
        });
        backend.wait().unwrap();
        for writer in 0..6 {
            let found = read(external.as_ref(), (writer * distance) as u64, len);
            assert!(found == pattern(writer, len), "{name}: writer {writer}");
        }
        let found = backend.statistics();
        let all = (6 * len) as u64;
        assert_eq!(
            (found.asked_bytes, found.flushed_bytes),
            (all, all),
            "{name}"
        );
        assert_eq!(found.written_bytes.iter().sum::<u64>(), all, "{name}");
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
        let backend = Backend::start(stores, external, Box::new(HybridOpt), options()).unwrap();
        faults.writes_fail.store(true, Ordering::Relaxed);
        // The second chunk has to wait for the flush of the first.
        let bytes = pattern(2, 2 * CHUNK);
        let failed = backend.producer().checkpoint(&bytes, 0);
        assert!(matches!(failed, Err(Error::Store(_))), "{failed:?}");
        let others = backend.producer().checkpoint(&bytes, 0);
        assert!(matches!(others, Err(Error::Store(_))), "{others:?}");
        if fails_outside {
            assert!(matches!(backend.wait(), Err(Error::Store(_))));
        }
    }
}

#[test]
fn flush_threads_go_without_work_and_come_again() {
    let folder = tempfile::tempdir().unwrap();
    let stores = vec![store(scratch(folder.path()), 4e9, 20)];
    let external = scratch(folder.path());
    let mut options = options();
    options.idle = Duration::ZERO;
    options.most_flushes = 3;
    let external_again = Arc::clone(&external);
    let backend = Backend::start(stores, external, Box::new(HybridOpt), options).unwrap();
    for seed in 4..7 {
        let bytes = pattern(seed, 10 * CHUNK);
        backend.producer().checkpoint(&bytes, 0).unwrap();
        backend.wait().unwrap();
        assert!(read(external_again.as_ref(), 0, bytes.len()) == bytes);
    }
}

#[test]
fn what_does_not_go_together_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let external = scratch(folder.path());
    let refused = |options: Options, chunks: usize| {
        let stores = vec![store(scratch(folder.path()), 1e9, chunks)];
        Backend::start(stores, Arc::clone(&external), Box::new(HybridOpt), options).unwrap_err()
    };
    let odd = external.alignment() > 1;
    if odd {
        assert!(matches!(
            refused(options().chunk_size(CHUNK + 1), 1),
            Error::ChunkSize { .. }
        ));
    }
    assert!(matches!(refused(options(), 0), Error::Placement(_)));
    assert!(matches!(
        refused(options().chunk_size(0), 1),
        Error::Placement(_)
    ));
    let even = Points::Even {
        first: 1,
        step: 1,
        samples: 0,
    };
    for points in [even, Points::Doubling { samples: 0 }] {
        let none = calibrate(external.as_ref(), CHUNK, quick(points));
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
