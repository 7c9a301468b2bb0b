//! A process that saves and prunes is killed at random instants, again and again on one directory. Every version that
//! it reported as saved and was not allowed to prune comes back bit for bit, and each listed version is whole.
//!
//! `TIERFLOW_KILLS=200` sets the number of kills; CI runs 20.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod histories;

use histories::{bytes_of, save};
use std::collections::BTreeSet;
use std::io::Write;
use tierflow_store::{Options, Repository, Retention};
use tierflow_testing::{Draws, Process, this_test, variable};

const CHILD: &str = "TIERFLOW_KILLS_DIRECTORY";
/// Versions that the child keeps when it prunes.
const NEWEST: usize = 12;

/// Returns the bytes of a version: small, medium, or large enough for a file of its own and several threads.
fn length_of(version: u64) -> usize {
    match version % 7 {
        0 => 3_000_000 + (version as usize % 100_000),
        3 => 400_000,
        _ => 100 + (version as usize * 37) % 9_000,
    }
}

/// The process that is killed. Does nothing without a directory, as in an ordinary run of all tests.
#[test]
fn child() {
    let Ok(directory) = std::env::var(CHILD) else {
        return;
    };
    let repository = Repository::open(directory, Options::default()).unwrap();
    let first = repository
        .latest(None)
        .unwrap()
        .map_or(1, |newest| newest + 1);
    let mut output = std::io::stdout();
    for version in first.. {
        save(&repository, version, length_of(version));
        writeln!(output, "saved {version}").unwrap();
        output.flush().unwrap();
        if version % 25 == 0 {
            repository.prune(&Retention::newest(NEWEST)).unwrap();
        }
    }
}

/// Runs the child until it is killed at a random time. Returns the versions that it reported.
fn killed(directory: &std::path::Path, draws: &mut Draws) -> BTreeSet<u64> {
    let mut child = this_test("child");
    let mut child = Process::start(child.env(CHILD, directory), "saved ");
    let mut reports = child.live(draws, 2_000..252_000);
    reports.extend(child.kill());
    // The kill may cut off the last report.
    reports.iter().filter_map(|r| r.parse().ok()).collect()
}

fn check(repository: &Repository, reported: &BTreeSet<u64>) {
    let listed: Vec<u64> = repository
        .versions()
        .unwrap()
        .iter()
        .map(|info| info.version)
        .collect();
    for version in &listed {
        let bytes = repository.piece(*version).unwrap().read("state").unwrap();
        assert!(
            bytes == bytes_of(*version, length_of(*version)),
            "version {version} is torn"
        );
    }
    // A version that was saved but not reported before the kill is among the newest, too.
    let newest = listed.last().copied().unwrap_or_default();
    for version in reported {
        let kept = version + NEWEST as u64 > newest;
        assert!(
            listed.contains(version) || !kept,
            "version {version} was reported and is lost: {listed:?}"
        );
    }
    assert_eq!(repository.scrub(None, &|_, _| {}).unwrap().damage, []);
}

#[test]
fn no_kill_loses_or_tears_a_version() {
    let kills = variable("TIERFLOW_KILLS", 20);
    let directory = tempfile::tempdir().unwrap();
    let mut reported = BTreeSet::new();
    let mut draws = Draws::fresh();
    for _ in 0..kills {
        reported.extend(killed(directory.path(), &mut draws));
        // A reader and the next writer must find the same.
        check(
            &Repository::read_only(directory.path(), Options::default()).unwrap(),
            &reported,
        );
        check(
            &Repository::open(directory.path(), Options::default()).unwrap(),
            &reported,
        );
    }
    println!("{kills} kills, {} versions reported", reported.len());
    assert!(
        !reported.is_empty(),
        "every child was killed before it had saved anything"
    );
}
