//! A failed save is tried again. The next try succeeds whatever parts of it were written already, and whether or not other ranks saw these.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod histories;

use histories::{bytes_of, fast_home, try_to_save, version_of};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use tierflow_store::{Error, Faults, Options, Region, Repository, Snapshot};

/// Tries that the repository makes of one read.
const TRIES: u64 = 3;

/// The list of a version fails after its piece is there, and the other rank writes it.
#[test]
fn a_piece_whose_list_failed_is_saved_by_the_next_try() {
    let (mut failed, mut complete) = (0, 0);
    for (good, length) in (0..40).flat_map(|good| [(good, 300), (good, 1_500_000)]) {
        let home = fast_home();
        let open = |rank| {
            let options = Options::default().rank(rank, 2);
            Repository::open(home.path(), options).unwrap()
        };
        let faults = Arc::<Faults>::default();
        let (first, second) = (faults.during(|| open(0)), open(1));
        try_to_save(&first, 0, 300).unwrap();
        try_to_save(&second, 0, 300).unwrap();
        try_to_save(&second, 1, length).unwrap();
        faults.good_reads.store(good, Relaxed);
        faults.bad_reads.store(TRIES, Relaxed);
        let saved = try_to_save(&first, 1, length);
        faults.bad_reads.store(0, Relaxed);
        let listed = second.versions().unwrap().len();
        if saved.is_err() {
            failed += 1;
            complete += u32::from(listed == 2);
            try_to_save(&first, 1, length).unwrap();
        }
        assert!(matches!(
            try_to_save(&first, 1, length),
            Err(Error::Exists { .. })
        ));
        drop((first, second));
        version_of(&open(0), 1, length);
    }
    assert!(complete > 0, "{failed} failed");
}

/// A piece was written to a directory that has been moved since. A further try does not save it.
#[test]
fn a_piece_in_a_directory_that_was_moved_is_not_saved() {
    let home = fast_home();
    let (place, elsewhere) = (home.path().join("run"), home.path().join("gone"));
    let repository = Repository::open(&place, Options::default()).unwrap();
    for (version, length) in [(0, 300), (1, 1_500_000)] {
        try_to_save(&repository, version, length).unwrap();
    }
    std::fs::rename(&place, &elsewhere).unwrap();
    for (version, length) in [(2, 300), (3, 1_500_000)] {
        for _ in 0..3 {
            let saved = try_to_save(&repository, version, length);
            assert!(matches!(saved, Err(Error::Vanished { .. })), "{saved:?}");
        }
    }
}

/// A call saves many pieces, and a later one fails after the first are written. A further call for each single piece saves it.
#[test]
fn pieces_of_a_call_that_failed_are_saved_one_by_one() {
    const PIECES: u64 = 200;
    const LENGTH: usize = 64 << 10;
    let mut partly = 0;
    for stop in 1..12 {
        let home = fast_home();
        let faults = Arc::<Faults>::default();
        let repository =
            faults.during(|| Repository::open(home.path(), Options::default()).unwrap());
        let bytes: Vec<_> = (0..PIECES)
            .map(|version| bytes_of(version, LENGTH))
            .collect();
        let regions: Vec<_> = bytes
            .iter()
            .map(|bytes| [Region::new("state", bytes)])
            .collect();
        let snapshots: Vec<_> = (0..)
            .zip(&regions)
            .map(|(version, regions)| Snapshot::new(version, regions))
            .collect();
        faults
            .stops_at
            .store(faults.changes.load(Relaxed) + stop, Relaxed);
        let saved = repository.save_all(&snapshots);
        faults.stops_at.store(0, Relaxed);
        let there = repository.versions().unwrap().len();
        if saved.is_err() {
            partly += u32::from(there > 0);
            for snapshot in &snapshots {
                repository.save(snapshot).unwrap();
            }
        }
        let again = repository.save(&snapshots[0]);
        assert!(matches!(again, Err(Error::Exists { .. })), "{again:?}");
        let other = bytes_of(99, LENGTH);
        let other = [Region::new("state", &other)];
        assert!(
            repository.save(&Snapshot::new(0, &other)).is_err(),
            "other bytes"
        );
        drop(repository);
        let reopened = Repository::open(home.path(), Options::default()).unwrap();
        (0..PIECES).for_each(|version| version_of(&reopened, version, LENGTH));
    }
    assert!(partly > 0);
}
