//! Tests of the behaviour of a repository that its users rely on.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod histories;

use histories::{bytes_of, path_of, save, version_of};
use rustix::fs::FlockOperation;
use tierflow_store::conformance::Home;
use tierflow_store::{Error, Options, Region, Repository, Retention, Snapshot};
use tierflow_testing::assert_matches;

const LARGE: usize = 5_000_001;

/// A place for a repository: a directory that is empty at first.
#[derive(Debug)]
struct DirectoryHome(tempfile::TempDir);

impl DirectoryHome {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }
}

impl Home for DirectoryHome {
    fn open(&self, options: Options) -> Result<Repository, Error> {
        Repository::open(self.0.path(), options)
    }

    fn read(&self) -> Result<Repository, Error> {
        Repository::read_only(self.0.path(), Options::default())
    }

    fn maintain(&self) -> Result<Repository, Error> {
        Repository::maintain(self.0.path(), Options::default())
    }

    fn damage(&self, version: u64, how: &dyn Fn(&mut [u8])) {
        let path = path_of(self.0.path(), version);
        let mut bytes = std::fs::read(&path).unwrap();
        how(&mut bytes);
        std::fs::write(path, bytes).unwrap();
    }

    fn lose(&self, version: u64) {
        std::fs::remove_file(path_of(self.0.path(), version)).unwrap();
    }
}

tierflow_store::repository_suite!(DirectoryHome::new());

fn numbers(repository: &Repository) -> Vec<u64> {
    let versions = repository.versions().unwrap();
    versions.into_iter().map(|info| info.version).collect()
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
        .map(|version| Snapshot::new(version, &regions))
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
    // The removal rewrites segments that keep some of their records.
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
fn a_second_writer_is_refused_and_a_reader_is_not() {
    let directory = tempfile::tempdir().unwrap();
    let repository = Repository::open(directory.path(), Options::default()).unwrap();
    save(&repository, 1, 100);
    let second = Repository::open(directory.path(), Options::default());
    assert!(matches!(second, Err(Error::Busy { .. })), "{second:?}");
    let maintained = Repository::maintain(directory.path(), Options::default());
    assert_matches!(maintained, Err(Error::Busy { .. }));
    let reader = Repository::read_only(directory.path(), Options::default()).unwrap();
    version_of(&reader, 1, 100);
    // Versions that are saved while the reader is open appear, too.
    save(&repository, 2, 100);
    save(&repository, 3, LARGE);
    assert_eq!(numbers(&reader), [1, 2, 3]);
    let error = reader.save(&Snapshot::new(9, &[]));
    assert!(matches!(error, Err(Error::Argument(_))), "{error:?}");
    drop(repository);
    version_of(&reader, 2, 100);
    // The lock is a lock of the file, not its existence.
    let lock = std::fs::File::open(directory.path().join("rank-0/lock")).unwrap();
    rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).unwrap();
    let second = Repository::open(directory.path(), Options::default());
    assert!(matches!(second, Err(Error::Busy { .. })), "{second:?}");
}

/// The limit of a directory counts its pieces, so files that wait to be overwritten must not add to them.
#[test]
fn a_limited_directory_has_no_more_bytes_than_its_pieces_had() {
    has_no_more_bytes_than_its_pieces_had(Options::default().limited(true));
    has_no_more_bytes_than_its_pieces_had(Options::default().limit(Some(1 << 30)));
}

fn has_no_more_bytes_than_its_pieces_had(options: Options) {
    let directory = tempfile::tempdir().unwrap();
    let repository = Repository::open(directory.path(), options).unwrap();
    (1..=2).for_each(|version| save(&repository, version, 2 * LARGE));
    let bytes = || {
        let files = std::fs::read_dir(directory.path().join("rank-0")).unwrap();
        let length = |file: std::fs::DirEntry| file.metadata().unwrap().len();
        files.map(|file| length(file.unwrap())).sum::<u64>()
    };
    let most = bytes();
    repository.remove(&[1, 2].into()).unwrap();
    (3..=6).for_each(|version| save(&repository, version, LARGE));
    assert!(bytes() <= most + 8192, "{} bytes, {most} before", bytes());
    // Small pieces share files of their own.
    repository.remove(&(3..=6).collect()).unwrap();
    save(&repository, 7, 100);
    assert!(bytes() < LARGE as u64, "{} bytes", bytes());
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
    // A link in place of a segment is reported as damage, and the other files are used.
    let directory = plant("rank-0/s00000000000000000001.open");
    let repository = Repository::open(directory.path(), Options::default()).unwrap();
    assert_eq!(repository.damage()[0].what, "it is no plain file");
    save(&repository, 1, 100);
    drop(repository);
    let repository = Repository::open(directory.path(), Options::default()).unwrap();
    assert_eq!(numbers(&repository), [1]);
    // A link in place of a file that the repository makes, and of one that it only reads.
    let directory = plant("rank-0/v00000000000000000001.tmp");
    let repository = Repository::open(directory.path(), Options::default()).unwrap();
    save(&repository, 1, LARGE);
    version_of(&repository, 1, LARGE);
    let directory = plant("rank-0/v00000000000000000001.tfc");
    let repository = Repository::open(directory.path(), Options::default()).unwrap();
    assert_eq!(numbers(&repository), []);
    assert_eq!(repository.damage()[0].what, "it is no plain file");
    assert_eq!(std::fs::read(&target).unwrap(), b"precious");
    // A directory in which every user may make files is refused.
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
    // A new directory of the same path is not used.
    std::fs::create_dir_all(path.join("rank-0")).unwrap();
    for length in [100, LARGE] {
        let bytes = vec![0; length];
        let regions = [Region::new("state", &bytes)];
        let result = repository.save(&Snapshot::new(2, &regions));
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
