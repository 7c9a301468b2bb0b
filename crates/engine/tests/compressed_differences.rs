//! The tiers below the fastest hold versions compressed, as differences, or as compressed differences, on the host back end. Restored
//! bytes are the same, and the tiers hold less. With both, they hold less than with differences alone.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod changing;
mod counters;
mod field;
mod history;

use counters::{SIZE, state};
use field::field;
use history::{
    assert_drains, assert_restores, caches, checkpoint, compression, faulty, host, used,
};
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::Ordering;
use tierflow_codec::{Codec, Frame, Planes};
use tierflow_dedup::{Config, Lineage, Method, Tree};
use tierflow_engine::{
    AfterRestore, Bound, BuildError, Compression, Element, Engine, EngineBuilder, Error, Flush,
    Region, RegionMut, Value, Version,
};
use tierflow_store::{Options, Repository};
use tierflow_testing::noise;

fn chunks() -> Tree {
    Tree { chunk: 64 }
}

fn always() -> Compression {
    Compression::lossless(Value::I32).always()
}

fn tiers(directory: &Path) -> EngineBuilder {
    caches(directory, SIZE).dedup(chunks())
}

/// A way to store versions below the fastest tier, and versions of [`SIZE`] bytes that it makes smaller.
#[derive(Clone, Copy)]
struct Stage {
    build: fn(EngineBuilder) -> EngineBuilder,
    content: fn(Version) -> Vec<u8>,
    versions: u64,
}

const COMPRESSION: Stage = Stage {
    build: |builder| builder.compress(Compression::lossless(Value::F32)),
    content: field,
    versions: 30,
};
const DIFFERENCES: Stage = Stage {
    build: |builder| builder.dedup(chunks()),
    content: changing::content,
    versions: 40,
};
const BOTH: Stage = Stage {
    build: |builder| builder.dedup(chunks()).compress(always()),
    content: state,
    versions: 24,
};

impl Stage {
    fn checkpoint(&self, engine: &Engine, versions: Range<Version>) {
        versions.for_each(|version| checkpoint(engine, version, &(self.content)(version)));
    }

    fn assert_restores(&self, engine: &Engine, versions: impl IntoIterator<Item = Version>) {
        let versions = versions.into_iter();
        versions.for_each(|version| assert_restores(engine, version, &(self.content)(version)));
    }
}

/// Checks an engine, and the bytes in its file.
type Check<'a> = &'a dyn Fn(&Engine, u64);

#[test]
fn every_version_comes_back_in_any_order_and_the_tiers_hold_less() {
    let alone = {
        let directory = tempfile::tempdir().unwrap();
        let engine = tiers(directory.path()).build().unwrap();
        BOTH.checkpoint(&engine, 0..BOTH.versions);
        engine.wait().unwrap();
        assert!(engine.metrics().compression.is_none());
        used(&engine, "file")
    };
    let compressed = |engine: &Engine, stored: u64| {
        let figures = compression(engine);
        // On a busy machine, the engine may store some versions without compression.
        let all = figures.compressed + figures.as_they_are;
        assert_eq!(all % SIZE as u64, 0);
        // Fields shrink less the further the wave has come, and any of them may be among the compressed ones.
        assert!(figures.stored < figures.compressed / 4 * 3, "{figures:?}");
        assert!(stored <= figures.stored + figures.as_they_are + 30 * 4096);
    };
    let differing = |engine: &Engine, stored: u64| {
        // Three chains, each of a whole checkpoint and 15 small differences.
        assert!(stored < 6 * SIZE as u64, "{stored} bytes for 40 versions");
        let down = engine.metrics().hops.into_iter();
        let down = down.filter(|hop| hop.from == "device" && hop.to != "device");
        let down: u64 = down.map(|hop| hop.bytes).sum();
        assert!(down < 6 * SIZE as u64, "{down} bytes went down");
    };
    let both = |engine: &Engine, stored: u64| {
        assert!(stored < alone / 2, "{stored} bytes, and {alone} without");
        let figures = compression(engine);
        assert!(figures.stored < figures.compressed / 2, "{figures:?}");
        // Differences are compressed, and not checkpoints.
        assert!(figures.compressed < 14 * SIZE as u64, "{figures:?}");
    };
    let stages: [(Stage, Check<'_>); 3] = [
        (COMPRESSION, &compressed),
        (DIFFERENCES, &differing),
        (BOTH, &both),
    ];
    for (stage, check) in stages {
        let all = 0..stage.versions;
        for order in [
            all.clone().rev().collect::<Vec<_>>(),
            all.clone().collect(),
            all.clone().map(|n| n * 17 % stage.versions).collect(),
        ] {
            for after in [AfterRestore::Keep, AfterRestore::Discard] {
                let directory = tempfile::tempdir().unwrap();
                let builder = (stage.build)(caches(directory.path(), SIZE));
                let engine = builder.after_restore(after).build().unwrap();
                engine.hint(order.iter().copied());
                stage.checkpoint(&engine, all.clone());
                engine.wait().unwrap();
                check(&engine, used(&engine, "file"));
                stage.assert_restores(&engine, order.iter().copied());
                match after {
                    AfterRestore::Discard => assert_drains(&engine),
                    AfterRestore::Keep => stage.assert_restores(&engine, all.clone()),
                }
            }
        }
    }
}

#[test]
fn versions_that_cannot_be_compressed_are_stored_as_they_are() {
    let sizes = [SIZE, 1, 4096, 4097, 100_000];
    let of = |version: Version| noise(version, sizes[version as usize % sizes.len()]);
    let all: u64 = (0..40).map(|version| of(version).len() as u64).sum();
    for differs in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        let builder = match differs {
            false => (COMPRESSION.build)(caches(directory.path(), SIZE)),
            true => tiers(directory.path()).compress(Compression::lossless(Value::F64)),
        };
        let engine = builder.build().unwrap();
        (0..40).for_each(|version| checkpoint(&engine, version, &of(version)));
        engine.wait().unwrap();
        let figures = compression(&engine);
        assert_eq!(figures.compressed, 0);
        // Versions that were flushed twice count twice.
        assert!(figures.as_they_are >= all + u64::from(differs));
        // The stage turns itself off.
        assert!(!(differs && figures.is_on), "{figures:?}");
        let last_first = (0..40).rev();
        last_first.for_each(|version| assert_restores(&engine, version, &of(version)));
    }
}

#[test]
fn a_disk_that_fails_ends_a_chain_and_loses_nothing() {
    for stage in [DIFFERENCES, BOTH] {
        let directory = tempfile::tempdir().unwrap();
        let (faults, file) = faulty(directory.path());
        let builder = Engine::builder(&host()).host_cache(8 * SIZE).tier(file);
        let engine = (stage.build)(builder.flush(Flush::Eager)).build().unwrap();
        stage.checkpoint(&engine, 0..3);
        engine.wait().unwrap();
        faults.writes_fail.store(true, Ordering::Relaxed);
        stage.checkpoint(&engine, 3..6);
        assert!(matches!(engine.wait(), Err(Error::Stalled { .. })));
        faults.writes_fail.store(false, Ordering::Relaxed);
        stage.checkpoint(&engine, 6..8);
        engine.wait().unwrap();
        stage.assert_restores(&engine, (0..8).rev());
    }
}

#[test]
fn regions_of_several_types_and_sizes_come_back_together_and_one_by_one() {
    let directory = tempfile::tempdir().unwrap();
    let how = Compression::lossless(Value::I8).always();
    let engine = tiers(directory.path()).compress(how).build().unwrap();
    // The regions have odd lengths, and the size changes within the history, where a new chain begins.
    let head = |version: Version| noise(version / 9, if version % 9 < 5 { 10_003 } else { 77 });
    let wave = |version: Version| -> Vec<u8> {
        let front = 300 * (version as usize + 1);
        let value = |n: usize| match n < front {
            true => ((front - n) as f32 / 40.0).sin(),
            false => 0.0,
        };
        (0..10_000).flat_map(|n| value(n).to_le_bytes()).collect()
    };
    let versions = 0..27;
    for version in versions.clone() {
        let (head, counters, wave) = (head(version), state(version), wave(version));
        let regions = [
            Region::from(head.as_slice()).named("head"),
            Region::from(counters.as_slice()).array("counters", Element::U32, &[SIZE as u64 / 4]),
            Region::from(wave.as_slice()).array("wave", Element::F32, &[100, 100]),
        ];
        engine.checkpoint(version, &regions).unwrap();
    }
    engine.wait().unwrap();
    assert!(compression(&engine).stored > 0);
    for version in versions.rev() {
        let mut alone = vec![0; 40_000];
        let region = ("wave", RegionMut::from(alone.as_mut_slice()));
        engine
            .call()
            .restore_regions(version, &mut [region])
            .unwrap();
        assert!(alone == wave(version));
        let whole = [head(version), state(version), wave(version)].concat();
        assert_restores(&engine, version, &whole);
    }
}

/// Directories that outlive the engines.
struct Home(tempfile::TempDir);

impl Home {
    fn open(&self) -> EngineBuilder {
        Engine::builder(&host())
            .device_cache(2 * SIZE)
            .host_cache(3 * SIZE)
            .node_local(self.0.path().join("node"))
            .external(self.0.path().join("external"))
    }

    /// Returns the first stored bytes of each version, which tell the form in which it is stored.
    fn starts(&self) -> Vec<Vec<u8>> {
        let external = self.0.path().join("external");
        let repository = Repository::read_only(external, Options::default()).unwrap();
        let versions = repository.versions().unwrap();
        let start = |version: Version| {
            let piece = repository.piece_of(version, 0).unwrap();
            piece.read("difference").unwrap()[..8].to_vec()
        };
        versions.iter().map(|info| start(info.version)).collect()
    }
}

#[test]
fn engines_with_other_stages_read_the_stored_versions() {
    let home = Home(tempfile::tempdir().unwrap());
    let mut next = 0;
    let mut live = |builder: EngineBuilder, versions: u64, loses: bool| {
        if loses {
            std::fs::remove_dir_all(home.0.path().join("node")).unwrap();
        }
        let engine = builder.build().unwrap();
        assert_eq!(engine.latest(None), u64::checked_sub(next, 1));
        engine.hint((0..next).rev());
        (0..next)
            .rev()
            .for_each(|version| assert_restores(&engine, version, &state(version)));
        let ends = next + versions;
        (next..ends).for_each(|version| checkpoint(&engine, version, &state(version)));
        engine.wait().unwrap();
        (0..ends).for_each(|version| assert_restores(&engine, version, &state(version)));
        next = ends;
    };
    let both = || home.open().dedup(chunks()).compress(always());
    live(both(), 18, false);
    assert!(home.starts().iter().all(|start| start == b"tfframe\0"));
    live(both(), 18, false);
    // Now with differences alone, after the node was lost.
    live(home.open().dedup(Tree { chunk: 128 }), 18, true);
    let starts = home.starts();
    let frames = starts.iter().filter(|start| *start == b"tfframe\0").count();
    assert_eq!((frames, starts.len()), (36, 54));
    // Now with compression alone.
    live(home.open().compress(always()), 3, true);
    live(both(), 3, true);
}

/// Returns a difference as the engine stores it, and the same difference in the frame in which an engine that also compresses stores it.
fn stored_by_both() -> (Vec<u8>, Vec<u8>) {
    let config = Config::new(Method::Tree).chunk(64);
    let mut lineage = Lineage::new(config).unwrap();
    lineage.encode(1, &state(0)).unwrap();
    let difference = lineage.encode(2, &state(1)).unwrap().into_bytes();
    let (header, rest) = difference.split_at(tierflow_dedup::HEADER_BYTES);
    let mut frame = Frame::start(header, rest.len() as u64);
    frame.extend(Planes::new().encode_to_vec(rest, Value::I32).unwrap());
    (difference, frame)
}

#[test]
fn checkpoints_that_look_like_what_is_stored_are_never_taken_for_it() {
    let (difference, frame) = stored_by_both();
    let container = Planes::new().encode_to_vec(&frame, Value::I8).unwrap();
    // Zeros at the end, so that every codec makes the checkpoints smaller.
    let padded = |bytes: &[u8]| [bytes, &[0; 60_000]].concat();
    let contents = [
        difference.clone(),
        frame.clone(),
        container.clone(),
        padded(&difference),
        padded(&frame),
        padded(&container),
    ];
    let home = Home(tempfile::tempdir().unwrap());
    let compressing = || home.open().compress(always());
    let both = || home.open().dedup(chunks()).compress(always());
    let differing = || home.open().dedup(chunks());
    let mut next = 0;
    type Build<'a> = &'a dyn Fn() -> EngineBuilder;
    let builds: [Build<'_>; 3] = [&compressing, &both, &differing];
    for build in builds.into_iter().chain(builds) {
        let engine = build().build().unwrap();
        for content in &contents {
            checkpoint(&engine, next, content);
            next += 1;
        }
        engine.wait().unwrap();
        for version in (0..next).rev() {
            assert_restores(
                &engine,
                version,
                &contents[version as usize % contents.len()],
            );
        }
    }
}

#[test]
fn bounds_are_refused_with_differences() {
    let directory = tempfile::tempdir().unwrap();
    let how = Compression::lossless(Value::F32).within("wave", Bound::Relative(1e-3));
    let refused = tiers(directory.path()).compress(how).build();
    let Err(Error::Build(BuildError::NoDifferences { why })) = refused else {
        panic!("{refused:?}");
    };
    assert!(why.contains("bounds"), "{why}");
}
