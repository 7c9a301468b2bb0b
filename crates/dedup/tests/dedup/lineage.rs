//! Tests of lineages and chains beyond encoding and restoring: resuming, compaction, dependencies, verification, seeds.

use crate::common::{Draws, METHODS, check, colliding, colliding_history, encode, histories};
use proptest::prelude::*;
use tierflow_dedup::{Chain, Config, Error, Invalid, Lineage, Method, Stored};

#[test]
fn a_resumed_lineage_goes_on_as_if_nothing_had_happened() {
    for method in METHODS {
        // The smaller record has dropped chunks by then.
        for capacity in [0, 1_000_000] {
            let config = Config::new(method)
                .chunk(64)
                .record_capacity(capacity)
                .seed(3);
            for (name, history) in histories(50_007, 64) {
                let mut lineage = Lineage::new(config).unwrap();
                let mut chain: Chain<Vec<u8>> = Chain::new();
                for (data, version) in history.iter().zip(1..) {
                    let mut resumed = Lineage::resume(config, &chain).unwrap();
                    let difference = lineage.encode(version, data).unwrap();
                    let again = resumed.encode(version, data).unwrap();
                    assert!(difference == again, "{name}, {method:?}, version {version}");
                    chain.push(difference.into_bytes()).unwrap();
                }
            }
        }
    }
}

#[test]
fn a_full_record_forgets_and_loses_nothing() {
    let chunk = 64;
    let mut random = Draws(5);
    let (a, b) = (random.bytes(64_000), random.bytes(64_000));
    let history = [a.clone(), b.clone(), a, b];
    let config = Config::new(Method::Tree).chunk(chunk);
    let small = encode(config, &history);
    let large = encode(config.record_capacity(1 << 20), &history);
    // The record holds 1.2 checkpoints: it dropped A when B came.
    assert_eq!(small.get(30).unwrap().stored(), Stored::Full);
    assert_eq!(large.get(30).unwrap().payload_bytes(), 0);
    check(&small, &history, "small record");
    check(&large, &history, "large record");
}

#[test]
fn kept_versions_of_a_compacted_chain_come_back() {
    for method in METHODS {
        for (name, history) in histories(30_001, 64) {
            let chain = encode(Config::new(method).chunk(64), &history);
            let versions: Vec<u64> = chain.versions().collect();
            for mask in 1..1_u32 << versions.len() {
                let kept = |at: &usize| mask >> at & 1 == 1;
                let keep: Vec<u64> = (0..versions.len())
                    .filter(kept)
                    .map(|at| versions[at])
                    .collect();
                let compacted = chain.compact(&keep).unwrap();
                let mut small = Chain::new();
                for difference in &compacted.differences {
                    small.push(difference.as_bytes()).unwrap();
                }
                small.verify().unwrap();
                assert_eq!(small.versions().collect::<Vec<_>>(), keep);
                for &version in &keep {
                    let data = &history[version as usize / 10 - 1];
                    assert!(small.to_vec(version).unwrap() == *data, "{name} {method:?}");
                }
                let bytes: usize = compacted
                    .differences
                    .iter()
                    .map(|d| d.as_bytes().len())
                    .sum();
                assert!(bytes <= keep.len() * (30_001 + 192));
                // A lineage continues from the compacted chain.
                let mut resumed = Lineage::resume(Config::new(method).chunk(64), &small).unwrap();
                let next = resumed.encode(1000, &history[0]).unwrap();
                small.push(next.as_bytes()).unwrap();
                assert!(small.to_vec(1000).unwrap() == history[0]);
            }
        }
    }
}

#[test]
fn keeping_all_keeps_the_sizes() {
    for (name, history) in histories(30_001, 64) {
        let chain = encode(Config::new(Method::Tree).chunk(64), &history);
        let all: Vec<u64> = chain.versions().collect();
        for difference in chain.compact(&all).unwrap().differences {
            let before = chain.get(difference.summary().version).unwrap();
            assert!(
                difference.summary().payload_bytes <= before.payload_bytes(),
                "{name}"
            );
            let bytes = before.metadata_bytes() + before.payload_bytes();
            let now = difference.summary();
            assert!(now.metadata_bytes + now.payload_bytes <= bytes, "{name}");
        }
    }
}

#[test]
fn an_exported_version_needs_no_other() {
    for (name, history) in histories(30_001, 64) {
        let chain = encode(Config::new(Method::Tree).chunk(64), &history);
        for (data, version) in history.iter().zip(1..) {
            let full = chain.export(10 * version).unwrap();
            assert_eq!(full.summary().stored, Stored::Full);
            let mut alone = Chain::new();
            alone.push(full.as_bytes()).unwrap();
            alone.verify().unwrap();
            assert!(alone.to_vec(10 * version).unwrap() == *data, "{name}");
        }
    }
}

#[test]
fn dependencies_are_enough_and_no_more_than_exist() {
    for (name, history) in histories(30_001, 64) {
        let chain = encode(Config::new(Method::Tree).chunk(64), &history);
        for (data, version) in history.iter().zip(1..) {
            let needed = chain.dependencies(10 * version).unwrap();
            assert!(needed.contains(&(10 * version)));
            let mut part = Chain::new();
            for version in needed {
                let container = chain.get(version).unwrap();
                assert!(container.version() == version);
                part.push(bytes_of(&chain, version)).unwrap();
            }
            assert!(part.to_vec(10 * version).unwrap() == *data, "{name}");
        }
    }
}

#[test]
fn a_full_difference_without_its_parent_is_verified_resumed_and_compacted() {
    let history = &histories(30_001, 64)[0].1;
    let mut lineage = Lineage::new(Config::new(Method::Full).chunk(64)).unwrap();
    lineage.encode(1, &history[0]).unwrap();
    let second = lineage.encode(2, &history[1]).unwrap();
    assert_eq!(second.summary().stored, Stored::Full);
    let mut part: Chain<Vec<u8>> = Chain::new();
    part.push(second.into_bytes()).unwrap();
    assert_eq!(part.dependencies(2).unwrap(), [2]);
    assert!(part.to_vec(2).unwrap() == history[1]);
    part.verify().unwrap();
    assert_eq!(part.compact(&[2]).unwrap().differences.len(), 1);
    let mut resumed = Lineage::resume(*lineage.config(), &part).unwrap();
    part.push(resumed.encode(3, &history[2]).unwrap().into_bytes())
        .unwrap();
    part.verify().unwrap();
    assert!(part.to_vec(3).unwrap() == history[2]);
}

/// The container of a version, as stored.
fn bytes_of(chain: &Chain<Vec<u8>>, version: u64) -> Vec<u8> {
    chain.stored_bytes(version).unwrap().to_vec()
}

#[test]
fn verification_finds_no_collisions_where_there_are_none_and_changes_no_bytes() {
    for (name, history) in histories(50_007, 64) {
        let config = Config::new(Method::Tree).chunk(64).seed(4);
        let mut plain = Lineage::new(config).unwrap();
        let mut verified = Lineage::new(config.verify(true)).unwrap();
        for (data, version) in history.iter().zip(0..) {
            let difference = verified.encode(version, data).unwrap();
            assert_eq!(difference.summary().collisions, 0);
            assert!(plain.encode(version, data).unwrap() == difference, "{name}");
        }
    }
}

#[test]
fn verification_stores_what_collides() {
    let (x, y) = colliding();
    assert_ne!(x, y);
    assert_eq!(
        xxhash_rust::xxh3::xxh3_128(&x),
        xxhash_rust::xxh3::xxh3_128(&y)
    );
    let history = colliding_history();
    for method in [Method::Basic, Method::List, Method::Tree] {
        let config = Config::new(method).chunk(32).seed(0).verify(true);
        let mut lineage = Lineage::new(config).unwrap();
        let mut chain: Chain<Vec<u8>> = Chain::new();
        let mut collisions = 0;
        for (state, version) in history.iter().zip(1..) {
            let mut resumed = Lineage::resume(config, &chain).unwrap();
            let difference = lineage.encode(10 * version, state).unwrap();
            assert_eq!(resumed.encode(10 * version, state).unwrap(), difference);
            collisions += difference.summary().collisions;
            chain.push(difference.into_bytes()).unwrap();
        }
        assert!(collisions >= 2, "{method:?}: {collisions}");
        check(&chain, &history, "collisions");
    }
    // Without verification, one chunk is taken for the other.
    let config = Config::new(Method::Tree).chunk(32);
    let chain = encode(config.seed(0), &history);
    assert_ne!(chain.to_vec(20).unwrap(), history[1]);
    // A seed unknown to the maker of the chunks prevents it too.
    check(&encode(config, &history), &history, "forged");
}

#[test]
fn every_lineage_has_a_seed_of_its_own_and_keeps_it() {
    let seed = |chain: &Chain<Vec<u8>>, version| chain.get(version).unwrap().seed();
    let history = &histories(20_000, 64)[0].1;
    let config = Config::new(Method::Auto).chunk(64);
    let mut seeds = Vec::new();
    for _ in 0..8 {
        let mut chain = encode(config, &history[..2]);
        let own = seed(&chain, 10);
        seeds.push(own);
        // Resumes without a seed, and with the seed of the chain.
        for version in [30, 40] {
            let mut resumed = Lineage::resume(config, &chain).unwrap();
            assert_eq!(resumed.config().seed, Some(own));
            assert!(Lineage::resume(config.seed(own), &chain).is_ok());
            assert!(Lineage::resume(config.seed(!own), &chain).is_err());
            let data = &history[version as usize / 10 - 1];
            let next = resumed.encode(version, data).unwrap();
            chain.push(next.into_bytes()).unwrap();
            assert_eq!(seed(&chain, version), own);
        }
        check(&chain, &history[..4], "resumed");
    }
    seeds.sort_unstable();
    seeds.dedup();
    assert_eq!(seeds.len(), 8);
    // Files from before random seeds have seed 0, and are read and continued.
    let old = encode(config.seed(0), history);
    check(&old, history, "seed 0");
    let resumed = Lineage::resume(config, &old).unwrap();
    assert_eq!(resumed.config().seed, Some(0));
}

#[test]
fn wrong_arguments_are_told_and_change_nothing() {
    assert!(matches!(
        Lineage::new(Config::default().chunk(48)),
        Err(Error::Invalid(Invalid::Chunk { chunk: 48 }))
    ));
    assert!(Lineage::new(Config::default().chunk(1 << 17)).is_err());
    let mut lineage = Lineage::new(Config::default()).unwrap();
    assert!(matches!(
        lineage.encode(0, &[]),
        Err(Error::Invalid(Invalid::Empty))
    ));
    let first = lineage.encode(5, &[1; 1000]).unwrap();
    assert!(matches!(
        lineage.encode(6, &[1; 1001]),
        Err(Error::Invalid(Invalid::Length {
            len: 1001,
            expected: 1000
        }))
    ));
    assert!(matches!(
        lineage.encode(5, &[1; 1000]),
        Err(Error::Invalid(Invalid::VersionOrder {
            version: 5,
            last: 5
        }))
    ));
    let second = lineage.encode(6, &[1; 1000]).unwrap();
    assert_eq!(second.summary().payload_bytes, 0);

    let mut chain = Chain::new();
    chain.push(second.as_bytes()).unwrap();
    assert!(matches!(
        chain.to_vec(6),
        Err(Error::Missing { ordinal: 0, .. })
    ));
    chain.push(first.as_bytes()).unwrap();
    assert_eq!(chain.to_vec(6).unwrap(), [1; 1000]);
    assert!(matches!(
        chain.restore(6, &mut [0; 999]),
        Err(Error::Invalid(Invalid::Length { .. }))
    ));
    assert!(matches!(
        chain.to_vec(7),
        Err(Error::Invalid(Invalid::NoSuchVersion { version: 7 }))
    ));
    assert!(matches!(
        Lineage::resume(Config::default().chunk(64), &chain),
        Err(Error::Invalid(Invalid::Config { .. }))
    ));
}

proptest! {
    #[test]
    fn any_history_of_few_letters_comes_back(
        chunk in 5_u32..8,
        tail in 0_usize..40,
        letters in proptest::collection::vec(proptest::collection::vec(0_u8..4, 40), 1..8),
        which in 0_usize..5,
    ) {
        let chunk = 1 << chunk;
        let history: Vec<Vec<u8>> = letters
            .iter()
            .map(|letters| {
                let mut data: Vec<u8> = letters.iter().flat_map(|&l| vec![l; chunk]).collect();
                data.truncate(data.len() - tail.min(chunk - 1));
                data
            })
            .collect();
        let config = Config::new(METHODS[which]).chunk(chunk as u32);
        let chain = encode(config, &history);
        check(&chain, &history, "letters");
        let list = encode(Config::new(Method::List).chunk(chunk as u32), &history);
        let tree = encode(Config::new(Method::Tree).chunk(chunk as u32), &history);
        for (list, tree) in list.versions().zip(tree.versions()).map(|(l, t)| (list.get(l).unwrap(), tree.get(t).unwrap())) {
            prop_assert!(tree.metadata_bytes() + tree.payload_bytes() <= list.metadata_bytes() + list.payload_bytes());
        }
    }
}
