//! Processes that the experiment kills, and the reports of the writer.

use crate::writer::Load;
use std::error::Error;
use std::fmt::Display;
use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::panic::resume_unwind;
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;
use std::time::Duration;

/// A generator of pseudo-random numbers, Marsaglia's xorshift.
pub(crate) struct Rng(pub(crate) u64);

impl Rng {
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

/// Returns the value of a call. An error ends the experiment, and is printed with all its causes among the figures.
pub(crate) fn expect<T, E: Error + 'static>(result: Result<T, E>, what: impl Display) -> T {
    result.unwrap_or_else(|error| {
        let mut text = format!("{what}: {error}");
        let mut cause = error.source();
        while let Some(error) = cause {
            text.push_str(&format!("; {error}"));
            cause = error.source();
        }
        println!("{text} ({error:?})");
        panic!("{text}")
    })
}

/// Returns the peak memory of a process in KiB.
pub(crate) fn peak_memory(process: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let number = line.and_then(|line| line.trim().split(' ').next());
    number.and_then(|number| number.parse().ok()).unwrap_or(0)
}

pub(crate) struct Server {
    command: String,
    child: Child,
}

impl Server {
    pub(crate) fn start(command: &str) -> Self {
        let child = spawn(command);
        let server = Self {
            command: command.to_owned(),
            child,
        };
        server.wait();
        server
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("the server can be killed");
        self.child.wait().expect("the server is gone");
    }

    pub(crate) fn restart(&mut self) {
        self.child = spawn(&self.command);
        self.wait();
    }

    /// Waits until the server takes connections.
    fn wait(&self) {
        let url = std::env::var("AWS_ENDPOINT_URL").expect("AWS_ENDPOINT_URL");
        let address = url.trim_start_matches("http://").trim_end_matches('/');
        while TcpStream::connect(address).is_err() {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _gone_already = self.child.kill();
        let _gone = self.child.wait();
    }
}

fn spawn(command: &str) -> Child {
    let mut words = command.split_whitespace();
    let program = words.next().expect("a command");
    let mut command = Command::new(program);
    command
        .args(words)
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command.spawn().expect("the server starts")
}

/// A process that saves versions.
pub(crate) struct Writer {
    child: Child,
    reports: JoinHandle<(Vec<u64>, Option<u64>)>,
}

impl Writer {
    pub(crate) fn start(load: &Load) -> Self {
        let program = std::env::current_exe().expect("the path of this program");
        let mut command = Command::new(program);
        command.args(load.arguments()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("the writer starts");
        let output = child.stdout.take().expect("a pipe");
        let reports = std::thread::spawn(move || read_reports(BufReader::new(output)));
        Self { child, reports }
    }

    pub(crate) fn peak_memory(&self) -> u64 {
        peak_memory(&self.child.id().to_string())
    }

    /// Kills the writer. Returns the acknowledged versions, and the highest number that it began.
    pub(crate) fn kill(mut self) -> (Vec<u64>, Option<u64>) {
        self.child.kill().expect("the writer can be killed");
        self.child.wait().expect("the writer is gone");
        self.reports
            .join()
            .unwrap_or_else(|panic| resume_unwind(panic))
    }
}

/// Returns the acknowledged versions, and the highest number that was begun. The writer writes whole lines, so the last one is whole, too.
fn read_reports(lines: impl BufRead) -> (Vec<u64>, Option<u64>) {
    let (mut acknowledged, mut highest) = (Vec::new(), None);
    for line in lines.lines() {
        let line = line.expect("lines of a pipe");
        let (what, number) = line.split_once(' ').expect("two words");
        if what == "failed" {
            println!("a writer ended: {number}");
            panic!("a writer ended: {number}");
        }
        let number: u64 = number.parse().expect("a number");
        highest = highest.max(Some(number));
        match what {
            "saved" => acknowledged.push(number),
            "begun" => {}
            other => panic!("{other}"),
        }
    }
    (acknowledged, highest)
}
