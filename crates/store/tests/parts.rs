//! Tests of reads of parts of regions, such as rows of an array.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod histories;

use histories::{bytes_of, save};
use tierflow_store::{Error, Options, Region, Repository, Snapshot};

const LARGE: usize = 5_000_001;

#[test]
fn parts_of_a_region_come_back_alone() {
    let directory = tempfile::tempdir().unwrap();
    let repository = Repository::open(directory.path(), Options::default()).unwrap();
    for (version, length) in [(1, 1000), (2, LARGE)] {
        save(&repository, version, length);
        let piece = repository.piece(version).unwrap();
        let name = piece.regions()[0].name.clone();
        let whole = piece.read(&name).unwrap();
        let (mut end, mut start, mut middle) = (vec![0; 100], vec![0; 7], vec![0; length / 2]);
        let mut parts = [
            ((length - 100) as u64, end.as_mut_slice()),
            (0, start.as_mut_slice()),
            (50, &mut []),
            (11, middle.as_mut_slice()),
        ];
        piece.restore_parts(&name, &mut parts).unwrap();
        assert!(end == whole[length - 100..] && start == whole[..7]);
        assert!(middle == whole[11..11 + length / 2]);
        for (offset, other) in [(3, 0), (length as u64 - 3, 0), (u64::MAX, 0), (0, 9)] {
            let (mut one, mut two) = ([0; 5], [0; 4]);
            let mut parts = [(offset, one.as_mut_slice()), (other + 4, &mut two)];
            let error = piece.restore_parts(&name, &mut parts);
            let fits = offset == 0 && other == 9;
            assert_eq!(matches!(error, Err(Error::Argument(_))), !fits, "{offset}");
        }
    }
}

#[test]
fn parts_of_all_regions_come_back_as_if_they_were_one() {
    let directory = tempfile::tempdir().unwrap();
    let repository = Repository::open(directory.path(), Options::default()).unwrap();
    let contents = [1_000, 0, 1 << 20, 1, LARGE].map(|length| bytes_of(length as u64, length));
    let names = ["a", "b", "c", "d", "e"];
    let regions = names.iter().zip(&contents);
    let regions: Vec<_> = regions
        .map(|(name, bytes)| Region::new(name, bytes))
        .collect();
    let snapshot = Snapshot::new(1, &regions);
    repository.save(&snapshot).unwrap();
    let piece = repository.piece(1).unwrap();
    let all = contents.concat();
    let mut word = 1_u64;
    for _ in 0..50 {
        // Four cuts make two parts with a gap, from right to left.
        let mut cuts = [0; 4].map(|_| {
            word = word.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(1);
            (word >> 33) as usize % (all.len() + 1)
        });
        cuts.sort_unstable();
        let [a, b, c, d] = cuts;
        let (mut left, mut right) = (vec![0; b - a], vec![0; d - c]);
        let mut parts = [(c as u64, right.as_mut_slice()), (a as u64, &mut left)];
        piece.restore_range_parts(&mut parts).unwrap();
        assert!(left == all[a..b] && right == all[c..d], "{cuts:?}");
    }
    let mut beyond = [0; 2];
    let mut parts = [(all.len() as u64 - 1, beyond.as_mut_slice())];
    let error = piece.restore_range_parts(&mut parts);
    assert!(matches!(error, Err(Error::Argument(_))));
}

#[test]
fn a_region_that_is_asked_for_twice_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let repository = Repository::open(directory.path(), Options::default()).unwrap();
    for (version, length) in [(1, 1000), (2, LARGE)] {
        save(&repository, version, length);
        let piece = repository.piece(version).unwrap();
        let name = piece.regions()[0].name.as_str();
        let (mut one, mut two) = (vec![0; length], vec![0; length]);
        let error = piece.restore(&mut [(name, &mut one), (name, &mut two)]);
        assert!(matches!(error, Err(Error::Argument(_))), "{error:?}");
    }
}

#[test]
fn regions_longer_than_all_records_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let repository = Repository::open(directory.path(), Options::default()).unwrap();
    let pull = |_: u64, _: &mut [u8]| Ok(());
    let regions = [
        Region::new("a", b"bytes"),
        Region::pulled("b", u64::MAX - 100, &pull),
    ];
    let saved = repository.save(&Snapshot::new(1, &regions));
    assert!(matches!(saved, Err(Error::Argument(_))), "{saved:?}");
}
