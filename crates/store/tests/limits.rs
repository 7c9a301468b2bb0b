//! A write beyond the limit of a file's size fails as on a full disk, and does not end the process.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tierflow_store::{Error, Options, Region, Repository, Scratch, Snapshot, Storage};

const LIMIT: u64 = 256 << 10;

fn limited<T>(call: impl FnOnce() -> T) -> T {
    let before = getrlimit(Resource::Fsize);
    let limit = Rlimit {
        current: Some(LIMIT),
        ..before
    };
    setrlimit(Resource::Fsize, limit).unwrap();
    let done = call();
    setrlimit(Resource::Fsize, before).unwrap();
    done
}

// The limit holds for the whole process, so this file has one test.
#[test]
fn a_file_beyond_its_limit_is_a_full_disk() {
    let directory = tempfile::tempdir().unwrap();
    let repository = Repository::open(directory.path(), Options::default()).unwrap();
    // A large piece has a file of its own, and small ones share one.
    let (large, small) = (vec![7; 4 << 20], vec![7; 100_000]);
    let save = |version, bytes: &[u8]| {
        let regions = [Region::new("all", bytes)];
        repository.save(&Snapshot::new(version, &regions))
    };
    save(0, &small).unwrap();
    let refused = limited(|| save(1, &large));
    assert!(matches!(refused, Err(Error::Full { .. })), "{refused:?}");
    let taken: Vec<_> = limited(|| (2..12).map(|version| save(version, &small)).collect());
    let full = |one: &&Result<_, Error>| matches!(one, Err(Error::Full { .. }));
    assert!(
        taken.iter().all(|one| one.is_ok() || full(&one)),
        "{taken:?}"
    );
    assert!(taken.iter().any(|one| full(&one)), "{taken:?}");
    let scratch = Scratch::open(directory.path()).unwrap();
    let block = vec![0_u8; 8192];
    let start = block.as_ptr().align_offset(4096);
    let block = &block[start..start + 4096];
    let refused = limited(|| scratch.write_at(LIMIT, block));
    assert!(matches!(refused, Err(Error::Full { .. })), "{refused:?}");
    // Without the limit, all calls succeed again.
    scratch.write_at(LIMIT, block).unwrap();
    save(20, &large).unwrap();
    save(21, &small).unwrap();
    let whole = repository.versions().unwrap();
    let whole: Vec<u64> = whole.iter().map(|info| info.version).collect();
    assert!(whole.contains(&0) && whole.contains(&20) && whole.contains(&21));
}
