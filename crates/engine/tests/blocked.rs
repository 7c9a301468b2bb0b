//! Tests of blocked time: the metrics have all of it, and the cause of each part.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use serde_json::Value;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tierflow_device::{Choice, host, open};
use tierflow_engine::{Cause, Engine, EngineBuilder, Error, Metrics, Region, RegionMut, Tier};
use tierflow_store::{Scratch, Throttled};

const MIB: usize = 1 << 20;

/// Returns the builder of an engine with memory for two versions above storage of `mib_per_second`.
fn over_slow_storage(mib_per_second: u64) -> (EngineBuilder, tempfile::TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let scratch = Scratch::open(directory.path()).unwrap();
    let slow = Throttled::new(scratch, mib_per_second << 20);
    let builder = Engine::builder(&open(Choice::Host).unwrap()).device_cache(2 * MIB);
    let builder = builder.tier(Tier::storage(Arc::new(slow)));
    (builder, directory)
}

fn checkpoint(engine: &Engine, version: u64) {
    let bytes = vec![version as u8; MIB];
    let regions = [Region::from(bytes.as_slice())];
    engine.checkpoint(version, &regions).unwrap();
}

fn restore(engine: &Engine, version: u64) {
    let mut bytes = vec![0; MIB];
    let mut regions = [RegionMut::from(bytes.as_mut_slice())];
    engine.restore(version, &mut regions).unwrap();
    assert!(bytes.iter().all(|&byte| byte == version as u8));
}

/// Returns the time that calls take, as their caller sees it.
fn timed<T>(calls: impl FnOnce() -> T) -> (T, Duration) {
    let begun = Instant::now();
    let done = calls();
    (done, begun.elapsed())
}

/// Checks that causes other than the engine's own work name at least 95% of what the caller saw, and that no time is named twice.
fn assert_named(metrics: &Metrics, seen: Duration) {
    let named: Duration = metrics.causes.iter().map(|times| times.total).sum();
    assert!(named <= seen, "{named:?} of {seen:?}: {metrics}");
    assert!(metrics.blocked() <= seen && named <= metrics.blocked());
    let own = metrics.times(Cause::Plan).total;
    assert!(
        named - own >= seen.mul_f64(0.95),
        "{:?} of {seen:?}: {metrics}",
        named - own
    );
}

/// Checks that a cause is more than half of what the caller saw.
fn assert_mostly(metrics: &Metrics, cause: Cause, seen: Duration) {
    let total = metrics.times(cause).total;
    assert!(
        total > seen / 2,
        "{cause:?} is {total:?} of {seen:?}: {metrics}"
    );
    let said = metrics.explain();
    assert!(
        said[1].starts_with(match cause {
            Cause::Room => "Checkpoints waited for memory",
            Cause::Arrival => "Restores waited for versions on their way up",
            Cause::Flushes => "Waits lasted until versions lay",
            Cause::Stream => "Calls waited for the application's streams",
            Cause::Storage => "Calls copied to or from storage",
            other => panic!("no sentence is expected of {other:?}"),
        }),
        "{said:?}"
    );
}

/// Returns the events of an engine's time line.
fn events(engine: &Engine, directory: &tempfile::TempDir) -> Vec<Value> {
    let path = directory.path().join("timeline.json");
    engine.write_timeline(&path).unwrap();
    let text = std::fs::read_to_string(path).unwrap();
    let json: Value = serde_json::from_str(&text).unwrap();
    json["traceEvents"].as_array().unwrap().clone()
}

#[test]
fn a_call_that_fails_blocks_no_less_than_it_waited() {
    let (builder, _kept) = over_slow_storage(1);
    let engine = builder.build().unwrap();
    let bytes = vec![7_u8; MIB];
    let regions = [Region::from(bytes.as_slice())];
    let call = engine.call().within(Duration::from_millis(20));
    let timed_out = (0..8).filter(|&version| {
        let called = call.checkpoint(version, &regions);
        matches!(called, Err(Error::TimedOut { .. }))
    });
    let timed_out = timed_out.count() as u64;
    assert!(timed_out > 0);
    let metrics = engine.metrics();
    let room = metrics.times(Cause::Room);
    assert_eq!(
        (metrics.checkpoint.failed, room.count),
        (timed_out, timed_out)
    );
    assert!(room.total <= metrics.checkpoint.blocked);
}

#[test]
fn a_wait_for_an_arrival_has_the_bytes_that_arrive() {
    let (builder, directory) = over_slow_storage(64);
    let engine = builder.timeline(1000).build().unwrap();
    (0..4).for_each(|version| checkpoint(&engine, version));
    engine.wait().unwrap();
    for version in 0..4 {
        drop(engine.call().consume(version).unwrap());
    }
    let events = events(&engine, &directory);
    let mut arrivals = events
        .iter()
        .filter(|event| event["name"] == "wait for arrival")
        .peekable();
    assert!(arrivals.peek().is_some());
    for arrival in arrivals {
        assert_eq!(arrival["args"]["bytes"], MIB, "{arrival}");
    }
}

#[test]
fn room_is_waited_for_as_long_as_a_flush_takes() {
    let (builder, _kept) = over_slow_storage(16);
    let engine = builder.build().unwrap();
    let fill = || (0..12).for_each(|version| checkpoint(&engine, version));
    let ((), seen) = timed(fill);
    let metrics = engine.metrics();
    // The time in which the test fills its buffers does not belong to the calls.
    let seen = seen.min(metrics.blocked());
    assert_named(&metrics, seen);
    assert_mostly(&metrics, Cause::Room, seen);
    let waits = metrics
        .waits
        .iter()
        .find(|waits| (waits.from, waits.to) == ("device", "file"))
        .expect("flushes that ended waits");
    assert_eq!(waits.cause, Cause::Room);
    assert_eq!(waits.total, waits.before + waits.queued + waits.moving);
    assert!(waits.transferred.is_some() && waits.longest <= waits.total);
    let said = metrics.explain();
    assert!(
        said[2].starts_with("Transfers from device to file ended"),
        "{said:?}"
    );
}

#[test]
fn a_wait_for_all_is_waited_for_flushes() {
    let (builder, _kept) = over_slow_storage(16);
    let engine = builder.build().unwrap();
    (0..2).for_each(|version| checkpoint(&engine, version));
    let before = engine.metrics().blocked();
    let (waited, seen) = timed(|| engine.wait());
    waited.unwrap();
    let metrics = engine.metrics();
    assert_eq!((metrics.wait.count, metrics.wait.failed), (1, 0));
    assert!(metrics.wait.blocked <= seen);
    // Part of these causes' time belongs to the checkpoints before.
    let own = [Cause::Flushes, Cause::WakeUp, Cause::Lock].map(|cause| metrics.times(cause).total);
    let named: Duration = own.iter().sum();
    assert!(named >= metrics.wait.blocked.mul_f64(0.95), "{metrics}");
    assert!(metrics.blocked() <= before + seen);
    assert_mostly(&metrics, Cause::Flushes, before + seen);
}

#[test]
fn a_version_that_no_hint_named_is_fetched_when_it_is_asked_for() {
    let (builder, _kept) = over_slow_storage(32);
    let engine = builder.build().unwrap();
    (0..8).for_each(|version| checkpoint(&engine, version));
    engine.wait().unwrap();
    let written = engine.metrics();
    let (consumed, seen) =
        timed(|| (0..6).for_each(|version| drop(engine.call().consume(version).unwrap())));
    let () = consumed;
    let metrics = engine.metrics();
    assert_named(&metrics, written.blocked() + seen);
    let arrival = metrics.times(Cause::Arrival);
    assert!(arrival.total > seen / 2, "{metrics}");
    let waits = metrics
        .waits
        .iter()
        .filter(|waits| waits.cause == Cause::Arrival);
    let total: Duration = waits.map(|waits| waits.total).sum();
    assert_eq!(total, arrival.total, "each wait has what ended it");
}

#[test]
fn storage_and_streams_have_names_of_their_own() {
    let directory = tempfile::tempdir().unwrap();
    let scratch = Scratch::open(directory.path()).unwrap();
    let slow = Arc::new(Throttled::new(scratch, 64 << 20));
    let device = host::open(host::Options::default()).unwrap();
    let engine = Engine::builder(&device)
        .tier(Tier::storage(slow))
        .build()
        .unwrap();
    checkpoint(&engine, 1);
    restore(&engine, 1);
    let metrics = engine.metrics();
    assert_named(&metrics, metrics.blocked());
    assert_mostly(&metrics, Cause::Storage, metrics.blocked());

    let (stream, ends) = host::late_stream(&device).unwrap();
    let engine = Engine::builder(&device)
        .device_cache(2 * MIB)
        .build()
        .unwrap();
    let slot = engine.call().produce(1, MIB).unwrap();
    slot.commit_after(&stream).unwrap();
    let ((), seen) = timed(|| {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(200));
                assert!(ends.reach_next());
            });
            let mut bytes = vec![0; MIB];
            let mut regions = [RegionMut::from(bytes.as_mut_slice())];
            engine.restore(1, &mut regions).unwrap();
        });
    });
    let metrics = engine.metrics();
    let blocked = metrics.blocked();
    assert!(blocked <= seen + metrics.produce.blocked);
    assert_named(&metrics, blocked);
    assert_mostly(&metrics, Cause::Stream, blocked);
}

/// Returns the sum of the spans of a name in a time line, in ns.
fn drawn(events: &[Value], name: &str) -> u64 {
    let spans = events
        .iter()
        .filter(|event| event["ph"] == "X" && event["name"] == name);
    spans
        .map(|span| (span["dur"].as_f64().unwrap() * 1000.0).round() as u64)
        .sum()
}

#[test]
fn counters_time_line_and_text_say_the_same() {
    let (builder, directory) = over_slow_storage(64);
    let engine = builder.timeline(10_000).build().unwrap();
    (0..8).for_each(|version| checkpoint(&engine, version));
    engine.wait().unwrap();
    (0..8).for_each(|version| drop(engine.call().consume(version).unwrap()));
    let events = events(&engine, &directory);
    let metrics = engine.metrics();
    let text = metrics.open_metrics();
    assert!(text.ends_with("# EOF\n"));
    let file = directory.path().join("tierflow.prom");
    for _ in 0..2 {
        metrics.write_open_metrics(&file).unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), text);
        let names = std::fs::read_dir(directory.path()).unwrap();
        let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        assert_eq!(
            names
                .filter(|name| name.starts_with("tierflow.prom"))
                .count(),
            1
        );
    }
    let json: Value = serde_json::from_str(&metrics.json()).unwrap();
    let value = |family: &str, labels: &[(&str, &str)], part: &str| {
        let samples = json[family].as_array().unwrap();
        let is_it = |one: &&Value| {
            one.get(part).is_some() && labels.iter().all(|(key, label)| one[key] == *label)
        };
        samples.iter().find(is_it).unwrap()[part].clone()
    };
    let restores = value("calls", &[("call", "consume")], "value");
    assert_eq!(restores.as_u64(), Some(metrics.consume.count));
    // The tier below has no limit.
    let name = metrics.tiers.last().unwrap().name;
    let capacity = value(
        "tier_bytes",
        &[("tier", name), ("kind", "capacity")],
        "value",
    );
    assert_eq!(capacity, Value::Null);
    let line = format!("tierflow_tier_bytes{{tier=\"{name}\",kind=\"capacity\"}} +Inf\n");
    assert!(text.contains(&line), "{line} in {text}");
    for cause in [Cause::Room, Cause::Arrival, Cause::Flushes] {
        let (times, name) = (metrics.times(cause), cause.name());
        assert!(times.count > 0, "{name}: {metrics}");
        let total = value("blocked_seconds", &[("cause", name)], "sum");
        assert_eq!(total.as_f64(), Some(times.total.as_secs_f64()), "{name}");
        assert_eq!(
            u128::from(drawn(&events, name)),
            times.total.as_nanos(),
            "{name}"
        );
        let line = format!(
            "tierflow_blocked_seconds_sum{{cause=\"{name}\"}} {}\n",
            times.total.as_secs_f64()
        );
        assert!(text.contains(&line), "{line} in {text}");
        let line = format!(
            "tierflow_blocked_seconds_count{{cause=\"{name}\"}} {}\n",
            times.count
        );
        assert!(text.contains(&line), "{line} in {text}");
    }
}

#[test]
fn an_arrow_leads_from_a_transfer_to_the_wait_that_it_ended() {
    let (builder, directory) = over_slow_storage(64);
    let engine = builder.timeline(10_000).build().unwrap();
    (0..8).for_each(|version| checkpoint(&engine, version));
    let events = events(&engine, &directory);
    let span_at = |event: &Value| {
        let at = event["ts"].as_f64().unwrap();
        let around = |span: &&Value| {
            let begin = span["ts"].as_f64().unwrap_or(f64::MAX);
            span["ph"] == "X"
                && span["tid"] == event["tid"]
                && begin <= at
                && at <= begin + span["dur"].as_f64().unwrap()
        };
        let span = events
            .iter()
            .find(around)
            .expect("an arrow is bound to a span");
        span["name"].as_str().unwrap().to_owned()
    };
    let starts: Vec<_> = events.iter().filter(|event| event["ph"] == "s").collect();
    assert!(!starts.is_empty());
    for start in starts {
        assert_eq!(span_at(start), "flush");
        let end = events
            .iter()
            .find(|event| event["ph"] == "f" && event["id"] == start["id"]);
        let end = end.expect("each arrow has an end");
        assert_eq!(span_at(end), "wait for room");
        assert!(start["ts"].as_f64() <= end["ts"].as_f64());
    }
}

#[test]
fn a_suspension_blocks_for_as_long_as_it_is_waited_for() {
    let directory = tempfile::tempdir().unwrap();
    let builder = Engine::builder(&open(Choice::Host).unwrap()).node_local(directory.path());
    let engine = builder.host_cache(2 * MIB).build().unwrap();
    checkpoint(&engine, 1);
    let before = engine.metrics().blocked();
    let deadline = Instant::now() + Duration::from_secs(60);
    let suspension = engine.suspend(None, deadline).unwrap();
    std::thread::sleep(Duration::from_millis(200));
    let (durable, seen) = timed(|| suspension.wait());
    assert!(durable.unwrap());
    let metrics = engine.metrics();
    let named: Duration = metrics.causes.iter().map(|times| times.total).sum();
    assert!(named <= before + seen, "{metrics}");
    assert_eq!(metrics.wait.count, 1);
}
