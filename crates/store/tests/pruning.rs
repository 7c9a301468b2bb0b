//! Tests of pruning: the last version that verifies stays, readers beside it see no damage, and a full disk gets room again.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

mod histories;

use histories::{bytes_of, fast_home, save, version_of};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tierflow_store::{Error, Faults, Options, Repository, Retention};

const LARGE: usize = 2_000_000;

fn numbers(repository: &Repository) -> Vec<u64> {
    let versions = repository.versions().unwrap();
    versions.into_iter().map(|info| info.version).collect()
}

#[test]
fn readers_beside_a_writer_that_prunes_see_nothing_damaged() {
    let home = tempfile::tempdir().unwrap();
    let length_of = |version: u64| {
        if version.is_multiple_of(9) {
            1_200_000
        } else {
            3_000
        }
    };
    let writer = Repository::open(home.path(), Options::default()).unwrap();
    save(&writer, 0, length_of(0));
    let (stop, looks) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for kind in 0..3 {
            let (stop, looks) = (&stop, &looks);
            let home = home.path();
            scope.spawn(move || {
                let reader = Repository::read_only(home, Options::default()).unwrap();
                while !stop.load(Ordering::Relaxed) {
                    if kind == 0 {
                        let scrubbed = reader.scrub(None, &|_, _| {}).unwrap();
                        assert_eq!(scrubbed.damage, []);
                    }
                    // The reader knew some of these versions for long.
                    for info in reader.versions().unwrap() {
                        match reader
                            .piece(info.version)
                            .and_then(|piece| piece.read("state"))
                        {
                            Ok(bytes) => {
                                assert!(bytes == bytes_of(info.version, length_of(info.version)));
                            }
                            Err(Error::NoVersion { .. }) => {}
                            Err(error) => panic!("{error}"),
                        }
                    }
                    assert_eq!(reader.damage(), []);
                    looks.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for version in 1..400 {
            save(&writer, version, length_of(version));
            if version.is_multiple_of(3) {
                let rule = Retention::newest(6).and_every(20);
                writer.prune(&rule).unwrap();
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(looks.into_inner() > 3);
}

#[test]
fn a_full_disk_can_be_left() {
    let home = tempfile::tempdir().unwrap();
    let faults = Arc::<Faults>::default();
    let options = || Options::default().faults(Arc::clone(&faults));
    let repository = Repository::open(home.path(), options()).unwrap();
    (0..20).for_each(|version| save(&repository, version, 5_000));
    (20..24).for_each(|version| save(&repository, version, LARGE));
    // A crash leaves the segment open.
    let segment = home.path().join("rank-0/s00000000000000000001.open");
    let left = fs::read(&segment).unwrap();
    drop(repository);
    fs::remove_file(segment.with_extension("tfs")).unwrap();
    fs::write(&segment, left).unwrap();
    faults.full.store(true, Ordering::Relaxed);
    let repository = Repository::open(home.path(), options()).unwrap();
    assert_eq!(numbers(&repository).len(), 24);
    let pruned = repository
        .prune(&Retention::newest(2).and_every(10))
        .unwrap();
    assert!(pruned.bytes >= LARGE as u64, "{pruned:?}");
    for version in [0, 10, 20, 22, 23] {
        let length = if version < 20 { 5_000 } else { LARGE };
        version_of(&repository, version, length);
    }
    faults.full.store(false, Ordering::Relaxed);
    repository
        .prune(&Retention::newest(2).and_every(10))
        .unwrap();
    assert_eq!(numbers(&repository), [0, 10, 20, 22, 23]);
}

/// Returns the bytes of the disk that a rank's files take, including bytes that are set aside for them.
fn used(directory: &Path, rank: u32) -> u64 {
    let files = fs::read_dir(directory.join(format!("rank-{rank}"))).unwrap();
    let blocks = files.map(|file| file.unwrap().metadata().unwrap().blocks());
    512 * blocks.sum::<u64>()
}

#[test]
fn no_more_is_set_aside_than_is_used() {
    let home = tempfile::tempdir().unwrap();
    let repository = Repository::open(home.path(), Options::default()).unwrap();
    let mut written = 0;
    for version in 0..60 {
        save(&repository, version, 40_000);
        written += 40_000;
        let used = used(home.path(), 0);
        assert!(used <= 2 * written + (1 << 20), "{used} for {written}");
    }
}

#[test]
fn ranks_set_aside_no_more_than_they_use() {
    let home = tempfile::tempdir().unwrap();
    let ranks = (0..8).map(|rank| Options::default().rank(rank, 8).run(1));
    let ranks: Vec<_> = ranks
        .map(|options| Repository::open(home.path(), options).unwrap())
        .collect();
    ranks.iter().for_each(|rank| save(rank, 1, 40_000));
    let used: u64 = (0..8).map(|rank| used(home.path(), rank)).sum();
    println!("{used} bytes for 8 ranks of 40 kB");
    assert!(used <= 8 * (2 * 40_000 + (1 << 20)), "{used}");
}

/// Storage hangs while small versions are written. Removals from other files do not wait.
#[test]
fn a_batch_that_hangs_holds_up_no_removal_from_other_files() {
    let home = tempfile::tempdir().unwrap();
    let repository = Repository::open(home.path(), Options::default()).unwrap();
    (1..3).for_each(|version| save(&repository, version, 5_000));
    save(&repository, 3, LARGE);
    drop(repository);
    let faults = Arc::<Faults>::default();
    let options = Options::default().faults(Arc::clone(&faults));
    let repository = Repository::open(home.path(), options).unwrap();
    save(&repository, 4, 5_000);
    faults.sync_hangs.store(true, Ordering::Relaxed);
    let remove = |version| repository.remove(&[version].into()).unwrap();
    std::thread::scope(|scope| {
        let batch = scope.spawn(|| save(&repository, 5, 5_000));
        while !faults.sync_waits.load(Ordering::Relaxed) {
            std::thread::yield_now();
        }
        let others = scope.spawn(|| [1, 3, 5].into_iter().for_each(remove));
        // The test fails if these removals wait for the batch.
        let begun = Instant::now();
        while !others.is_finished() && begun.elapsed() < Duration::from_secs(20) {
            std::thread::sleep(Duration::from_millis(1));
        }
        let have_ended = others.is_finished();
        let there = have_ended.then(|| numbers(&repository));
        // Version 4 is in the file of the batch, so its removal may wait.
        let same = scope.spawn(|| remove(4));
        faults.sync_hangs.store(false, Ordering::Relaxed);
        for thread in [batch, others, same] {
            thread.join().unwrap();
        }
        assert_eq!(there, Some(vec![2, 4]));
    });
    assert_eq!(numbers(&repository), [2, 5]);
    drop(repository);
    let repository = Repository::open(home.path(), Options::default()).unwrap();
    assert_eq!(numbers(&repository), [2, 5]);
    for version in [2, 5] {
        version_of(&repository, version, 5_000);
    }
    assert_eq!(repository.damage(), []);
}

/// Segments are small, so that batches often continue in another one.
#[test]
fn removed_versions_are_gone_while_others_are_written() {
    let home = tempfile::tempdir().unwrap();
    let repository =
        Repository::open(home.path(), Options::default().limit(Some(8 << 20))).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let repository = &repository;
            scope.spawn(move || {
                for version in (thread..400).step_by(4) {
                    save(repository, version, 20_000);
                    repository.remove(&[version].into()).unwrap();
                    assert!(!numbers(repository).contains(&version), "{version}");
                }
            });
        }
    });
}

#[test]
fn a_file_that_cannot_be_read_does_not_keep_others_from_being_rewritten() {
    // The repository retries a few failures, and opens and checks the file before it reads.
    for (failures, before) in (0..320).map(|step| (1 + step % 16, step / 16)) {
        let home = fast_home();
        let faults = Arc::<Faults>::default();
        // Each run has its own segment. The first segment keeps fewer bytes, and so is rewritten first.
        for (lost, stays, length) in [(1, 2, 100), (3, 4, 1000)] {
            let repository = Repository::open(home.path(), Options::default()).unwrap();
            save(&repository, lost, 100);
            save(&repository, stays, length);
        }
        let open = || Repository::open(home.path(), Options::default()).unwrap();
        let repository = faults.during(open);
        faults.good_reads.store(before, Ordering::Relaxed);
        faults.bad_reads.store(failures, Ordering::Relaxed);
        let removed = repository.remove(&[1, 3].into());
        let is_second_readable = faults.bad_reads.swap(0, Ordering::Relaxed) == 0;
        if matches!(removed, Err(Error::Read { .. })) && is_second_readable {
            let file = |number| home.path().join(format!("rank-0/s{number:020}.tfs"));
            assert!(file(1).exists() && !file(2).exists(), "{failures}");
            version_of(&repository, 2, 100);
            version_of(&repository, 4, 1000);
            return;
        }
    }
    panic!("no read failed");
}

/// A rank's record is listed once it is written, and lasts once its file is synchronised.
#[test]
fn a_removal_relies_on_no_record_of_another_rank_that_is_not_synchronised() {
    let home = tempfile::tempdir().unwrap();
    let faults: [Arc<Faults>; 2] = Default::default();
    let open = |rank: usize| {
        let options = Options::default().rank(rank as u32, 2);
        Repository::open(home.path(), options.faults(Arc::clone(&faults[rank]))).unwrap()
    };
    let ranks = [open(0), open(1)];
    // The segments are there.
    ranks.iter().for_each(|rank| save(rank, 0, 5_000));
    ranks.iter().for_each(|rank| save(rank, 1, LARGE));
    faults[0].sync_hangs.store(true, Ordering::Relaxed);
    std::thread::scope(|scope| {
        let other = scope.spawn(|| save(&ranks[0], 2, 5_000));
        while !faults[0].sync_waits.load(Ordering::Relaxed) {
            std::thread::yield_now();
        }
        save(&ranks[1], 2, 5_000);
        faults[1].syncs_fail.store(true, Ordering::Relaxed);
        let newest = Retention::newest(1);
        let failed = [
            ranks[1].prune(&newest).err(),
            ranks[1].remove(&[0, 1].into()).err(),
        ];
        faults[1].syncs_fail.store(false, Ordering::Relaxed);
        let there = ranks[1].own_pieces().unwrap();
        let pruned = ranks[1].prune(&newest);
        faults[0].sync_hangs.store(false, Ordering::Relaxed);
        other.join().unwrap();
        assert!(failed.iter().all(Option::is_some), "{failed:?}");
        assert_eq!(
            there.iter().map(|piece| piece.version).collect::<Vec<_>>(),
            [0, 1, 2]
        );
        assert_eq!(pruned.unwrap().versions, [0, 1]);
    });
}

/// The head of a small version is damaged after the repository has read it.
#[test]
fn a_segment_stays_if_a_record_that_must_stay_is_not_found_in_it() {
    let home = tempfile::tempdir().unwrap();
    let repository = Repository::open(home.path(), Options::default()).unwrap();
    (1..4).for_each(|version| save(&repository, version, 300));
    drop(repository);
    let repository = Repository::open(home.path(), Options::default()).unwrap();
    let segment = home.path().join("rank-0/s00000000000000000001.tfs");
    let mut bytes = fs::read(&segment).unwrap();
    let payload = |bytes: &[u8]| {
        let mut windows = bytes.windows(300);
        windows.position(|window| window == bytes_of(2, 300))
    };
    // The head ends where the payload begins.
    let head = payload(&bytes).unwrap() - 1;
    bytes[head] ^= 1;
    fs::write(&segment, &bytes).unwrap();
    repository.remove(&[1].into()).unwrap();
    assert_eq!(numbers(&repository), [3]);
    version_of(&repository, 3, 300);
    let files = fs::read_dir(home.path().join("rank-0")).unwrap();
    let mut files = files.map(|file| fs::read(file.unwrap().path()).unwrap());
    assert!(files.any(|bytes| payload(&bytes).is_some()));
    assert_eq!(repository.damage().len(), 1);
}

/// The segment is rewritten, as version 1 stays, and the second of its two names cannot be removed.
#[test]
fn a_segment_that_cannot_be_removed_keeps_its_records() {
    let home = tempfile::tempdir().unwrap();
    let faults = Arc::<Faults>::default();
    let open = || Repository::open(home.path(), Options::default().faults(Arc::clone(&faults)));
    let repository = open().unwrap();
    (0..2).for_each(|version| save(&repository, version, 5_000));
    drop(repository);
    let repository = open().unwrap();
    let segment = home.path().join("rank-0/s00000000000000000001.open");
    faults.keep_file(Some(&segment));
    repository.remove(&[0].into()).unwrap_err();
    drop(repository);
    let repository = open().unwrap();
    version_of(&repository, 1, 5_000);
    assert_eq!(repository.damage(), []);
}
