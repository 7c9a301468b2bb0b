//! Versions that the tiers below the fastest hold as differences that are compressed, on the host back end: what comes back is
//! what went in, and the tiers hold less than of differences alone.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod counters;
mod history;

use counters::{SIZE, state};
use history::{assert_restores, checkpoint, host, used};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tierflow_codec::{Codec, Frame, Planes};
use tierflow_dedup::{Config, Lineage, Method, Tree};
use tierflow_engine::{
    AfterRestore, Bound, BuildError, Compression, CompressionMetrics, Element, Engine,
    EngineBuilder, Error, Flush, Region, RegionMut, Tier, Value, Version,
};
use tierflow_store::{Faults, Faulty, Options, Repository, Scratch};
use tierflow_testing::noise;

fn chunks() -> Tree {
    Tree { chunk: 64 }
}

fn always() -> Compression {
    Compression::lossless(Value::I32).always()
}

/// Room for two checkpoints, for as many in differences, and for all.
fn tiers(directory: &Path) -> EngineBuilder {
    Engine::builder(&host())
        .device_cache(2 * SIZE)
        .host_cache(4 * SIZE)
        .scratch(directory)
        .flush(Flush::Eager)
        .dedup(chunks())
}

fn compression(engine: &Engine) -> CompressionMetrics {
    engine.metrics().compression.unwrap()
}

#[test]
fn every_version_comes_back_in_any_order_and_the_tiers_hold_less_than_of_differences() {
    let alone = {
        let directory = tempfile::tempdir().unwrap();
        let engine = tiers(directory.path()).build().unwrap();
        (0..24).for_each(|version| checkpoint(&engine, version, &state(version)));
        engine.wait().unwrap();
        assert!(engine.metrics().compression.is_none());
        used(&engine, "file")
    };
    for after in [AfterRestore::Keep, AfterRestore::Discard] {
        for order in [
            (0..24).rev().collect::<Vec<_>>(),
            (0..24).collect(),
            (0..24).map(|n| n * 17 % 24).collect(),
        ] {
            let directory = tempfile::tempdir().unwrap();
            let both = tiers(directory.path()).compress(always());
            let engine = both.after_restore(after).build().unwrap();
            engine.hint(order.iter().copied());
            (0..24).for_each(|version| checkpoint(&engine, version, &state(version)));
            engine.wait().unwrap();
            let stored = used(&engine, "file");
            assert!(stored < alone / 2, "{stored} bytes, and {alone} without");
            let figures = compression(&engine);
            assert!(figures.stored < figures.compressed / 2, "{figures:?}");
            // Differences are compressed, and not checkpoints.
            assert!(figures.compressed < 14 * SIZE as u64, "{figures:?}");
            for &version in &order {
                assert_restores(&engine, version, &state(version));
            }
        }
    }
}

#[test]
fn regions_of_several_types_and_sizes_come_back_together_and_one_by_one() {
    let directory = tempfile::tempdir().unwrap();
    let how = Compression::lossless(Value::I8).always();
    let engine = tiers(directory.path()).compress(how).build().unwrap();
    // Regions that end anywhere, and histories of two sizes: what builds upon another one begins anew.
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

#[test]
fn what_does_not_become_smaller_goes_as_it_is_and_the_stage_turns_itself_off() {
    let directory = tempfile::tempdir().unwrap();
    let how = Compression::lossless(Value::F64);
    let engine = tiers(directory.path()).compress(how).build().unwrap();
    let sizes = [SIZE, 1, 4096, 4097, 100_000];
    let of = |version: Version| noise(version, sizes[version as usize % sizes.len()]);
    (0..40).for_each(|version| checkpoint(&engine, version, &of(version)));
    engine.wait().unwrap();
    let figures = compression(&engine);
    assert_eq!(figures.compressed, 0);
    assert!(!figures.is_on, "{figures:?}");
    assert!(figures.as_they_are > (0..40).map(|version| of(version).len() as u64).sum());
    (0..40)
        .rev()
        .for_each(|version| assert_restores(&engine, version, &of(version)));
}

/// Engines on directories that outlive them.
struct Home(tempfile::TempDir);

impl Home {
    fn open(&self) -> EngineBuilder {
        Engine::builder(&host())
            .device_cache(2 * SIZE)
            .host_cache(3 * SIZE)
            .node_local(self.0.path().join("node"))
            .external(self.0.path().join("external"))
    }

    /// The first bytes that are stored of each version, whose difference that is.
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
fn whichever_engine_comes_next_reads_what_this_one_stored() {
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
    // With differences alone, the node being lost.
    live(home.open().dedup(Tree { chunk: 128 }), 18, true);
    let starts = home.starts();
    let frames = starts.iter().filter(|start| *start == b"tfframe\0").count();
    assert_eq!((frames, starts.len()), (36, 54));
    // And with compression alone.
    live(home.open().compress(always()), 3, true);
    live(both(), 3, true);
}

/// A history whose second difference is long, as it is stored by both.
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
    // So that they become smaller, whatever compresses them.
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
fn a_disk_that_fails_ends_a_chain_and_loses_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let faults = Arc::new(Faults::default());
    let scratch = Scratch::open(directory.path()).unwrap();
    let engine = Engine::builder(&host())
        .host_cache(8 * SIZE)
        .tier(Tier::storage(Arc::new(Faulty::new(
            scratch,
            Arc::clone(&faults),
        ))))
        .flush(Flush::Eager)
        .dedup(chunks())
        .compress(always())
        .build()
        .unwrap();
    let save = |version| checkpoint(&engine, version, &state(version));
    (0..3).for_each(save);
    engine.wait().unwrap();
    faults.writes_fail.store(true, Ordering::Relaxed);
    (3..6).for_each(save);
    assert!(matches!(engine.wait(), Err(Error::Stalled { .. })));
    faults.writes_fail.store(false, Ordering::Relaxed);
    (6..8).for_each(save);
    engine.wait().unwrap();
    (0..8)
        .rev()
        .for_each(|version| assert_restores(&engine, version, &state(version)));
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
