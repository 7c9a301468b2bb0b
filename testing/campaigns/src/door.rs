//! The door Rust of the campaigns: a program that carries out its arguments, and reports the results on its standard output.
//!
//! `door key=value… -- action…`. `children/tierflow.c`, `children/veloc.c` and `children/door.py` take the same words, which
//! `children/README.md` lists.

#![forbid(unsafe_code)]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a program that fails ends, as programs do"
)]

use rustix::process::{Signal, getpid, kill_process};
use std::collections::HashMap;
use std::fmt::{Debug, Display};
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};
use tierflow_device::{Choice, open};
use tierflow_engine::{Engine, Error, Group, Notice, Region, RegionMut, Retention, Tier};
use tierflow_redundancy::{Directory, Redundancy};
use tierflow_store::Faults;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// The first version of a history. No error text contains this number for another reason.
const FIRST: u64 = 70_001;
const BLOCK: usize = 2048;
const SIGTERM: i32 = 15;

/// Returns the bytes of a version of a run. Each block begins with the run, the version and its place, and the rest is the same in all.
fn content(run: u64, version: u64, size: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(size + BLOCK);
    for block in 0..size.div_ceil(BLOCK) as u64 {
        bytes.extend((run << 32 | version).to_le_bytes());
        bytes.extend(block.to_le_bytes());
        bytes.extend((16..BLOCK).map(|at| (at * 31 % 251) as u8));
    }
    bytes.truncate(size);
    bytes
}

/// The door's options.
struct Options(HashMap<String, String>);

impl Options {
    fn text(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str)
    }

    fn number(&self, key: &str) -> Option<u64> {
        self.text(key).map(|text| text.parse().unwrap())
    }

    fn engine(&self, faults: &Arc<Faults>) -> Result<Engine, Error> {
        let cache = self.number("host_cache").unwrap_or(32 << 20);
        let mut builder = Engine::builder(&open(Choice::Host)?).host_cache(cache as usize);
        if let Some(directory) = self.text("node_local") {
            let limit = self.number("node_local_limit");
            builder = builder.tier(Tier::node_local(directory).limit(limit));
        }
        if let Some(directory) = self.text("external") {
            builder = builder.external(directory);
        }
        if let Some(chunk) = self.number("dedup") {
            let chunk = chunk as u32;
            builder = builder.dedup(tierflow_dedup::Tree { chunk });
        }
        if let Some(seconds) = self.text("closing_patience") {
            let patience = Duration::from_secs_f64(seconds.parse().unwrap());
            builder = builder.closing_patience(patience);
        }
        if let Some(newest) = self.number("keep_newest") {
            builder = builder.retention(Retention::newest(newest as usize));
        }
        let (rank, ranks) = (self.number("rank").unwrap_or(0), self.number("ranks"));
        if let Some(ranks) = ranks {
            let run = self.number("group").unwrap_or(0);
            let group = Group::new(rank as u32, ranks as u32, run);
            builder = builder.group(group.patience(Duration::from_secs(60)));
        }
        if let (Some(scheme), Some(exchange)) = (self.text("redundancy"), self.text("exchange")) {
            let run = self.number("group").unwrap_or(0);
            let transport = Directory::open(Path::new(exchange), run, rank as u32).unwrap();
            let scheme: Redundancy = scheme.parse().unwrap();
            let protection = scheme.over(Arc::new(transport));
            let domain = self.text("failure_domain").unwrap_or("node");
            builder = builder.redundancy(protection.failure_domain(domain));
        }
        faults.during(|| builder.build())
    }
}

/// Writes a line at once, as the next action may end the process.
fn report(line: impl Display) {
    let line = format!("{line}\n");
    std::io::stdout().write_all(line.as_bytes()).unwrap();
}

/// Prints an error after which the application can continue.
fn told<T>(what: impl Display, result: Result<T, Error>) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(error) => {
            eprintln!("{what}: {error}");
            None
        }
    }
}

struct Run {
    engine: Engine,
    run: u64,
    next: u64,
    notice: Option<Notice>,
    faults: Arc<Faults>,
}

impl Run {
    fn checkpoint(&mut self, size: usize) {
        let version = self.next;
        report(format_args!("begins {version}"));
        let bytes = content(self.run, version, size);
        let taken = self
            .engine
            .checkpoint(version, &[Region::from(bytes.as_slice())]);
        if told(format_args!("version {version}"), taken).is_some() {
            report(format_args!("took {version} {size}"));
            self.next += 1;
        }
    }

    fn wait(&self) {
        if told("wait", self.engine.wait()).is_some() {
            report("all");
        }
    }

    fn wait_version(&self) {
        let version = self.next - 1;
        let waited = self.engine.call().wait_version(version);
        if told(format_args!("version {version}"), waited).is_some() {
            report(format_args!("durable {version}"));
        }
    }

    fn suspend(&self, seconds: f64) {
        let deadline = Instant::now() + Duration::from_secs_f64(seconds);
        let Some(suspension) = told("suspend", self.engine.suspend(None, deadline)) else {
            return;
        };
        let version = suspension.version();
        if let (Some(version), Some(true)) = (version, told("suspend", suspension.wait())) {
            report(format_args!("durable {version}"));
        }
    }

    fn restore(&self, version: u64) {
        match self.restored(version) {
            Ok(bytes) => {
                let head = bytes.first_chunk().copied().map_or(0, u64::from_le_bytes);
                let (run, size) = (head >> 32, bytes.len());
                if bytes == content(run, head & 0xFFFF_FFFF, size) && head as u32 == version as u32
                {
                    report(format_args!("whole {version} {run} {size}"));
                } else {
                    report(format_args!("torn {version} {run} {size}"));
                }
            }
            Err(error) => report(format_args!("missing {version} {error}")),
        }
    }

    fn restored(&self, version: u64) -> Result<Vec<u8>, Error> {
        let mut bytes = vec![0; self.engine.restore_size(version)? as usize];
        let regions = &mut [RegionMut::from(bytes.as_mut_slice())];
        self.engine.restore(version, regions)?;
        Ok(bytes)
    }

    /// Takes checkpoints until the process is killed, or for `seconds`.
    fn go_on(&mut self, mut seed: u64, seconds: f64) {
        let begun = Instant::now();
        while begun.elapsed().as_secs_f64() < seconds {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let drawn = seed >> 33;
            let before = self.next;
            let large = if drawn.is_multiple_of(11) { 100 } else { 1 };
            self.checkpoint(8 * (1 + drawn as usize % 1500) * large);
            if self.next == before {
                std::thread::sleep(Duration::from_millis(1));
            } else if drawn % 4 == 1 {
                self.wait();
            } else if drawn % 4 != 2 {
                self.wait_version();
            }
        }
        self.wait();
    }
}

fn signal(signal: Signal) {
    kill_process(getpid(), signal).unwrap();
    std::thread::sleep(Duration::from_secs(1));
}

fn main() {
    tracing::subscriber::set_global_default(Warnings).unwrap();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (options, actions) = arguments.split_at(arguments.iter().position(|a| a == "--").unwrap());
    let options = options.iter().map(|option| {
        let (key, value) = option.split_once('=').unwrap();
        (key.to_owned(), value.to_owned())
    });
    let options = Options(options.collect());
    let faults = Arc::new(Faults::default());
    faults
        .full
        .store(options.text("full") == Some("1"), Relaxed);
    let Some(engine) = told("open", options.engine(&faults)) else {
        std::process::exit(1);
    };
    for damage in engine.damage() {
        report(format_args!(
            "damage {}",
            damage.to_string().replace('\n', " ")
        ));
    }
    let latest = engine.latest(None);
    if let Some(latest) = latest {
        report(format_args!("latest {latest}"));
    }
    let mut run = Run {
        engine,
        run: options.number("run").unwrap(),
        next: latest.map_or(FIRST, |latest| latest + 1),
        notice: None,
        faults,
    };
    for action in &actions[1..] {
        let (name, value) = action.split_once(':').unwrap_or((action, ""));
        let number = || value.parse::<f64>().unwrap();
        match name {
            "c" => run.checkpoint(value.parse().unwrap()),
            "w" => run.wait_version(),
            "W" => run.wait(),
            "q" if run.engine.is_durable(run.next - 1) => {
                report(format_args!("durable {}", run.next - 1));
            }
            "q" => {}
            "s" => run.suspend(number()),
            "p" => std::thread::sleep(Duration::from_secs_f64(number() / 1e3)),
            "r" => run.restore(value.parse().unwrap()),
            "full" => run.faults.full.store(value == "1", Relaxed),
            "loop" => run.go_on(value.parse().unwrap(), f64::INFINITY),
            "soak" => run.go_on(run.run, number()),
            "notice" => {
                let given = Notice::on_signals(&[SIGTERM], Duration::from_secs_f64(number()));
                run.notice = told("notice", given);
                signal(Signal::TERM);
                run.suspend(number());
            }
            "return" => return,
            "close" => match run.engine.close() {
                Ok(()) => return report("closed"),
                Err(error) => {
                    eprintln!("close: {error}");
                    std::process::exit(1);
                }
            },
            "fail" => panic!("the application failed"),
            "exit" => std::process::exit(3),
            "term" => signal(Signal::TERM),
            "int" => signal(Signal::INT),
            "kill" => signal(Signal::KILL),
            "exec" => panic!("{}", Command::new("true").exec()),
            other => panic!("{other}: no such action"),
        }
    }
}

/// A subscriber that prints warnings and errors to the standard error, as in applications.
#[derive(Debug)]
struct Warnings;

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::WARN
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = EventLine(String::new());
        event.record(&mut line);
        eprintln!("{}:{}", event.metadata().level(), line.0);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// The fields of an event, as one line.
struct EventLine(String);

impl Visit for EventLine {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0 += &format!(" {field}={value:?}");
    }
}
