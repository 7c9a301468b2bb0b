//! Tests of segments that a crash left open, with damage to each of their bytes. At most the version with the damaged byte is lost, the
//! damage is reported, and damaged bytes are not removed. With `TIERFLOW_FLIPS=1`, a new writer takes over after each damaged byte, and
//! by default after every 17th.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod histories;

use histories::{bytes_of, fast_home, save};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use tierflow_store::{Options, Region, Repository, Snapshot};

const VERSIONS: u64 = 6;

fn length_of(version: u64) -> usize {
    [40, 700, 4_000][version as usize % 3]
}

/// Makes a segment that was not closed, of six versions in five batches. Returns its directory, its path and its bytes.
fn left() -> (tempfile::TempDir, PathBuf, Vec<u8>) {
    let home = fast_home();
    let repository = Repository::open(home.path(), Options::default()).unwrap();
    (0..4).for_each(|version| save(&repository, version, length_of(version)));
    let bytes = [4, 5].map(|version| bytes_of(version, length_of(version)));
    let regions = bytes.each_ref().map(|bytes| [Region::new("state", bytes)]);
    let snapshot = |at: usize| Snapshot::new(at as u64 + 4, &regions[at]);
    repository.save_all(&[0, 1].map(snapshot)).unwrap();
    let segment = home.path().join("rank-0/s00000000000000000001.open");
    let mut whole = fs::read(&segment).unwrap();
    drop(repository);
    let end = whole.iter().rposition(|byte| *byte != 0).unwrap() + 1;
    whole.truncate(end.next_multiple_of(4096) + 4096);
    (home, segment, whole)
}

/// Puts the segment there as the only one.
fn put(home: &Path, segment: &Path, bytes: &[u8]) {
    for file in fs::read_dir(home.join("rank-0")).unwrap() {
        let path = file.unwrap().path();
        if path.file_name().unwrap() != "lock" {
            fs::remove_file(path).unwrap();
        }
    }
    fs::write(segment, bytes).unwrap();
}

/// Returns the number of versions that cannot be restored. Asserts that the others are right.
fn lost(repository: &Repository) -> u64 {
    let restored = |version: &u64| {
        let piece = repository.piece(*version);
        let Ok(bytes) = piece.and_then(|piece| piece.read("state")) else {
            return false;
        };
        assert!(bytes == bytes_of(*version, length_of(*version)));
        true
    };
    VERSIONS - (0..VERSIONS).filter(restored).count() as u64
}

#[test]
fn a_flipped_bit_anywhere_costs_one_version_at_most() {
    let (home, segment, whole) = left();
    let end = whole.iter().rposition(|byte| *byte != 0).unwrap() + 1;
    let end = end.next_multiple_of(4096);
    let step = tierflow_testing::variable("TIERFLOW_FLIPS", 17);
    for at in 0..end {
        let mut bytes = whole.clone();
        bytes[at] ^= 1 << (at % 8);
        put(home.path(), &segment, &bytes);
        let reader = Repository::read_only(home.path(), Options::default()).unwrap();
        let seen = lost(&reader);
        assert!(seen <= 1, "byte {at}: a reader misses {seen} versions");
        assert!(!reader.damage().is_empty(), "byte {at} is not said");
        if at % step > 0 {
            continue;
        }
        // The writer that takes over, and the next one.
        for life in 0..2 {
            let taken = Repository::open(home.path(), Options::default()).unwrap();
            assert_eq!(lost(&taken), seen, "byte {at}, life {life}");
            // Opening only reads. The first change closes the segment.
            assert_eq!(segment.exists(), life == 0, "byte {at}");
            taken.remove(&BTreeSet::new()).unwrap();
            assert_eq!(lost(&taken), seen, "byte {at}, life {life}, closed");
            assert!(life > 0 || !taken.damage().is_empty(), "byte {at}");
            assert!(!taken.scrub(None, &|_, _| {}).unwrap().damage.is_empty());
        }
        // The damaged bytes are still there.
        let closed = fs::read(segment.with_extension("tfs")).unwrap();
        assert!(closed[..end] == bytes[..end], "byte {at} was changed");
        if seen == 1 {
            let named = reader
                .damage()
                .iter()
                .any(|damage| damage.version.is_some());
            assert!(named, "byte {at}: the version is not named");
        }
    }
}

#[test]
fn records_that_were_never_finished_are_dropped_silently() {
    let (home, segment, whole) = left();
    let pages = whole.len() / 4096;
    for page in 0..pages {
        // All pages from this one on were not written.
        let mut cut = whole.clone();
        cut[page * 4096..].fill(0);
        put(home.path(), &segment, &cut);
        let reader = Repository::read_only(home.path(), Options::default()).unwrap();
        assert_eq!(reader.damage(), [], "page {page}");
        let seen = lost(&reader);
        let taken = Repository::open(home.path(), Options::default()).unwrap();
        assert_eq!(
            (lost(&taken), taken.damage()),
            (seen, vec![]),
            "page {page}"
        );
        save(&taken, 9, 100);
        drop(taken);
        let again = Repository::open(home.path(), Options::default()).unwrap();
        assert_eq!(again.scrub(None, &|_, _| {}).unwrap().damage, []);
        assert_eq!(again.latest(None).unwrap(), Some(9));
    }
}

#[test]
fn a_lost_page_in_the_middle_is_damage() {
    let (home, segment, whole) = left();
    let end = whole.iter().rposition(|byte| *byte != 0).unwrap() + 1;
    // The last page belongs to the last batch.
    for page in 0..end.div_ceil(4096) - 1 {
        let mut bytes = whole.clone();
        bytes[page * 4096..(page + 1) * 4096].fill(0);
        put(home.path(), &segment, &bytes);
        let taken = Repository::open(home.path(), Options::default()).unwrap();
        assert!(lost(&taken) <= 2, "page {page}: {}", lost(&taken));
        assert!(!taken.damage().is_empty(), "page {page}");
    }
}

#[test]
fn a_segment_beside_a_closed_one_of_its_number_is_not_lost() {
    let (home, segment, whole) = left();
    put(home.path(), &segment, &whole);
    let taken = Repository::open(home.path(), Options::default()).unwrap();
    taken.remove(&BTreeSet::new()).unwrap();
    drop(taken);
    // The closed segment has fewer records, as if a recovery stopped at damage.
    let closed = segment.with_extension("tfs");
    let repository = tempfile::tempdir().unwrap();
    {
        let one = Repository::open(repository.path(), Options::default()).unwrap();
        save(&one, 0, length_of(0));
    }
    let less = repository
        .path()
        .join("rank-0")
        .join(closed.file_name().unwrap());
    fs::copy(less, &closed).unwrap();
    fs::write(&segment, &whole).unwrap();
    let taken = Repository::open(home.path(), Options::default()).unwrap();
    assert_eq!((lost(&taken), taken.damage()), (0, vec![]));
    taken.remove(&BTreeSet::new()).unwrap();
    assert_eq!((lost(&taken), taken.damage()), (0, vec![]));
    drop(taken);
    // The open segment is removed if it has no other records.
    fs::write(&segment, &whole).unwrap();
    let taken = Repository::open(home.path(), Options::default()).unwrap();
    assert_eq!(lost(&taken), 0);
    taken.remove(&BTreeSet::new()).unwrap();
    assert_eq!(lost(&taken), 0);
    let names = fs::read_dir(home.path().join("rank-0")).unwrap();
    assert_eq!(names.count(), 2, "one segment with all and the lock");
}
