//! Tests of stores whose lists lag behind the writes.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod common;
mod faulty;

use common::{numbers, objects, save};
use faulty::Faulty;
use object_store::ObjectStore;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use tierflow_device::{Choice, open};
use tierflow_engine::{Engine, Region, RegionMut, Tier};
use tierflow_store::{Error, Vault};

/// Bytes of a version that one request writes, and of one that is uploaded in parts.
const LENGTHS: [usize; 2] = [5_000, 18_000_001];

/// Returns a store in which an earlier run wrote versions 1 to 5, with all bytes 1. The store's lists lack the last two.
fn lagging(length: usize) -> (Arc<Faulty>, Arc<dyn ObjectStore>) {
    let faulty = Arc::new(Faulty::default());
    let store: Arc<dyn ObjectStore> = Arc::clone(&faulty) as Arc<dyn ObjectStore>;
    let first = objects(&store);
    for version in 1..=5 {
        save(&first, version, &vec![1; length]).unwrap();
    }
    faulty.lags.store(2, Relaxed);
    (faulty, store)
}

/// Reads each version that the vault offers. Returns their first bytes.
fn offered(vault: &dyn Vault) -> Vec<(u64, u8)> {
    let read = |version| {
        let bytes = vault.piece(version).unwrap().read("state").unwrap();
        assert!(bytes.iter().all(|byte| *byte == bytes[0]));
        (version, bytes[0])
    };
    numbers(vault).into_iter().map(read).collect()
}

const OLD: [(u64, u8); 5] = [(1, 1), (2, 1), (3, 1), (4, 1), (5, 1)];

#[test]
fn a_run_that_was_not_offered_a_version_writes_it_anew() {
    for (length, no_conditions) in [(LENGTHS[0], false), (LENGTHS[0], true), (LENGTHS[1], false)] {
        let (faulty, store) = lagging(length);
        faulty.no_conditions.store(no_conditions, Relaxed);
        let second = objects(&store);
        assert_eq!(numbers(&second), [1, 2, 3]);
        for version in 4..=6 {
            save(&second, version, &vec![2; length]).unwrap();
        }
        let expected = [(1, 1), (2, 1), (3, 1), (4, 2), (5, 2), (6, 2)];
        // The lists still lag, and then have caught up.
        for lags in [2, 0] {
            faulty.lags.store(lags, Relaxed);
            assert_eq!(offered(&second), expected);
        }
        assert_eq!(offered(&objects(&store)), expected);
    }
}

#[test]
fn a_version_behind_one_that_was_written_anew_is_not_offered() {
    for length in LENGTHS {
        let (faulty, store) = lagging(length);
        let second = objects(&store);
        assert_eq!(numbers(&second), [1, 2, 3]);
        save(&second, 4, &vec![2; length]).unwrap();
        faulty.lags.store(0, Relaxed);
        let expected = [(1, 1), (2, 1), (3, 1), (4, 2)];
        // The run ends at once, or after it saw the other versions.
        assert_eq!(offered(&objects(&store)), expected);
        assert_eq!(offered(&second), expected);
        // The number of a version that is not offered is free.
        let third = objects(&store);
        save(&third, 5, &vec![3; length]).unwrap();
        let again = save(&third, 4, &vec![3; length]);
        assert!(
            matches!(again, Err(Error::Exists { version: 4 })),
            "{again:?}"
        );
        drop((second, third));
        assert_eq!(
            offered(&objects(&store)),
            [&expected[..], &[(5, 3)]].concat()
        );
    }
}

#[test]
fn the_earlier_versions_count_until_a_new_one_is_there() {
    let mut outcomes = [0, 0];
    for requests in 0..12 {
        let (faulty, store) = lagging(LENGTHS[0]);
        let second = objects(&store);
        assert_eq!(numbers(&second), [1, 2, 3]);
        faulty.fail_after.store(requests, Relaxed);
        let saved = save(&second, 4, &vec![2; LENGTHS[0]]);
        drop(second);
        faulty.fail_after.store(u64::MAX, Relaxed);
        faulty.lags.store(0, Relaxed);
        let after = offered(&objects(&store));
        outcomes[usize::from(saved.is_ok())] += 1;
        match saved {
            Ok(()) => assert_eq!(after, [(1, 1), (2, 1), (3, 1), (4, 2)]),
            Err(_) => assert_eq!(after, OLD),
        }
        // The next run has a later epoch than the one that failed.
        let third = objects(&store);
        save(&third, 9, &[3; 10]).unwrap();
        let now = [after.as_slice(), &[(9, 3)]].concat();
        assert_eq!(offered(&third), now);
        assert_eq!(offered(&objects(&store)), now);
    }
    assert!(outcomes.iter().all(|count| *count > 1), "{outcomes:?}");
}

/// The answer to a write is lost. The next try, of the caller or on the way, gets the answer that the object is there.
#[test]
fn a_version_whose_answer_was_lost_is_there_at_once() {
    for is_retried_on_the_way in [false, true] {
        let (faulty, store) = lagging(LENGTHS[0]);
        faulty.lags.store(usize::MAX, Relaxed);
        let second = objects(&store);
        let bytes = vec![2; 100];
        // The number of versions suffices for an index.
        let versions = 10..1100;
        for version in versions.clone() {
            if is_retried_on_the_way {
                faulty.retries.store(true, Relaxed);
            } else {
                faulty.loses_answers.store(true, Relaxed);
                save(&second, version, &bytes).unwrap_err();
                faulty.loses_answers.store(false, Relaxed);
            }
            save(&second, version, &bytes).unwrap();
            faulty.retries.store(false, Relaxed);
            let piece = second.piece(version).unwrap();
            assert!(piece.read("state").unwrap() == bytes, "{version}");
        }
        faulty.lags.store(0, Relaxed);
        assert_eq!(common::indexes(&store).len(), 1, "{is_retried_on_the_way}");
        let expected: Vec<(u64, u8)> = versions.map(|version| (version, 2)).collect();
        assert!(offered(&objects(&store)).ends_with(&expected));
    }
}

#[test]
fn an_engine_goes_on_where_lists_lag() {
    for length in LENGTHS {
        let (faulty, store) = lagging(length);
        let device = open(Choice::Host).unwrap();
        let engine = || {
            let builder = Engine::builder(&device).host_cache(256 << 20);
            builder
                .tier(Tier::vault(Arc::new(objects(&store))))
                .build()
                .unwrap()
        };
        let second = engine();
        assert_eq!(second.latest(None), Some(3));
        let new = vec![2; length];
        for version in 4..=6 {
            let regions = [Region::from(new.as_slice())];
            second.checkpoint(version, &regions).unwrap();
        }
        second.wait().unwrap();
        drop(second);
        faulty.lags.store(0, Relaxed);
        let third = engine();
        assert_eq!(third.latest(None), Some(6));
        for version in 4..=6 {
            let mut bytes = vec![0; length];
            let mut regions = [RegionMut::from(bytes.as_mut_slice())];
            third.restore(version, &mut regions).unwrap();
            assert!(bytes == new, "version {version}");
        }
    }
}
