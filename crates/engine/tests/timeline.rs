//! Tests of the time line: JSON in Chrome's trace format, with rows on which no spans overlap.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use serde_json::Value;
use std::collections::BTreeMap;
use tierflow_device::{Choice, open};
use tierflow_engine::{AfterRestore, Cause, Engine, Flush, Region, RegionMut};

/// Returns the spans of each row by its name: name, begin and end in ns. A moment ends when it begins.
fn rows(text: &str) -> BTreeMap<String, Vec<(String, u64, u64)>> {
    let json: Value = serde_json::from_str(text).expect("JSON");
    let events = json["traceEvents"].as_array().expect("a list of events");
    let mut names = BTreeMap::new();
    let mut rows = BTreeMap::<String, Vec<_>>::new();
    let ns = |value: &Value| (value.as_f64().expect("a time in µs") * 1000.0).round() as u64;
    for event in events {
        let name = event["name"].as_str().expect("a name");
        assert_eq!(event["pid"], 1);
        match event["ph"].as_str().expect("a phase") {
            "M" if name == "thread_name" => {
                let row = event["args"]["name"].as_str().expect("the name of a row");
                names.insert(event["tid"].as_u64().expect("a row"), row.to_owned());
            }
            "M" => {}
            phase @ ("X" | "i") => {
                let begin = ns(&event["ts"]);
                let end = begin + if phase == "X" { ns(&event["dur"]) } else { 0 };
                let row = &names[&event["tid"].as_u64().expect("a row")];
                let row = rows.entry(row.clone()).or_default();
                row.push((name.to_owned(), begin, end));
            }
            // Arrows are no spans.
            "s" | "t" | "f" => {}
            other => panic!("an event of phase {other}"),
        }
    }
    rows
}

fn assert_nothing_overlaps(rows: &BTreeMap<String, Vec<(String, u64, u64)>>) {
    for (row, spans) in rows {
        let mut spans = spans.clone();
        spans.sort_by_key(|span| (span.1, span.2));
        for pair in spans.windows(2) {
            assert!(pair[0].2 <= pair[1].1, "on {row}: {pair:?} overlap");
        }
    }
}

#[test]
fn a_run_of_two_threads_is_drawn_without_overlaps() {
    let directory = tempfile::tempdir().unwrap();
    let device = open(Choice::Host).unwrap();
    let engine = Engine::builder(&device)
        .device_cache(8 << 20)
        .host_cache(16 << 20)
        .scratch(directory.path())
        .after_restore(AfterRestore::Discard)
        .flush(Flush::Eager)
        .timeline(100_000)
        .build()
        .unwrap();
    let bytes = vec![7_u8; 1 << 20];
    std::thread::scope(|scope| {
        for first in [0, 1000] {
            let (engine, bytes) = (&engine, &bytes);
            scope.spawn(move || {
                engine.hint((first..first + 40).rev());
                for version in first..first + 40 {
                    engine
                        .checkpoint(version, &[Region::from(bytes.as_slice())])
                        .unwrap();
                }
                for version in (first..first + 40).rev() {
                    let mut back = vec![0; bytes.len()];
                    engine
                        .restore(version, &mut [RegionMut::from(back.as_mut_slice())])
                        .unwrap();
                }
            });
        }
    });
    let path = directory.path().join("timeline.json");
    engine.write_timeline(&path).unwrap();
    let rows = rows(&std::fs::read_to_string(path).unwrap());
    assert_nothing_overlaps(&rows);
    let count = |row: &str, name: &str| {
        let rows = rows.iter().filter(|(known, _)| known.starts_with(row));
        let spans = rows.flat_map(|(_, spans)| spans);
        spans.filter(|span| span.0 == name).count() as u64
    };
    let metrics = engine.metrics();
    assert_eq!(
        (count("caller", "checkpoint"), count("caller", "restore")),
        (80, 80)
    );
    assert_eq!(
        count("caller", "wait for room"),
        metrics.times(Cause::Room).count
    );
    assert_eq!(
        count("caller", "wait for arrival"),
        metrics.times(Cause::Arrival).count
    );
    let (device_tier, host_tier) = (&metrics.tiers[0], &metrics.tiers[1]);
    let evicted = |name| count("evictions from device", name);
    assert_eq!(
        evicted("evicted for a checkpoint"),
        device_tier.evicted_for_checkpoints
    );
    assert_eq!(
        evicted("evicted for a prefetch"),
        device_tier.evicted_for_prefetches
    );
    assert!(host_tier.evicted_for_flushes > 0, "80 MiB do not fit 24");
    let flushed: u64 = metrics
        .hops
        .iter()
        .filter(|hop| (hop.from, hop.to) == ("device", "host"))
        .map(|hop| hop.transfers)
        .sum();
    assert_eq!(count("above → host", "flush"), flushed);
    let by_cause = device_tier;
    let sum = by_cause.evicted_for_checkpoints
        + by_cause.evicted_for_flushes
        + by_cause.evicted_for_prefetches
        + by_cause.evicted_for_limits;
    assert_eq!(sum, device_tier.evictions);
    assert_eq!(metrics.prefetch_distance.restores, 80);
    assert!(metrics.prefetch_distance.sum > 0);
}

#[test]
fn without_a_time_line_the_file_holds_no_rows() {
    let directory = tempfile::tempdir().unwrap();
    let engine = Engine::builder(&open(Choice::Host).unwrap())
        .device_cache(1 << 20)
        .build()
        .unwrap();
    engine
        .checkpoint(0, &[Region::from([1_u8; 100].as_slice())])
        .unwrap();
    let path = directory.path().join("timeline.json");
    engine.write_timeline(&path).unwrap();
    assert!(rows(&std::fs::read_to_string(path).unwrap()).is_empty());
}
