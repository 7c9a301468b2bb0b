//! Programs end in every way. Versions that were reported durable come back bit for bit, and every other version that does not come back is
//! named on the standard error, unless the end let the program run no further instruction.

use super::doors::Door;
use super::draws::{Draws, each_seed, is_over, variable};
use super::s3;
use super::start::{Report, Start, Written};
use super::tally::{Kind, Known, Tally};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// No failure is known: every door names every lost version.
const KNOWN: Known = &[];

/// The ends of all doors. Signals have their default action.
const ENDS: [&str; 9] = [
    "return", "close", "close", "fail", "exit", "term", "int", "kill", "exec",
];

/// The options of a history, and the actions of its starts.
struct History {
    options: Vec<String>,
    starts: Vec<Vec<String>>,
}

impl History {
    /// Draws the history of a seed, for a door, in a directory.
    fn of(seed: u64, door: Door, home: &Path) -> Self {
        let mut draws = Draws(seed);
        let place = |name: &str| format!("{name}={}", home.join(name).display());
        let mut options = match draws.below(3) {
            0 => vec![place("node_local"), place("external")],
            1 => vec![place("node_local")],
            _ => vec![place("external")],
        };
        if door == Door::Veloc && options.len() == 1 {
            options = vec![place("node_local"), place("external")];
        }
        if draws.once(3) {
            options.push("closing_patience=0.05".to_owned());
        }
        // A separate generator, so that the rest of the history does not depend on these draws.
        let mut slow = Draws(!seed);
        if slow.once(5) && s3::shared().is_some() {
            let rate = 1_000_000 * (1 + slow.below(16));
            let name = home.file_name().unwrap().to_string_lossy();
            let name = name.trim_start_matches('.');
            for option in &mut options {
                if option.starts_with("external=") {
                    *option = format!("external=s3://slow-{rate}/{name}");
                }
            }
        }
        let starts = 1 + draws.below(3);
        let starts = (0..starts).map(|_| actions(&mut draws, door)).collect();
        Self { options, starts }
    }
}

fn actions(draws: &mut Draws, door: Door) -> Vec<String> {
    let mut actions: Vec<String> = (0..1 + draws.below(9))
        .map(|_| match draws.below(20) {
            0..9 => format!("c:{}", 8 * (1 + draws.below(5_000))),
            9..13 => format!("c:{}", 8 * (1 + draws.below(500_000))),
            13 => "w".to_owned(),
            14 => "W".to_owned(),
            15 => "q".to_owned(),
            16 if door != Door::Veloc => draws.one_of(&["s:0.005", "s:1"]).to_string(),
            17 if door != Door::Rust => draws.one_of(&["f", "F"]).to_string(),
            _ => format!("p:{}", draws.below(30)),
        })
        .collect();
    // A wait for a version needs a version before it.
    actions.insert(0, format!("c:{}", 8 * (1 + draws.below(100_000))));
    let more: &[&str] = match door {
        Door::Rust => &["notice:0.2"],
        Door::C => &["quit", "notice:0.2"],
        Door::Veloc => &["quit"],
        Door::Python => &["quit", "notice:0.2", "with"],
    };
    let end = draws.below((ENDS.len() + more.len()) as u64) as usize;
    let end = *ENDS.get(end).unwrap_or_else(|| &more[end - ENDS.len()]);
    if end.starts_with("notice") {
        actions.push(end.to_owned());
    }
    let last = match end {
        "with" => *draws.one_of(&["return", "fail", "exit", "int"]),
        "notice:0.2" => *draws.one_of(&["return", "close"]),
        end => end,
    };
    if end == "with" {
        actions.insert(0, "with".to_owned());
    }
    actions.push(last.to_owned());
    actions
}

/// Returns true if the end runs no instruction of the engine. Such ends are a signal with its default action, `kill -9`, and
/// `std::process::exit`, which drops nothing.
fn is_mute(door: Door, end: &str) -> bool {
    match end {
        "kill" | "exec" | "quit" | "term" => true,
        "exit" => door == Door::Rust,
        // Python turns this signal into an exception.
        "int" => door != Door::Python,
        _ => false,
    }
}

/// A running history, and the versions that must be there.
struct Course<'a> {
    seed: u64,
    door: Door,
    options: Vec<String>,
    durable: BTreeMap<u64, Written>,
    tally: &'a Tally,
}

impl Course<'_> {
    fn command(&self, options: &[String], actions: &[String]) -> Command {
        let mut command = self.door.command(options, actions);
        if let Some(server) = s3::shared() {
            command.envs(server.environment());
        }
        command
    }

    fn run(&mut self, run: u64, actions: &[String]) {
        let mut options = self.options.clone();
        options.push(format!("run={run}"));
        let mut actions = actions;
        let mut end = actions.last().unwrap().clone();
        if actions[0] == "with" {
            options.push("with=1".to_owned());
            actions = &actions[1..];
        }
        let mut report = Start::of(self.command(&options, actions)).end();
        // A successful close says that all versions are durable, except those that a suspension gave up before.
        let gave_up = |action: &String| action.starts_with("s:") || action.starts_with("notice");
        if report.closed && !actions.iter().any(gave_up) {
            report.durable.extend(report.took.keys());
        }
        let had_notice = actions.iter().any(|action| action.starts_with("notice"));
        let was_suspended = actions.iter().any(|action| action.starts_with("s:"));
        let mute = is_mute(self.door, &end) && !had_notice;
        for (is, what) in [
            (options.len() > self.options.len() + 1, "with"),
            (was_suspended && !had_notice, "suspend"),
            (had_notice, "notice"),
        ] {
            if is {
                end = format!("{what}-{end}");
            }
        }
        let place = format!("{:?} {end}", self.door);
        let tell = |kind, text: String| {
            let errors = &report.errors[report.errors.len().saturating_sub(300)..];
            let text = format!("start {run} {options:?} {actions:?}: {text}; {errors}");
            self.tally.found(&place, kind, self.seed, text);
        };
        self.tally
            .count(&place, report.took.len(), report.durable.len());
        if report.hung {
            tell(Kind::Hung, String::new());
        }
        let last = actions.last().unwrap().as_str();
        if last == "kill" {
            self.tally.count_kill();
        }
        let expected = ["term", "int", "kill"].contains(&last);
        if let (Some(signal), false, false) = (report.signal(), expected, report.hung) {
            tell(Kind::Crashed, format!("signal {signal}"));
        }
        for child in &report.forked {
            tell(Kind::Forked, child.clone());
        }
        for (version, size) in &report.took {
            // The run uses the number of a lost version again.
            let written = Written { run, size: *size };
            self.durable.remove(version);
            if report.durable.contains(version) {
                self.durable.insert(*version, written);
            }
        }
        let found = self.check(report.took.keys());
        for (version, written) in &self.durable {
            match found.whole.get(version) {
                Some(is) if is == written => {}
                Some(is) => tell(
                    Kind::Stale,
                    format!("version {version} is {is:?}, not {written:?}"),
                ),
                None => tell(
                    Kind::Lost,
                    format!(
                        "version {version}: {:?} {:?}",
                        found.missing.get(version),
                        found.errors
                    ),
                ),
            }
        }
        for (version, size) in &report.took {
            let written = Written { run, size: *size };
            match found.whole.get(version) {
                Some(is) if *is == written => {}
                // An object store may finish a write of an earlier run after the start listed it. Then it refuses this run's version, which is
                // named.
                Some(is) if is.run < run && report.names(*version) => {}
                Some(is) => tell(
                    Kind::Stale,
                    format!("version {version} is {is:?}, not {written:?}"),
                ),
                None if self.durable.contains_key(version) || mute || report.names(*version) => {}
                None => tell(Kind::Silent, format!("version {version}")),
            }
        }
        // Versions that were lost once need not be found again.
        self.durable
            .retain(|version, _| found.whole.contains_key(version));
    }

    /// Starts a process, and returns its report of the versions that it finds.
    fn check<'a>(&'a self, more: impl Iterator<Item = &'a u64>) -> Report {
        let mut options = self.options.clone();
        options.push("run=0".to_owned());
        let versions = self.durable.keys().chain(more);
        let mut actions: Vec<String> = versions.map(|version| format!("r:{version}")).collect();
        actions.sort();
        actions.dedup();
        actions.push("close".to_owned());
        Start::of(self.command(&options, &actions)).end()
    }
}

#[test]
fn no_end_of_a_program_loses_a_durable_version_or_another_one_silently() {
    let tally = Tally::of("ends");
    let histories = variable("TIERFLOW_HISTORIES", 8);
    each_seed(histories, &Door::runnable(), |seed, door| {
        let home = tempfile::tempdir().unwrap();
        let history = History::of(seed, door, home.path());
        let mut course = Course {
            seed,
            door,
            options: history.options,
            durable: BTreeMap::new(),
            tally: &tally,
        };
        for (actions, run) in history.starts.iter().zip(1..) {
            if !is_over() {
                course.run(run, actions);
            }
        }
        tally.count_history();
    });
    tally.end(KNOWN);
}

/// `close` takes longer than its patience while storage takes bytes all the time. The call must succeed.
#[test]
fn closing_waits_as_long_as_bytes_move() {
    let Some(server) = s3::shared() else { return };
    let close = |door: Door| {
        let home = tempfile::tempdir().unwrap();
        let node = home.path().join("node");
        // A version takes two seconds, and four versions are under way at a time.
        let options = [
            format!("node_local={}", node.display()),
            format!("external=s3://slow-500000/{door:?}"),
            "closing_patience=5".to_owned(),
            "run=1".to_owned(),
        ];
        let mut actions = vec!["c:1000000".to_owned(); 16];
        actions.push("close".to_owned());
        let mut command = door.command(&options, &actions);
        command.envs(server.environment());
        let report = Start::of(command).end();
        assert!(report.closed, "{door:?}: {report:?}");
    };
    std::thread::scope(|scope| {
        for door in Door::runnable() {
            scope.spawn(move || close(door));
        }
    });
}
