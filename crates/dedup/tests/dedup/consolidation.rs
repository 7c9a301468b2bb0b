//! Consolidated differences: every version of their lineages comes back, and needs no differences but those that were kept.

use crate::common::{Draws, METHODS, check, histories};
use proptest::prelude::*;
use std::collections::BTreeSet;
use tierflow_dedup::{Chain, Config, Lineage, Method};

/// Encodes a history as versions 10, 20, 30 … Before a version, `choose` may choose the differences that are kept.
/// Returns the chain, and the differences that each version may need at most.
fn encode(
    config: Config,
    history: &[Vec<u8>],
    mut choose: impl FnMut(u32, &Lineage) -> Option<BTreeSet<u32>>,
) -> (Chain<Vec<u8>>, Vec<BTreeSet<u32>>) {
    let mut lineage = Lineage::new(config).unwrap();
    let (mut chain, mut allowed) = (Chain::new(), BTreeSet::new());
    let mut all = Vec::new();
    for (data, ordinal) in history.iter().zip(0..) {
        if let Some(keep) = choose(ordinal, &lineage) {
            lineage.consolidate(&keep);
            allowed = keep;
        }
        allowed.insert(ordinal);
        all.push(allowed.clone());
        let version = 10 * (u64::from(ordinal) + 1);
        let difference = lineage.encode(version, data).unwrap();
        chain.push(difference.into_bytes()).unwrap();
    }
    (chain, all)
}

/// Checks that each version comes back from what it needs, and needs nothing else.
fn assert_needs_no_more(chain: &Chain<Vec<u8>>, history: &[Vec<u8>], allowed: &[BTreeSet<u32>]) {
    check(chain, history, "consolidated");
    for ((data, allowed), version) in history.iter().zip(allowed).zip(1..) {
        let mut part = Chain::new();
        for needed in chain.dependencies(10 * version).unwrap() {
            let ordinal = chain.get(needed).unwrap().ordinal();
            assert!(
                allowed.contains(&ordinal),
                "{version} needs {ordinal} of {allowed:?}"
            );
            part.push(chain.stored_bytes(needed).unwrap()).unwrap();
        }
        assert!(part.to_vec(10 * version).unwrap() == *data, "{version}");
    }
}

#[test]
fn versions_need_no_differences_but_those_that_were_kept() {
    let mut random = Draws(11);
    for method in METHODS {
        for verify in [false, true] {
            for (_, history) in histories(50_007, 64) {
                let config = Config::new(method).chunk(64).verify(verify);
                let (chain, allowed) = encode(config, &history, |ordinal, _| {
                    let begins = random.index(2) == 0;
                    let keep = |_: &u32| random.index(2) == 0;
                    begins.then(|| (0..ordinal).filter(keep).collect())
                });
                assert_needs_no_more(&chain, &history, &allowed);
            }
        }
    }
}

#[test]
fn a_lineage_goes_on_behind_a_consolidation_after_a_restart() {
    for method in METHODS {
        for (name, history) in histories(30_001, 64) {
            let config = Config::new(method).chunk(64).seed(7);
            let (before, behind) = history.split_at(history.len() / 2);
            let last = before.len() as u32 - 1;
            let (mut chain, _) = encode(config, before, |ordinal, _| {
                (ordinal == last).then(|| BTreeSet::from([0]))
            });
            let mut lineage = Lineage::resume(config, &chain).unwrap();
            for (data, version) in behind.iter().zip(before.len() as u64 + 1..) {
                let difference = lineage.encode(10 * version, data).unwrap();
                chain.push(difference.into_bytes()).unwrap();
            }
            check(&chain, &history, name);
        }
    }
}

#[test]
fn origins_are_the_differences_that_a_restore_reads() {
    for (name, history) in histories(50_007, 64) {
        let mut lineage = Lineage::new(Config::new(Method::Tree).chunk(64)).unwrap();
        let mut chain = Chain::new();
        assert!(lineage.origins().differences.is_empty());
        for (data, version) in history.iter().zip(1..) {
            let difference = lineage.encode(10 * version, data).unwrap();
            chain.push(difference.into_bytes()).unwrap();
            let origins = lineage.origins();
            let bytes: u64 = origins.differences.iter().map(|one| one.bytes).sum();
            assert_eq!(bytes, 50_007, "{name}");
            let needed = chain.dependencies(10 * version).unwrap();
            for one in &origins.differences {
                assert!(
                    needed.contains(&(10 * (u64::from(one.ordinal) + 1))),
                    "{name}"
                );
            }
            // If all of these differences are kept, only changed chunks are stored.
            let keep = origins.differences.iter().map(|one| one.ordinal).collect();
            let mut again = Lineage::resume(*lineage.config(), &chain).unwrap();
            again.consolidate(&keep);
            let summary = again.encode(10 * version + 1, data).unwrap().summary();
            assert!(
                summary.payload_bytes == 0 || summary.stored_bytes >= 50_007,
                "{summary:?}"
            );
        }
    }
}

proptest! {
    #[test]
    fn any_history_comes_back_whatever_is_kept(
        letters in proptest::collection::vec(proptest::collection::vec(0_u8..6, 40), 1..10),
        tail in 0_usize..40,
        keeps in proptest::collection::vec(proptest::option::of(any::<u16>()), 10),
        which in 0_usize..5,
    ) {
        let history: Vec<Vec<u8>> = letters
            .iter()
            .map(|letters| {
                let mut data: Vec<u8> = letters.iter().flat_map(|&letter| vec![letter; 64]).collect();
                data.truncate(data.len() - tail);
                data
            })
            .collect();
        let config = Config::new(METHODS[which]).chunk(64);
        let (chain, allowed) = encode(config, &history, |ordinal, _| {
            let keep = keeps[ordinal as usize]?;
            Some((0..ordinal).filter(|one| keep >> one & 1 == 1).collect())
        });
        assert_needs_no_more(&chain, &history, &allowed);
    }
}
