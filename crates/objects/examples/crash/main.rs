//! Writers and an S3 server that are killed at any time: every acknowledged version must be there whole, and no other one in part.
//!
//! ```text
//! cargo run -p tierflow-objects --features cloud --example crash -- --url s3://bucket/prefix --kills 500 \
//!     --server 's3s-fs --access-key KEY --secret-key SECRET /tmp/root'
//! ```
//! with `AWS_ENDPOINT_URL`, `AWS_ALLOW_HTTP=true` and the keys in the environment. The server must keep acknowledged objects
//! through `kill -9` and a restart. In each run a separate process saves versions by many threads and prints the acknowledged
//! ones. The process is killed, or the server is, or both. Then a new vault lists the history and reads the versions that this
//! run acknowledged or had under way, and a sample of older ones. At the end the vault reads all versions.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "an experiment ends at the first thing that is not as it should be"
)]

mod process;
mod writer;

use process::{Rng, Server, Writer, expect, peak_memory};
use std::collections::BTreeSet;
use std::panic::resume_unwind;
use std::time::{Duration, Instant};
use tierflow_objects::Settings;
use tierflow_store::Repository;
use writer::{Load, contents};

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let value = |name: &str| {
        let at = arguments.iter().position(|given| given == name)?;
        arguments.get(at + 1).cloned()
    };
    let number = |name: &str, default: u64| {
        value(name).map_or(default, |text| text.parse().expect("a number"))
    };
    let load = Load {
        url: value("--url").expect("--url s3://bucket/prefix"),
        from: number("--from", 0),
        most: number("--most", u64::MAX),
        threads: number("--threads", 8),
        large: number("--large", 0),
    };
    if arguments.iter().any(|given| given == "--write") {
        return writer::write(&load);
    }
    let server = value("--server").expect("--server 'command arguments'");
    let experiment = Experiment {
        kills: number("--kills", 20),
        seed: number("--seed", 1),
        goal: number("--goal", u64::MAX),
        milliseconds: (number("--least-ms", 300), number("--most-ms", 1500)),
        keep: number("--keep", u64::MAX),
        every: number("--every", 10),
        load,
    };
    experiment.run(&server);
}

/// Threads that read.
const READERS: usize = 16;

struct Experiment {
    kills: u64,
    seed: u64,
    /// Number of acknowledged versions after which the experiment ends, too.
    goal: u64,
    /// The shortest and the longest time until a process is killed, in milliseconds.
    milliseconds: (u64, u64),
    /// Versions that stay in the store.
    keep: u64,
    /// Runs between two reports.
    every: u64,
    load: Load,
}

/// Results of the checks so far.
#[derive(Debug, Default)]
struct Tally {
    acknowledged: BTreeSet<u64>,
    lost: u64,
    torn: u64,
    /// Versions that are whole though never acknowledged, as the answer was lost.
    unacknowledged: u64,
    read: u64,
    /// Number of kills of the writer, of the server, and of both.
    kills: [u64; 3],
    writers_peak: u64,
    opening: Duration,
}

impl Experiment {
    fn run(&self, server: &str) {
        let (begun, mut rng) = (Instant::now(), Rng(self.seed | 1));
        let mut server = Server::start(server);
        let (mut tally, mut next, mut removed) = (Tally::default(), self.load.from, 0);
        let mut runs = 0;
        for kill in 0..self.kills {
            let before = next;
            let load = Load {
                from: next,
                ..self.load.clone()
            };
            let writer = Writer::start(&load);
            let (least, most) = self.milliseconds;
            let lifetime = Duration::from_millis(least + rng.below(most - least + 1));
            std::thread::sleep(lifetime);
            let killed = rng.below(3) as usize;
            if killed > 0 {
                server.kill();
            }
            if killed == 1 {
                // The writer continues, and connects to the server again.
                std::thread::sleep(Duration::from_millis(rng.below(500)));
                server.restart();
                std::thread::sleep(lifetime / 4);
            }
            tally.kills[killed] += 1;
            tally.writers_peak = tally.writers_peak.max(writer.peak_memory());
            let (acknowledged, highest) = writer.kill();
            if killed == 2 {
                server.restart();
            }
            next = highest.map_or(next, |highest| highest + 1).max(next);
            tally.acknowledged.extend(acknowledged);
            self.check(&mut tally, before..next, &mut rng);
            if tally.acknowledged.len() as u64 > self.keep {
                removed += self.prune(&mut tally);
            }
            runs = kill + 1;
            if runs % self.every == 0 {
                self.report(&tally, runs, removed, begun);
            }
            if tally.acknowledged.len() as u64 + removed >= self.goal {
                break;
            }
        }
        let all: Vec<u64> = tally.acknowledged.iter().copied().collect();
        self.read(&self.open(), &mut tally, &all);
        self.report(&tally, runs, removed, begun);
        assert_eq!(
            (tally.lost, tally.torn),
            (0, 0),
            "something is lost or torn"
        );
    }

    fn open(&self) -> Repository {
        let opened = tierflow_objects::open(&self.load.url, &Settings::default());
        expect(opened, "the store cannot be opened")
    }

    /// Opens the history anew. Reads all new versions, and a sample of the others.
    fn check(&self, tally: &mut Tally, new: std::ops::Range<u64>, rng: &mut Rng) {
        let begun = Instant::now();
        let vault = self.open();
        let there = expect(vault.versions(), "the history cannot be listed");
        tally.opening = begun.elapsed();
        let there: BTreeSet<u64> = there.iter().map(|info| info.version).collect();
        let damage = vault.damage();
        assert!(damage.is_empty(), "torn: {damage:?}");
        let lost = tally.acknowledged.difference(&there).count() as u64;
        tally.lost += lost;
        assert_eq!(lost, 0, "versions are lost");
        let mut to_read: BTreeSet<u64> = there.range(new.clone()).copied().collect();
        let is_new = |version: &&u64| !tally.acknowledged.contains(*version);
        tally.unacknowledged += to_read.iter().filter(is_new).count() as u64;
        for _ in 0..20 {
            let from = rng.below(new.start.max(1));
            to_read.extend(tally.acknowledged.range(from..).next());
        }
        let to_read: Vec<u64> = to_read.into_iter().collect();
        self.read(&vault, tally, &to_read);
    }

    /// Reads versions, many at a time.
    fn read(&self, vault: &Repository, tally: &mut Tally, versions: &[u64]) {
        let torn: u64 = std::thread::scope(|scope| {
            let parts = versions.chunks(versions.len().div_ceil(READERS).max(1));
            let read =
                |part: &'_ [u64]| part.iter().map(|version| self.torn(vault, *version)).sum();
            let threads: Vec<_> = parts
                .map(|part| scope.spawn(move || -> u64 { read(part) }))
                .collect();
            let torn = threads
                .into_iter()
                .map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)));
            torn.sum()
        });
        tally.read += versions.len() as u64;
        tally.torn += torn;
        assert_eq!(tally.torn, 0, "versions are torn");
    }

    /// Returns 1 if a version does not have the bytes that were saved, else 0.
    fn torn(&self, vault: &Repository, version: u64) -> u64 {
        let found = vault.piece(version);
        let piece = expect(
            found,
            format_args!("version {version} is listed and has no piece"),
        );
        let (mut end, mut is_right) = (0, true);
        let read = piece.read_through("state", &mut |offset, bytes| {
            is_right &= contents(version, offset, bytes.len()).eq(bytes.iter().copied());
            end = offset + bytes.len() as u64;
            Ok(())
        });
        expect(
            read,
            format_args!("version {version} is listed and cannot be read"),
        );
        u64::from(!is_right || end != self.load.length(version))
    }

    /// Removes all but the newest `keep` versions, as the disk has no room for more.
    fn prune(&self, tally: &mut Tally) -> u64 {
        let surplus = tally.acknowledged.len() as u64 - self.keep;
        let old: BTreeSet<u64> = tally
            .acknowledged
            .iter()
            .take(surplus as usize)
            .copied()
            .collect();
        expect(self.open().remove(&old), "old versions cannot be removed");
        tally.acknowledged.retain(|version| !old.contains(version));
        surplus
    }

    fn report(&self, tally: &Tally, kills: u64, removed: u64, begun: Instant) {
        let [writer, server, both] = tally.kills;
        println!(
            "{kills} runs ({writer} writers, {server} servers, {both} both killed), {} versions acknowledged, {} read, {} whole \
             without an answer, {} lost, {} torn; the last open took {:?}; peak memory: writers {} KiB, reader {} KiB; {:?}",
            tally.acknowledged.len() as u64 + removed,
            tally.read,
            tally.unacknowledged,
            tally.lost,
            tally.torn,
            tally.opening,
            tally.writers_peak,
            peak_memory("self"),
            begun.elapsed(),
        );
    }
}
