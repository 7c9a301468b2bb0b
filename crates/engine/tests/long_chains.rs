//! Long histories of which little changes: they take as little room as the lineage alone makes of them, and a restore of
//! any version reads at most two checkpoints, on the host back end.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod history;

use history::{assert_restores, checkpoint};
use tierflow_dedup::{Config, Lineage, Tree};
use tierflow_device::{Choice, open};
use tierflow_engine::{Engine, EngineBuilder, Flush};

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

fn read(engine: &Engine) -> u64 {
    let hops = engine.metrics().hops.into_iter();
    let up = hops.filter(|hop| hop.from == "host");
    up.map(|hop| hop.bytes).sum()
}

fn history_within_five_percent(versions: u64, words: usize) {
    let engine = builder(32 << 20).build().unwrap();
    let mut states = States::new(words);
    for version in 0..versions {
        checkpoint(&engine, version, states.step());
    }
    engine.wait().unwrap();
    let (alone, stored) = (lineage_bytes(versions, words), flushed(&engine));
    let whole = versions * SIZE as u64;
    let [alone_ratio, ratio] = [alone, stored].map(|bytes| whole as f64 / bytes as f64);
    println!("{versions} versions: {ratio:.1} times smaller, {alone_ratio:.1} by the lineage alone");
    assert!(stored as f64 <= 1.05 * alone as f64, "{stored} bytes of {alone}");
    let mut again = States::new(words);
    let mut checked = 0;
    for version in 0..versions {
        let expected = again.step();
        if version % 61 == 0 || version + 1 == versions {
            let begun = std::time::Instant::now();
            assert_restores(&engine, version, expected);
            checked += 1;
            if version + 1 == versions { println!("{:?} {}", begun.elapsed(), read(&engine)); }
        }
    }
    assert!(checked > 2);
}

#[test]
fn as_small_as_the_lineage_alone_over_128_versions() {
    history_within_five_percent(128, 2);
}

#[test]
fn as_small_as_the_lineage_alone_over_1024_versions() {
    history_within_five_percent(1024, 2);
    history_within_five_percent(128, 20);
    history_within_five_percent(600, 20);
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
