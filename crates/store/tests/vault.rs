//! Tests of pieces that are pulled, pushed, copied from one repository to another, and removed by number.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

mod histories;

use histories::{bytes_of, path_of, save, version_of};
use std::collections::BTreeSet;
use tierflow_store::{Error, Options, Region, Repository, Snapshot, Vault};
use tierflow_testing::assert_matches;

const LARGE: usize = 9_000_001;

fn open(directory: &std::path::Path) -> Repository {
    Repository::open(directory, Options::default()).unwrap()
}

fn numbers(vault: &dyn Vault) -> Vec<u64> {
    let versions = vault.versions().unwrap();
    versions.into_iter().map(|info| info.version).collect()
}

#[test]
fn pulled_regions_are_saved_and_pushed_back() {
    let home = tempfile::tempdir().unwrap();
    let repository = open(home.path());
    for (version, length) in [(1, 0), (2, 5_000), (3, LARGE)] {
        let bytes = bytes_of(version, length);
        let pull = |at: u64, into: &mut [u8]| {
            into.copy_from_slice(&bytes[at as usize..at as usize + into.len()]);
            Ok(())
        };
        let regions = [
            Region::new("before", &bytes[..length / 3]),
            Region::pulled("state", length as u64, &pull),
        ];
        let snapshot = Snapshot::new(version, &regions);
        repository.save(&snapshot).unwrap();
        version_of(&repository, version, length);
        let mut pushed = Vec::new();
        let piece = repository.piece(version).unwrap();
        let mut push = |at: u64, bytes: &[u8]| {
            assert_eq!(at, pushed.len() as u64);
            pushed.extend_from_slice(bytes);
            Ok(())
        };
        piece.read_through("state", &mut push).unwrap();
        assert!(pushed == bytes);
    }
}

/// A read of a part of very many regions passes on each wanted byte once, with its place in the whole piece. Blocks without wanted bytes
/// are not read, so damage there does not matter.
#[test]
fn each_wanted_byte_of_many_regions_is_pushed_once() {
    const REGIONS: usize = 3_000;
    let home = tempfile::tempdir().unwrap();
    let repository = open(home.path());
    let all = bytes_of(1, LARGE);
    let names: Vec<String> = (0..REGIONS).map(|number| format!("r{number}")).collect();
    // Every seventh region is empty, and the last one has the rest.
    let (mut rest, mut regions) = (all.as_slice(), Vec::new());
    for (number, name) in names.iter().enumerate() {
        let length = match number {
            _ if number + 1 == REGIONS => rest.len(),
            _ if number % 7 == 0 => 0,
            _ => (1 + number * 37 % 6_000).min(rest.len()),
        };
        let (bytes, behind) = rest.split_at(length);
        regions.push(Region::new(name, bytes));
        rest = behind;
    }
    let snapshot = Snapshot::new(1, &regions);
    repository.save(&snapshot).unwrap();
    let piece = repository.piece(1).unwrap();
    let length = LARGE as u64;
    for wanted in [0..length, 0..1, 8_000_000..8_000_001, 3_000_000..6_500_000] {
        let mut pushed = vec![0_u8; LARGE];
        let wants =
            |range: std::ops::Range<u64>| range.start < wanted.end && wanted.start < range.end;
        let mut push = |at: u64, bytes: &[u8]| {
            assert!(wants(at..at + bytes.len() as u64), "{at} was not asked for");
            let at = at as usize;
            for (count, byte) in pushed[at..at + bytes.len()].iter_mut().zip(bytes) {
                assert_eq!(*count, 0, "a byte came twice");
                // The mark of a byte that came is never 0.
                *count = (byte >> 1) + 1;
            }
            Ok(())
        };
        piece.read_range_through(&wants, &mut push).unwrap();
        let range = wanted.start as usize..wanted.end as usize;
        let expected: Vec<u8> = all[range.clone()]
            .iter()
            .map(|byte| (byte >> 1) + 1)
            .collect();
        assert!(pushed[range] == expected, "{wanted:?}");
    }
    let refused = piece.read_range_through(&|_| true, &mut |_, _| Err(Error::Cancelled));
    assert!(matches!(refused, Err(Error::Cancelled)));

    // The last block of the file is damaged.
    let path = piece.path().to_owned();
    drop((piece, repository));
    let mut file = std::fs::read(&path).unwrap();
    let end = file.iter().rposition(|byte| *byte != 0).unwrap();
    file[end] ^= 1;
    std::fs::write(&path, file).unwrap();
    let piece = open(home.path()).piece(1).unwrap();
    let first = |range: std::ops::Range<u64>| range.start < 1_000_000;
    piece
        .read_range_through(&first, &mut |_, _| Ok(()))
        .unwrap();
    let damaged = piece.read_range_through(&|_| true, &mut |_, _| Ok(()));
    assert!(matches!(damaged, Err(Error::Damaged { .. })), "{damaged:?}");
}

#[test]
fn a_piece_that_cannot_be_pulled_is_not_published() {
    let home = tempfile::tempdir().unwrap();
    let repository = open(home.path());
    for length in [5_000, LARGE as u64] {
        let pull = |at: u64, _: &mut [u8]| match at {
            0 => Ok(()),
            _ => Err(Error::Region("the device is gone".to_owned())),
        };
        let none = |_: u64, _: &mut [u8]| Err(Error::Region("the device is gone".to_owned()));
        let regions = [
            Region::pulled("a", length, &pull),
            Region::pulled("b", length, &none),
        ];
        let snapshot = Snapshot::new(1, &regions);
        assert_matches!(repository.save(&snapshot), Err(Error::Region(_)));
        assert_eq!(numbers(&repository), []);
    }
    save(&repository, 1, 100);
    assert_eq!(numbers(&repository), [1]);
}

#[test]
fn a_copy_is_the_piece_itself() {
    let (near, far) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let lengths = [(1, 0), (2, 5_000), (3, LARGE), (4, 700_000)];
    let local = open(near.path());
    for (version, length) in lengths {
        save(&local, version, length);
    }
    let external = open(far.path());
    for _ in 0..2 {
        for (version, _) in lengths {
            external.copy(&local.own_piece(version).unwrap()).unwrap();
        }
    }
    let sums = |repository: &Repository, version| {
        let head = repository.piece(version).unwrap().head().clone();
        (head.blocks, head.created, head.regions)
    };
    for (version, length) in lengths {
        version_of(&external, version, length);
        assert_eq!(sums(&local, version), sums(&external, version));
    }
    // No piece is written twice.
    assert_eq!(external.scrub(None, &|_, _| {}).unwrap().pieces, 4);
    assert_eq!(external.damage(), []);
}

#[test]
fn a_damaged_piece_is_not_copied() {
    let (near, far) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let local = open(near.path());
    save(&local, 1, 100);
    save(&local, 2, LARGE);
    let path = path_of(near.path(), 2);
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[LARGE / 2] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let external = open(far.path());
    assert_matches!(
        external.copy(&local.own_piece(2).unwrap()),
        Err(Error::Damaged { path: named, older: Some(1), .. })
            if *named == path
    );
    assert_eq!(numbers(&external), []);
}

#[test]
fn copies_of_a_group_make_its_versions_whole() {
    let (near, far) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let local = |rank: u32| {
        // Each rank is on a host of its own.
        let directory = near.path().join(format!("host-{rank}"));
        Repository::open(directory, Options::default().rank(rank, 3).run(7)).unwrap()
    };
    let locals = [local(0), local(1), local(2)];
    for local in &locals {
        save(local, 5, 2_000);
        assert_eq!(numbers(local), [], "the others' pieces are elsewhere");
        assert_eq!(local.own_pieces().unwrap()[0].version, 5);
    }
    for (rank, local) in (0..).zip(&locals) {
        let options = Options::default().rank(rank, 3);
        let external = Repository::open(far.path(), options).unwrap();
        assert_eq!(numbers(&external), []);
        external.copy(&local.own_piece(5).unwrap()).unwrap();
    }
    let external = Repository::read_only(far.path(), Options::default()).unwrap();
    assert_eq!(numbers(&external), [5]);
    let wrong = Repository::open(far.path(), Options::default().rank(0, 2)).unwrap();
    let error = wrong.copy(&locals[0].own_piece(5).unwrap()).unwrap_err();
    assert!(matches!(error, Error::Argument(_)), "{error}");
}

#[test]
fn versions_are_removed_by_number_but_for_bases() {
    let home = tempfile::tempdir().unwrap();
    let repository = open(home.path());
    for version in 0..8 {
        save(
            &repository,
            version,
            if version % 2 == 0 { 100 } else { LARGE },
        );
    }
    let regions = [Region::new("difference", b"2 - 1")];
    let difference = Snapshot {
        version: 9,
        base: Some(2),
        regions: &regions,
    };
    repository.save(&difference).unwrap();
    let removed = BTreeSet::from([0, 1, 2, 5, 77]);
    repository.remove(&removed).unwrap();
    assert_eq!(numbers(&repository), [2, 3, 4, 6, 7, 9]);
    drop(repository);
    let repository = open(home.path());
    assert_eq!(numbers(&repository), [2, 3, 4, 6, 7, 9]);
    version_of(&repository, 4, 100);
    // The number of the removed version is free.
    save(&repository, 5, 300);
    version_of(&repository, 5, 300);
    repository.remove(&BTreeSet::from([2, 9])).unwrap();
    assert_eq!(numbers(&repository), [3, 4, 5, 6, 7]);
}

#[test]
fn a_file_is_written_over_only_when_no_process_reads_it() {
    use std::os::unix::fs::MetadataExt;
    let home = tempfile::tempdir().unwrap();
    let repository = open(home.path());
    let inode = |version| {
        std::fs::metadata(path_of(home.path(), version))
            .unwrap()
            .ino()
    };
    save(&repository, 1, LARGE);
    let (first, reader) = (inode(1), repository.piece(1).unwrap());
    save(&repository, 2, LARGE);
    let second = inode(2);
    repository.remove(&BTreeSet::from([1, 2])).unwrap();
    // Two files were given up. The one that a process still reads stays readable, and the other is overwritten.
    save(&repository, 3, LARGE - 100_000);
    save(&repository, 4, LARGE - 100_000);
    assert!([inode(3), inode(4)].contains(&second));
    assert!(![inode(3), inode(4)].contains(&first));
    assert!(reader.read("state").unwrap() == bytes_of(1, LARGE));
    for version in [3, 4] {
        version_of(&repository, version, LARGE - 100_000);
    }
    repository.remove(&BTreeSet::from([3, 4])).unwrap();
    drop(repository);
    let files = std::fs::read_dir(home.path().join("rank-0")).unwrap();
    let sizes = files.map(|file| file.unwrap().metadata().unwrap().len());
    assert_eq!(sizes.sum::<u64>(), 0, "the space is given back");
}

#[test]
fn readers_of_another_process_see_whole_versions_only() {
    let home = tempfile::tempdir().unwrap();
    let writer = open(home.path());
    save(&writer, 0, 2_000_000);
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let reader = Repository::read_only(home.path(), Options::default()).unwrap();
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    let Some(newest) = reader.latest(None).unwrap() else {
                        continue;
                    };
                    match reader.piece(newest).and_then(|piece| piece.read("state")) {
                        Ok(bytes) => assert!(bytes == bytes_of(newest, 2_000_000)),
                        // The writer removed this version meanwhile.
                        Err(Error::NoVersion { .. }) => {}
                        Err(error) => panic!("{error}"),
                    }
                    assert_eq!(reader.damage(), []);
                }
            });
        }
        for version in 1..150 {
            save(&writer, version, 2_000_000);
            writer.remove(&BTreeSet::from([version - 1])).unwrap();
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}

#[test]
fn a_reader_that_looks_while_a_write_is_under_way_sees_it_afterwards() {
    let home = tempfile::tempdir().unwrap();
    let writer = open(home.path());
    save(&writer, 0, 100);
    let reader = Repository::read_only(home.path(), Options::default()).unwrap();
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                reader.latest(None).unwrap();
                std::thread::sleep(std::time::Duration::from_micros(50));
            }
        });
        for version in 1..300 {
            save(&writer, version, 100);
            let seen = reader.own_piece(version).map(|piece| piece.version());
            if seen.is_err() {
                stop.store(true, std::sync::atomic::Ordering::Relaxed);
            }
            assert_eq!(seen.unwrap(), version);
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}
