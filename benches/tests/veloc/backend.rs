//! Producers, flushes and failures on real files.

use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tierflow_benches::papers::veloc::{Backend, Error, Options};
use tierflow_benches::papers::veloc::{CacheOnly, HybridNaive, HybridOpt, HybridRoom, SsdOnly};
use tierflow_placement::stores::{Calibration, ShortestWait, StorePolicy};
use tierflow_store::{Faults, Faulty, Scratch, Storage, Throttled};
use tierflow_transfer::volume::{Effort, LocalStore, Points, VolumeError, calibrate, measure};

const CHUNK: usize = 64 << 10;
const PATIENCE: Duration = Duration::from_secs(20);

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
                    producer.checkpoint(&bytes, target, PATIENCE).unwrap();
                });
            }
        });
        backend.wait(PATIENCE).unwrap();
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
        assert!(backend.flush_bandwidth().unwrap() > 0.0);
    }
}

#[test]
fn a_store_that_fails_is_left_alone_until_it_is_back() {
    let folder = tempfile::tempdir().unwrap();
    let (fast, faults) = faulty(folder.path());
    let external = scratch(folder.path());
    let stores = vec![store(fast, 4e9, 10), store(scratch(folder.path()), 1e9, 10)];
    let backend = Backend::start(
        stores,
        Arc::clone(&external),
        Box::new(HybridNaive),
        options(),
    )
    .unwrap();
    let mut producer = backend.producer();
    let bytes = pattern(1, 2 * CHUNK);
    faults.writes_fail.store(true, Ordering::Relaxed);
    producer.checkpoint(&bytes, 0, PATIENCE).unwrap();
    backend.wait(PATIENCE).unwrap();
    assert_eq!(backend.statistics().written_bytes, [0, 2 * CHUNK as u64]);
    assert!(read(external.as_ref(), 0, bytes.len()) == bytes);

    faults.writes_fail.store(false, Ordering::Relaxed);
    producer.checkpoint(&bytes, 0, PATIENCE).unwrap();
    assert_eq!(
        backend.statistics().written_bytes[0],
        0,
        "it was not reported to be back"
    );
    backend.store_back(0).unwrap();
    producer.checkpoint(&bytes, 0, PATIENCE).unwrap();
    assert_eq!(backend.statistics().written_bytes[0], 2 * CHUNK as u64);
    assert!(matches!(backend.store_back(7), Err(Error::Placement(_))));
}

#[test]
fn without_a_store_that_works_the_external_one_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let (only, faults) = faulty(folder.path());
    let (external, external_faults) = faulty(folder.path());
    let stores = vec![store(only, 4e9, 10)];
    let external_again = Arc::clone(&external);
    let backend = Backend::start(stores, external, Box::new(HybridOpt), options()).unwrap();
    faults.full.store(true, Ordering::Relaxed);
    let bytes = pattern(2, CHUNK);
    backend.producer().checkpoint(&bytes, 0, PATIENCE).unwrap();
    assert_eq!(backend.statistics().bypassed_bytes, CHUNK as u64);
    assert!(read(external_again.as_ref(), 0, CHUNK) == bytes);
    external_faults.full.store(true, Ordering::Relaxed);
    let refused = backend.producer().checkpoint(&bytes, 0, PATIENCE);
    assert!(matches!(refused, Err(Error::Store(_))), "{refused:?}");
}

#[test]
fn flushes_are_repeated_until_the_external_storage_is_back() {
    let folder = tempfile::tempdir().unwrap();
    let (external, faults) = faulty(folder.path());
    let stores = vec![store(scratch(folder.path()), 4e9, 2)];
    let mut options = options();
    options.pause = Duration::from_millis(1);
    let external_again = Arc::clone(&external);
    let backend = Backend::start(stores, external, Box::new(HybridOpt), options).unwrap();
    faults.writes_fail.store(true, Ordering::Relaxed);
    let bytes = pattern(3, 2 * CHUNK);
    let mut producer = backend.producer();
    producer.checkpoint(&bytes, 0, PATIENCE).unwrap();
    // Until the first flush has failed, the time-out does not say why.
    let deadline = Instant::now() + PATIENCE;
    let words = loop {
        let late = backend.wait(Duration::from_millis(50)).unwrap_err();
        let words = late.to_string();
        if words.contains("error") || Instant::now() > deadline {
            break words;
        }
    };
    assert!(
        words.contains("2 left") && words.contains("error"),
        "{words}"
    );
    // The store is full, and no flush makes room: that wait, too, has an end.
    let full = producer.checkpoint(&bytes, 0, Duration::from_millis(50));
    assert!(matches!(full, Err(Error::TimedOut { .. })), "{full:?}");
    faults.writes_fail.store(false, Ordering::Relaxed);
    backend.wait(PATIENCE).unwrap();
    assert!(read(external_again.as_ref(), 0, bytes.len()) == bytes);
    producer.checkpoint(&bytes, 0, PATIENCE).unwrap();
}

#[test]
fn flush_threads_come_with_the_work_and_go_without() {
    let folder = tempfile::tempdir().unwrap();
    let stores = vec![store(scratch(folder.path()), 4e9, 20)];
    let slow = Throttled::new(Scratch::open(folder.path()).unwrap(), 10_000_000);
    let mut options = options().most_flushes(NonZeroUsize::new(3).unwrap());
    options.idle = Duration::from_millis(5);
    let backend = Backend::start(stores, Arc::new(slow), Box::new(HybridOpt), options).unwrap();
    assert_eq!(backend.flush_threads(), 0);
    let bytes = pattern(4, 10 * CHUNK);
    backend.producer().checkpoint(&bytes, 0, PATIENCE).unwrap();
    assert_eq!(
        backend.flush_threads(),
        3,
        "there is work for more than the most"
    );
    backend.wait(PATIENCE).unwrap();
    let began = Instant::now();
    while backend.flush_threads() > 0 {
        assert!(began.elapsed() < PATIENCE, "idle threads stay");
        std::thread::sleep(Duration::from_millis(1));
    }
    backend.producer().checkpoint(&bytes, 0, PATIENCE).unwrap();
    backend.wait(PATIENCE).unwrap();
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
