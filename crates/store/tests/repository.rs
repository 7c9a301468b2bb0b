//! What users of a repository rely on.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod histories;

use histories::{bytes_of, path_of, save, version_of};
use rustix::fs::FlockOperation;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tierflow_store::container::Element;
use tierflow_store::{Error, Options, Region, Repository, Retention, Snapshot};

const LARGE: usize = 5_000_001;

fn numbers(repository: &Repository) -> Vec<u64> {
    let versions = repository.versions().unwrap();
    versions.into_iter().map(|info| info.version).collect()
}

#[test]
fn what_was_saved_comes_back_in_another_life() {
    let directory = tempfile::tempdir().unwrap();
    let lengths = [0, 1, 4096, 100_000, LARGE];
    for life in 0..3_u64 {
        let repository = Repository::open(directory.path(), Options::default()).unwrap();
        for (at, length) in lengths.into_iter().enumerate() {
            save(&repository, life * 10 + at as u64, length);
        }
        for version in 0..life * 10 {
            if version % 10 < 5 {
                version_of(&repository, version, lengths[(version % 10) as usize]);
            }
        }
    }
    let repository = Repository::read_only(directory.path(), Options::default()).unwrap();
    assert_eq!(numbers(&repository).len(), 15);
    assert_eq!(repository.latest(None).unwrap(), Some(24));
    assert_eq!(repository.latest(Some(20)).unwrap(), Some(14));
    assert_eq!(repository.latest(Some(0)).unwrap(), None);
    version_of(&repository, 24, LARGE);
    let scrubbed = repository.scrub(None, &|_, _| {}).unwrap();
    assert_eq!((scrubbed.pieces, scrubbed.damage), (15, vec![]));
}

#[test]
fn regions_keep_their_names_types_and_bytes() {
    let directory = tempfile::tempdir().unwrap();
    let repository = Repository::open(directory.path(), Options::default()).unwrap();
    for (version, scale) in [(1, 1), (2, 1_000)] {
        let (grid, state) = (
            bytes_of(version, 24 * scale),
            bytes_of(version + 50, 7_777 * scale),
        );
        let shape = [2, 3, scale as u64];
        let regions = [
            Region::new("grid", &grid).array(Element::F32, &shape),
            Region::new("nothing", &[]),
            Region::new("state", &state),
        ];
        let snapshot = Snapshot {
            version,
            base: None,
            regions: &regions,
        };
        repository.save(&snapshot).unwrap();
        let piece = repository.piece(version).unwrap();
        assert_eq!(piece.regions()[0].shape, shape);
        assert_eq!(piece.regions()[0].element, Element::F32);
        let (mut first, mut last) = (vec![0; grid.len()], vec![0; state.len()]);
        piece
            .restore(&mut [
                ("state", &mut last),
                ("nothing", &mut []),
                ("grid", &mut first),
            ])
            .unwrap();
        assert!(first == grid && last == state);
        assert_eq!(piece.read("nothing").unwrap(), [0_u8; 0]);
        let wrong = piece.restore(&mut [("grid", &mut [0; 3])]);
        assert!(matches!(wrong, Err(Error::Argument(_))), "{wrong:?}");
        assert!(matches!(piece.read("grip"), Err(Error::Argument(_))));
    }
}

#[test]
fn what_cannot_be_saved_is_refused_and_changes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let repository = Repository::open(directory.path(), Options::default()).unwrap();
    save(&repository, 5, 10);
    let name = &"n".repeat(1025);
    let bytes = [0; 8];
    let cases: [(u64, Option<u64>, &[Region<'_>]); 6] = [
        (6, None, &[Region::new("", &bytes)]),
        (6, None, &[Region::new(name, &bytes)]),
        (
            6,
            None,
            &[Region::new("a", &bytes), Region::new("a", &bytes)],
        ),
        (
            6,
            None,
            &[Region::new("a", &bytes).array(Element::F64, &[2])],
        ),
        (
            6,
            None,
            &[Region::new("a", &bytes).array(Element::Encoded, &[])],
        ),
        (6, Some(6), &[]),
    ];
    for (version, base, regions) in cases {
        let result = repository.save(&Snapshot {
            version,
            base,
            regions,
        });
        assert!(matches!(result, Err(Error::Argument(_))), "{result:?}");
    }
    let again = repository.save(&Snapshot {
        version: 5,
        base: None,
        regions: &[],
    });
    assert!(
        matches!(again, Err(Error::Exists { version: 5 })),
        "{again:?}"
    );
    assert_eq!(numbers(&repository), [5]);
    let missing = repository.piece(7).unwrap_err();
    assert!(
        matches!(
            missing,
            Error::NoVersion {
                version: 7,
                older: Some(5)
            }
        ),
        "{missing}"
    );
    save(&repository, 6, 10);
}

#[test]
fn threads_share_commits() {
    let directory = tempfile::tempdir().unwrap();
    let repository = Repository::open(directory.path(), Options::default()).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let repository = &repository;
            scope.spawn(move || {
                for at in 0..50 {
                    save(repository, at * 8 + thread, 3_000);
                }
            });
        }
    });
    assert_eq!(numbers(&repository), (0..400).collect::<Vec<_>>());
    (0..400).for_each(|version| version_of(&repository, version, 3_000));
    drop(repository);
    let files = std::fs::read_dir(directory.path().join("rank-0")).unwrap();
    assert_eq!(
        files.count(),
        3,
        "one segment, the mark of the run, and the lock"
    );
}

#[test]
fn many_at_once_fill_several_segments() {
    let directory = tempfile::tempdir().unwrap();
    let bytes = bytes_of(0, 600_000);
    let regions = [Region::new("state", &bytes)];
    let snapshots: Vec<_> = (0..250)
        .map(|version| Snapshot {
            version,
            base: None,
            regions: &regions,
        })
        .collect();
    {
        let repository = Repository::open(directory.path(), Options::default()).unwrap();
        repository.save_all(&snapshots).unwrap();
    }
    let repository = Repository::open(directory.path(), Options::default()).unwrap();
    assert_eq!(numbers(&repository).len(), 250);
    assert!(repository.piece(249).unwrap().read("state").unwrap() == bytes);
    assert!(
        std::fs::read_dir(directory.path().join("rank-0"))
            .unwrap()
            .count()
            > 3
    );
    // What stays of a segment that loses records is written anew.
    repository
        .prune(&Retention::newest(1).and_every(50))
        .unwrap();
    drop(repository);
    let repository = Repository::open(directory.path(), Options::default()).unwrap();
    assert_eq!(numbers(&repository), [0, 50, 100, 150, 200, 249]);
    for version in numbers(&repository) {
        assert!(repository.piece(version).unwrap().read("state").unwrap() == bytes);
    }
    assert_eq!(repository.scrub(None, &|_, _| {}).unwrap().damage, []);
}

#[test]
fn a_version_counts_when_every_rank_has_its_piece() {
    let directory = tempfile::tempdir().unwrap();
    let open =
        |rank| Repository::open(directory.path(), Options::default().rank(rank, 3).run(7)).unwrap();
    let ranks = [open(0), open(1), open(2)];
    for (version, length) in [(1, 5_000), (2, LARGE)] {
        save(&ranks[1], version, length);
        save(&ranks[0], version, length + 1);
        assert!(!numbers(&ranks[0]).contains(&version));
        let missing = ranks[0].piece(version).unwrap_err();
        assert!(matches!(missing, Error::NoVersion { .. }), "{missing}");
        save(&ranks[2], version, length + 2);
        for repository in &ranks {
            assert!(numbers(repository).contains(&version));
            let other = repository.piece_of(version, 0).unwrap();
            assert!(other.read("state").unwrap() == bytes_of(version, length + 1));
        }
    }
    let [first, second, third] = ranks;
    save(&third, 3, 10);
    drop((first, second, third));
    // In the next run rank 2's piece of version 3 is an old one: it must not complete the new one.
    let open =
        |rank| Repository::open(directory.path(), Options::default().rank(rank, 3).run(8)).unwrap();
    let ranks = [open(0), open(1), open(2)];
    save(&ranks[0], 3, 20);
    save(&ranks[1], 3, 20);
    assert_eq!(numbers(&ranks[1]), [1, 2]);
    save(&ranks[2], 3, 20);
    let reader = Repository::read_only(directory.path(), Options::default()).unwrap();
    assert_eq!(numbers(&reader), [1, 2, 3]);
    assert!(reader.piece_of(3, 2).unwrap().read("state").unwrap() == bytes_of(3, 20));
    let [.., third] = ranks;
    third.prune(&Retention::newest(1)).unwrap();
    assert_eq!(numbers(&reader), [3]);
}

#[test]
fn ranks_that_finish_together_complete_every_version() {
    let directory = tempfile::tempdir().unwrap();
    std::thread::scope(|scope| {
        for rank in 0..4 {
            let path = directory.path();
            scope.spawn(move || {
                let repository = Repository::open(path, Options::default().rank(rank, 4)).unwrap();
                (0..30).for_each(|version| save(&repository, version, 2_000));
            });
        }
    });
    let reader = Repository::read_only(directory.path(), Options::default()).unwrap();
    assert_eq!(numbers(&reader), (0..30).collect::<Vec<_>>());
}

#[test]
fn a_difference_stands_and_falls_with_its_base() {
    let directory = tempfile::tempdir().unwrap();
    let repository = Repository::open(directory.path(), Options::default()).unwrap();
    let bytes = bytes_of(1, 2_000_000);
    let regions = [Region::new("state", &bytes)];
    for (version, base) in [(1, None), (2, Some(1)), (3, None), (4, Some(2)), (5, None)] {
        repository
            .save(&Snapshot {
                version,
                base,
                regions: &regions,
            })
            .unwrap();
    }
    let pruned = repository.prune(&Retention::newest(2)).unwrap();
    assert_eq!(pruned.versions, [3]);
    assert!(pruned.bytes > 2_000_000);
    assert_eq!(numbers(&repository), [1, 2, 4, 5]);
    drop(repository);
    std::fs::remove_file(path_of(directory.path(), 2)).unwrap();
    let repository = Repository::open(directory.path(), Options::default()).unwrap();
    assert_eq!(numbers(&repository), [1, 5]);
}

#[test]
fn a_difference_counts_once_its_base_is_there() {
    let directory = tempfile::tempdir().unwrap();
    let repository = Repository::open(directory.path(), Options::default()).unwrap();
    let save = |version, base, length: u64| {
        let extent = [length];
        let region = Region::new("difference", b"little").array(Element::Encoded, &extent);
        let regions = [region];
        repository
            .save(&Snapshot {
                version,
                base,
                regions: &regions,
            })
            .unwrap();
    };
    save(7, Some(5), 1 << 40);
    save(9, Some(7), 1 << 41);
    assert_eq!(numbers(&repository), [0; 0]);
    drop(Repository::read_only(directory.path(), Options::default()).unwrap());
    save(5, None, 77);
    let versions = repository.versions().unwrap();
    let seen = versions
        .iter()
        .map(|info| (info.version, info.base, info.bytes, info.decoded));
    assert_eq!(
        seen.collect::<Vec<_>>(),
        [
            (5, None, 6, Some(77)),
            (7, Some(5), 6, Some(1 << 40)),
            (9, Some(7), 6, Some(1 << 41))
        ]
    );
    assert_eq!(
        repository.piece(9).unwrap().read("difference").unwrap(),
        b"little"
    );
}

#[test]
fn a_second_writer_is_refused_and_a_reader_is_not() {
    let directory = tempfile::tempdir().unwrap();
    let repository = Repository::open(directory.path(), Options::default()).unwrap();
    save(&repository, 1, 100);
    let second = Repository::open(directory.path(), Options::default());
    assert!(matches!(second, Err(Error::Busy { .. })), "{second:?}");
    let maintained = Repository::maintain(directory.path(), Options::default());
    assert!(
        matches!(maintained, Err(Error::Busy { .. })),
        "{maintained:?}"
    );
    let reader = Repository::read_only(directory.path(), Options::default()).unwrap();
    version_of(&reader, 1, 100);
    // What is saved while it is open appears, too.
    save(&repository, 2, 100);
    save(&repository, 3, LARGE);
    assert_eq!(numbers(&reader), [1, 2, 3]);
    let error = reader.save(&Snapshot {
        version: 9,
        base: None,
        regions: &[],
    });
    assert!(matches!(error, Err(Error::Argument(_))), "{error:?}");
    drop(repository);
    version_of(&reader, 2, 100);
    // The lock is on the file, not by its name.
    let lock = std::fs::File::open(directory.path().join("rank-0/lock")).unwrap();
    rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).unwrap();
    let second = Repository::open(directory.path(), Options::default());
    assert!(matches!(second, Err(Error::Busy { .. })), "{second:?}");
}

#[test]
fn planted_links_and_odd_files_are_refused() {
    let elsewhere = tempfile::tempdir().unwrap();
    let target = elsewhere.path().join("precious");
    std::fs::write(&target, b"precious").unwrap();
    let plant = |name: &str| {
        let directory = tempfile::tempdir().unwrap();
        drop(Repository::open(directory.path(), Options::default()).unwrap());
        let path = directory.path().join(name);
        let _was_there =
            std::fs::remove_file(&path).is_ok() || std::fs::remove_dir_all(&path).is_ok();
        std::os::unix::fs::symlink(&target, &path).unwrap();
        directory
    };
    for name in ["rank-0", "rank-0/lock"] {
        let directory = plant(name);
        let error = Repository::open(directory.path(), Options::default()).unwrap_err();
        assert!(matches!(error, Error::Refused { .. }), "{name}: {error}");
    }
    // What lies beside it is used, and it is named.
    let directory = plant("rank-0/s00000000000000000001.open");
    let repository = Repository::open(directory.path(), Options::default()).unwrap();
    assert_eq!(repository.damage()[0].what, "it is no plain file");
    save(&repository, 1, 100);
    drop(repository);
    let repository = Repository::open(directory.path(), Options::default()).unwrap();
    assert_eq!(numbers(&repository), [1]);
    // Where a file of ours is to be made, and where one is only read.
    let directory = plant("rank-0/v00000000000000000001.tmp");
    let repository = Repository::open(directory.path(), Options::default()).unwrap();
    save(&repository, 1, LARGE);
    version_of(&repository, 1, LARGE);
    let directory = plant("rank-0/v00000000000000000001.tfc");
    let repository = Repository::open(directory.path(), Options::default()).unwrap();
    assert_eq!(numbers(&repository), []);
    assert_eq!(repository.damage()[0].what, "it is no plain file");
    assert_eq!(std::fs::read(&target).unwrap(), b"precious");
    // Directories in which every user may put files.
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(directory.path().join("rank-0"), open).unwrap();
    drop(repository);
    let error = Repository::open(directory.path(), Options::default()).unwrap_err();
    assert!(
        error.to_string().contains("every user may write there"),
        "{error}"
    );
}

#[test]
fn a_directory_that_vanishes_is_said_to_have() {
    let directory = tempfile::tempdir().unwrap();
    let repository = Repository::open(directory.path(), Options::default()).unwrap();
    save(&repository, 1, 100);
    let path = directory.path().to_owned();
    directory.close().unwrap();
    // Its successor is not taken for it.
    std::fs::create_dir_all(path.join("rank-0")).unwrap();
    for length in [100, LARGE] {
        let bytes = vec![0; length];
        let regions = [Region::new("state", &bytes)];
        let result = repository.save(&Snapshot {
            version: 2,
            base: None,
            regions: &regions,
        });
        assert!(matches!(result, Err(Error::Vanished { .. })), "{result:?}");
    }
    assert!(matches!(repository.versions(), Err(Error::Vanished { .. })));
    drop(repository);
    assert_eq!(std::fs::read_dir(path.join("rank-0")).unwrap().count(), 0);
    std::fs::remove_dir_all(&path).unwrap();
    let missing = Repository::read_only(&path, Options::default());
    assert!(matches!(missing, Err(Error::Open { .. })), "{missing:?}");
}

#[test]
fn names_that_are_not_ours_are_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::create_dir(directory.path().join("rank-00")).unwrap();
    drop(Repository::open(directory.path(), Options::default()).unwrap());
    let names = [
        "v1.tfc",
        "v00000000000000000001.tfc.bak",
        "notes.tmp",
        "s99999999999999999999.tfs",
        "é0000000000000000001.tfc",
    ];
    for name in names {
        std::fs::write(directory.path().join("rank-0").join(name), b"mine").unwrap();
    }
    let repository = Repository::open(directory.path(), Options::default()).unwrap();
    save(&repository, 1, 10);
    save(&repository, 2, LARGE);
    repository.prune(&Retention::newest(1)).unwrap();
    assert_eq!(numbers(&repository), [2]);
    for name in names {
        assert_eq!(
            std::fs::read(directory.path().join("rank-0").join(name)).unwrap(),
            b"mine"
        );
    }
}

#[test]
fn saving_and_pruning_at_the_same_time_loses_nothing_that_is_kept() {
    let directory = tempfile::tempdir().unwrap();
    let repository = Arc::new(Repository::open(directory.path(), Options::default()).unwrap());
    let newest = AtomicU64::new(0);
    let rule = Retention::newest(10).and_every(50);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for version in 1..=120 {
                save(
                    &repository,
                    version,
                    if version % 40 == 0 { LARGE } else { 4_096 },
                );
                newest.store(version, Ordering::SeqCst);
            }
        });
        scope.spawn(|| {
            let mut seen = 0;
            while seen < 120 {
                while newest.load(Ordering::SeqCst) < seen + 5 {
                    std::thread::yield_now();
                }
                seen += 5;
                repository.prune(&rule).unwrap();
            }
        });
    });
    repository.prune(&rule).unwrap();
    let expected: Vec<u64> = [50, 100].into_iter().chain(111..=120).collect();
    assert_eq!(numbers(&repository), expected);
    for version in expected {
        version_of(
            &repository,
            version,
            if version % 40 == 0 { LARGE } else { 4_096 },
        );
    }
}
