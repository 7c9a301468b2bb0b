//! Starts a door's program, and reads its report.

use rustix::process::{Pid, Signal, kill_process_group};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A program that takes longer hangs. `close` waits for storage for a minute.
const PATIENCE: Duration = Duration::from_secs(200);

/// The run that wrote a version, and the version's bytes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Written {
    pub(crate) run: u64,
    pub(crate) size: u64,
}

/// The report of a start.
#[derive(Debug, Default)]
pub(crate) struct Report {
    /// Bytes of the versions that were taken in.
    pub(crate) took: BTreeMap<u64, u64>,
    /// Versions that were reported durable.
    pub(crate) durable: BTreeSet<u64>,
    /// Versions that were taken in since the program last reported that all are durable.
    unconfirmed: Vec<u64>,
    /// True if `close` succeeded.
    pub(crate) closed: bool,
    /// Versions that came back whole.
    pub(crate) whole: BTreeMap<u64, Written>,
    /// Versions that did not come back whole, with the reason.
    pub(crate) missing: BTreeMap<u64, String>,
    pub(crate) damage: Vec<String>,
    /// Errors at the end of a forked child, which should have none.
    pub(crate) forked: Vec<String>,
    pub(crate) errors: String,
    pub(crate) status: Option<ExitStatus>,
    pub(crate) hung: bool,
}

impl Report {
    fn take(&mut self, line: &str) {
        let (what, rest) = line.split_once(' ').unwrap_or((line, ""));
        let mut words = rest.split(' ');
        let mut number = || words.next().and_then(|word| word.parse::<u64>().ok());
        let version = number().unwrap_or_default();
        match what {
            "took" => {
                self.took.insert(version, number().unwrap());
                self.unconfirmed.push(version);
            }
            "durable" => {
                self.durable.insert(version);
            }
            "all" => self.durable.extend(self.unconfirmed.drain(..)),
            "closed" => self.closed = true,
            "whole" => {
                let (run, size) = (number().unwrap(), number().unwrap());
                self.whole.insert(version, Written { run, size });
            }
            "missing" | "torn" => {
                self.missing.insert(version, line.to_owned());
            }
            "damage" => self.damage.push(rest.to_owned()),
            "forked" => self.forked.push(rest.to_owned()),
            _ => {}
        }
    }

    /// Returns the signal that ended the program.
    pub(crate) fn signal(&self) -> Option<i32> {
        self.status?.signal()
    }

    /// Returns true if the standard error names a version, alone or within a range such as `70001 to 70009` or `70001–70009`.
    pub(crate) fn names(&self, version: u64) -> bool {
        let mut before: Option<u64> = None;
        let mut between = String::new();
        for word in self.errors.split_inclusive(|c: char| !c.is_ascii_digit()) {
            let digits = word.trim_end_matches(|c: char| !c.is_ascii_digit());
            match digits.parse::<u64>() {
                Ok(number) => {
                    let is_range = ["-", "–", " to ", "..=", ".."].contains(&between.as_str());
                    if number == version
                        || is_range && before.is_some_and(|from| (from..number).contains(&version))
                    {
                        return true;
                    }
                    before = Some(number);
                    between = word[digits.len()..].to_owned();
                }
                Err(_) => between += word,
            }
        }
        false
    }
}

/// A running program.
pub(crate) struct Start {
    child: Child,
    lines: Receiver<String>,
    errors: JoinHandle<String>,
    report: Report,
}

impl Start {
    pub(crate) fn of(mut command: Command) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        // The program has a process group of its own, so that its children end with it.
        command.stderr(Stdio::piped()).process_group(0);
        let mut child = command
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let output = BufReader::new(child.stdout.take().unwrap());
        let mut errors = child.stderr.take().unwrap();
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                let _nobody_listens = sender.send(line);
            }
        });
        let errors = std::thread::spawn(move || {
            let mut text = Vec::new();
            let _as_far_as_it_goes = errors.read_to_end(&mut text);
            String::from_utf8_lossy(&text).into_owned()
        });
        Self {
            child,
            lines,
            errors,
            report: Report::default(),
        }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits until the program has reported `count` further lines, or ends.
    pub(crate) fn await_lines(&mut self, count: u64) {
        for _ in 0..count {
            match self.lines.recv_timeout(PATIENCE) {
                Ok(line) => self.report.take(&line),
                Err(_) => return,
            }
        }
    }

    /// Returns true if the program has ended.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    fn kill_all(&self) {
        let group = Pid::from_raw(self.child.id() as i32).unwrap();
        let _ended_already = kill_process_group(group, Signal::KILL);
    }

    /// Kills the program as `kill -9` does.
    pub(crate) fn kill(self) -> Report {
        self.kill_all();
        self.end()
    }

    /// Waits until the program ends, and kills it once the patience is over.
    pub(crate) fn end(mut self) -> Report {
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
            match self.child.try_wait().unwrap() {
                Some(_) => break,
                None => std::thread::sleep(Duration::from_millis(2)),
            }
        }
        self.report.hung = self.child.try_wait().unwrap().is_none();
        // Processes that the program left behind hold its output open.
        self.kill_all();
        self.report.status = self.child.wait().ok();
        self.report.errors = self.errors.join().unwrap();
        for line in &self.lines {
            self.report.take(&line);
        }
        self.report
    }
}
