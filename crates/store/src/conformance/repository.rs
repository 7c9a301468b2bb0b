//! The contract of a [`Repository`], whether its versions lie in a directory or in blobs. Each check panics if it fails.

#![allow(clippy::unwrap_used, reason = "a check fails by panicking")]

use super::pattern;
use crate::container::Element;
use crate::{Error, Options, Region, Repository, Result, Retention, Snapshot};
use std::fmt::Debug;
use std::sync::atomic::{AtomicU64, Ordering};

/// A place of versions. Empty at first.
pub trait Home: Debug + Sync {
    /// Opens the place for writing as one rank.
    ///
    /// # Errors
    /// As [`Repository::open`].
    fn open(&self, options: Options) -> Result<Repository>;

    /// Opens the place for reading.
    ///
    /// # Errors
    /// As [`Repository::read_only`].
    fn read(&self) -> Result<Repository>;

    /// Opens the place for writing as all ranks.
    ///
    /// # Errors
    /// As [`Repository::maintain`].
    fn maintain(&self) -> Result<Repository>;

    /// Changes bytes in rank 0's piece of a version. The piece is large, so it has its own file or blob.
    fn damage(&self, version: u64, how: &dyn Fn(&mut [u8]));

    /// Removes rank 0's piece of a version behind the repository's back. The piece is large, so it has its own file or blob.
    fn lose(&self, version: u64);
}

/// Length in bytes of a piece that lies in its own file, in several blocks.
const LARGE: usize = 5_000_001;

/// Makes a test of each check. `$home` is an expression that returns a [`Home`], empty at first.
#[macro_export]
macro_rules! repository_suite {
    ($home:expr) => {
        $crate::repository_suite!(@each $home,
            what_was_saved_comes_back_in_another_life,
            regions_keep_their_names_types_and_bytes,
            what_cannot_be_saved_is_refused_and_changes_nothing,
            a_version_counts_when_every_rank_has_its_piece,
            ranks_that_finish_together_complete_every_version,
            a_difference_stands_and_falls_with_its_base,
            a_difference_counts_once_its_base_is_there,
            saving_and_pruning_at_the_same_time_loses_nothing_that_is_kept,
            the_last_version_that_verifies_is_never_given_up,
            the_highest_number_is_found,
        );
    };
    (@each $home:expr, $($name:ident,)*) => {
        $(
            #[test]
            fn $name() {
                $crate::conformance::repository::$name(&$home);
            }
        )*
    };
}

/// Opens a home as the only rank.
fn open(home: &dyn Home) -> Repository {
    home.open(Options::default()).unwrap()
}

fn bytes_of(version: u64, length: usize) -> Vec<u8> {
    let seed = (version as usize).wrapping_add(1);
    (0..length).map(|at| pattern(seed, at)).collect()
}

fn snapshot<'a>(version: u64, base: Option<u64>, regions: &'a [Region<'a>]) -> Snapshot<'a> {
    Snapshot {
        version,
        base,
        regions,
    }
}

fn save(repository: &Repository, version: u64, length: usize) {
    let bytes = bytes_of(version, length);
    let regions = [Region::new("state", &bytes)];
    repository.save(&snapshot(version, None, &regions)).unwrap();
}

fn assert_holds(repository: &Repository, version: u64, length: usize) {
    let bytes = repository.piece(version).unwrap().read("state").unwrap();
    assert!(
        bytes == bytes_of(version, length),
        "version {version} is another"
    );
}

fn numbers(repository: &Repository) -> Vec<u64> {
    let versions = repository.versions().unwrap();
    versions.into_iter().map(|info| info.version).collect()
}

/// Checks that versions of several runs of the application come back in each later run.
pub fn what_was_saved_comes_back_in_another_life(home: &dyn Home) {
    let lengths = [0, 1, 4096, 100_000, LARGE];
    for life in 0..3_u64 {
        let repository = open(home);
        for (at, length) in lengths.into_iter().enumerate() {
            save(&repository, life * 10 + at as u64, length);
        }
        for version in 0..life * 10 {
            if version % 10 < 5 {
                assert_holds(&repository, version, lengths[(version % 10) as usize]);
            }
        }
    }
    let repository = home.read().unwrap();
    assert_eq!(numbers(&repository).len(), 15);
    assert_eq!(repository.latest(None).unwrap(), Some(24));
    assert_eq!(repository.latest(Some(20)).unwrap(), Some(14));
    assert_eq!(repository.latest(Some(0)).unwrap(), None);
    assert_holds(&repository, 24, LARGE);
    let scrubbed = repository.scrub(None, &|_, _| {}).unwrap();
    assert_eq!((scrubbed.pieces, scrubbed.damage), (15, vec![]));
}

/// Checks that regions come back under their names, with their shapes and types.
pub fn regions_keep_their_names_types_and_bytes(home: &dyn Home) {
    let repository = open(home);
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
        repository.save(&snapshot(version, None, &regions)).unwrap();
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

/// Checks that wrong names, shapes and bases, and numbers in use, are refused.
pub fn what_cannot_be_saved_is_refused_and_changes_nothing(home: &dyn Home) {
    let repository = open(home);
    save(&repository, 5, 10);
    let name = &"n".repeat(1025);
    let bytes = [0; 8];
    let cases: [(Option<u64>, &[Region<'_>]); 6] = [
        (None, &[Region::new("", &bytes)]),
        (None, &[Region::new(name, &bytes)]),
        (None, &[Region::new("a", &bytes), Region::new("a", &bytes)]),
        (None, &[Region::new("a", &bytes).array(Element::F64, &[2])]),
        (
            None,
            &[Region::new("a", &bytes).array(Element::Encoded, &[])],
        ),
        (Some(6), &[]),
    ];
    for (base, regions) in cases {
        let result = repository.save(&snapshot(6, base, regions));
        assert!(matches!(result, Err(Error::Argument(_))), "{result:?}");
    }
    let again = repository.save(&snapshot(5, None, &[]));
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

/// Checks that a version of a group counts once its last piece is there, and that pieces of two runs make no version.
pub fn a_version_counts_when_every_rank_has_its_piece(home: &dyn Home) {
    let open = |rank, run| {
        let options = Options::default().rank(rank, 3).run(run);
        home.open(options).unwrap()
    };
    let ranks = [0, 1, 2].map(|rank| open(rank, 7));
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
    let ranks = [0, 1, 2].map(|rank| open(rank, 8));
    save(&ranks[0], 3, 20);
    save(&ranks[1], 3, 20);
    assert_eq!(numbers(&ranks[1]), [1, 2]);
    save(&ranks[2], 3, 20);
    let reader = home.read().unwrap();
    assert_eq!(numbers(&reader), [1, 2, 3]);
    assert!(reader.piece_of(3, 2).unwrap().read("state").unwrap() == bytes_of(3, 20));
    let [.., third] = ranks;
    third.prune(&Retention::newest(1)).unwrap();
    assert_eq!(numbers(&reader), [3]);
}

/// Checks that ranks that save the same versions at the same time complete each of them.
pub fn ranks_that_finish_together_complete_every_version(home: &dyn Home) {
    std::thread::scope(|scope| {
        for rank in 0..4 {
            scope.spawn(move || {
                let repository = home.open(Options::default().rank(rank, 4)).unwrap();
                (0..30).for_each(|version| save(&repository, version, 2_000));
            });
        }
    });
    let reader = home.read().unwrap();
    assert_eq!(numbers(&reader), (0..30).collect::<Vec<_>>());
}

/// Checks that a retention keeps the bases of differences, and that differences do not count once their base is lost.
pub fn a_difference_stands_and_falls_with_its_base(home: &dyn Home) {
    let repository = open(home);
    let bytes = bytes_of(1, 2_000_000);
    let regions = [Region::new("state", &bytes)];
    for (version, base) in [(1, None), (2, Some(1)), (3, None), (4, Some(2)), (5, None)] {
        repository.save(&snapshot(version, base, &regions)).unwrap();
    }
    let pruned = repository.prune(&Retention::newest(2)).unwrap();
    assert_eq!(pruned.versions, [3]);
    assert!(pruned.bytes > 2_000_000);
    assert_eq!(numbers(&repository), [1, 2, 4, 5]);
    drop(repository);
    home.lose(2);
    assert_eq!(numbers(&open(home)), [1, 5]);
}

/// Checks that a difference that is saved before its base counts once the base is there.
pub fn a_difference_counts_once_its_base_is_there(home: &dyn Home) {
    let repository = open(home);
    let save = |version, base, length: u64| {
        let extent = [length];
        let regions = [Region::new("difference", b"little").array(Element::Encoded, &extent)];
        repository.save(&snapshot(version, base, &regions)).unwrap();
    };
    save(7, Some(5), 1 << 40);
    save(9, Some(7), 1 << 41);
    assert_eq!(numbers(&repository), [0; 0]);
    drop(home.read().unwrap());
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
    let read = repository.piece(9).unwrap().read("difference").unwrap();
    assert_eq!(read, b"little");
}

/// Checks that a retention beside a writer removes only the versions that its rule gives up.
pub fn saving_and_pruning_at_the_same_time_loses_nothing_that_is_kept(home: &dyn Home) {
    let repository = open(home);
    let newest = AtomicU64::new(0);
    let rule = Retention::newest(10).and_every(50);
    let length_of = |version: u64| match version.is_multiple_of(40) {
        true => LARGE,
        false => 4_096,
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for version in 1..=120 {
                save(&repository, version, length_of(version));
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
        assert_holds(&repository, version, length_of(version));
    }
}

/// Checks that a retention keeps the newest version that can be restored.
pub fn the_last_version_that_verifies_is_never_given_up(home: &dyn Home) {
    let repository = open(home);
    (1..=5).for_each(|version| save(&repository, version, LARGE));
    drop(repository);
    for version in [4, 5] {
        home.damage(version, &|bytes| bytes[LARGE / 2] ^= 1);
    }
    let rule = Retention::newest(1);
    let reader = home.read().unwrap();
    let planned = reader.would_prune(&rule).unwrap();
    assert_eq!(planned.versions, [1, 2, 4]);
    assert_eq!(numbers(&reader), [1, 2, 3, 4, 5], "nothing was done");
    let repository = home.maintain().unwrap();
    assert_eq!(repository.prune(&rule).unwrap(), planned);
    assert_eq!(numbers(&repository), [3, 5]);
    assert_holds(&repository, 3, LARGE);
    drop(repository);
    // Version 3 is removed once the rule keeps a sound version.
    let repository = open(home);
    save(&repository, 6, LARGE);
    repository.prune(&rule).unwrap();
    assert_eq!(numbers(&repository), [6]);
}

/// Checks that the highest possible number works as any other.
pub fn the_highest_number_is_found(home: &dyn Home) {
    let repository = open(home);
    save(&repository, 7, 10);
    save(&repository, u64::MAX, 10);
    assert_eq!(repository.latest(None).unwrap(), Some(u64::MAX));
    assert_eq!(repository.latest(Some(u64::MAX)).unwrap(), Some(7));
}
