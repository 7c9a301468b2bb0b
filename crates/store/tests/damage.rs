//! Damage to files is found and named, and an older version is offered.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

mod histories;

use histories::{path_of, save, version_of};
use std::path::{Path, PathBuf};
use tierflow_store::{Error, Options, Region, Repository, Snapshot};

/// Makes a repository of three small versions. Returns its directory and its only segment.
fn small() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let repository = Repository::open(directory.path(), Options::default()).unwrap();
    let bytes = [1, 2, 3].map(|version| histories::bytes_of(version, 300));
    let regions = bytes.each_ref().map(|bytes| [Region::new("state", bytes)]);
    let snapshot = |at: usize| Snapshot::new(at as u64 + 1, &regions[at]);
    repository.save_all(&[0, 1, 2].map(snapshot)).unwrap();
    drop(repository);
    let segment = directory.path().join("rank-0/s00000000000000000001.tfs");
    (directory, segment)
}

fn listed(directory: &Path) -> (Repository, Vec<u64>) {
    let repository = Repository::read_only(directory, Options::default()).unwrap();
    let versions = repository.versions().unwrap();
    let versions = versions.into_iter().map(|info| info.version).collect();
    (repository, versions)
}

/// Asserts that each listed version is right or damaged. Returns the number of right ones.
fn right_ones(repository: &Repository, versions: &[u64]) -> usize {
    let mut right = 0;
    for version in versions {
        match repository
            .piece(*version)
            .and_then(|piece| piece.read("state"))
        {
            Ok(bytes) => {
                assert!(
                    bytes == histories::bytes_of(*version, 300),
                    "version {version}"
                );
                right += 1;
            }
            Err(Error::Damaged { path, older, .. }) => {
                assert!(path.exists());
                assert_eq!(
                    older,
                    versions.iter().copied().filter(|v| v < version).max()
                );
            }
            Err(error) => panic!("{error}"),
        }
    }
    right
}

#[test]
fn a_flipped_bit_anywhere_is_found() {
    let (directory, segment) = small();
    let whole = std::fs::read(&segment).unwrap();
    for at in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 1 << (at % 8);
        std::fs::write(&segment, &bytes).unwrap();
        let (repository, versions) = listed(directory.path());
        assert!(
            right_ones(&repository, &versions) >= 2,
            "byte {at} hits more than one version"
        );
        let damage = repository.scrub(None, &|_, _| {}).unwrap().damage;
        assert!(
            damage.iter().any(|d| d.path == segment),
            "byte {at}: {damage:?}"
        );
    }
}

#[test]
fn a_file_cut_off_anywhere_is_found() {
    let (directory, segment) = small();
    let whole = std::fs::read(&segment).unwrap();
    for length in 0..whole.len() {
        std::fs::write(&segment, &whole[..length]).unwrap();
        let (repository, versions) = listed(directory.path());
        right_ones(&repository, &versions);
        let damage = repository.scrub(None, &|_, _| {}).unwrap().damage;
        assert!(!damage.is_empty(), "{length} bytes");
    }
}

#[test]
fn a_segment_that_was_not_closed_may_end_anywhere() {
    let (directory, segment) = small();
    let whole = std::fs::read(&segment).unwrap();
    let open = segment.with_extension("open");
    std::fs::remove_file(&segment).unwrap();
    let mut most = [0; 2];
    for length in (0..whole.len()).step_by(64) {
        // The segment is cut off, or cut off and followed by reserved bytes that were never written.
        for (kind, tail) in [0, 3 * 4096].into_iter().enumerate() {
            let mut bytes = whole[..length].to_vec();
            bytes.resize(
                (length + tail).next_multiple_of(if tail > 0 { 4096 } else { 1 }),
                0,
            );
            std::fs::write(&open, bytes).unwrap();
            let (repository, versions) = listed(directory.path());
            assert_eq!(
                right_ones(&repository, &versions),
                versions.len(),
                "none is torn"
            );
            assert_eq!(versions, (1..=versions.len() as u64).collect::<Vec<_>>());
            assert!(versions.len() >= most[kind], "what was there stays");
            most[kind] = versions.len();
            // The next process finds the same.
            let taken = Repository::open(directory.path(), Options::default()).unwrap();
            assert_eq!(taken.versions().unwrap().len(), versions.len());
            assert_eq!(taken.scrub(None, &|_, _| {}).unwrap().damage, []);
            // The first change of the directory closes the segment that a crash left.
            taken.remove(&[99].into()).unwrap();
            drop(taken);
            assert!(!open.exists(), "{length} bytes: it is closed");
            let _gone = std::fs::remove_file(&segment);
        }
    }
    assert_eq!(most, [3, 3]);
}

#[test]
fn a_large_file_is_checked_block_by_block() {
    const LENGTH: usize = 2_500_000;
    let directory = tempfile::tempdir().unwrap();
    let repository = Repository::open(directory.path(), Options::default()).unwrap();
    (1..=2).for_each(|version| save(&repository, version, LENGTH));
    drop(repository);
    let path = path_of(directory.path(), 2);
    let whole = std::fs::read(&path).unwrap();
    for at in [
        0,
        9,
        70,
        100,
        200,
        300,
        4_095,
        4_096,
        1_500_000,
        4_096 + LENGTH,
        whole.len() - 1,
    ] {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x40;
        std::fs::write(&path, &bytes).unwrap();
        let (repository, _) = listed(directory.path());
        let error = repository
            .piece(2)
            .and_then(|piece| piece.read("state"))
            .unwrap_err();
        assert!(
            matches!(error, Error::Damaged { older: Some(1), .. }),
            "byte {at}: {error}"
        );
        assert!(
            error
                .to_string()
                .contains("version 1 is the newest older one"),
            "{error}"
        );
        version_of(&repository, 1, LENGTH);
        assert!(
            !repository
                .scrub(None, &|_, _| {})
                .unwrap()
                .damage
                .is_empty(),
            "byte {at}"
        );
    }
    for length in (0..whole.len()).step_by(499_979).chain([whole.len() - 1]) {
        std::fs::write(&path, &whole[..length]).unwrap();
        let (repository, versions) = listed(directory.path());
        assert_eq!(versions, [1], "{length} bytes");
        let damage = repository.damage();
        assert_eq!((damage[0].version, &damage[0].path), (Some(2), &path));
    }
}

#[test]
fn a_file_under_another_versions_name_is_not_that_version() {
    let directory = tempfile::tempdir().unwrap();
    let repository = Repository::open(directory.path(), Options::default()).unwrap();
    (1..=2).for_each(|version| save(&repository, version, 2_000_000));
    drop(repository);
    std::fs::rename(path_of(directory.path(), 1), path_of(directory.path(), 3)).unwrap();
    let (repository, versions) = listed(directory.path());
    assert_eq!(versions, [2]);
    assert_eq!(repository.damage()[0].version, Some(3));
}

#[test]
fn a_file_of_another_rank_is_damage() {
    let home = tempfile::tempdir().unwrap();
    for rank in 0..2 {
        let options = Options::default().rank(rank, 2).run(1);
        let repository = Repository::open(home.path(), options).unwrap();
        // A file of its own, and a segment.
        for (version, length) in [(1, 9_000_000), (2, 300)] {
            let bytes = histories::bytes_of(u64::from(rank), length);
            let regions = [Region::new("state", &bytes)];
            repository.save(&Snapshot::new(version, &regions)).unwrap();
        }
    }
    let sound = Repository::read_only(home.path(), Options::default().rank(1, 2)).unwrap();
    assert_eq!(
        (sound.own_pieces().unwrap().len(), sound.damage()),
        (2, Vec::new())
    );
    let [own, others] = ["rank-0", "rank-1"].map(|rank| home.path().join(rank));
    for name in ["v00000000000000000001.tfc", "s00000000000000000001.tfs"] {
        std::fs::copy(others.join(name), own.join(name)).unwrap();
        let options = Options::default().rank(0, 2);
        let repository = Repository::read_only(home.path(), options).unwrap();
        let damage = repository.damage();
        assert!(
            damage.iter().any(|d| d.path == own.join(name)),
            "{damage:?}"
        );
        for (version, length) in [(1, 9_000_000), (2, 300)] {
            if let Ok(piece) = repository.own_piece(version) {
                let bytes = piece.read("state").unwrap();
                assert!(bytes == histories::bytes_of(0, length), "version {version}");
            }
        }
    }
}
