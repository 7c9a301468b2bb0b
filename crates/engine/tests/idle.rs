//! The threads of an idle engine sleep until there is work.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};
use tierflow_device::{Choice, Device, host, open};
use tierflow_engine::{AfterRestore, Engine, EngineBuilder, Region, RegionMut, Tier};
use tierflow_peers::{Part, PeerCache};
use tierflow_tier_alloc::{HostPool, PoolOptions};

const MIB: usize = 1 << 20;

/// Returns for each thread of the engine, by its number, how often it has gone to sleep so far.
fn sleeps() -> BTreeMap<String, u64> {
    let mut sleeps = BTreeMap::new();
    for task in fs::read_dir("/proc/self/task").unwrap() {
        let task = task.unwrap();
        // The thread may have ended meanwhile.
        let Ok(status) = fs::read_to_string(task.path().join("status")) else {
            continue;
        };
        let value = |key: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(key));
            line.map(|value| value.trim().to_owned()).unwrap()
        };
        if value("Name:").starts_with("tierflow") {
            let count = value("voluntary_ctxt_switches:").parse().unwrap();
            sleeps.insert(format!("{:?} {}", task.file_name(), value("Name:")), count);
        }
    }
    sleeps
}

/// Returns the time in which no thread may wake up: `TIERFLOW_IDLE_SECONDS`, or two seconds.
fn window() -> Duration {
    Duration::from_secs(tierflow_testing::variable("TIERFLOW_IDLE_SECONDS", 2))
}

/// Lets an engine work, and asserts that it rests afterwards: within a minute there is a [`window`] in which none of its threads wakes up.
fn rests(what: &str, builder: EngineBuilder) {
    let engine = builder.build().unwrap();
    let bytes = vec![1; 2 * MIB];
    engine.hint((0..20).rev());
    for version in 0..20 {
        let regions = [Region::from(bytes.as_slice())];
        engine.checkpoint(version, &regions).unwrap();
    }
    engine.wait().unwrap();
    let mut back = vec![0; 2 * MIB];
    for version in (10..20).rev() {
        let mut regions = [RegionMut::from(back.as_mut_slice())];
        engine.restore(version, &mut regions).unwrap();
    }
    let begun = Instant::now();
    loop {
        let before = sleeps();
        assert!(!before.is_empty(), "{what}: the engine has no threads?");
        std::thread::sleep(window());
        let after = sleeps();
        if before == after {
            return;
        }
        let waited = begun.elapsed();
        assert!(
            waited < Duration::from_secs(60) + window(),
            "{what}: {before:?}, then {after:?}"
        );
    }
}

fn builder(device: &Device) -> EngineBuilder {
    Engine::builder(device)
        .device_cache(8 * MIB)
        .host_cache(16 * MIB)
        .scratch(std::env::temp_dir())
        .after_restore(AfterRestore::Discard)
}

#[test]
fn an_engine_with_nothing_to_do_does_not_wake_up() {
    let device = open(Choice::Host).unwrap();
    rests("tiers of its own", builder(&device));
    // Another member of the pool, which needs no memory and rests, too.
    let options = PoolOptions::new(64 << 20).slab(2 << 20);
    let pool = HostPool::in_process(options).unwrap();
    let _other = pool.join(8 << 20).unwrap();
    rests(
        "a pool of threads",
        builder(&device).tier(Tier::host(0).pool(&pool)),
    );
    let directory = tempfile::tempdir().unwrap();
    let home = directory.path().join("pool");
    let pool = HostPool::of_node(Some(&home), options).unwrap();
    let _other = pool.join(8 << 20).unwrap();
    rests(
        "a pool of processes",
        builder(&device).tier(Tier::host(0).pool(&pool)),
    );
    let peer = host::open(host::Options::default().ordinal(1));
    let (part, _recall) = Part::on(&peer.unwrap(), 8 * MIB);
    let cache = PeerCache::new(&device, vec![part]).unwrap();
    rests("memory of peers", builder(&device).tier(Tier::peers(cache)));
}
