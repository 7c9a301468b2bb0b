//! The tiers below the fastest hold compressed versions, on the host back end. Restored bytes are the same or within their bound, and
//! the tiers hold less.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod field;
mod history;

use field::{VALUES, field};
use history::{assert_restores, caches, checkpoint, compression, faulty, host, restored};
use std::sync::atomic::Ordering;
use tierflow_dedup::Tree;
use tierflow_engine::{
    Bound, BuildError, Compression, CompressionMetrics, Element, Engine, EngineBuilder, Error,
    Flush, Group, Region, RegionMut, Value, read_regions,
};
use tierflow_testing::{assert_matches, noise};

const SIZE: usize = 4 * VALUES;

fn tiers(directory: &tempfile::TempDir) -> EngineBuilder {
    caches(directory.path(), SIZE).compress(Compression::lossless(Value::F32))
}

#[test]
fn a_region_with_a_bound_comes_back_within_it_and_the_others_as_they_were() {
    let directory = tempfile::tempdir().unwrap();
    let how = Compression::lossless(Value::I8).within("wave", Bound::Relative(1e-3));
    let engine = tiers(&directory).compress(how).build().unwrap();
    // Both regions have odd lengths, so the regions behind them are not aligned.
    let (head, tail) = (noise(7, 10_003), noise(8, 5));
    for version in 0..12 {
        let wave = field(version);
        let regions = [
            Region::from(head.as_slice()).named("head"),
            Region::from(wave.as_slice()).array("wave", Element::F32, &[VALUES as u64]),
            Region::from(tail.as_slice()).named("tail"),
        ];
        engine.checkpoint(version, &regions).unwrap();
    }
    engine.wait().unwrap();
    let values = |bytes: &[u8]| -> Vec<f32> {
        let value = |bytes: &[u8]| f32::from_le_bytes(bytes.try_into().unwrap());
        bytes.chunks_exact(4).map(value).collect()
    };
    let mut changed = 0;
    for version in (0..12).rev() {
        // A single region can be restored.
        let mut wave = vec![0; SIZE];
        let region = ("wave", RegionMut::from(wave.as_mut_slice()));
        engine
            .call()
            .restore_regions(version, &mut [region])
            .unwrap();
        let back = restored(&engine, version).unwrap();
        assert!(back[..head.len()] == head && back[head.len() + SIZE..] == tail);
        assert!(back[head.len()..head.len() + SIZE] == wave);
        let truth = values(&field(version));
        let peak = truth
            .iter()
            .fold(0.0_f32, |peak, value| peak.max(value.abs()));
        for (value, back) in truth.iter().zip(values(&wave)) {
            assert!((value - back).abs() <= 1e-3 * peak);
            changed += u64::from(*value != back);
        }
    }
    assert!(changed > 0, "nothing was rounded");
    let CompressionMetrics {
        compressed, stored, ..
    } = compression(&engine);
    assert!(stored < compressed / 4, "{stored} of {compressed}");
}

#[test]
fn a_version_keeps_the_error_of_its_own_call() {
    let directory = tempfile::tempdir().unwrap();
    let how = Compression::lossless(Value::F32)
        .within("wave", Bound::Absolute(1e-4))
        .always();
    let engine = tiers(&directory).compress(how).build().unwrap();
    let errors = [None, Some(1e-2), Some(1e-6)];
    let error_of = |version: u64| errors[version as usize % errors.len()];
    let shape = [VALUES as u64];
    for version in 0..12 {
        let wave = field(version);
        let regions = [
            Region::from(wave.as_slice()).array("wave", Element::F32, &shape),
            Region::from(wave.as_slice()).array("exact", Element::F32, &shape),
        ];
        let mut call = engine.call();
        if let Some(error) = error_of(version) {
            call = call.within_error(error);
        }
        call.checkpoint(version, &regions).unwrap();
    }
    engine.wait().unwrap();
    let distance = |truth: &[u8], back: &[u8]| {
        let value = |bytes: &[u8]| f64::from(f32::from_le_bytes(bytes.try_into().unwrap()));
        let pairs = truth.chunks_exact(4).zip(back.chunks_exact(4));
        let distances = pairs.map(|(truth, back)| (value(truth) - value(back)).abs());
        distances.fold(0.0, f64::max)
    };
    let mut changed = 0;
    for version in (0..12).rev() {
        let truth = field(version);
        let mut wave = vec![0; SIZE];
        let region = ("wave", RegionMut::from(wave.as_mut_slice()));
        engine
            .call()
            .restore_regions(version, &mut [region])
            .unwrap();
        let back = restored(&engine, version).unwrap();
        assert!(back[..SIZE] == wave && back[SIZE..] == truth);
        let (error, found) = (error_of(version).unwrap_or(1e-4), distance(&truth, &wave));
        assert!(found <= error, "{version}: {found} of {error}");
        // The newest versions are in the fastest tier, where they are not compressed.
        changed += u64::from(found > error / 4.0);
    }
    assert!(
        changed > 8,
        "{changed} versions were rounded by about their errors"
    );
}

#[test]
fn an_error_that_is_no_bound_is_refused_where_there_are_bounds() {
    let directory = tempfile::tempdir().unwrap();
    let wave = field(1);
    let shape = [VALUES as u64];
    let region = || [Region::from(wave.as_slice()).array("wave", Element::F32, &shape)];
    let how = Compression::lossless(Value::F32).within("wave", Bound::Absolute(1e-4));
    let engine = tiers(&directory).compress(how).build().unwrap();
    for error in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let refused = engine.call().within_error(error).checkpoint(1, &region());
        assert_matches!(refused, Err(Error::NamedRegion { version: 1, .. }));
    }
    engine
        .call()
        .within_error(1.0)
        .checkpoint(1, &region())
        .unwrap();
    // Without bounds, all values come back as they were.
    let engine = tiers(&directory).build().unwrap();
    let call = engine.call().within_error(f64::NAN);
    call.checkpoint(1, &region()).unwrap();
    assert_restores(&engine, 1, &wave);
}

#[test]
fn a_bound_takes_values_that_can_be_rounded() {
    let directory = tempfile::tempdir().unwrap();
    let how = |bound| Compression::lossless(Value::I8).within("wave", bound);
    for bound in [
        Bound::Absolute(0.0),
        Bound::Relative(2.0),
        Bound::Absolute(f64::NAN),
    ] {
        let refused = tiers(&directory).compress(how(bound)).build();
        assert_matches!(refused, Err(Error::Build(BuildError::Reduction(_))));
    }
    let engine = tiers(&directory)
        .compress(how(Bound::Absolute(0.1)))
        .build()
        .unwrap();
    let bytes = noise(0, SIZE);
    let regions = [Region::from(bytes.as_slice()).named("wave")];
    let refused = engine.checkpoint(1, &regions);
    assert_matches!(refused, Err(Error::NamedRegion { version: 1, .. }));
    let shape = [SIZE as u64 / 4];
    let refused = engine.checkpoint(
        1,
        &[Region::from(bytes.as_slice()).array("wave", Element::I32, &shape)],
    );
    assert_matches!(refused, Err(Error::NamedRegion { .. }));
    engine
        .checkpoint(
            1,
            &[Region::from(bytes.as_slice()).array("wave", Element::F32, &shape)],
        )
        .unwrap();
}

#[test]
fn the_builder_refuses_compression_without_a_tier() {
    let how = || Compression::lossless(Value::F32);
    let alone = Engine::builder(&host())
        .host_cache(SIZE)
        .compress(how())
        .build();
    assert_matches!(alone, Err(Error::Build(BuildError::NoDifferences { .. })));
}

#[test]
fn nvcomp_is_refused_where_it_would_do_nothing() {
    use tierflow_engine::{CompressedTiers, NvcompCodec};
    let directory = tempfile::tempdir().unwrap();
    let how = Compression::lossless(Value::F32).nvcomp(NvcompCodec::Zstd);
    let no_gpu = tiers(&directory).compress(how.clone()).build();
    match no_gpu {
        Err(Error::Build(BuildError::Reduction(why))) => {
            assert!(why.to_string().contains("CUDA device"), "{why}");
        }
        other => panic!("{:?}", other.err()),
    }
    let elsewhere = [
        tiers(&directory).device_cache(0).compress(how.clone()),
        tiers(&directory).compress(how.on(CompressedTiers::Storage)),
    ];
    for builder in elsewhere {
        assert!(matches!(
            builder.build(),
            Err(Error::Build(BuildError::NoDifferences { .. }))
        ));
    }
}

#[test]
fn the_next_engine_reads_compressed_versions_with_differences_or_without() {
    let directory = tempfile::tempdir().unwrap();
    let open = || {
        Engine::builder(&host())
            .host_cache(2 * SIZE)
            .node_local(directory.path().join("node"))
            .external(directory.path().join("external"))
    };
    let compressing = || open().compress(Compression::lossless(Value::F32));
    let differing = || open().dedup(Tree { chunk: 64 });
    {
        let engine = compressing().build().unwrap();
        (0..10).for_each(|version| checkpoint(&engine, version, &field(version)));
        checkpoint(&engine, 10, &noise(10, SIZE));
        engine.wait().unwrap();
    }
    let refused = open().build();
    assert_matches!(refused, Err(Error::Build(BuildError::NoDifferences { .. })));
    {
        let engine = differing().build().unwrap();
        (0..10).for_each(|version| assert_restores(&engine, version, &field(version)));
        assert_restores(&engine, 10, &noise(10, SIZE));
        (11..15).for_each(|version| checkpoint(&engine, version, &field(3)));
        engine.wait().unwrap();
    }
    // The node's directory is lost.
    std::fs::remove_dir_all(directory.path().join("node")).unwrap();
    let engine = compressing().build().unwrap();
    (0..10).for_each(|version| assert_restores(&engine, version, &field(version)));
    (11..15).for_each(|version| assert_restores(&engine, version, &field(3)));
    assert_eq!(engine.versions().len(), 15);
}

#[test]
fn ranks_of_a_group_compress_each_for_itself() {
    let directory = tempfile::tempdir().unwrap();
    let sizes = [SIZE, 0, 3 * SIZE / 4];
    let of = |rank: usize, version| field(version + rank as u64)[..sizes[rank]].to_vec();
    let run = |number: u64, work: &(dyn Fn(usize, &Engine) + Sync)| {
        std::thread::scope(|scope| {
            for rank in 0..3 {
                let directory = directory.path();
                scope.spawn(move || {
                    let engine = Engine::builder(&host())
                        .host_cache(2 * SIZE)
                        .external(directory)
                        .group(Group::new(rank as u32, 3, number))
                        .compress(Compression::lossless(Value::F32))
                        .build()
                        .unwrap();
                    work(rank, &engine);
                });
            }
        });
    };
    run(1, &|rank, engine| {
        (0..6).for_each(|version| checkpoint(engine, version, &of(rank, version)));
        engine.wait().unwrap();
    });
    run(2, &|rank, engine| {
        assert_eq!(engine.latest(None), Some(5));
        (0..6).for_each(|version| assert_restores(engine, version, &of(rank, version)));
        // Each rank reads the compressed version of rank 2.
        let mut other = vec![0; sizes[2]];
        let region = ("checkpoint", other.as_mut_slice());
        let piece = engine.piece(5, Some(2)).unwrap();
        read_regions(&piece, &mut [region]).unwrap();
        assert!(other == of(2, 5));
        let region = ("checkpoint", &mut other[1..]);
        assert!(read_regions(&piece, &mut [region]).is_err());
    });
}

#[test]
fn a_disk_that_fails_costs_no_version_that_lies_elsewhere() {
    let directory = tempfile::tempdir().unwrap();
    let (faults, file) = faulty(directory.path());
    let engine = Engine::builder(&host())
        .host_cache(4 * SIZE)
        .tier(file)
        .flush(Flush::Eager)
        .compress(Compression::lossless(Value::F32))
        .build()
        .unwrap();
    (0..8).for_each(|version| checkpoint(&engine, version, &field(version)));
    engine.wait().unwrap();
    faults.reads_fail.store(true, Ordering::Relaxed);
    let mut bytes = vec![0; SIZE];
    let mut failed = 0;
    for version in 0..8 {
        let mut regions = [RegionMut::from(bytes.as_mut_slice())];
        match engine.restore(version, &mut regions) {
            Ok(()) => assert!(bytes == field(version)),
            Err(Error::Storage(_)) => failed += 1,
            Err(error) => panic!("{error}"),
        }
    }
    assert!(failed > 0);
    faults.reads_fail.store(false, Ordering::Relaxed);
    (0..8).for_each(|version| assert_restores(&engine, version, &field(version)));
}
