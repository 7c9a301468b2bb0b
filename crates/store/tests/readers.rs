//! Other processes see a version as soon as its writer has reported it as saved, even while they read the same pages of the same
//! segment all the time.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod histories;

use histories::{bytes_of, save};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tierflow_store::{Options, Repository};
use tierflow_testing::{Process, this_test};

const WRITER: &str = "TIERFLOW_READERS_DIRECTORY";
const VERSIONS: u64 = 600;

/// Returns the bytes of a version: from a part of a page to so many pages that they are read past the page cache.
fn length_of(version: u64) -> usize {
    match version % 20 {
        0 => 600_000,
        10 => 40_000,
        _ => 50 + (version as usize * 613) % 9_000,
    }
}

/// The process that writes. Does nothing without a directory, as in an ordinary run of all tests.
#[test]
fn writer() {
    let Ok(directory) = std::env::var(WRITER) else {
        return;
    };
    let repository = Repository::open(directory, Options::default()).unwrap();
    let mut output = std::io::stdout();
    for version in 0..VERSIONS {
        save(&repository, version, length_of(version));
        writeln!(output, "saved {version}").unwrap();
        output.flush().unwrap();
    }
}

/// Returns the segment that is being written, if there is one.
fn open_segment(directory: &Path) -> Option<PathBuf> {
    let files = fs::read_dir(directory.join("rank-0")).ok()?;
    let mut paths = files.filter_map(|entry| Some(entry.ok()?.path()));
    paths.find(|path| path.extension().is_some_and(|end| end == "open"))
}

/// Reads the whole segment through the page cache again and again, so that its last pages and the pages behind them are in use whenever
/// a write ends.
fn hold_pages(directory: &Path, done: &AtomicBool, rounds: &AtomicU64) {
    let mut bytes = Vec::new();
    while !done.load(Ordering::Relaxed) {
        let Some(file) = open_segment(directory).and_then(|path| File::open(path).ok()) else {
            continue;
        };
        bytes.clear();
        let looked = file.take(16 << 20).read_to_end(&mut bytes);
        rounds.fetch_add(u64::from(looked.is_ok()), Ordering::Relaxed);
    }
}

#[test]
fn a_version_that_was_reported_is_read_while_its_page_is_in_use() {
    let home = tempfile::tempdir().unwrap();
    let directory = home.path().join("run");
    let mut writer = this_test("writer");
    let writer = Process::start(writer.env(WRITER, &directory), "saved ");
    let (done, rounds) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut writer = std::thread::scope(|scope| {
        let (directory, done, rounds) = (&directory, &done, &rounds);
        for _ in 0..2 {
            scope.spawn(|| hold_pages(directory, done, rounds));
        }
        let reader = std::thread::Builder::new().spawn_scoped(scope, move || {
            assert_eq!(writer.report(), "0");
            let repository = Repository::read_only(directory, Options::default()).unwrap();
            for version in 0..VERSIONS {
                if version > 0 {
                    assert_eq!(writer.report(), version.to_string());
                }
                let newest = repository.latest(None).unwrap();
                assert!(
                    newest >= Some(version),
                    "version {version} was reported, and {newest:?} is the newest that is seen"
                );
                let bytes = repository.piece(version).unwrap().read("state").unwrap();
                assert!(
                    bytes == bytes_of(version, length_of(version)),
                    "version {version} is another"
                );
            }
            writer
        });
        let outcome = reader.unwrap().join();
        done.store(true, Ordering::Relaxed);
        outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    });
    assert!(writer.wait().success());
    assert!(
        rounds.into_inner() > 0,
        "it was not read while it was written"
    );
    // The published versions are right: no page that was in use kept its old bytes.
    let repository = Repository::read_only(&directory, Options::default()).unwrap();
    assert_eq!(repository.versions().unwrap().len() as u64, VERSIONS);
    assert_eq!(repository.scrub(None, &|_, _| {}).unwrap().damage, []);
}

/// A segment gets its published name when it is closed, perhaps while a reader opens it. The reader finds the version all the time.
#[test]
fn a_version_is_read_while_its_segment_is_renamed() {
    const SEGMENTS: u64 = 60;
    let home = tempfile::tempdir().unwrap();
    let reader = || Repository::read_only(home.path(), Options::default()).unwrap();
    for version in 0..SEGMENTS {
        let writer = Repository::open(home.path(), Options::default()).unwrap();
        save(&writer, version, 100);
        let reader = reader();
        assert_eq!(reader.latest(None).unwrap(), Some(version));
        std::thread::scope(|scope| {
            let closing = scope.spawn(move || drop(writer));
            while !closing.is_finished() {
                histories::version_of(&reader, version, 100);
            }
        });
    }
}

/// A write becomes visible page by page: a reader may find a record's head and not yet all of its pages.
#[test]
fn a_record_that_is_half_there_is_found_once_it_is_whole() {
    let home = tempfile::tempdir().unwrap();
    let [there, here] = ["there", "here"].map(|name| home.path().join(name));
    let repository = Repository::open(&there, Options::default()).unwrap();
    save(&repository, 0, 100);
    save(&repository, 1, 9_000);
    let whole = fs::read(open_segment(&there).unwrap()).unwrap();
    let end = whole.iter().rposition(|byte| *byte != 0).unwrap();
    let mut half = whole.clone();
    half[end - end % 4096..].fill(0);

    fs::create_dir_all(here.join("rank-0")).unwrap();
    let segment = open_segment(&there).unwrap();
    let segment = here.join("rank-0").join(segment.file_name().unwrap());
    fs::write(&segment, half).unwrap();
    let reader = Repository::read_only(&here, Options::default()).unwrap();
    assert_eq!(reader.latest(None).unwrap(), Some(0));
    fs::write(&segment, whole).unwrap();
    assert_eq!(reader.latest(None).unwrap(), Some(1));
    histories::version_of(&reader, 1, 9_000);
}

/// Linux guarantees nothing if one process reads through the page cache while another writes past it, so both must use the same way.
#[test]
fn a_segment_is_written_the_way_that_others_read_it() {
    let home = tempfile::tempdir().unwrap();
    let repository = Repository::open(home.path(), Options::default()).unwrap();
    save(&repository, 0, 100);
    let segment = open_segment(home.path()).unwrap();
    let descriptors = fs::read_dir("/proc/self/fd").unwrap();
    let number = descriptors
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|number| fs::read_link(number).is_ok_and(|path| path == segment))
        .unwrap();
    let info = Path::new("/proc/self/fdinfo").join(number.file_name().unwrap());
    let info = fs::read_to_string(info).unwrap();
    let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
    let flags = u32::from_str_radix(flags.unwrap().trim(), 8).unwrap();
    let direct = rustix::fs::OFlags::DIRECT.bits();
    assert_eq!(
        flags & direct,
        0,
        "open segments are written past the page cache"
    );
}

#[test]
fn a_rank_whose_directory_vanished_is_not_listed() {
    let home = tempfile::tempdir().unwrap();
    for rank in 0..2 {
        let options = Options::default().rank(rank, 2);
        let repository = Repository::open(home.path(), options).unwrap();
        save(&repository, 1, 100);
    }
    let reader = Repository::read_only(home.path(), Options::default().rank(0, 2)).unwrap();
    assert_eq!(reader.ranks().unwrap(), [0, 1]);
    assert_eq!(reader.versions().unwrap().len(), 1);
    fs::remove_dir_all(home.path().join("rank-1")).unwrap();
    assert_eq!(reader.versions().unwrap(), []);
    assert_eq!(reader.ranks().unwrap(), [0]);
}
