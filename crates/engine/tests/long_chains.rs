//! Long histories in which little changes, on the host back end, take as little room as the differences of the lineage alone, and
//! the restore of any version reads at most the chosen number of checkpoints.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod history;

use history::{assert_restores, checkpoint};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::path::Path;
use tierflow_dedup::{Chain, Config, Lineage, Tree};
use tierflow_device::{Choice, open};
use tierflow_engine::{Differences, Engine, EngineBuilder, Flush};
use tierflow_store::{Options, Repository};

const SIZE: usize = 256 << 10;
const HOW: Tree = Tree { chunk: 64 };

/// The change of an application's state between two checkpoints.
#[derive(Clone, Copy)]
struct Change {
    /// Bytes of the state.
    size: usize,
    /// Words of eight bytes that change.
    words: usize,
    /// The changed words are among so many bytes from the start of the state on.
    among: usize,
}

impl Change {
    /// Returns a change of `words` words anywhere in the state.
    const fn anywhere(words: usize) -> Self {
        let (size, among) = (SIZE, SIZE);
        Self { size, words, among }
    }
}

/// The states of an application.
struct States {
    state: Vec<u8>,
    random: u64,
    change: Change,
}

impl States {
    fn new(change: Change) -> Self {
        let state = vec![0; change.size];
        let mut states = Self {
            state,
            random: 1,
            change,
        };
        for at in 0..change.size / 8 {
            states.set(at);
        }
        states
    }

    fn next(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }

    fn set(&mut self, word: usize) {
        let bytes = self.next().to_le_bytes();
        self.state[8 * word..][..8].copy_from_slice(&bytes);
    }

    fn step(&mut self) -> &[u8] {
        for _ in 0..self.change.words {
            let word = self.next() as usize % (self.change.among / 8);
            self.set(word);
        }
        &self.state
    }
}

/// Returns the bytes of the differences that the lineage alone makes of the versions.
fn lineage_bytes(versions: u64, change: Change) -> u64 {
    let mut lineage = Lineage::new(Config::from(HOW)).unwrap();
    let mut states = States::new(change);
    let mut encode = |version| {
        let difference = lineage.encode(version, states.step()).unwrap();
        difference.summary().stored_bytes
    };
    (0..versions).map(&mut encode).sum()
}

fn builder(size: usize, host_cache: usize) -> EngineBuilder {
    Engine::builder(&open(Choice::Host).unwrap())
        .device_cache(4 * size)
        .host_cache(host_cache)
        .flush(Flush::Eager)
        .dedup(HOW)
}

/// Returns the bytes that went from the fastest tier to the one below.
fn flushed(engine: &Engine) -> u64 {
    let hops = engine.metrics().hops.into_iter();
    let down = hops.filter(|hop| hop.from == "device" && hop.to == "host");
    down.map(|hop| hop.bytes).sum()
}

/// Takes versions in, and restores some of them. Returns the ratio of the bytes that were flushed to those of the lineage alone.
fn stored_for_the_lineages(engine: &Engine, versions: u64, change: Change) -> f64 {
    let mut states = States::new(change);
    for version in 0..versions {
        checkpoint(engine, version, states.step());
    }
    engine.wait().unwrap();
    let mut again = States::new(change);
    for version in 0..versions {
        let expected = again.step();
        if version % 61 == 0 || version + 1 == versions {
            assert_restores(engine, version, expected);
        }
    }
    let (stored, alone) = (flushed(engine), lineage_bytes(versions, change));
    let whole = (versions * change.size as u64) as f64;
    println!(
        "{versions} versions of {} words: {:.1} times smaller, {:.1} by the lineage alone",
        change.words,
        whole / stored as f64,
        whole / alone as f64
    );
    stored as f64 / alone as f64
}

/// Versions in a directory.
struct Stored {
    /// Bytes of all of them.
    bytes: u64,
    /// Number of versions without a base.
    begun: usize,
    /// The most bytes that the restore of a version reads.
    read: u64,
}

fn stored_in(directory: &Path) -> Stored {
    let repository = Repository::read_only(directory, Options::default()).unwrap();
    let mut stored = Stored {
        bytes: 0,
        begun: 0,
        read: 0,
    };
    let mut chains: Vec<Chain<Vec<u8>>> = Vec::new();
    for info in repository.versions().unwrap() {
        let piece = repository.piece(info.version).unwrap();
        let bytes = piece.read(&piece.regions()[0].name).unwrap();
        stored.bytes += info.bytes;
        if info.base.is_none() {
            stored.begun += 1;
            chains.push(Chain::new());
        }
        let chain = chains.last_mut().unwrap();
        chain.push(bytes).unwrap();
        let newest = chain.versions().last().unwrap();
        let needed = chain.dependencies(newest).unwrap();
        let read = needed
            .iter()
            .map(|one| chain.stored_bytes(*one).unwrap().len() as u64);
        stored.read = stored.read.max(read.sum());
    }
    stored
}

#[test]
fn as_small_as_the_lineage_alone_over_128_versions() {
    let engine = builder(SIZE, 32 << 20).build().unwrap();
    let share = stored_for_the_lineages(&engine, 128, Change::anywhere(2));
    assert!(share <= 1.05, "{share}");
}

#[test]
fn as_small_as_the_lineage_alone_over_1024_versions() {
    let larger = Change {
        size: 2 * SIZE,
        words: 40,
        among: 2 * SIZE,
    };
    for change in [Change::anywhere(2), larger] {
        let engine = builder(change.size, 32 << 20).build().unwrap();
        let share = stored_for_the_lineages(&engine, 1024, change);
        assert!(share <= 1.05, "{share}");
    }
}

#[test]
fn headers_and_entries_as_long_as_a_checkpoint_are_not_read_on() {
    // The header and the entries of 20 chunks of 64 bytes take 272 bytes. The headers and entries of 964 versions are as long as a checkpoint.
    let engine = builder(SIZE, 32 << 20).build().unwrap();
    let share = stored_for_the_lineages(&engine, 1200, Change::anywhere(20));
    assert!(share <= 1.05, "{share}");
}

#[test]
fn changes_in_one_place_take_as_little_room_as_in_the_lineage_alone() {
    let change = Change {
        size: SIZE,
        words: 300,
        among: SIZE / 16,
    };
    let directory = tempfile::tempdir().unwrap();
    let builder = builder(SIZE, 32 << 20).external(directory.path());
    let engine = builder.build().unwrap();
    let share = stored_for_the_lineages(&engine, 128, change);
    assert!(share <= 1.05, "{share}");
    drop(engine);
    let stored = stored_in(directory.path());
    println!(
        "a restore reads {:.2} checkpoints at most",
        stored.read as f64 / SIZE as f64
    );
    assert_eq!(stored.begun, 1);
    assert!(stored.read <= 2 * SIZE as u64, "{} bytes", stored.read);
}

#[test]
fn the_longest_chain_is_given_up_at_once() {
    let engine = builder(SIZE, 64 << 20).build().unwrap();
    let mut states = States::new(Change::anywhere(0));
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
    let change = Change::anywhere(200);
    let mut all = Vec::new();
    for reads in [1, 2, 4] {
        let directory = tempfile::tempdir().unwrap();
        let how = Differences::from(HOW).restore_reads(reads);
        let builder = builder(SIZE, 32 << 20).external(directory.path());
        let engine = builder.dedup(how).build().unwrap();
        let mut states = States::new(change);
        for version in 0..60 {
            checkpoint(&engine, version, states.step());
        }
        engine.wait().unwrap();
        let mut again = States::new(change);
        (0..60).for_each(|version| assert_restores(&engine, version, again.step()));
        drop(engine);
        let stored = stored_in(directory.path());
        // A version without a base is longer than the checkpoint by a header.
        let most = (u64::from(reads) * SIZE as u64).max(SIZE as u64 + 192);
        assert!(stored.read <= most, "{} bytes", stored.read);
        all.push(stored);
    }
    let begun: Vec<usize> = all.iter().map(|stored| stored.begun).collect();
    assert!(
        begun[0] == 60 && begun[1] <= 3 && begun[2] == 1,
        "{begun:?}"
    );
    let bytes: Vec<u64> = all.iter().map(|stored| stored.bytes).collect();
    assert!(bytes[0] > 5 * bytes[1] && bytes[1] > bytes[2], "{bytes:?}");
    let alone = lineage_bytes(60, change) as f64;
    assert!(bytes[2] as f64 <= 1.1 * alone, "{bytes:?}, alone {alone}");
}

#[test]
fn bases_of_discarded_versions_are_bounded_too() {
    let engine = builder(SIZE, 32 << 20).build().unwrap();
    let mut states = States::new(Change::anywhere(200));
    let mut most = 0;
    for version in 0..400 {
        checkpoint(&engine, version, states.step());
        engine.wait().unwrap();
        if version > 0 {
            engine.discard(version - 1).unwrap();
        }
        most = most.max(history::used(&engine, "host"));
    }
    // The host holds the chain of the newest version, and the beginning of the next chain.
    assert!(most <= 4 * SIZE as u64, "{most} bytes for one version");
    assert_restores(&engine, 399, &states.state);
}

/// A step of an application.
#[derive(Debug, Clone, Copy)]
enum Step {
    /// Changes words and takes a checkpoint, several times.
    Checkpoint {
        words: usize,
        times: u64,
    },
    /// Discards each held version whose number has this remainder modulo 5.
    Discard {
        remainder: u64,
    },
    Restore {
        which: usize,
    },
    Reopen,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (1_usize..120, 1_u64..30).prop_map(|(words, times)| Step::Checkpoint { words, times }),
        2 => (0_u64..5).prop_map(|remainder| Step::Discard { remainder }),
        2 => any::<usize>().prop_map(|which| Step::Restore { which }),
        1 => Just(Step::Reopen),
    ];
    proptest::collection::vec(step, 4..16)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn held_versions_come_back_whatever_is_discarded(
        steps in steps(),
        reads in 1_u32..5,
        only_memory in any::<bool>(),
        one_place in any::<bool>(),
    ) {
        const SMALL: usize = 32 << 10;
        let directory = tempfile::tempdir().unwrap();
        let open = || {
            let how = Differences::from(HOW).restore_reads(reads);
            let builder = builder(SMALL, 64 << 20).dedup(how);
            match only_memory {
                true => builder.build().unwrap(),
                false => builder.external(directory.path()).build().unwrap(),
            }
        };
        let mut engine = open();
        let mut states = States::new(Change {
            size: SMALL,
            words: 0,
            among: if one_place { SMALL / 8 } else { SMALL },
        });
        let mut held: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
        let mut next = 0;
        for step in steps {
            match step {
                Step::Checkpoint { words, times } => {
                    states.change.words = words;
                    for _ in 0..times {
                        checkpoint(&engine, next, states.step());
                        held.insert(next, states.state.clone());
                        next += 1;
                    }
                }
                Step::Discard { remainder } => {
                    let given_up = held.keys().filter(|version| *version % 5 == remainder);
                    for version in given_up.copied().collect::<Vec<_>>() {
                        engine.discard(version).unwrap();
                        held.remove(&version);
                    }
                }
                Step::Restore { which } => {
                    if let Some((version, bytes)) = held.iter().nth(which % held.len().max(1)) {
                        assert_restores(&engine, *version, bytes);
                    }
                }
                Step::Reopen if only_memory => engine.wait().unwrap(),
                Step::Reopen => {
                    engine.wait().unwrap();
                    drop(engine);
                    engine = open();
                    // The next engine finds discarded versions that others build upon.
                    for version in engine.versions() {
                        if !held.contains_key(&version) {
                            engine.discard(version).unwrap();
                        }
                    }
                }
            }
        }
        engine.wait().unwrap();
        for (version, bytes) in held.iter().rev() {
            assert_restores(&engine, *version, bytes);
        }
    }
}
