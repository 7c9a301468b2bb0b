//! The files that an engine writes: counters as OpenMetrics text, and a time line, which has the same text, too.

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

/// A run of an engine.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) name: String,
    samples: Vec<Metric>,
    /// The application's calls in their order, if there is a time line.
    pub(crate) calls: Vec<Call>,
}

/// A line of OpenMetrics text.
#[derive(Debug)]
struct Metric {
    name: String,
    labels: BTreeMap<String, String>,
    value: f64,
}

/// A call of the application. Times are ns.
#[derive(Debug)]
pub(crate) struct Call {
    /// True if the call writes its version; false if it reads it.
    pub(crate) writes: bool,
    pub(crate) version: u64,
    pub(crate) bytes: u64,
    /// Time between the end of the calls before and this call, in which the application computed.
    pub(crate) computed_ns: u64,
}

/// Transfers between two tiers.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Hop {
    pub(crate) from: String,
    pub(crate) to: String,
    /// Bytes per second while transfers were under way; 0 if there were none.
    pub(crate) rate: f64,
}

impl Run {
    /// Reads a time line or OpenMetrics text. Fails for a file of another kind, or a file that was cut off before the metrics.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let name = path.display().to_string();
        let text =
            std::fs::read_to_string(path).with_context(|| format!("{name} cannot be read"))?;
        let trace: Option<Value> = serde_json::from_str(&text).ok();
        let metrics = match &trace {
            Some(trace) => trace["otherData"]["metrics"].as_str().unwrap_or_default(),
            None => &text,
        };
        let samples: Vec<Metric> = metrics.lines().filter_map(sample).collect();
        ensure!(
            samples
                .iter()
                .any(|sample| sample.name == "running_seconds"),
            "{name} is neither an engine's time line nor its OpenMetrics text"
        );
        let events = trace.as_ref().map(|trace| &trace["traceEvents"]);
        let calls = events.and_then(Value::as_array).map(|events| calls(events));
        Ok(Self {
            name,
            samples,
            calls: calls.unwrap_or_default(),
        })
    }

    /// Returns the sum of the samples with this name and these labels, such as `cause=wait for room`.
    pub(crate) fn sum(&self, name: &str, labels: &[&str]) -> f64 {
        let is_it = |sample: &&Metric| {
            let mut labels = labels.iter().filter_map(|label| label.split_once('='));
            sample.name == name && labels.all(|(key, value)| sample.label(key) == value)
        };
        self.samples
            .iter()
            .filter(is_it)
            .map(|sample| sample.value)
            .sum()
    }

    /// Returns the share of the run for which calls waited for a cause.
    pub(crate) fn blocked(&self, cause: &str) -> f64 {
        let cause = format!("cause={cause}");
        self.share(self.sum("blocked_seconds_sum", &[&cause]))
    }

    /// Returns `seconds` as a share of the run.
    pub(crate) fn share(&self, seconds: f64) -> f64 {
        seconds / self.sum("running_seconds", &[]).max(1e-9)
    }

    /// Returns the tiers, fastest first, with the bytes that may be used of each.
    pub(crate) fn tiers(&self) -> Vec<(String, f64)> {
        let tiers = self
            .samples
            .iter()
            .filter(|sample| sample.name == "tier_bytes" && sample.label("kind") == "limit");
        tiers
            .map(|tier| (tier.label("tier").to_owned(), tier.value))
            .collect()
    }

    pub(crate) fn hops(&self) -> Vec<Hop> {
        let busy = self.samples.iter();
        let busy = busy.filter(|sample| sample.name == "transfer_busy_seconds_total");
        busy.map(|busy| {
            let (from, to) = (busy.label("from"), busy.label("to"));
            let labels = [format!("from={from}"), format!("to={to}")];
            let bytes = self.sum("transfer_bytes_total", &[&labels[0], &labels[1]]);
            Hop {
                from: from.to_owned(),
                to: to.to_owned(),
                rate: if bytes > 0.0 {
                    bytes / busy.value.max(1e-9)
                } else {
                    0.0
                },
            }
        })
        .collect()
    }
}

impl Metric {
    fn label(&self, key: &str) -> &str {
        self.labels.get(key).map_or("", String::as_str)
    }
}

/// Parses `tierflow_name{key="value",…} number`; returns `None` for other lines. The engine's labels have no quotes and no commas in them.
fn sample(line: &str) -> Option<Metric> {
    let (name, rest) = line.strip_prefix("tierflow_")?.split_once('{')?;
    let (labels, value) = rest.split_once("} ")?;
    let labels = labels.split(',').filter_map(|label| label.split_once('='));
    Some(Metric {
        name: name.to_owned(),
        labels: labels
            .map(|(key, value)| (key.to_owned(), value.trim_matches('"').to_owned()))
            .collect(),
        value: value.trim().parse().ok()?,
    })
}

/// Returns the calls of all threads, one after the other, from the spans of a time line.
fn calls(events: &[Value]) -> Vec<Call> {
    let ns = |value: &Value| (value.as_f64().unwrap_or(0.0) * 1e3) as u64;
    let mut spans: Vec<_> = events
        .iter()
        .filter(|event| event["ph"] == "X")
        .map(|event| (ns(&event["ts"]), event))
        .collect();
    spans.sort_by_key(|(begin, _)| *begin);
    let (mut calls, mut busy_until) = (Vec::new(), None);
    for (begin, span) in spans {
        let name = span["name"].as_str().unwrap_or_default();
        let writes = ["checkpoint", "produce"].contains(&name);
        let is_call = writes || ["restore", "consume"].contains(&name);
        if !is_call && !name.starts_with("wait") {
            continue;
        }
        let end = begin.saturating_add(ns(&span["dur"]));
        let args = &span["args"];
        if let (true, Some(version)) = (is_call, args["version"].as_u64()) {
            calls.push(Call {
                writes,
                version,
                bytes: args["bytes"].as_u64().unwrap_or(0),
                computed_ns: begin.saturating_sub(busy_until.unwrap_or(begin)),
            });
        }
        busy_until = busy_until.max(Some(end));
    }
    calls
}
