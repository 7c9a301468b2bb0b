//! The log: passes the crates' events ([`tracing`]) to the logger of a language as lines of text.

use std::io::Write;
use std::sync::{Arc, OnceLock};

use log::{Log, Metadata, Record};
use parking_lot::RwLock;
use rustix::system::uname;

pub use log::{Level, LevelFilter};

/// A function that writes a line of the log.
pub type LogSink = dyn Fn(Level, &str) + Send + Sync;

/// The logger of this process.
struct Logger {
    sink: RwLock<Option<Arc<LogSink>>>,
    /// The beginning of each line: the rank and the host of this process; empty if the process is alone.
    rank: RwLock<String>,
}

static LOGGER: Logger = Logger {
    sink: RwLock::new(None),
    rank: RwLock::new(String::new()),
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
            let text = format!("{}{}", self.rank.read(), record.args());
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

/// Begins each line with this rank and its host, if there are other ranks.
pub(crate) fn lines_of_rank(rank: u32, ranks: u32) {
    if ranks > 1 {
        let host = uname();
        let host = host.nodename().to_string_lossy();
        *LOGGER.rank.write() = format!("rank {rank} of {ranks} on {host}: ");
    }
}
