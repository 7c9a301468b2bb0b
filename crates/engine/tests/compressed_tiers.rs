//! The chosen tiers hold compressed versions, on the host back end, for moves between any two tiers.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod history;

use history::{assert_restores, caches, checkpoint, compression, faulty, host, used};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tierflow_dedup::Tree;
use tierflow_engine::{
    BuildError, Cache, CompressedTiers, Compression, Engine, EngineBuilder, Error, Flush, Tier,
    Value, Version,
};
use tierflow_peers::{Part, PeerCache};

const SIZE: usize = 256 << 10;

const ALL: [CompressedTiers; 3] = [
    CompressedTiers::BelowFastest,
    CompressedTiers::Storage,
    CompressedTiers::External,
];

fn on(tiers: CompressedTiers) -> Compression {
    Compression::lossless(Value::F32).always().on(tiers)
}

/// Returns a field with a wave and zeros ahead of it.
fn field(version: Version, size: usize) -> Vec<u8> {
    let front = size / 8 + 500 * version as usize;
    let value = |n: usize| match n < front {
        true => ((front - n) as f32 / 40.0).sin(),
        false => 0.0,
    };
    let values = (0..size.div_ceil(4)).flat_map(|n| value(n).to_le_bytes());
    values.take(size).collect()
}

/// Returns the number of transfers from one tier to another.
fn carried(engine: &Engine, from: &str, to: &str) -> u64 {
    let hops = engine.metrics().hops;
    let hops = hops.iter().filter(|hop| (hop.from, hop.to) == (from, to));
    hops.map(|hop| hop.transfers).sum()
}

/// Returns the builder of an engine with all kinds of tiers. The lowest one is durable.
fn tiers(directory: &Path, on_tiers: CompressedTiers) -> EngineBuilder {
    let external = directory.join("external");
    caches(directory, SIZE)
        .external(external)
        .compress(on(on_tiers))
}

#[test]
fn the_tiers_above_hold_versions_as_they_are_and_those_below_hold_less() {
    let whole = SIZE as u64;
    for chosen in ALL {
        let directory = tempfile::tempdir().unwrap();
        let engine = tiers(directory.path(), chosen).build().unwrap();
        for version in 0..20 {
            checkpoint(&engine, version, &field(version, SIZE));
            engine.wait().unwrap();
        }
        let came = compression(&engine);
        // Each version is compressed once. Above the chosen tiers it moves as it is, and below them it is already compressed.
        assert_eq!((came.compressed, came.as_they_are), (20 * whole, 0));
        assert!(came.stored < came.compressed / 2);
        let (as_they_are, less) = match chosen {
            CompressedTiers::BelowFastest => (&["device"][..], &["host", "file", "external"][..]),
            CompressedTiers::Storage => (&["device", "host"][..], &["file", "external"][..]),
            _ => (&["device", "host", "file"][..], &["external"][..]),
        };
        for tier in as_they_are {
            let used = used(&engine, tier);
            assert!(
                used > 0 && used.is_multiple_of(whole),
                "{chosen:?}: {used} on {tier}"
            );
        }
        for tier in less {
            let used = used(&engine, tier);
            let is_less = !used.is_multiple_of(whole) && used < 10 * whole;
            assert!(used > 0 && is_less, "{chosen:?}: {used} on {tier}");
        }
        let patience = Duration::from_secs(60);
        let restore_all =
            || (0..20).for_each(|version| assert_restores(&engine, version, &field(version, SIZE)));
        // All are restored from all tiers, then without the device cache, then from storage alone.
        restore_all();
        engine.resize(Cache::Device, 0, patience).unwrap();
        restore_all();
        engine.resize(Cache::Host, 0, patience).unwrap();
        restore_all();
    }
}

/// A version that is too large for the caches goes to the scratch file at once. The engine compresses it on the way from there to the
/// tier below.
#[test]
fn a_version_on_a_disk_is_compressed_in_parts_and_comes_up_again() {
    // The second part ends in the middle of a value, and of a block.
    let sizes = [16 << 20, (16 << 20) + 4099, (2 << 20) + 1];
    let directory = tempfile::tempdir().unwrap();
    let of = |version: Version| field(version, sizes[version as usize]);
    {
        let engine = tiers(directory.path(), CompressedTiers::External)
            .build()
            .unwrap();
        (0..3).for_each(|version| checkpoint(&engine, version, &of(version)));
        engine.wait().unwrap();
        assert_eq!(carried(&engine, "file", "external"), 3);
        let bytes = sizes.iter().map(|&size| size as u64).sum();
        assert_eq!(compression(&engine).compressed, bytes);
        assert!(used(&engine, "external") < bytes / 2);
        assert!(used(&engine, "file") >= bytes);
    }
    let engine = tiers(directory.path(), CompressedTiers::External)
        .build()
        .unwrap();
    engine.hint([2, 1, 0]);
    engine.hints().prefetch_start();
    let whole: u64 = sizes.iter().map(|&size| size as u64).sum();
    let is_up = || used(&engine, "file") >= whole && carried(&engine, "external", "file") == 3;
    let since = Instant::now();
    while !is_up() {
        assert!(
            since.elapsed() < Duration::from_secs(60),
            "it does not come up"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
    (0..3)
        .rev()
        .for_each(|version| assert_restores(&engine, version, &of(version)));
    assert!(
        engine
            .metrics()
            .tiers
            .iter()
            .any(|tier| tier.name == "file" && tier.restores == 3)
    );
}

#[test]
fn a_disk_that_cannot_be_read_keeps_its_versions_from_going_further_down() {
    let directory = tempfile::tempdir().unwrap();
    let (faults, file) = faulty(directory.path());
    let engine = Engine::builder(&host())
        .host_cache(SIZE)
        .tier(file)
        .external(directory.path().join("external"))
        .compress(on(CompressedTiers::External))
        .build()
        .unwrap();
    faults.reads_fail.store(true, Ordering::Relaxed);
    checkpoint(&engine, 1, &field(1, 2 * SIZE));
    let failed = engine.wait();
    assert!(matches!(failed, Err(Error::Stalled { .. })), "{failed:?}");
    faults.reads_fail.store(false, Ordering::Relaxed);
    // The restore reads the version, and so knows that it is sound.
    assert_restores(&engine, 1, &field(1, 2 * SIZE));
    engine.wait().unwrap();
    assert!(used(&engine, "external") < SIZE as u64);
}

#[test]
fn an_overflow_to_peers_is_not_compressed() {
    let options = tierflow_device::host::Options::default().device_bytes(64 << 20);
    let device = |ordinal| tierflow_device::host::open(options.clone().ordinal(ordinal)).unwrap();
    let devices: Vec<_> = (0..3).map(device).collect();
    let directory = tempfile::tempdir().unwrap();
    let builder = |chosen| {
        let parts = devices[1..].iter().map(|peer| Part::on(peer, 4 * SIZE));
        let (parts, recalls): (Vec<_>, Vec<_>) = parts.unzip();
        let cache = PeerCache::new(&devices[0], parts).unwrap();
        let builder = Engine::builder(&devices[0])
            .device_cache(2 * SIZE)
            .tier(Tier::peers(cache))
            .scratch(directory.path())
            .flush(Flush::Eager)
            .compress(on(chosen));
        (builder, recalls)
    };
    let (refused, _recalls) = builder(CompressedTiers::BelowFastest);
    assert_refused(refused, "peers");
    let (builder, _recalls) = builder(CompressedTiers::Storage);
    let engine = builder.build().unwrap();
    for version in 0..12 {
        checkpoint(&engine, version, &field(version, SIZE));
        engine.wait().unwrap();
    }
    let on_peers = used(&engine, "peers");
    assert!(
        on_peers > 0 && on_peers.is_multiple_of(SIZE as u64),
        "{on_peers}"
    );
    assert!(used(&engine, "file") < 6 * SIZE as u64);
    (0..12).for_each(|version| assert_restores(&engine, version, &field(version, SIZE)));
}

#[test]
fn an_engine_with_other_compressed_tiers_reads_the_stored_versions() {
    for first in ALL {
        for second in ALL {
            let directory = tempfile::tempdir().unwrap();
            let open = |chosen| {
                let node = directory.path().join("node");
                tiers(directory.path(), chosen)
                    .node_local(node)
                    .build()
                    .unwrap()
            };
            for (from, chosen) in [(0, first), (6, second), (12, first)] {
                let engine = open(chosen);
                (0..from)
                    .for_each(|version| assert_restores(&engine, version, &field(version, SIZE)));
                (from..from + 6)
                    .for_each(|version| checkpoint(&engine, version, &field(version, SIZE)));
                engine.wait().unwrap();
            }
            // The node's directory is lost.
            std::fs::remove_dir_all(directory.path().join("node")).unwrap();
            let engine = open(second);
            (0..18).for_each(|version| assert_restores(&engine, version, &field(version, SIZE)));
        }
    }
}

fn assert_refused(builder: EngineBuilder, says: &str) {
    match builder.build() {
        Err(Error::Build(BuildError::NoDifferences { why })) => {
            assert!(why.contains(says), "{why}")
        }
        other => panic!("{:?}", other.err()),
    }
}

#[test]
fn the_builder_refuses_compression_without_a_tier_or_with_differences() {
    let directory = tempfile::tempdir().unwrap();
    let memory = || Engine::builder(&host()).device_cache(SIZE).host_cache(SIZE);
    let storage = on(CompressedTiers::Storage);
    assert_refused(
        memory().compress(storage.clone()),
        "give the engine a tier below",
    );
    let external = on(CompressedTiers::External);
    assert_refused(
        caches(directory.path(), SIZE).compress(external.clone()),
        "give the engine a tier below",
    );
    for how in [storage, external] {
        let both = tiers(directory.path(), CompressedTiers::default()).dedup(Tree { chunk: 64 });
        assert_refused(both.compress(how), "leave out `dedup`");
    }
    let both = tiers(directory.path(), CompressedTiers::default()).dedup(Tree { chunk: 64 });
    both.build().unwrap();
}
