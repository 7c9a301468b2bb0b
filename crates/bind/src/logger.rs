//! The log: passes the crates' events ([`tracing`]) to the logger of a language as lines of text.

use std::io::Write;
use std::sync::{Arc, OnceLock, Weak};

use log::{Log, Metadata, Record};
use parking_lot::RwLock;
use rustix::system::uname;

pub use log::{Level, LevelFilter};

/// A function that writes a line of the log.
pub type LogSink = dyn Fn(Level, &str) + Send + Sync;

/// The logger of this process.
struct Logger {
    sink: RwLock<Option<Arc<LogSink>>>,
    /// The beginnings of lines, which name the rank and the host of this process, each as long as an engine of a group holds it. The last
    /// one counts.
    ranks: RwLock<Vec<Weak<String>>>,
}

static LOGGER: Logger = Logger {
    sink: RwLock::new(None),
    ranks: RwLock::new(Vec::new()),
};
/// True if the logger is the one of this process: another library may have installed its own.
static IS_INSTALLED: OnceLock<bool> = OnceLock::new();

impl Log for Logger {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        // Spans of `tracing` come with another target.
        metadata.target().starts_with("tierflow")
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            let rank = self.ranks.read().iter().rev().find_map(Weak::upgrade);
            let text = match rank {
                Some(rank) => format!("{rank}{}", record.args()),
                None => record.args().to_string(),
            };
            // The lock is released before the call, as the sink may call a language that logs, too.
            let sink = self.sink.read().clone();
            if let Some(sink) = sink {
                sink(record.level(), &text);
            }
        }
    }

    fn flush(&self) {}
}

/// Passes events of this level and above to `sink` from now on, one line each. If another library has installed the process's logger,
/// that logger and its level stay, and get the events.
pub fn log_to(most: LevelFilter, sink: Arc<LogSink>) {
    let is_installed = *IS_INSTALLED.get_or_init(|| log::set_logger(&LOGGER).is_ok());
    *LOGGER.sink.write() = Some(sink);
    if is_installed {
        log::set_max_level(most);
    }
}

/// Writes a line to the standard error: the log of a language that has no logger.
pub fn to_standard_error(_: Level, text: &str) {
    // The whole line is one write, as ranks may share the standard error.
    let _no_place_to_say_so = std::io::stderr().write_all(format!("tierflow: {text}\n").as_bytes());
}

/// Begins each line with this rank and its host, if there are other ranks, until the last owner of the returned text drops it.
pub(crate) fn lines_of_rank(rank: u32, ranks: u32) -> Option<Arc<String>> {
    if ranks <= 1 {
        return None;
    }
    let host = uname();
    let host = host.nodename().to_string_lossy();
    let begin = format!("rank {rank} of {ranks} on {host}: ");
    let begin = Arc::new(begin);
    let mut held = LOGGER.ranks.write();
    held.retain(|other| other.strong_count() > 0);
    held.push(Arc::downgrade(&begin));
    Some(begin)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;
    use parking_lot::Mutex;

    #[test]
    fn lines_begin_with_the_rank_while_an_engine_of_the_group_is_there() {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let written = Arc::clone(&lines);
        *LOGGER.sink.write() = Some(Arc::new(move |_, text: &str| {
            written.lock().push(text.to_owned());
        }));
        let begins = || {
            let record = Record::builder()
                .target("tierflow")
                .args(format_args!("hello"))
                .build();
            LOGGER.log(&record);
            let line = lines.lock().pop().unwrap();
            line.split_once(" on ")
                .map_or(line.clone(), |(rank, _)| rank.to_owned())
        };
        assert_eq!(begins(), "hello");
        let (one, another) = (lines_of_rank(1, 4), lines_of_rank(1, 4));
        assert!(lines_of_rank(0, 1).is_none());
        assert_eq!(begins(), "rank 1 of 4");
        drop(another);
        assert_eq!(begins(), "rank 1 of 4");
        let of_other_group = lines_of_rank(0, 2);
        assert_eq!(begins(), "rank 0 of 2");
        drop(of_other_group);
        assert_eq!(begins(), "rank 1 of 4");
        drop(one);
        assert_eq!(begins(), "hello");
    }
}
