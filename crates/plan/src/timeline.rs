//! Spans and instant events on rows, written in the Chrome trace format, which Perfetto and `chrome://tracing` open. The engine and
//! the simulator write theirs with it. Times come in as nanoseconds.
//!
//! ```rust
//! use tierflow_plan::timeline::{Timeline, What};
//!
//! let mut timeline = Timeline::new(1000);
//! let disk = timeline.lane("disk");
//! let what = What { name: "flush", version: Some(7), bytes: 4096, flow: None };
//! timeline.span(disk, what, 1_000, 3_500);
//! let mut json = Vec::new();
//! timeline.write(&mut json)?;
//! assert!(String::from_utf8_lossy(&json).contains("\"dur\":2.500"));
//! # Ok::<(), std::io::Error>(())
//! ```

use crate::Version;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::io::{self, Write};

/// A row of a [`Timeline`]: something that does one thing at a time, such as a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TimelineLane(usize);

/// The label of an entry: its name, and the version that it is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct What {
    /// A word or two: "flush", "wait for room".
    pub name: &'static str,
    /// The version, if the entry is about one.
    pub version: Option<Version>,
    /// Bytes that were moved, evicted or waited for.
    pub bytes: u64,
    /// Viewers draw an arrow through the spans of one number, in the order of their ends: from a transfer to the wait that it
    /// ended. `None` for no arrow.
    pub flow: Option<u64>,
}

/// An entry: a span, or an instant event.
#[derive(Debug, Clone, Copy)]
struct Entry {
    lane: TimelineLane,
    what: What,
    begin_ns: u64,
    /// `None` for an instant event.
    duration_ns: Option<u64>,
}

/// The last `limit` spans and instant events, by lane. Memory: 88 bytes each, allocated as they are added.
#[derive(Debug, Clone)]
pub struct Timeline {
    lanes: Vec<String>,
    notes: Vec<(&'static str, String)>,
    entries: VecDeque<Entry>,
    limit: usize,
    /// Entries that were dropped for newer ones.
    lost: u64,
}

impl Timeline {
    /// Makes a time line that keeps the last `limit` entries.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self {
            lanes: Vec::new(),
            notes: Vec::new(),
            entries: VecDeque::new(),
            limit,
            lost: 0,
        }
    }

    /// Returns the lane of this name. Adds it below the others if there is none.
    pub fn lane(&mut self, name: &str) -> TimelineLane {
        let known = self.lanes.iter().position(|lane| lane == name);
        TimelineLane(known.unwrap_or_else(|| {
            self.lanes.push(name.to_owned());
            self.lanes.len() - 1
        }))
    }

    /// Adds a span from `begin_ns` to `end_ns`. Spans of one lane must not overlap, or viewers draw nonsense.
    pub fn span(&mut self, lane: TimelineLane, what: What, begin_ns: u64, end_ns: u64) {
        self.push(Entry {
            lane,
            what,
            begin_ns,
            duration_ns: Some(end_ns.saturating_sub(begin_ns)),
        });
    }

    /// Adds an instant event.
    pub fn moment(&mut self, lane: TimelineLane, what: What, at_ns: u64) {
        self.push(Entry {
            lane,
            what,
            begin_ns: at_ns,
            duration_ns: None,
        });
    }

    /// Adds a text about the whole, under a name of its own: `otherData` of the file has it.
    pub fn note(&mut self, name: &'static str, text: String) {
        self.notes.push((name, text));
    }

    fn push(&mut self, entry: Entry) {
        while self.entries.len() >= self.limit.max(1) {
            self.entries.pop_front();
            self.lost += 1;
        }
        self.entries.push_back(entry);
    }

    /// Writes all entries as one JSON object in the Chrome trace format (times in µs, to the ns).
    ///
    /// # Errors
    /// The errors of `out`.
    pub fn write(&self, mut out: impl Write) -> io::Result<()> {
        let lost = self.lost;
        write!(
            out,
            "{{\"displayTimeUnit\":\"ns\",\"otherData\":{{\"lost\":{lost}"
        )?;
        for (name, text) in &self.notes {
            write!(out, ",\"{name}\":\"{}\"", Escaped(text))?;
        }
        writeln!(out, "}},\"traceEvents\":[")?;
        write!(
            out,
            "{{\"ph\":\"M\",\"pid\":1,\"name\":\"process_name\",\"args\":{{\"name\":\"tierflow\"}}}}"
        )?;
        for (index, name) in self.lanes.iter().enumerate() {
            let (tid, name) = (index + 1, Escaped(name));
            write!(
                out,
                ",\n{{\"ph\":\"M\",\"pid\":1,\"tid\":{tid},\"name\":\"thread_name\",\"args\":{{\"name\":\"{name}\"}}}}"
            )?;
            write!(
                out,
                ",\n{{\"ph\":\"M\",\"pid\":1,\"tid\":{tid},\"name\":\"thread_sort_index\",\"args\":{{\"sort_index\":{tid}}}}}"
            )?;
        }
        for entry in &self.entries {
            entry.write(&mut out)?;
        }
        self.write_flows(&mut out)?;
        writeln!(out, "\n]}}")?;
        out.flush()
    }

    /// Writes an arrow for each number that several spans have.
    fn write_flows(&self, out: &mut impl Write) -> io::Result<()> {
        let mut flows = BTreeMap::<u64, Vec<&Entry>>::new();
        for entry in &self.entries {
            if let Some(flow) = entry.what.flow {
                flows.entry(flow).or_default().push(entry);
            }
        }
        for (flow, mut spans) in flows {
            spans.sort_by_key(|span| span.end_ns());
            let last = spans.len() - 1;
            for (index, span) in spans.iter().enumerate().filter(|_| last > 0) {
                let (phase, tid) = (
                    ["s", "t", "f"][usize::from(index > 0) + usize::from(index == last)],
                    span.lane.0 + 1,
                );
                // An arrow is bound to the span around its time.
                let at = Micros(span.end_ns().saturating_sub(1).max(span.begin_ns));
                write!(
                    out,
                    ",\n{{\"ph\":\"{phase}\",\"id\":{flow},\"bp\":\"e\",\"pid\":1,\"tid\":{tid},\"ts\":{at},\"name\":\"flow\",\"cat\":\"flow\"}}"
                )?;
            }
        }
        Ok(())
    }
}

impl Entry {
    fn end_ns(&self) -> u64 {
        self.begin_ns + self.duration_ns.unwrap_or(0)
    }

    fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let What {
            name,
            version,
            bytes,
            ..
        } = self.what;
        let (tid, begin) = (self.lane.0 + 1, Micros(self.begin_ns));
        match self.duration_ns {
            Some(duration) => {
                let duration = Micros(duration);
                write!(out, ",\n{{\"ph\":\"X\",\"dur\":{duration}")?;
            }
            None => write!(out, ",\n{{\"ph\":\"i\",\"s\":\"t\"")?,
        }
        write!(
            out,
            ",\"pid\":1,\"tid\":{tid},\"ts\":{begin},\"name\":\"{name}\""
        )?;
        match version {
            Some(version) => write!(
                out,
                ",\"args\":{{\"version\":{version},\"bytes\":{bytes}}}}}"
            ),
            None => write!(out, ",\"args\":{{\"bytes\":{bytes}}}}}"),
        }
    }
}

/// Nanoseconds, shown as µs with three decimals.
struct Micros(u64);

impl fmt::Display for Micros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:03}", self.0 / 1000, self.0 % 1000)
    }
}

/// Text within a JSON string.
struct Escaped<'a>(&'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            match c {
                '"' | '\\' => write!(f, "\\{c}")?,
                c if c.is_control() => write!(f, "\\u{:04x}", u32::from(c))?,
                c => write!(f, "{c}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_written_as_chrome_reads_it() {
        let mut timeline = Timeline::new(2);
        let what = |name, version| What {
            name,
            version,
            bytes: 7,
            flow: None,
        };
        let (a, b) = (timeline.lane("first \"lane\""), timeline.lane("second"));
        assert_eq!(timeline.lane("second"), b);
        timeline.span(a, what("lost", Some(1)), 0, 5);
        timeline.span(a, what("flush", Some(2)), 1_234_567, 1_236_067);
        timeline.moment(b, what("evict", None), 42);
        timeline.note("counts", "calls{name=\"a\"} 7\n".to_owned());
        assert_eq!((timeline.entries.len(), timeline.lost), (2, 1));
        // As `Timeline` says.
        assert_eq!(size_of::<Entry>(), 88);
        let mut text = Vec::new();
        timeline.write(&mut text).unwrap();
        let expected = r#"{"displayTimeUnit":"ns","otherData":{"lost":1,"counts":"calls{name=\"a\"} 7\u000a"},"traceEvents":[
{"ph":"M","pid":1,"name":"process_name","args":{"name":"tierflow"}},
{"ph":"M","pid":1,"tid":1,"name":"thread_name","args":{"name":"first \"lane\""}},
{"ph":"M","pid":1,"tid":1,"name":"thread_sort_index","args":{"sort_index":1}},
{"ph":"M","pid":1,"tid":2,"name":"thread_name","args":{"name":"second"}},
{"ph":"M","pid":1,"tid":2,"name":"thread_sort_index","args":{"sort_index":2}},
{"ph":"X","dur":1.500,"pid":1,"tid":1,"ts":1234.567,"name":"flush","args":{"version":2,"bytes":7}},
{"ph":"i","s":"t","pid":1,"tid":2,"ts":0.042,"name":"evict","args":{"bytes":7}}
]}
"#;
        assert_eq!(String::from_utf8(text).unwrap(), expected);
    }
}
