//! Helpers for tests of several crates: bytes, random numbers, and processes that work beside a test and are killed.

#![forbid(unsafe_code)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod draws;

pub use draws::Draws;
use std::io::{BufRead, BufReader};
use std::ops::Range;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::str::FromStr;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// Asserts that a value matches a pattern. The panic shows the value.
#[macro_export]
macro_rules! assert_matches {
    ($value:expr, $($pattern:tt)+) => {
        match &$value {
            $($pattern)+ => {}
            other => panic!("{other:?} is no {}", stringify!($($pattern)+)),
        }
    };
}

/// Returns bytes that cannot be compressed, and that differ for each seed.
#[must_use]
pub fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut word = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut bytes = vec![0; length];
    for chunk in bytes.chunks_mut(8) {
        word ^= word << 13;
        word ^= word >> 7;
        word ^= word << 17;
        chunk.copy_from_slice(&word.to_le_bytes()[..chunk.len()]);
    }
    bytes
}

/// Returns the value of a variable of the environment, or a default if it is not set.
///
/// # Panics
/// If the value cannot be parsed.
pub fn variable<T: FromStr>(name: &str, default: T) -> T {
    std::env::var(name).map_or(default, |text| {
        let parsed = text.parse();
        parsed.unwrap_or_else(|_| panic!("{name} = {text}"))
    })
}

/// Runs `body` for each of `count` ranks on a thread of its own. Returns the results in the ranks' order.
///
/// # Panics
/// If a rank panics.
pub fn as_ranks<T: Send>(count: u32, body: impl Fn(u32) -> T + Sync) -> Vec<T> {
    let body = &body;
    std::thread::scope(|scope| {
        let ranks = (0..count).map(|rank| scope.spawn(move || body(rank)));
        let ranks: Vec<_> = ranks.collect();
        let results = ranks.into_iter().map(|rank| rank.join().unwrap());
        results.collect()
    })
}

/// Copies a directory with its contents.
///
/// # Panics
/// If the file system refuses.
pub fn copy_directory(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy_directory(&entry.path(), &target),
            false => drop(std::fs::copy(entry.path(), target).unwrap()),
        }
    }
}

/// Returns a command that starts the running test binary again, to run only the test of this name (with its modules), ignored or not.
/// The caller sets variables of the environment, from which the test reads its task as a separate process.
///
/// # Panics
/// If the path of the running binary is unknown.
#[must_use]
pub fn this_test(name: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", name, "--nocapture", "--include-ignored"]);
    command
}

/// A process beside a test, which is killed when this is dropped.
#[derive(Debug)]
pub struct Process {
    child: Child,
    reports: Receiver<String>,
    reader: Option<JoinHandle<()>>,
}

impl Process {
    /// Starts a process. The text after `word` in a line of its output is a report.
    ///
    /// # Panics
    /// If the process cannot be started.
    pub fn start(command: &mut Command, word: &'static str) -> Self {
        let command = command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let (sender, reports) = channel();
        let reader = std::thread::spawn(move || {
            // The thread reads all output, as the process would wait otherwise. The test harness may write on the line of a report.
            for line in output.lines().map_while(Result::ok) {
                if let Some((_, report)) = line.split_once(word) {
                    let _nobody_listens = sender.send(report.to_owned());
                }
            }
        });
        Self {
            child,
            reports,
            reader: Some(reader),
        }
    }

    /// Returns the number of the process.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits for the next report of the process, and returns it.
    ///
    /// # Panics
    /// If the process ends without a report, or reports nothing for ten minutes.
    pub fn report(&self) -> String {
        match self.reports.recv_timeout(Duration::from_secs(600)) {
            Ok(report) => report,
            Err(RecvTimeoutError::Timeout) => panic!("process {} hangs", self.id()),
            Err(RecvTimeoutError::Disconnected) => panic!("it ended without a report"),
        }
    }

    /// Lets the process work until a drawn instant, and returns its reports so far; [`kill`](Self::kill) returns the rest. In one call of
    /// four, the instant is within `micros` of now. In the others, it is within `micros` of one of the next eight reports, so that the
    /// process has done work however slow the disk is.
    ///
    /// # Panics
    /// If the process ends by itself.
    pub fn live(&self, draws: &mut Draws, micros: Range<u64>) -> Vec<String> {
        let count = match draws.once(4) {
            true => 0,
            false => draws.within(1..9),
        };
        let reports = (0..count).map(|_| self.report()).collect();
        draws.pause(micros);
        reports
    }

    /// Returns true if the process has ended by itself.
    ///
    /// # Panics
    /// If the system call fails.
    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Waits until the process ends by itself.
    ///
    /// # Panics
    /// If the system call fails.
    pub fn wait(&mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }

    /// Kills the process like `kill -9`. Returns the reports that no call has returned yet.
    ///
    /// # Panics
    /// If the process has ended by itself.
    pub fn kill(&mut self) -> Vec<String> {
        assert!(!self.has_ended(), "it ended before it was killed");
        self.child.kill().unwrap();
        let ended = self.wait();
        assert_eq!(ended.code(), None, "it ended before it was killed");
        if let Some(reader) = self.reader.take() {
            reader.join().unwrap();
        }
        self.reports.try_iter().collect()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ended_already = self.child.kill();
        let _ended_already = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Process {
        Process::start(Command::new("sh").args(["-c", script]), "did ")
    }

    #[test]
    fn reports_come_in_order_and_the_rest_with_the_kill() {
        let mut process = shell("echo 'hm did 1'; echo else; echo did 2; exec sleep 60");
        assert_eq!(
            (process.report(), process.report()),
            ("1".into(), "2".into())
        );
        assert_eq!(process.kill(), [""; 0]);
        let mut process = shell("printf 'did 1\\ndid 2\\n'; exec sleep 60");
        process.report();
        assert_eq!(process.kill(), ["2"]);
    }

    #[test]
    fn lives_end_behind_reports_however_slow_they_come() {
        let mut draws = Draws(1);
        let lives = (0..12).map(|_| {
            let slow = "while :; do sleep 0.01; echo did 1; done";
            let mut process = shell(slow);
            let mut reports = process.live(&mut draws, 0..1);
            reports.extend(process.kill());
            reports.len()
        });
        let lives: Vec<usize> = lives.collect();
        assert!(
            lives.contains(&0) && lives.iter().any(|reports| *reports > 4),
            "{lives:?}"
        );
    }

    #[test]
    #[should_panic(expected = "it ended before it was killed")]
    fn a_process_that_ended_by_itself_was_not_killed() {
        let mut process = shell("exit 0");
        assert!(process.wait().success());
        process.kill();
    }

    #[test]
    #[should_panic(expected = "it ended without a report")]
    fn a_report_of_an_ended_process_is_not_waited_for() {
        shell("exit 0").report();
    }

    /// Fails in the process that the test below starts.
    #[test]
    fn runs_alone() {
        assert!(std::env::var_os("TIERFLOW_TESTING_FAIL").is_none());
    }

    #[test]
    fn a_test_starts_another_of_its_binary() {
        let mut good = Process::start(&mut this_test("tests::runs_alone"), "1 passed");
        good.report();
        assert!(good.wait().success());
        let mut bad = this_test("tests::runs_alone");
        let mut bad = Process::start(bad.env("TIERFLOW_TESTING_FAIL", ""), "1 failed");
        bad.report();
        assert!(!bad.wait().success());
    }
}
