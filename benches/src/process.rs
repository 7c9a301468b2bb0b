//! Child processes that read tasks line by line, and answer line by line.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde::{Serialize, de::DeserializeOwned};

/// Time from the end of a child's input until it is killed.
const PATIENCE: Duration = Duration::from_secs(20);

/// A process of an experiment: of this program, or of another one that takes the same arguments. Dropping it ends the process's input and,
/// with it, the process.
pub(crate) struct Process {
    child: Child,
    /// `None` once it was ended.
    orders: Option<ChildStdin>,
    answers: Receiver<String>,
}

impl Process {
    /// Starts a process that does `work` by [`child`](crate::experiments::child).
    pub(crate) fn start(experiment: &str, work: &impl Serialize) -> Result<Self> {
        Self::start_of(&std::env::current_exe()?, experiment, work)
    }

    /// Starts a process of another program that does `work`.
    pub(crate) fn start_of(
        program: &Path,
        experiment: &str,
        work: &impl Serialize,
    ) -> Result<Self> {
        let mut command = Command::new(program);
        command.args(["child", experiment, &serde_json::to_string(work)?]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().context("cannot start a child process")?;
        let orders = child.stdin.take();
        let out = child.stdout.take().context("a child without output")?;
        let (sender, answers) = channel();
        // The thread ends with the child.
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Ok(Self {
            child,
            orders,
            answers,
        })
    }

    pub(crate) fn tell(&mut self, line: &str) -> Result<()> {
        let orders = self.orders.as_mut().context("a child without input")?;
        writeln!(orders, "{line}").context("a child process is gone")
    }

    /// Returns the process's next line.
    pub(crate) fn hear(&self) -> Result<String> {
        self.answers.recv().context("a child process died")
    }

    /// Returns the process's next line, if that comes within `patience`.
    pub(crate) fn hear_within(&self, patience: Duration) -> Result<String> {
        let line = self.answers.recv_timeout(patience);
        line.context("a child process says nothing (its own words are above)")
    }

    /// Lets all processes meet: reads a line from each, then writes one to each.
    pub(crate) fn all_meet(processes: &mut [Self]) -> Result<()> {
        for process in &*processes {
            process.hear()?;
        }
        processes
            .iter_mut()
            .try_for_each(|process| process.tell(""))
    }

    /// Lets all processes meet a number of times. Returns the answer of each once the process has ended and given back its files and memory.
    pub(crate) fn answers<T: DeserializeOwned>(
        mut processes: Vec<Self>,
        meetings: u64,
    ) -> Result<Vec<T>> {
        for _ in 0..meetings {
            Self::all_meet(&mut processes)?;
        }
        let answers = processes.iter_mut().map(|process| {
            let answer = serde_json::from_str(&process.hear()?)?;
            process.wait()?;
            Ok(answer)
        });
        answers.collect()
    }

    /// Waits until the process has ended by itself.
    pub(crate) fn wait(&mut self) -> Result<()> {
        let ended = self.child.wait()?;
        ensure!(ended.success(), "a child process failed: {ended}");
        Ok(())
    }

    pub(crate) fn kill(&mut self) -> Result<ExitStatus> {
        self.child.kill()?;
        Ok(self.child.wait()?)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.orders.take());
        let deadline = Instant::now() + PATIENCE;
        while let Ok(None) = self.child.try_wait() {
            if Instant::now() > deadline {
                let _ = self.child.kill();
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Writes a line to the parent, within a child.
pub(crate) fn say(line: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    Ok(out.flush()?)
}

/// Meets the others of [`Process::all_meet`], within a child.
pub(crate) fn meet() -> Result<()> {
    say("here")?;
    let read = std::io::stdin().read_line(&mut String::new())?;
    ensure!(read > 0, "the parent is gone");
    Ok(())
}
