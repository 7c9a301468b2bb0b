//! Each door takes checkpoints and waits for a long time, and keeps the newest versions. Memory, descriptors and threads must not grow.

use super::doors::Door;
use super::draws::variable;
use super::start::Start;
use super::tally::{Kind, Known, Tally};
use std::fs::{read_dir, read_to_string};
use std::time::{Duration, Instant};

/// Nothing is known to fail.
const KNOWN: Known = &[];

/// The resources of a process at a moment.
#[derive(Clone, Copy, Debug, Default)]
struct Sample {
    kib: u64,
    descriptors: u64,
    threads: u64,
}

impl Sample {
    fn of(process: u32) -> Option<Self> {
        let status = read_to_string(format!("/proc/{process}/status")).ok()?;
        let kib = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:"))?;
        let count = |what| {
            read_dir(format!("/proc/{process}/{what}"))
                .map(Iterator::count)
                .ok()
        };
        Some(Self {
            kib: kib.trim().split(' ').next()?.parse().ok()?,
            descriptors: count("fd")? as u64,
            threads: count("task")? as u64,
        })
    }

    /// Returns the least of each resource, as short peaks do not count.
    fn least(of: &[Self]) -> Self {
        let least = |part: fn(&Self) -> u64| of.iter().map(part).min().unwrap_or_default();
        Self {
            kib: least(|sample| sample.kib),
            descriptors: least(|sample| sample.descriptors),
            threads: least(|sample| sample.threads),
        }
    }
}

fn soak(door: Door, seconds: u64, tally: &Tally) {
    let home = tempfile::tempdir().unwrap();
    let place = |name: &str| format!("{name}={}", home.path().join(name).display());
    let more = ["run=1", "keep_newest=8", "host_cache=8388608"].map(str::to_owned);
    let mut options = vec![place("node_local"), place("external")];
    options.extend(more);
    let start = Start::of(door.command(&options, &[format!("soak:{seconds}"), "close".into()]));
    let (begun, mut samples) = (Instant::now(), Vec::new());
    while begun.elapsed().as_secs() < seconds {
        std::thread::sleep(Duration::from_millis((seconds * 10).clamp(20, 1000)));
        samples.extend(Sample::of(start.id()));
    }
    let report = start.end();
    let name = format!("{door:?}");
    tally.count(&name, report.took.len(), report.durable.len());
    tally.count_history();
    // Caches fill in the first third, which takes memory for a minute.
    let third = samples.len() / 3;
    let (before, after) = (
        Sample::least(&samples[third..2 * third]),
        Sample::least(&samples[2 * third..]),
    );
    println!(
        "{name}: {} samples, {before:?}, then {after:?}",
        samples.len()
    );
    let grown = seconds >= 180 && after.kib > before.kib + before.kib / 20 + 2048
        || after.descriptors > before.descriptors + 2
        || after.threads > before.threads + 1;
    if grown && third > 10 {
        tally.found(&name, Kind::Grown, 0, format!("{before:?}, then {after:?}"));
    }
    if report.hung || report.signal().is_some() || !report.errors.is_empty() {
        tally.found(
            &name,
            Kind::Crashed,
            0,
            format!("{:?} {}", report.status, report.errors),
        );
    }
}

#[test]
fn nothing_grows() {
    let tally = Tally::of("soak");
    let seconds = variable("TIERFLOW_SOAK", 2);
    std::thread::scope(|scope| {
        for door in Door::runnable() {
            let tally = &tally;
            scope.spawn(move || soak(door, seconds, tally));
        }
    });
    tally.end(KNOWN);
}
