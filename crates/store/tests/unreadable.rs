//! A piece that cannot be read is not absent: the read is tried again, the failure is reported, and the piece never replaces one that was
//! written since.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod histories;

use histories::{bytes_of, fast_home, save};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use tierflow_store::{Faults, Options, Region, Repository, Snapshot};

/// Tries that the repository makes of one read.
const TRIES: u64 = 3;

fn length_of(version: u64) -> usize {
    match version % 3 {
        0 => 30_000,
        _ => 500,
    }
}

fn options(faults: &Arc<Faults>) -> Options {
    let options = Options::default().packed_below(20_000);
    options.faults(Arc::clone(faults))
}

/// Writes versions 0 to 8 to a closed segment, a segment that was left open, and files of their own.
fn written(home: &Path) {
    let repository = Repository::open(home, options(&Arc::default())).unwrap();
    (0..5).for_each(|version| save(&repository, version, length_of(version)));
    drop(repository);
    let repository = Repository::open(home, options(&Arc::default())).unwrap();
    (5..9).for_each(|version| save(&repository, version, length_of(version)));
    let open = home.join("rank-0/s00000000000000000002.open");
    let bytes = std::fs::read(&open).unwrap();
    drop(repository);
    std::fs::write(&open, bytes).unwrap();
    std::fs::remove_file(open.with_extension("tfs")).unwrap();
}

/// Saves the version after the newest one, with other bytes than an earlier version of its number. Returns the number.
fn go_on(repository: &Repository) -> Option<u64> {
    let next = repository.latest(None).ok()?.map_or(0, |newest| newest + 1);
    let bytes = bytes_of(next + 1_000, length_of(next));
    let regions = [Region::new("state", &bytes)];
    let snapshot = Snapshot::new(next, &regions);
    repository.save(&snapshot).ok()?;
    Some(next)
}

#[test]
fn a_read_that_fails_at_any_step_of_an_open_takes_no_version_back() {
    let (mut injected, mut refused) = (0, 0);
    // A single failure, and failures that last.
    for (bad, stride) in [(1, 5), (TRIES, 1), (12 * TRIES, 3)] {
        for step in (0..).step_by(stride) {
            let home = fast_home();
            written(home.path());
            let faults = Arc::<Faults>::default();
            faults.good_reads.store(step, Relaxed);
            faults.bad_reads.store(bad, Relaxed);
            let opened = Repository::open(home.path(), options(&faults));
            let met = faults.bad_reads.swap(0, Relaxed) < bad;
            injected += 1;
            let saved = match &opened {
                Err(_) => {
                    refused += 1;
                    assert!(
                        bad >= TRIES,
                        "step {step}: a moment's failure is waited for"
                    );
                    None
                }
                Ok(repository) => {
                    // Opening changed nothing: pieces that can be read again are there, and are no longer reported.
                    assert_eq!(repository.latest(None).unwrap(), Some(8), "step {step}");
                    assert_eq!(repository.damage(), [], "step {step}");
                    go_on(repository)
                }
            };
            drop(opened);
            // Later opens find all versions, and the later one of a number that was written twice.
            for _ in 0..2 {
                let repository = Repository::open(home.path(), options(&Arc::default())).unwrap();
                for version in (0..9).chain(saved) {
                    let seed = match saved == Some(version) {
                        true => version + 1_000,
                        false => version,
                    };
                    let bytes = repository.piece(version).unwrap().read("state").unwrap();
                    assert!(
                        bytes == bytes_of(seed, length_of(version)),
                        "step {step}, {bad} failures: version {version} is stale"
                    );
                }
            }
            if !met {
                break;
            }
        }
    }
    assert!(
        injected > 30 && refused > 0 && refused < injected,
        "{injected}, {refused}"
    );
}

#[test]
fn a_file_that_may_not_be_read_is_said_and_kept() {
    if rustix::process::geteuid().is_root() {
        // Root may read every file.
        return;
    }
    let home = tempfile::tempdir().unwrap();
    written(home.path());
    let segment = home.path().join("rank-0/s00000000000000000001.tfs");
    std::fs::set_permissions(&segment, PermissionsExt::from_mode(0o0)).unwrap();
    let repository = Repository::open(home.path(), Options::default()).unwrap();
    assert_eq!(repository.damage()[0].path, segment);
    std::fs::set_permissions(&segment, PermissionsExt::from_mode(0o600)).unwrap();
    assert_eq!(repository.versions().unwrap().len(), 9);
    assert_eq!(repository.damage(), []);
}

#[test]
fn a_file_with_a_ranks_name_does_not_hide_the_others() {
    let home = tempfile::tempdir().unwrap();
    written(home.path());
    std::fs::write(home.path().join("rank-1"), b"mine").unwrap();
    for repository in [
        Repository::read_only(home.path(), Options::default()).unwrap(),
        Repository::open(home.path(), Options::default()).unwrap(),
    ] {
        assert_eq!(repository.latest(None).unwrap(), Some(8));
        assert_eq!(repository.damage()[0].what, "it is no directory");
    }
}
