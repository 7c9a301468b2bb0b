//! Directories in format 1 stay readable. A new run can take them over, and replace their versions.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod histories;

use histories::{bytes_of, save, version_of};
use std::path::Path;
use tierflow_store::{Options, Repository};

/// Versions and their lengths: packed ones, one in its own file, and a difference. Versions 4 to 6 are in a segment that was not closed.
const ALONE: [(u64, usize); 6] = [(1, 300), (2, 700), (3, 6_001), (4, 300), (5, 3_000), (6, 0)];

/// Returns a copy of a golden directory that the test may write.
fn copied(name: &str) -> tempfile::TempDir {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let home = tempfile::tempdir().unwrap();
    for rank in std::fs::read_dir(golden.join(name)).unwrap() {
        let rank = rank.unwrap();
        let to = home.path().join(rank.file_name());
        std::fs::create_dir(&to).unwrap();
        for file in std::fs::read_dir(rank.path()).unwrap() {
            let file = file.unwrap();
            std::fs::copy(file.path(), to.join(file.file_name())).unwrap();
        }
    }
    home
}

fn check(repository: &Repository) {
    let versions = repository.versions().unwrap();
    let numbers: Vec<u64> = versions.iter().map(|info| info.version).collect();
    assert_eq!(numbers, ALONE.map(|(version, _)| version));
    assert_eq!(versions[4].base, Some(4));
    for (version, length) in ALONE {
        version_of(repository, version, length);
    }
    assert_eq!(repository.scrub(None, &|_, _| {}).unwrap().damage, []);
}

#[test]
fn one_rank() {
    let home = copied("alone");
    check(&Repository::read_only(home.path(), Options::default()).unwrap());
    for _ in 0..2 {
        check(&Repository::open(home.path(), Options::default()).unwrap());
    }
    let repository = Repository::open(home.path(), Options::default()).unwrap();
    let old = repository.own_piece(3).unwrap();
    assert_eq!(old.head().epoch, 0);
    save(&repository, 7, 100);
    assert_eq!(repository.own_piece(7).unwrap().head().epoch, 1);
    // The copy of a piece has the same bytes.
    let other = tempfile::tempdir().unwrap();
    let other = Repository::open(other.path(), Options::default()).unwrap();
    for _ in 0..2 {
        other.copy(&old).unwrap();
    }
    version_of(&other, 3, 6_001);
    assert_eq!(other.own_pieces().unwrap()[0].identity.run, 7);
}

#[test]
fn a_group() {
    let home = copied("group");
    let repository = Repository::open(home.path(), Options::default().rank(1, 2)).unwrap();
    assert_eq!(repository.latest(None).unwrap(), Some(9));
    for rank in 0..2 {
        let piece = repository.piece_of(9, rank).unwrap();
        assert!(piece.read("state").unwrap() == bytes_of(9, 100));
    }
}

#[test]
fn a_flipped_bit_anywhere_in_an_open_segment_costs_one_version_and_is_said() {
    let home = copied("alone");
    let segment = home.path().join("rank-0/s00000000000000000002.open");
    let whole = std::fs::read(&segment).unwrap();
    let end = whole.iter().rposition(|byte| *byte != 0).unwrap();
    for at in 0..=end {
        let mut bytes = whole.clone();
        bytes[at] ^= 1 << (at % 8);
        std::fs::write(&segment, &bytes).unwrap();
        let repository = Repository::read_only(home.path(), Options::default()).unwrap();
        let there = |version: u64| repository.own_piece(version).and_then(|p| p.read("state"));
        let lost = (4..=6).filter(|version| there(*version).is_err()).count();
        assert!(lost <= 1, "byte {at}: {lost} versions");
        assert!(!repository.damage().is_empty(), "byte {at}");
    }
}
