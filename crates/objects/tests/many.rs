//! Tests of histories with many versions: they take few requests, and many threads may save.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod common;
mod faulty;

use common::{all_ranks, change, indexes, numbers, objects, path_of, save};
use faulty::Faulty;
use object_store::ObjectStore;
use object_store::memory::InMemory;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use tierflow_objects::{Settings, repository};
use tierflow_store::{Error, Repository, Retention, Vault};

/// Saves `count` versions of a few bytes from the number `from` on.
fn save_small(vault: &dyn Vault, from: u64, count: u64) {
    (from..from + count).for_each(|version| save(vault, version, &version.to_le_bytes()).unwrap());
}

#[test]
fn a_long_history_is_opened_with_few_requests() {
    let faulty = Arc::new(Faulty::default());
    let store: Arc<dyn ObjectStore> = Arc::clone(&faulty) as Arc<dyn ObjectStore>;
    let gets = || faulty.gets.swap(0, Relaxed);
    let writer = objects(&store);
    save_small(&writer, 0, 2100);
    assert_eq!(gets(), 0);
    assert_eq!(faulty.lists.load(Relaxed), 1);
    // The requests are for two indexes, and for the heads that have no row in one yet.
    let expected: Vec<u64> = (0..2100).collect();
    assert_eq!(numbers(&objects(&store)), expected);
    assert_eq!(gets(), 2 + (2100 - 2048));
    let listed = writer.versions().unwrap();
    assert_eq!(objects(&store).versions().unwrap(), listed);
    // Some rows of the indexes now belong to removed or damaged objects.
    writer.remove(&(0..900).collect()).unwrap();
    change(&store, &path_of(1000), |bytes| bytes[40] ^= 1);
    gets();
    let reader = objects(&store);
    let left: Vec<u64> = (900..2100).filter(|version| *version != 1000).collect();
    assert_eq!(numbers(&reader), left);
    assert_eq!(reader.damage().len(), 1);
    assert_eq!(gets(), 2 + (2100 - 2048) + 1);
    // A later save writes damaged indexes anew, and removes sparse ones.
    for index in indexes(&store) {
        change(&store, &index, |bytes| bytes.truncate(300));
    }
    assert_eq!(numbers(&objects(&store)), left);
    let writer = objects(&store);
    save_small(&writer, 3000, 1);
    let left: Vec<u64> = left.into_iter().chain([3000]).collect();
    gets();
    assert_eq!(numbers(&objects(&store)), left);
    assert_eq!(gets(), 1 + 1, "one index, and what is damaged");
    assert_eq!(indexes(&store).len(), 1);
}

#[test]
fn a_writer_goes_on_without_indexes_that_cannot_be_written() {
    let faulty = Arc::new(Faulty::default());
    let store: Arc<dyn ObjectStore> = Arc::clone(&faulty) as Arc<dyn ObjectStore>;
    faulty.no_indexes.store(true, Relaxed);
    let writer = objects(&store);
    save_small(&writer, 0, 1500);
    assert!(indexes(&store).is_empty());
    faulty.no_indexes.store(false, Relaxed);
    save_small(&writer, 1500, 1000);
    assert_eq!(indexes(&store).len(), 1);
    faulty.gets.store(0, Relaxed);
    assert_eq!(numbers(&objects(&store)).len(), 2500);
    let gets = faulty.gets.load(Relaxed);
    assert!(gets < 1000, "{gets} requests");
}

#[test]
fn many_small_indexes_become_one() {
    let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    for life in 0..20 {
        save_small(&objects(&store), 1024 * life, 1024);
    }
    let there = indexes(&store).len();
    assert!(there < 16, "{there} indexes");
    assert_eq!(numbers(&objects(&store)).len(), 20 * 1024);
}

/// Many threads save versions at the same time. Each version is there once.
#[test]
fn many_threads_save_at_a_time() {
    let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    let vault = objects(&store);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let vault = &vault;
            scope.spawn(move || save_small(vault, 1000 * thread, 700));
        }
        let saved = (0..4).map(|_| scope.spawn(|| save(&vault, 9000, &9000_u64.to_le_bytes())));
        let saved: Vec<_> = saved.collect();
        let saved = saved.into_iter().map(|thread| thread.join().unwrap());
        assert_eq!(saved.filter(Result::is_ok).count(), 1);
    });
    for vault in [vault, objects(&store)] {
        assert_eq!(numbers(&vault).len(), 2801);
        for version in [0, 1699, 3699, 9000_u64] {
            let bytes = vault.piece(version).unwrap().read("state").unwrap();
            assert_eq!(bytes, version.to_le_bytes());
        }
    }
}

/// A history of two ranks is read and pruned by a process that is neither of them.
#[test]
fn a_history_is_looked_after_whichever_ranks_wrote_it() {
    let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    for rank in 0..2 {
        let settings = Settings::default().group(rank, 2, 1);
        let vault = repository(Arc::clone(&store), "runs/7", &settings).unwrap();
        save_small(&vault, 0, 8);
    }
    let history = all_ranks(&store);
    assert!(!history.is_empty().unwrap());
    assert_eq!(history.latest(Some(7)).unwrap(), Some(6));
    assert_eq!(history.piece_of(3, 1).unwrap().rank(), (1, 2));
    let missing = history.piece_of(3, 2).unwrap_err();
    assert!(matches!(missing, Error::Argument(_)), "{missing}");
    let missing = history.piece_of(30, 0).unwrap_err();
    assert!(
        matches!(missing, Error::NoVersion { older: Some(7), .. }),
        "{missing}"
    );
    let sound = history
        .scrub(None, &|done, total| assert!(done <= total))
        .unwrap();
    assert_eq!(
        (sound.pieces, sound.bytes, sound.damage.len()),
        (16, 128, 0)
    );
    // The newest version is damaged where only a complete read tells, so the one before must stay.
    change(&store, &path_of(7), |bytes| *bytes.last_mut().unwrap() ^= 1);
    let found = history.scrub(Some(7), &|_, _| {}).unwrap();
    assert_eq!((found.pieces, found.damage[0].version), (1, Some(7)));
    let rules = Retention::newest(1);
    let would = history.would_prune(&rules).unwrap();
    assert_eq!(would.versions, [0, 1, 2, 3, 4, 5]);
    assert_eq!(history.prune(&rules).unwrap(), would);
    let left = |history: &Repository| -> Vec<u64> {
        let versions = history.versions().unwrap();
        versions.iter().map(|info| info.version).collect()
    };
    assert_eq!(left(&history), [6, 7]);
    history.remove(&[6].into()).unwrap();
    assert_eq!(left(&all_ranks(&store)), [7]);
}

/// Opens a history of `TIERFLOW_VERSIONS` versions, and prints the requests and the memory for that (with `--nocapture`).
#[test]
fn opening_takes_few_requests_however_many_versions_there_are() {
    let resident = || {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let number = line.and_then(|line| line.trim().split(' ').next());
        number.unwrap().parse::<u64>().unwrap()
    };
    let faulty = Arc::new(Faulty::default());
    let store: Arc<dyn ObjectStore> = Arc::clone(&faulty) as Arc<dyn ObjectStore>;
    let count = tierflow_testing::variable("TIERFLOW_VERSIONS", 20_000);
    save_small(&objects(&store), 0, count);
    faulty.gets.store(0, Relaxed);
    let (before, begun) = (resident(), std::time::Instant::now());
    let vault = objects(&store);
    assert_eq!(vault.latest(None).unwrap(), Some(count - 1));
    let (gets, memory) = (faulty.gets.load(Relaxed), resident() - before);
    println!(
        "{gets} requests for {memory} KiB after {:?}",
        begun.elapsed()
    );
    assert!(gets < 2000, "{gets} requests");
    let piece = vault.piece(count / 2).unwrap();
    assert_eq!(piece.read("state").unwrap(), (count / 2).to_le_bytes());
}

/// The requests of a rank fail after its piece is written, and the other rank completes the version. The next try of the same save succeeds.
#[test]
fn a_save_that_failed_behind_its_piece_succeeds_when_it_is_tried_again() {
    let mut complete = 0;
    for requests in 0..12 {
        let faulty = Arc::new(Faulty::default());
        let store: Arc<dyn ObjectStore> = Arc::clone(&faulty) as Arc<dyn ObjectStore>;
        let rank = |rank| {
            let settings = Settings::default().group(rank, 2, 1);
            common::open(&store, "runs/7", settings)
        };
        let (first, second) = (rank(0), rank(1));
        save(&first, 0, &[0; 8]).unwrap();
        save(&second, 0, &[0; 8]).unwrap();
        save(&second, 1, &[1; 8]).unwrap();
        faulty.fail_after.store(requests, Relaxed);
        let saved = save(&first, 1, &[1; 8]);
        faulty.fail_after.store(u64::MAX, Relaxed);
        complete += u32::from(saved.is_err() && numbers(&second) == [0, 1]);
        if saved.is_err() {
            save(&first, 1, &[1; 8]).unwrap();
        }
        assert!(matches!(
            save(&first, 1, &[1; 8]),
            Err(Error::Exists { .. })
        ));
        assert_eq!(numbers(&second), [0, 1]);
    }
    assert!(complete > 0);
}
