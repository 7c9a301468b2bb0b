//! Tests of `tierflow doctor`: the command names each planted fault, and finds none in a healthy run on a healthy machine.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod running;

use running::{json, run, text};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tierflow_device::{Choice, open};
use tierflow_engine::{
    Cause, CompressionMetrics, Engine, EngineBuilder, Metrics, Region, RegionMut, Retention, Tier,
};
use tierflow_store::{Faults, Faulty, Scratch, Storage, Throttled};

const MIB: usize = 1 << 20;

/// A directory with the files of a test, and methods that run the command on these.
struct Bench {
    directory: tempfile::TempDir,
}

impl Bench {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        Self { directory }
    }

    fn path(&self, name: &str) -> String {
        let path = self.directory.path().join(name);
        path.to_str().unwrap().to_owned()
    }

    /// Returns storage whose bandwidth is `mib_per_second`.
    fn slow(&self, mib_per_second: u64) -> Arc<dyn Storage> {
        let scratch = Scratch::open(self.directory.path()).unwrap();
        Arc::new(Throttled::new(scratch, mib_per_second << 20))
    }

    fn builder(&self) -> EngineBuilder {
        Engine::builder(&open(Choice::Host).unwrap()).timeline(100_000)
    }

    /// Writes the trace of an engine to a file of this name. Returns its path.
    fn leave(&self, engine: &Engine, name: &str) -> String {
        let path = self.path(name);
        engine.write_timeline(&path).unwrap();
        path
    }

    /// Writes a machine's measurements to a file. Returns its path.
    fn machine(&self, machine: &Value) -> String {
        let path = self.path("machine.json");
        std::fs::write(&path, json!({ "machine": machine }).to_string()).unwrap();
        path
    }

    /// Returns the faults that the command finds in runs without a machine's measurements.
    fn faults(&self, traces: &[&str]) -> Vec<String> {
        let machine = json!({ "memory": {}, "unpinned": null, "places": [] });
        self.faults_on(&machine, traces)
    }

    fn faults_on(&self, machine: &Value, traces: &[&str]) -> Vec<String> {
        let machine = self.machine(machine);
        let mut arguments = vec!["doctor", "--machine", &machine];
        for trace in traces {
            arguments.extend(["--application", trace]);
        }
        let (code, answer) = json(&arguments);
        let found = faults(&answer);
        assert_eq!(code, i32::from(!found.is_empty()), "{answer}");
        found
    }
}

fn faults(answer: &Value) -> Vec<String> {
    let findings = answer["findings"].as_array();
    let findings = findings.unwrap_or_else(|| panic!("{answer}")).iter();
    findings
        .map(|finding| finding["fault"].as_str().unwrap().to_owned())
        .collect()
}

fn place(name: &str, rate: usize) -> Value {
    json!({ "name": name, "in_memory": false, "direct_io": true, "write": rate, "read": rate, "save_s": 0.001, "refused": null })
}

fn on(places: &[Value]) -> Value {
    json!({ "memory": {}, "unpinned": null, "places": places })
}

#[track_caller]
fn assert_found(found: &[String], fault: &str) {
    assert!(
        found.iter().any(|found| found == fault),
        "{fault} is not in {found:?}"
    );
}

#[track_caller]
fn assert_not_found(found: &[String], fault: &str) {
    assert!(found.iter().all(|found| found != fault), "{found:?}");
}

fn checkpoint(engine: &Engine, version: u64) {
    let bytes = vec![version as u8; MIB];
    engine
        .checkpoint(version, &[Region::from(bytes.as_slice())])
        .unwrap();
}

fn restore(engine: &Engine, version: u64) {
    let mut bytes = vec![0; MIB];
    engine
        .restore(version, &mut [RegionMut::from(bytes.as_mut_slice())])
        .unwrap();
}

/// Writes `versions` versions of 1 MiB, computes for `compute` before each, and reads them in `order`.
fn shot(engine: &Engine, versions: u64, order: impl Iterator<Item = u64>, compute: Duration) {
    for version in 0..versions {
        std::thread::sleep(compute);
        checkpoint(engine, version);
    }
    engine.hints().prefetch_start();
    for version in order {
        std::thread::sleep(compute);
        drop(engine.call().consume(version).unwrap());
    }
}

const COMPUTE: Duration = Duration::from_millis(20);

#[test]
fn a_healthy_run_has_no_fault() {
    let bench = Bench::new();
    let engine = bench.builder().host_cache(64 * MIB).build().unwrap();
    engine.hint((0..16).rev());
    shot(&engine, 16, (0..16).rev(), COMPUTE);
    let trace = bench.leave(&engine, "run");
    let healthy = on(&[place("/disk", 1 << 30)]);
    assert_eq!(
        bench.faults_on(&healthy, &[&trace, &trace, &trace]),
        [""; 0]
    );
    let output = run(&[
        "doctor",
        "--machine",
        &bench.machine(&healthy),
        "--application",
        &trace,
    ]);
    assert!(text(&output.stdout).contains("nothing found"));
    // A file with the counters alone suffices.
    let counters = bench.path("counters");
    std::fs::write(&counters, engine.metrics().open_metrics()).unwrap();
    assert_eq!(bench.faults(&[&counters]), [""; 0]);
    let (code, _) = json(&[
        "doctor",
        "--machine",
        &bench.machine(&healthy),
        "--application",
        file!(),
    ]);
    assert_eq!(code, 2, "a file that is no run is an error");
}

#[test]
fn a_directory_is_measured_and_left_as_it_was() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (_, answer) = json(&["doctor", directory.path().to_str().unwrap()]);
    let machine = &answer["machine"];
    assert!(
        machine["memory"]["copy within host memory"]
            .as_f64()
            .unwrap()
            > 0.0,
        "{answer}"
    );
    let place = &machine["places"][0];
    assert_eq!(place["refused"], Value::Null);
    for rate in ["write", "read", "save_s"] {
        assert!(place[rate].as_f64().unwrap() > 0.0, "{answer}");
    }
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn a_directory_in_memory_is_named() {
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    let (_, answer) = json(&["doctor", directory.path().to_str().unwrap()]);
    assert_found(&faults(&answer), "directory in memory");
    let disk = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (_, answer) = json(&["doctor", disk.path().to_str().unwrap()]);
    assert_not_found(&faults(&answer), "directory in memory");
}

/// Writes fail at a limit of the files' sizes as on a full disk.
#[test]
fn a_full_disk_is_named() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let command = format!(
        "ulimit -f 64; exec {} --json doctor {}",
        env!("CARGO_BIN_EXE_tierflow"),
        directory.path().display()
    );
    let output = std::process::Command::new("sh")
        .args(["-c", &command])
        .output()
        .unwrap();
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_found(&faults(&answer), "place refuses bytes");
}

#[test]
fn a_place_with_a_long_latency_is_named() {
    let bench = Bench::new();
    let mut far = place("s3://far/away", 1 << 30);
    far["save_s"] = json!(0.3);
    let found = bench.faults_on(&on(&[place("/disk", 1 << 30), far]), &[]);
    assert_eq!(found, ["long latency"]);
}

#[test]
fn places_in_the_wrong_order_are_named() {
    let bench = Bench::new();
    let (slow, fast) = (place("/slow", 100 * MIB), place("/fast", 1000 * MIB));
    let right = on(&[fast.clone(), slow.clone()]);
    assert_eq!(bench.faults_on(&right, &[]), [""; 0]);
    let found = bench.faults_on(&on(&[slow, fast]), &[]);
    assert_eq!(found, ["tiers in the wrong order"]);
}

/// Some faults depend on how the system schedules threads. The test writes them into the counters of a healthy run.
#[test]
fn faults_in_counters_are_named() {
    let bench = Bench::new();
    let engine = bench.builder().host_cache(64 * MIB).build().unwrap();
    shot(&engine, 4, (0..4).rev(), COMPUTE);
    let healthy = engine.metrics();
    let named = |change: &dyn Fn(&mut Metrics)| {
        let mut metrics = healthy.clone();
        change(&mut metrics);
        let path = bench.path("counters");
        metrics.write_open_metrics(&path).unwrap();
        bench.faults(&[&path])
    };
    assert_eq!(named(&|_| ()), [""; 0]);
    let late =
        |cause: Cause| named(&|metrics| metrics.causes[cause as usize].total = metrics.running / 5);
    assert_eq!(late(Cause::WakeUp), ["no core for the engine"]);
    assert_eq!(late(Cause::Growth), ["memory not ready"]);
    let compressing = |stage_rate: u64| {
        named(&|metrics| {
            metrics.compression = Some(CompressionMetrics {
                stage_rate,
                link_rate: 1_000_000,
                ..CompressionMetrics::default()
            });
        })
    };
    assert_eq!(compressing(500_000), ["compression slower than the tiers"]);
    assert_eq!(compressing(2_000_000), [""; 0]);
}

/// The fault itself needs a GPU, so the test writes only the report of one.
#[test]
fn unpinned_memory_is_named() {
    let bench = Bench::new();
    let why = "the memory lock limit is 8 MiB";
    let machine = json!({ "memory": {}, "unpinned": why, "places": [] });
    assert_eq!(bench.faults_on(&machine, &[]), ["unpinned memory"]);
}

#[test]
fn a_slow_tier_and_small_caches_are_named() {
    let bench = Bench::new();
    for cache in ["device", "host"] {
        let builder = bench.builder().tier(Tier::storage(bench.slow(16)));
        let builder = match cache {
            "device" => builder.device_cache(4 * MIB),
            _ => builder.host_cache(4 * MIB),
        };
        let engine = builder.build().unwrap();
        engine.hint((0..16).rev());
        shot(&engine, 16, (0..16).rev(), Duration::from_millis(5));
        let found = bench.faults(&[&bench.leave(&engine, cache)]);
        assert_found(&found, "slow tier");
        assert_found(&found, &format!("small {cache} cache"));
        assert_found(&found, "slower than computing");
    }
}

#[test]
fn a_throttled_disk_is_told_from_one_that_several_engines_share() {
    let bench = Bench::new();
    let disk = bench.slow(8);
    let engine = || {
        let builder = bench.builder().host_cache(2 * MIB);
        let engine = builder
            .tier(Tier::storage(Arc::clone(&disk)))
            .build()
            .unwrap();
        (0..6).for_each(|version| checkpoint(&engine, version));
        engine.wait().unwrap();
        engine
    };
    let alone = bench.leave(&engine(), "alone");
    let found = bench.faults_on(&on(&[place("/disk", 8 * MIB)]), &[&alone]);
    assert_not_found(&found, "throttled disk");
    assert_not_found(&found, "shared disk");
    let found = bench.faults_on(&on(&[place("/disk", 64 * MIB)]), &[&alone]);
    assert_found(&found, "throttled disk");
    assert_not_found(&found, "shared disk");
    let both = std::thread::scope(|scope| {
        let threads = [(); 2].map(|()| scope.spawn(engine));
        threads.map(|thread| thread.join().unwrap())
    });
    let (a, b) = (bench.leave(&both[0], "a"), bench.leave(&both[1], "b"));
    let found = bench.faults_on(&on(&[place("/disk", 8 * MIB)]), &[&a, &b]);
    assert_found(&found, "shared disk");
    assert_not_found(&found, "throttled disk");
}

#[test]
fn hints_in_another_order_are_told_from_none() {
    let bench = Bench::new();
    // An order that the engine cannot predict.
    let order: Vec<u64> = (0..16).map(|at| at * 7 % 16).collect();
    let run = |name: &str, hints: &[u64]| {
        let builder = bench.builder().device_cache(4 * MIB);
        let engine = builder.tier(Tier::storage(bench.slow(32))).build().unwrap();
        engine.hint(hints.iter().copied());
        shot(
            &engine,
            16,
            order.iter().copied(),
            Duration::from_millis(40),
        );
        bench.faults(&[&bench.leave(&engine, name)])
    };
    let wrong: Vec<u64> = order.iter().rev().copied().collect();
    let runs = [run("none", &[]), run("wrong", &wrong), run("right", &order)];
    assert_found(&runs[0], "late hints");
    assert_not_found(&runs[0], "wrong hints");
    assert_found(&runs[1], "wrong hints");
    assert_not_found(&runs[2], "wrong hints");
    assert_not_found(&runs[2], "late hints");
}

#[test]
fn restores_past_the_caches_are_named() {
    let bench = Bench::new();
    let builder = bench.builder().host_cache(2 * MIB);
    let engine = builder.tier(Tier::storage(bench.slow(32))).build().unwrap();
    (0..8).for_each(|version| checkpoint(&engine, version));
    engine.wait().unwrap();
    (0..6).for_each(|version| restore(&engine, version));
    let found = bench.faults(&[&bench.leave(&engine, "run")]);
    assert_found(&found, "read past the caches");
}

#[test]
fn one_slow_rank_is_named() {
    let bench = Bench::new();
    let run = |name: &str, mib_per_second| {
        let builder = bench.builder().host_cache(2 * MIB);
        let engine = builder
            .tier(Tier::storage(bench.slow(mib_per_second)))
            .build()
            .unwrap();
        (0..8).for_each(|version| checkpoint(&engine, version));
        bench.leave(&engine, name)
    };
    let (a, b, c) = (run("a", 4096), run("b", 4), run("c", 4096));
    assert_found(&bench.faults(&[&a, &b, &c]), "slow rank");
    assert_not_found(&bench.faults(&[&b, &b, &b]), "slow rank");
}

#[test]
fn storage_that_fails_or_lies_is_named() {
    let bench = Bench::new();
    let faults = Arc::new(Faults::default());
    let scratch = Scratch::open(bench.directory.path()).unwrap();
    let storage = Arc::new(Faulty::new(scratch, Arc::clone(&faults)));
    let builder = bench.builder().host_cache(2 * MIB);
    let engine = builder.tier(Tier::storage(storage)).build().unwrap();
    checkpoint(&engine, 0);
    engine.wait().unwrap();
    assert_not_found(
        &bench.faults(&[&bench.leave(&engine, "whole")]),
        "failed copies",
    );
    faults.full.store(true, Ordering::Relaxed);
    checkpoint(&engine, 1);
    assert!(engine.call().within(Duration::from_secs(5)).wait().is_err());
    assert_found(
        &bench.faults(&[&bench.leave(&engine, "full")]),
        "failed copies",
    );

    let home = bench.path("home");
    let begin = || {
        bench
            .builder()
            .host_cache(4 * MIB)
            .node_local(&home)
            .build()
            .unwrap()
    };
    let engine = begin();
    checkpoint(&engine, 0);
    engine.wait().unwrap();
    drop(engine);
    damage(Path::new(&home));
    let engine = begin();
    let mut bytes = vec![0; MIB];
    let damaged = engine.restore(0, &mut [RegionMut::from(bytes.as_mut_slice())]);
    assert!(damaged.is_err());
    assert_found(
        &bench.faults(&[&bench.leave(&engine, "damaged")]),
        "damaged versions",
    );
}

/// Flips a byte in the middle of the largest file.
fn damage(directory: &Path) {
    let mut files = vec![];
    let mut left = vec![directory.to_path_buf()];
    while let Some(path) = left.pop() {
        for entry in std::fs::read_dir(path).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => left.push(path),
                false => files.push(path),
            }
        }
    }
    let largest = files
        .iter()
        .max_by_key(|path| path.metadata().unwrap().len())
        .unwrap();
    let mut bytes = std::fs::read(largest).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(largest, bytes).unwrap();
}

#[test]
fn a_retention_that_starves_restores_is_named() {
    let bench = Bench::new();
    let builder = bench
        .builder()
        .host_cache(16 * MIB)
        .node_local(bench.path("home"));
    let engine = builder.retention(Retention::newest(2)).build().unwrap();
    (0..8).for_each(|version| checkpoint(&engine, version));
    engine.wait().unwrap();
    assert_not_found(
        &bench.faults(&[&bench.leave(&engine, "before")]),
        "retention too short",
    );
    let mut bytes = vec![0; MIB];
    let gone = |engine: &Engine, bytes: &mut Vec<u8>| {
        engine
            .restore(0, &mut [RegionMut::from(bytes.as_mut_slice())])
            .is_err()
    };
    // The engine applies the retention after the calls returned.
    while !gone(&engine, &mut bytes) {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_found(
        &bench.faults(&[&bench.leave(&engine, "after")]),
        "retention too short",
    );
}
