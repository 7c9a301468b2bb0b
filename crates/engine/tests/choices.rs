//! The builder refuses impossible configurations, and its errors name the defect.

#![allow(clippy::unwrap_used, clippy::panic)]

mod history;

use history::host;
use std::error::Error as _;
use std::sync::atomic::Ordering::Relaxed;
use tierflow_engine::{
    BuildError, Engine, EngineBuilder, Error, Group, Region, RegionMut, Retention, Tier,
};
use tierflow_testing::assert_matches;

fn builder() -> EngineBuilder {
    Engine::builder(&host())
}

#[test]
fn options_for_durable_versions_need_a_durable_tier() {
    let cases = [
        (builder().group(Group::new(0, 1, 5)), "group"),
        (builder().retention(Retention::newest(2)), "retention"),
        (builder().durable_in_order(true), "durable_in_order"),
    ];
    for (builder, method) in cases {
        assert_matches!(
            builder.host_cache(1 << 20).build(),
            Err(Error::Build(BuildError::NothingLasts { what }))
                if *what == method
        );
    }
}

#[test]
fn tiers_lie_in_their_order_and_the_last_of_a_kind_counts() {
    let engine = builder()
        .tier(Tier::scratch(std::env::temp_dir()).limit(1 << 20))
        .tier(Tier::host(1 << 20))
        .device_cache(1 << 20)
        .tier(Tier::host(2 << 20))
        .build()
        .unwrap();
    let tiers = engine.metrics().tiers;
    let found: Vec<_> = tiers
        .iter()
        .map(|tier| (tier.name, tier.capacity))
        .collect();
    assert_eq!(
        found,
        [("device", 1 << 20), ("host", 2 << 20), ("file", 1 << 20)]
    );
}

#[test]
fn an_option_that_a_tier_does_not_have_is_refused() {
    let directory = std::env::temp_dir();
    let tiers = [
        (Tier::external(&directory).limit(1), "limit"),
        (Tier::from(Tier::host(1 << 20)).limit(1), "limit"),
        (Tier::node_local(&directory).checksums(false), "checksums"),
    ];
    for (tier, refused) in tiers {
        assert_matches!(
            builder().host_cache(1 << 20).tier(tier).build(),
            Err(Error::Build(BuildError::Option { option })) if *option == refused
        );
    }
}

#[test]
fn a_tier_that_is_given_again_is_refused_no_more() {
    let directory = tempfile::tempdir().unwrap();
    let node_local = || Tier::node_local(directory.path());
    let builder = || builder().tier(node_local().checksums(true).checksums(false));
    let engine = builder().tier(node_local()).build().unwrap();
    drop(engine);
    let limited = |cache: Tier| self::builder().tier(cache.limit(1));
    let caches = [
        limited(Tier::from(Tier::device(1 << 20))).device_cache(1 << 20),
        limited(Tier::from(Tier::host(1 << 20))).host_cache(1 << 20),
    ];
    for builder in caches {
        drop(builder.build().unwrap());
    }
    // A tier of another kind does not take its place.
    assert_matches!(
        builder().tier(Tier::host(1 << 20)).build(),
        Err(Error::Build(BuildError::Option {
            option: "checksums"
        }))
    );
}

#[test]
fn ranks_are_counted_from_0() {
    let directory = tempfile::tempdir().unwrap();
    for (rank, ranks) in [(5, 3), (3, 3), (0, 0)] {
        let builder = builder().host_cache(1 << 20).external(directory.path());
        assert_matches!(
            builder.group(Group::new(rank, ranks, 1)).build(),
            Err(Error::Build(BuildError::NoRank { .. }))
        );
    }
}

#[test]
fn caches_that_hold_nothing_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    for bytes in [1, 100, 4095] {
        let host = builder()
            .host_cache(bytes)
            .scratch(directory.path())
            .build();
        assert_matches!(
            host,
            Err(Error::Build(BuildError::SmallCache { cache: "host", .. }))
        );
        let device = builder()
            .device_cache(bytes)
            .scratch(directory.path())
            .build();
        assert_matches!(
            device,
            Err(Error::Build(BuildError::SmallCache {
                cache: "device",
                ..
            }))
        );
    }
}

#[test]
fn no_room_says_why_and_what_is_so() {
    let directory = tempfile::tempdir().unwrap();
    let (faults, file) = history::faulty(directory.path());
    let engine = builder().host_cache(1 << 20).tier(file).build().unwrap();
    faults.full.store(true, Relaxed);
    let bytes = vec![1; 256 << 10];
    let mut checkpoints = (0..).map(|version| {
        let mut back = vec![0; bytes.len()];
        let regions = [Region::from(bytes.as_slice())];
        engine.checkpoint(version, &regions)?;
        // The engine keeps a version that was restored.
        let regions = &mut [RegionMut::from(back.as_mut_slice())];
        engine.restore(version, regions)
    });
    let error = checkpoints.find_map(Result::err).unwrap();
    assert!(matches!(error, Error::NoRoom { .. }), "{error}");
    assert!(!error.to_string().contains("not restored"), "{error}");
    let source = error.source().unwrap().to_string();
    assert!(source.contains("full"), "{source}");
    let error = engine.wait().unwrap_err();
    assert!(error.source().is_some(), "{error}");
}
