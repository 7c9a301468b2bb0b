//! Directories are moved, locks are removed, and names are taken by other files: nothing is written where it would not be found, and no
//! other file is overwritten.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod histories;

use histories::{path_of, save, try_to_save, version_of};
use std::fs;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tierflow_store::{Collective, Error, Faults, Options, Repository};

#[test]
fn removing_the_lock_lets_no_other_process_in() {
    let home = tempfile::tempdir().unwrap();
    let first = Repository::open(home.path(), Options::default()).unwrap();
    save(&first, 1, 100);
    fs::remove_file(home.path().join("rank-0/lock")).unwrap();
    let second = Repository::open(home.path(), Options::default());
    assert!(matches!(second, Err(Error::Busy { .. })), "{second:?}");
    // The refused writer made the lock file anew, and does not hold it.
    let others = Repository::read_only(home.path(), Options::default()).unwrap();
    assert!(others.has_writer().unwrap());
    save(&first, 2, 100);
    drop(first);
    assert!(!others.has_writer().unwrap());
    let second = Repository::open(home.path(), Options::default()).unwrap();
    assert_eq!(second.latest(None).unwrap(), Some(2));
}

#[test]
fn a_directory_that_is_moved_away_is_noticed() {
    for of_rank in [true, false] {
        for length in [100, 2_000_000] {
            let home = tempfile::tempdir().unwrap();
            let top = home.path().join("run");
            let repository = Repository::open(&top, Options::default()).unwrap();
            save(&repository, 1, length);
            let path = if of_rank {
                top.join("rank-0")
            } else {
                top.clone()
            };
            let away = home.path().join("away");
            fs::rename(&path, &away).unwrap();
            let error = try_to_save(&repository, 2, length).unwrap_err();
            assert!(matches!(error, Error::Vanished { .. }), "{error}");
            // A new directory of the same path is not used either.
            fs::create_dir(&path).unwrap();
            let error = try_to_save(&repository, 3, length).unwrap_err();
            assert!(matches!(error, Error::Vanished { .. }), "{error}");
            // The old directory is used again once it is back.
            fs::remove_dir(&path).unwrap();
            fs::rename(&away, &path).unwrap();
            save(&repository, 4, length);
            version_of(&repository, 4, length);
        }
    }
}

#[test]
fn a_file_of_another_writer_is_not_overwritten() {
    let home = tempfile::tempdir().unwrap();
    let repository = Repository::open(home.path(), Options::default()).unwrap();
    save(&repository, 1, 100);
    // The files of a second writer that does not know of this one.
    for name in ["v00000000000000000002.tfc", "s00000000000000000001.tfs"] {
        fs::write(home.path().join("rank-0").join(name), b"theirs").unwrap();
    }
    let error = try_to_save(&repository, 2, 2_000_000).unwrap_err();
    assert!(matches!(error, Error::Refused { .. }), "{error}");
    drop(repository);
    for name in ["v00000000000000000002.tfc", "s00000000000000000001.tfs"] {
        let bytes = fs::read(home.path().join("rank-0").join(name)).unwrap();
        assert_eq!(bytes, b"theirs");
    }
    let repository = Repository::open(home.path(), Options::default()).unwrap();
    version_of(&repository, 1, 100);
    assert!(repository.damage().len() >= 2);
    // A save moves the damaged file of the same name aside.
    save(&repository, 2, 2_000_000);
    version_of(&repository, 2, 2_000_000);
    let aside = home.path().join("rank-0/v00000000000000000002.damaged");
    assert_eq!(fs::read(aside).unwrap(), b"theirs");
}

#[test]
fn a_damaged_file_that_cannot_be_put_aside_stays() {
    let home = tempfile::tempdir().unwrap();
    drop(Repository::open(home.path(), Options::default()).unwrap());
    let (file, aside) = (
        path_of(home.path(), 2),
        "rank-0/v00000000000000000002.damaged",
    );
    fs::write(&file, b"theirs").unwrap();
    let faults = Arc::<Faults>::default();
    let open = || Repository::open(home.path(), Options::default()).unwrap();
    let repository = faults.during(open);
    faults.renames_fail.store(true, Relaxed);
    let error = try_to_save(&repository, 2, 2_000_000).unwrap_err();
    assert!(matches!(error, Error::File { .. }), "{error}");
    assert_eq!(fs::read(&file).unwrap(), b"theirs");
    faults.renames_fail.store(false, Relaxed);
    save(&repository, 2, 2_000_000);
    version_of(&repository, 2, 2_000_000);
    assert_eq!(fs::read(home.path().join(aside)).unwrap(), b"theirs");
    drop(repository);
    // Only the first damaged file of a version is kept aside.
    fs::write(&file, b"later").unwrap();
    save(&open(), 2, 2_000_000);
    version_of(&open(), 2, 2_000_000);
    assert_eq!(fs::read(home.path().join(aside)).unwrap(), b"theirs");
}

#[test]
fn a_save_that_lost_its_file_leaves_another_writers_file() {
    let home = tempfile::tempdir().unwrap();
    let faults = Arc::<Faults>::default();
    let open = || Repository::open(home.path(), Options::default()).unwrap();
    let repository = faults.during(open);
    let file = path_of(home.path(), 2);
    faults.hold(Some(home.path()));
    std::thread::scope(|scope| {
        let saving = scope.spawn(|| try_to_save(&repository, 2, 2_000_000));
        while faults.held_back.load(Relaxed) == 0 {
            assert!(!saving.is_finished());
            std::thread::yield_now();
        }
        // A second writer that does not know of this one replaces the file.
        fs::remove_file(file.with_extension("tmp")).unwrap();
        fs::write(&file, b"theirs").unwrap();
        faults.hold(None);
        let error = saving.join().unwrap().unwrap_err();
        assert!(matches!(error, Error::File { .. }), "{error}");
    });
    assert_eq!(fs::read(&file).unwrap(), b"theirs");
}

#[test]
fn others_see_whether_a_rank_has_a_writer() {
    let home = tempfile::tempdir().unwrap();
    let first = Repository::open(home.path(), Options::default().rank(1, 2)).unwrap();
    save(&first, 1, 100);
    let seen = |rank: u32| {
        let options = Options::default().rank(rank, 2);
        Repository::read_only(home.path(), options)
            .unwrap()
            .has_writer()
            .unwrap()
    };
    assert!(first.has_writer().unwrap());
    assert!(seen(1) && !seen(0));
    drop(first);
    assert!(!seen(1));
    // The check leaves no lock behind.
    Repository::open(home.path(), Options::default().rank(1, 2)).unwrap();
}

#[test]
fn a_notice_that_cannot_be_read_is_named_and_its_rank_is_not_called_absent() {
    let home = tempfile::tempdir().unwrap();
    let open = |rank| Repository::open(home.path(), Options::default().rank(rank, 2)).unwrap();
    let (first, second) = (open(0), open(1));
    let notice = home.path().join("rank-1/notice");
    std::os::unix::fs::symlink("elsewhere", &notice).unwrap();
    let met = first.all_gather(b"first", Duration::from_millis(20));
    assert!(
        matches!(&met, Err(Error::Refused { path, .. }) if *path == notice),
        "{met:?}"
    );
    fs::remove_file(&notice).unwrap();
    drop(second);
    let met = first.all_gather(b"first", Duration::from_millis(20));
    assert!(
        matches!(&met, Err(Error::Absent { ranks, .. }) if *ranks == [1]),
        "{met:?}"
    );
}
