//! Tests of notes of superseded pieces, and of lists on a full disk.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod histories;

use histories::{fast_home, save};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use tierflow_store::{Error, Faults, Identity, Options, Region, Repository, Retention, Snapshot};

fn numbers(repository: &Repository) -> Vec<u64> {
    let versions = repository.versions().unwrap();
    versions.into_iter().map(|info| info.version).collect()
}

fn open(directory: &Path) -> Repository {
    Repository::open(directory, Options::default()).unwrap()
}

fn reader(directory: &Path) -> Repository {
    Repository::read_only(directory, Options::default()).unwrap()
}

fn identities(repository: &Repository, versions: &[u64]) -> Vec<(u64, Identity)> {
    let own = repository.own_pieces().unwrap().into_iter();
    let own = own.filter(|piece| versions.contains(&piece.version));
    own.map(|piece| (piece.version, piece.identity)).collect()
}

/// Returns the bytes of a version: small pieces are in a segment, and one is in a file of its own.
fn length_of(version: u64) -> usize {
    if version == 4 { 1_500_000 } else { 300 }
}

#[test]
fn noted_pieces_do_not_count_and_their_numbers_are_free() {
    let (home, elsewhere) = (fast_home(), fast_home());
    let first = open(home.path());
    (0..6).for_each(|version| save(&first, version, length_of(version)));
    let copies = open(elsewhere.path());
    copies.copy(&first.piece(5).unwrap()).unwrap();
    drop(first);
    let second = open(home.path());
    let reader = reader(home.path());
    assert_eq!(numbers(&reader), [0, 1, 2, 3, 4, 5]);
    second.supersede(&identities(&second, &[1, 4, 5])).unwrap();
    drop(second);
    let third = open(home.path());
    assert_eq!(numbers(&third), [0, 2, 3]);
    assert_eq!(numbers(&reader), [0, 2, 3]);
    let copied = third.copy(&copies.piece(5).unwrap());
    assert!(matches!(copied, Err(Error::GivenUp { version: 5 })));
    save(&third, 4, 700);
    assert_eq!(third.piece(4).unwrap().read("state").unwrap().len(), 700);
    third.remove_superseded().unwrap();
    drop(third);
    // The superseded pieces are removed, so they do not come back without the note.
    std::fs::remove_file(home.path().join("rank-0/superseded.note")).unwrap();
    assert_eq!(numbers(&open(home.path())), [0, 2, 3, 4]);
}

#[test]
fn damage_to_a_note_hits_one_piece_and_is_named() {
    let home = fast_home();
    let first = open(home.path());
    (0..6).for_each(|version| save(&first, version, length_of(version)));
    first.supersede(&identities(&first, &[1, 3, 4])).unwrap();
    drop(first);
    let note = home.path().join("rank-0/superseded.note");
    let sound = std::fs::read(&note).unwrap();
    for at in 0..sound.len() {
        let mut bytes = sound.clone();
        bytes[at] ^= 1 << (at % 8);
        std::fs::write(&note, &bytes).unwrap();
        let reader = reader(home.path());
        let counting = numbers(&reader);
        assert!(counting.len() <= 5, "byte {at}: {counting:?}");
        assert_eq!(reader.damage()[0].path, note, "byte {at}");
    }
}

#[test]
fn a_group_is_listed_on_a_full_disk() {
    let (home, other) = (fast_home(), fast_home());
    let of = |rank| Options::default().rank(rank, 2).run(1);
    for (directory, rank) in [(home.path(), 0), (other.path(), 1)] {
        let repository = Repository::open(directory, of(rank)).unwrap();
        save(&repository, 0, 300);
    }
    // A crash leaves all pieces and no manifest.
    let moved = std::fs::rename(other.path().join("rank-1"), home.path().join("rank-1"));
    moved.unwrap();
    let faults = Arc::<Faults>::default();
    faults.full.store(true, Relaxed);
    let options = of(0).faults(Arc::clone(&faults));
    let repository = Repository::open(home.path(), options).unwrap();
    assert_eq!(numbers(&repository), []);
    assert_eq!(repository.own_pieces().unwrap().len(), 1);
    faults.full.store(false, Relaxed);
    assert_eq!(numbers(&repository), [0]);
}

#[test]
fn a_version_whose_base_was_written_anew_is_not_whole() {
    let home = fast_home();
    let save = |repository: &Repository, version, base| {
        let bytes = [version as u8; 100];
        let regions = [Region::new("state", &bytes)];
        let snapshot = Snapshot {
            version,
            base,
            regions: &regions,
        };
        repository.save(&snapshot)
    };
    {
        // Version 4 is missing, as after a crash.
        let first = open(home.path());
        save(&first, 5, Some(4)).unwrap();
        save(&first, 6, Some(5)).unwrap();
        assert_eq!(numbers(&first), []);
    }
    let second = open(home.path());
    save(&second, 4, None).unwrap();
    assert_eq!(numbers(&second), [4]);
    // The number of a version that is not whole is free.
    save(&second, 5, Some(4)).unwrap();
    assert_eq!(numbers(&second), [4, 5]);
    assert_eq!(second.latest(None).unwrap(), Some(5));
}

/// Bytes of a large piece, which has a file of its own.
const LARGE: usize = 1_500_000;

/// A piece is written over a superseded one while superseded pieces are removed.
#[test]
fn a_piece_that_is_being_written_is_not_removed_with_the_one_before_it() {
    type Removal = fn(&Repository);
    let removals: [Removal; 3] = [
        |repository| repository.remove_superseded().unwrap(),
        |repository| repository.remove(&[999].into()).unwrap(),
        |repository| drop(repository.prune(&Retention::newest(1)).unwrap()),
    ];
    for remove in removals {
        let home = fast_home();
        let first = open(home.path());
        (5..7).for_each(|version| save(&first, version, LARGE));
        drop(first);
        let faults = Arc::<Faults>::default();
        let second = faults.during(|| open(home.path()));
        second.supersede(&identities(&second, &[6])).unwrap();
        let file = histories::path_of(home.path(), 6);
        let length = || std::fs::metadata(&file).map_or(0, |of| of.len());
        let before = length();
        faults.hold(Some(home.path()));
        std::thread::scope(|scope| {
            let saving = scope.spawn(|| save(&second, 6, 2 * LARGE));
            // The file has its name, and the save has not returned.
            while length() <= before {
                std::thread::yield_now();
            }
            remove(&second);
            faults.hold(None);
            saving.join().unwrap();
        });
        drop(second);
        histories::version_of(&open(home.path()), 6, 2 * LARGE);
    }
}

#[test]
fn a_note_stays_of_what_cannot_be_read_while_it_is_written_anew() {
    let home = fast_home();
    let first = open(home.path());
    for (version, length) in [(3, 300), (4, LARGE), (5, 300)] {
        save(&first, version, length);
    }
    first.supersede(&identities(&first, &[4])).unwrap();
    drop(first);
    let (file, away) = (histories::path_of(home.path(), 4), home.path().join("away"));
    std::fs::rename(&file, &away).unwrap();
    std::fs::create_dir(&file).unwrap();
    let second = open(home.path());
    second.supersede(&identities(&second, &[3])).unwrap();
    drop(second);
    std::fs::remove_dir(&file).unwrap();
    std::fs::rename(&away, &file).unwrap();
    assert_eq!(numbers(&open(home.path())), [5]);
}

#[test]
fn a_copy_that_cannot_be_made_to_last_leaves_the_piece_that_it_was_to_replace() {
    let (home, elsewhere) = (fast_home(), fast_home());
    save(&open(home.path()), 7, LARGE);
    // The piece is of a later run.
    save(&open(elsewhere.path()), 1, 300);
    let newer = open(elsewhere.path());
    save(&newer, 7, 2 * LARGE);
    let faults = Arc::<Faults>::default();
    let target = faults.during(|| open(home.path()));
    // The run has left its mark.
    save(&target, 9, 300);
    faults.syncs_fail.store(true, Relaxed);
    let piece = newer.piece(7).unwrap();
    assert!(target.copy(&piece).is_err());
    histories::version_of(&target, 7, LARGE);
    faults.syncs_fail.store(false, Relaxed);
    target.copy(&piece).unwrap();
    drop(target);
    histories::version_of(&open(home.path()), 7, 2 * LARGE);
}

/// Runs `change`, and lets the synchronisation of the first name fail that it gives.
fn without_a_last_sync<R: Send>(
    faults: &Faults,
    home: &Path,
    change: impl FnOnce() -> R + Send,
) -> R {
    let before = faults.held_back.load(Relaxed);
    faults.hold(Some(home));
    let changed = std::thread::scope(|scope| {
        let changing = scope.spawn(change);
        while faults.held_back.load(Relaxed) == before {
            assert!(!changing.is_finished());
            std::thread::yield_now();
        }
        faults.syncs_fail.store(true, Relaxed);
        faults.hold(None);
        changing.join().unwrap()
    });
    faults.syncs_fail.store(false, Relaxed);
    changed
}

#[test]
fn a_copy_whose_name_cannot_be_made_to_last_leaves_the_piece_that_it_was_to_replace() {
    let (home, elsewhere) = (fast_home(), fast_home());
    save(&open(home.path()), 7, LARGE);
    save(&open(elsewhere.path()), 1, 300);
    let newer = open(elsewhere.path());
    save(&newer, 7, 2 * LARGE);
    let faults = Arc::<Faults>::default();
    let target = faults.during(|| open(home.path()));
    save(&target, 9, 300);
    let piece = newer.piece(7).unwrap();
    let copied = without_a_last_sync(&faults, home.path(), || target.copy(&piece));
    assert!(matches!(copied, Err(Error::File { .. })), "{copied:?}");
    histories::version_of(&target, 7, LARGE);
    histories::version_of(&reader(home.path()), 7, LARGE);
    target.copy(&piece).unwrap();
    drop(target);
    histories::version_of(&open(home.path()), 7, 2 * LARGE);
}

#[test]
fn a_note_whose_name_cannot_be_made_to_last_is_not_read() {
    let home = fast_home();
    let faults = Arc::<Faults>::default();
    let writer = faults.during(|| open(home.path()));
    (3..6).for_each(|version| save(&writer, version, 300));
    for noted in [3, 4] {
        let pieces = identities(&writer, &[noted]);
        let before = numbers(&writer);
        let failed = without_a_last_sync(&faults, home.path(), || writer.supersede(&pieces));
        assert!(matches!(failed, Err(Error::File { .. })), "{failed:?}");
        let reader = reader(home.path());
        assert_eq!(numbers(&reader), before);
        writer.supersede(&pieces).unwrap();
    }
    assert_eq!(numbers(&writer), [5]);
}

/// The note is replaced while a reader reads it. Failing reads are tried again a little later, which gives the test time to replace the note.
#[test]
fn a_piece_that_was_noted_is_not_listed_while_the_note_is_replaced() {
    let home = fast_home();
    let writer = open(home.path());
    (0..4).for_each(|version| save(&writer, version, 300));
    writer.supersede(&identities(&writer, &[1, 3])).unwrap();
    let note = home.path().join("rank-0/superseded.note");
    let (bytes, new) = (std::fs::read(&note).unwrap(), home.path().join("new"));
    let (is_over, replaced) = (AtomicBool::new(false), AtomicU64::new(0));
    /// Ends the other thread when it is dropped, also after a panic.
    struct End<'e>(&'e AtomicBool);
    impl Drop for End<'_> {
        fn drop(&mut self) {
            self.0.store(true, Relaxed);
        }
    }
    std::thread::scope(|scope| {
        let end = End(&is_over);
        let replacing = scope.spawn(|| {
            while !is_over.load(Relaxed) {
                std::fs::write(&new, &bytes).unwrap();
                std::fs::rename(&new, &note).unwrap();
                replaced.fetch_add(1, Relaxed);
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
        });
        let looks: Vec<_> = (0..12)
            .map(|good| {
                let faults = Arc::<Faults>::default();
                let reader = faults.during(|| reader(home.path()));
                let before = replaced.load(Relaxed);
                while replaced.load(Relaxed) < before + 2 {
                    assert!(!replacing.is_finished());
                    std::thread::yield_now();
                }
                faults.good_reads.store(good, Relaxed);
                faults.bad_reads.store(2, Relaxed);
                numbers(&reader)
            })
            .collect();
        drop(end);
        assert_eq!(looks, vec![[0, 2]; 12]);
    });
}
