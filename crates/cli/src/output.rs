//! Prints answers as text for people or as JSON for programs.

use anyhow::Result;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use std::io::{ErrorKind, Write};
use tierflow_store::Damage;

/// The form in which answers are written: text or JSON.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Output {
    json: bool,
}

impl Output {
    pub(crate) fn new(json: bool) -> Self {
        Self { json }
    }

    /// Prints `text`, or `value` as JSON.
    pub(crate) fn answer(self, value: &impl Serialize, text: &str) -> Result<()> {
        if self.json {
            let json = serde_json::to_string_pretty(value)? + "\n";
            self.raw(json.as_bytes())
        } else {
            self.raw(text.as_bytes())
        }
    }

    /// Prints bytes. Does nothing once the reader of the output is gone, as in `tierflow list | head -1`: the exit code stays that of the command.
    pub(crate) fn raw(self, bytes: &[u8]) -> Result<()> {
        let mut output = std::io::stdout().lock();
        match output.write_all(bytes).and_then(|()| output.flush()) {
            Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error.into()),
            _ => Ok(()),
        }
    }

    pub(crate) fn error(self, error: &anyhow::Error) {
        let text = with_causes(error);
        if self.json {
            eprintln!("{}", serde_json::json!({ "error": text }));
        } else {
            eprintln!("tierflow: {text}");
        }
    }

    /// Shows a spinner with the text `what`, on a terminal only.
    pub(crate) fn waiting(self, what: String) -> ProgressBar {
        let spinner = if self.json {
            ProgressBar::hidden()
        } else {
            ProgressBar::new_spinner()
        };
        spinner.enable_steady_tick(TICK);
        spinner.with_message(what)
    }

    /// Shows a progress bar over `bytes` bytes, on a terminal only.
    pub(crate) fn progress(self, bytes: u64) -> ProgressBar {
        let bar = if self.json {
            ProgressBar::hidden()
        } else {
            ProgressBar::new(bytes)
        };
        let template = "{wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {eta}";
        match ProgressStyle::with_template(template) {
            Ok(style) => bar.with_style(style),
            Err(_) => bar,
        }
    }
}

/// Time between two ticks of a spinner.
const TICK: std::time::Duration = std::time::Duration::from_millis(100);

/// Returns the text of an error and of its causes. Leaves out causes that the text has already, as many errors name their cause themselves.
fn with_causes(error: &anyhow::Error) -> String {
    let mut text = error.to_string();
    for cause in error.chain().skip(1) {
        let cause = cause.to_string();
        if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

/// Damage as JSON.
#[derive(Debug, Serialize)]
pub(crate) struct DamageRow {
    path: String,
    offset: u64,
    version: Option<u64>,
    what: &'static str,
}

impl From<&Damage> for DamageRow {
    fn from(damage: &Damage) -> Self {
        Self {
            path: damage.path.display().to_string(),
            offset: damage.offset,
            version: damage.version,
            what: damage.what,
        }
    }
}

impl DamageRow {
    /// Formats the damage as a line.
    pub(crate) fn line(&self) -> String {
        let version = self
            .version
            .map_or(String::new(), |v| format!("version {v}: "));
        format!(
            "damaged: {version}{} at byte {}: {}\n",
            self.path, self.offset, self.what
        )
    }
}

/// Formats a number of bytes for people, such as `1.5 MiB`.
pub(crate) fn bytes(count: u64) -> String {
    indicatif::BinaryBytes(count).to_string()
}
