//! Long histories of which little changes: they take as little room as the lineage alone makes of them, and a restore of
//! any version reads at most two checkpoints, on the host back end.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod history;

use history::{assert_restores, checkpoint};
use std::collections::BTreeMap;
use std::path::Path;
use tierflow_dedup::{Config, Lineage, Tree};
use tierflow_device::{Choice, open};
use tierflow_engine::{Differences, Engine, EngineBuilder, Flush};
use tierflow_store::{Options, Repository};

const SIZE: usize = 256 << 10;
const HOW: Tree = Tree { chunk: 64 };

/// The states of an application that changes `words` words of eight bytes between two checkpoints.
struct States {
    state: Vec<u8>,
    random: u64,
    words: usize,
}

impl States {
    fn new(words: usize) -> Self {
        let mut states = Self {
            state: vec![0; SIZE],
            random: 1,
            words: SIZE / 8,
        };
        states.step();
        states.words = words;
        states
    }

    fn next(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }

    fn step(&mut self) -> &[u8] {
        for word in 0..self.words {
            let at = match self.words == SIZE / 8 {
                true => 8 * word,
                false => 8 * (self.next() as usize % (SIZE / 8)),
            };
            let bytes = self.next().to_le_bytes();
            self.state[at..at + 8].copy_from_slice(&bytes);
        }
        &self.state
    }
}

/// Bytes that the lineage alone makes of the versions.
fn lineage_bytes(versions: u64, words: usize) -> u64 {
    let mut lineage = Lineage::new(Config::from(HOW)).unwrap();
    let mut states = States::new(words);
    let mut encode = |version| {
        let difference = lineage.encode(version, states.step()).unwrap();
        difference.summary().stored_bytes
    };
    (0..versions).map(&mut encode).sum()
}

fn builder(host_cache: usize) -> EngineBuilder {
    Engine::builder(&open(Choice::Host).unwrap())
        .device_cache(4 * SIZE)
        .host_cache(host_cache)
        .flush(Flush::Eager)
        .dedup(HOW)
}

/// Bytes that went from the fastest tier to the one below.
fn flushed(engine: &Engine) -> u64 {
    let hops = engine.metrics().hops.into_iter();
    let down = hops.filter(|hop| hop.from == "device" && hop.to == "host");
    down.map(|hop| hop.bytes).sum()
}

/// Takes versions in, each with `words` words changed, and compares their bytes with those of the lineage alone.
fn assert_as_small_as_the_lineage_alone(versions: u64, words: usize) {
    let engine = builder(32 << 20).build().unwrap();
    let mut states = States::new(words);
    for version in 0..versions {
        checkpoint(&engine, version, states.step());
    }
    engine.wait().unwrap();
    let (alone, stored) = (lineage_bytes(versions, words), flushed(&engine));
    assert!(
        stored as f64 <= 1.05 * alone as f64,
        "{versions} versions of {words} words take {stored} bytes, of the lineage alone {alone}"
    );
    let mut again = States::new(words);
    for version in 0..versions {
        let expected = again.step();
        if version % 61 == 0 || version + 1 == versions {
            assert_restores(&engine, version, expected);
        }
    }
}

/// The largest number of bytes that a restore of a version in this directory reads, and the number of chains.
fn read_from(directory: &Path) -> (u64, usize) {
    let repository = Repository::read_only(directory, Options::default()).unwrap();
    let versions = repository.versions().unwrap();
    let mut chains: BTreeMap<u64, u64> = BTreeMap::new();
    let mut begun = 0;
    for info in versions {
        let before = match info.base {
            Some(base) => chains[&base],
            None => 0,
        };
        begun += usize::from(info.base.is_none());
        chains.insert(info.version, before + info.bytes);
    }
    (chains.into_values().max().unwrap(), begun)
}

#[test]
fn as_small_as_the_lineage_alone_over_128_versions() {
    assert_as_small_as_the_lineage_alone(128, 2);
}

#[test]
fn as_small_as_the_lineage_alone_over_1024_versions() {
    assert_as_small_as_the_lineage_alone(1024, 2);
    assert_as_small_as_the_lineage_alone(1024, 20);
}

#[test]
fn the_longest_chain_is_given_up_at_once() {
    let engine = builder(64 << 20).build().unwrap();
    let mut states = States::new(0);
    for version in 0..4000 {
        checkpoint(&engine, version, states.step());
    }
    engine.wait().unwrap();
    (0..3999).for_each(|version| engine.discard(version).unwrap());
    assert_restores(&engine, 3999, states.step());
    engine.discard(3999).unwrap();
    engine.wait().unwrap();
    assert_eq!(history::used(&engine, "host"), 0);
}

#[test]
fn a_restore_from_storage_reads_at_most_the_chosen_number_of_checkpoints() {
    let mut chains = Vec::new();
    for reads in [1, 2, 4] {
        let directory = tempfile::tempdir().unwrap();
        let how = Differences::from(HOW).restore_reads(reads);
        let builder = builder(32 << 20).external(directory.path()).dedup(how);
        let engine = builder.build().unwrap();
        let mut states = States::new(200);
        for version in 0..60 {
            checkpoint(&engine, version, states.step());
        }
        engine.wait().unwrap();
        let mut again = States::new(200);
        (0..60).for_each(|version| assert_restores(&engine, version, again.step()));
        drop(engine);
        let (read, begun) = read_from(directory.path());
        // A version that builds upon nothing is a header longer than the checkpoint.
        assert!(
            read <= (u64::from(reads) * SIZE as u64).max(SIZE as u64 + 192),
            "{read} bytes"
        );
        chains.push(begun);
    }
    assert_eq!(chains[0], 60);
    assert!(
        chains[2] * 2 < chains[1] && chains[1] * 2 < 60,
        "{chains:?}"
    );
}

#[test]
fn what_is_kept_for_others_alone_is_bounded_too() {
    let engine = builder(32 << 20).build().unwrap();
    let mut states = States::new(200);
    let mut most = 0;
    for version in 0..400 {
        checkpoint(&engine, version, states.step());
        engine.wait().unwrap();
        if version > 0 {
            engine.discard(version - 1).unwrap();
        }
        most = most.max(history::used(&engine, "host"));
    }
    // The chain of the newest version, and the next one while it begins.
    assert!(most <= 4 * SIZE as u64, "{most} bytes for one version");
    assert_restores(&engine, 399, &states.state);
}
