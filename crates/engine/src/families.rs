//! Measurements for programs, as OpenMetrics text and as JSON.

use crate::blocked::{Calls, Cause};
use crate::builder::UNLIMITED;
use crate::metrics::{HopMetrics, Metrics, Waits};
use std::fmt::{self, Write};
use std::io;
use std::path::Path;
use std::time::Duration;

/// The values of one metric name.
struct Family {
    name: &'static str,
    /// The type of the family in OpenMetrics: "gauge", "counter" or "summary".
    kind: &'static str,
    samples: Vec<Sample>,
}

/// A value, and the labels that distinguish it from others of its family.
struct Sample {
    labels: Vec<Label>,
    /// The part of a summary, "sum" or "count"; otherwise empty.
    part: &'static str,
    /// The value; infinite for a size without limit.
    value: f64,
}

/// A key and its value, both without quotes or commas.
type Label = (&'static str, &'static str);

impl Sample {
    fn new(labels: impl Into<Vec<Label>>, value: f64) -> Self {
        Self {
            labels: labels.into(),
            part: "",
            value,
        }
    }
}

impl Family {
    fn gauge(name: &'static str, samples: impl IntoIterator<Item = Sample>) -> Self {
        Self {
            name,
            kind: "gauge",
            samples: samples.into_iter().collect(),
        }
    }

    fn counter(name: &'static str, samples: impl IntoIterator<Item = Sample>) -> Self {
        Self {
            kind: "counter",
            ..Self::gauge(name, samples)
        }
    }

    fn format_open_metrics(&self, out: &mut String) -> fmt::Result {
        let Self { name, kind, .. } = self;
        writeln!(out, "# TYPE tierflow_{name} {kind}")?;
        for Sample {
            labels,
            part,
            value,
        } in &self.samples
        {
            let suffix = match *part {
                "" if *kind == "counter" => "_total",
                "" => "",
                "sum" => "_sum",
                _ => "_count",
            };
            let labels: Vec<String> = labels
                .iter()
                .map(|(key, label)| format!("{key}=\"{label}\""))
                .collect();
            let labels = labels.join(",");
            match value.is_finite() {
                true => writeln!(out, "tierflow_{name}{suffix}{{{labels}}} {value}")?,
                false => writeln!(out, "tierflow_{name}{suffix}{{{labels}}} +Inf")?,
            }
        }
        Ok(())
    }

    fn json(&self) -> String {
        let samples = self.samples.iter().map(|sample| {
            let labels = sample.labels.iter();
            let labels = labels.map(|(key, label)| format!("\"{key}\":\"{label}\","));
            let part = if sample.part.is_empty() {
                "value"
            } else {
                sample.part
            };
            let value = match sample.value.is_finite() {
                true => sample.value.to_string(),
                false => "null".to_owned(),
            };
            format!("{{{}\"{part}\":{value}}}", labels.collect::<String>())
        });
        let samples: Vec<String> = samples.collect();
        format!("\"{}\":[{}]", self.name, samples.join(","))
    }
}

impl Metrics {
    /// Returns the measurements in the text format of [OpenMetrics](https://prometheus.io/docs/specs/om/open_metrics_spec/), for a
    /// file or a socket that Prometheus or another collector reads. Times are in seconds.
    #[must_use]
    pub fn open_metrics(&self) -> String {
        let mut text = String::new();
        for family in self.families() {
            // Writing to a `String` cannot fail.
            let _ = family.format_open_metrics(&mut text);
        }
        text + "# EOF\n"
    }

    /// Replaces a file by the text of [`open_metrics`](Self::open_metrics), in one step: readers, such as the text collector of
    /// Prometheus's node exporter, see the old text or the new one. The engine never writes this file by itself.
    ///
    /// # Errors
    /// The errors of [`replace_file`](tierflow_store::replace_file).
    pub fn write_open_metrics(&self, path: impl AsRef<Path>) -> io::Result<()> {
        let text = self.open_metrics();
        tierflow_store::replace_file(path.as_ref(), text.as_bytes(), false)
    }

    /// Returns the measurements as a JSON object. Keys are the names of [`open_metrics`](Self::open_metrics) without `tierflow_`.
    /// Each key has an array of objects with the labels and a `value`. A summary also has objects with a `sum` or a `count`. A size
    /// without limit is `null`.
    #[must_use]
    pub fn json(&self) -> String {
        let families: Vec<String> = self.families().iter().map(Family::json).collect();
        format!("{{{}}}", families.join(","))
    }

    /// Returns the values of both formats.
    fn families(&self) -> Vec<Family> {
        let calls = [
            ("checkpoint", self.checkpoint),
            ("restore", self.restore),
            ("produce", self.produce),
            ("consume", self.consume),
            ("wait", self.wait),
        ];
        let by_call = |value: fn(Calls) -> f64| {
            calls.map(|(call, calls)| Sample::new([("call", call)], value(calls)))
        };
        let by_hop = |value: fn(&HopMetrics) -> f64| {
            let hops = self.hops.iter();
            hops.map(move |hop| Sample::new([("from", hop.from), ("to", hop.to)], value(hop)))
        };
        let rates = self.compression.iter().flat_map(|compression| {
            let sides = [
                ("stage", compression.stage_rate),
                ("link", compression.link_rate),
            ];
            sides.map(|(side, rate)| Sample::new([("side", side)], rate as f64))
        });
        vec![
            Family::gauge(
                "running_seconds",
                [Sample::new([], self.running.as_secs_f64())],
            ),
            Family::counter("calls", by_call(|c| c.count as f64)),
            Family::counter("call_failures", by_call(|c| c.failed as f64)),
            Family::counter("call_bytes", by_call(|c| c.bytes as f64)),
            Family::counter("call_blocked_seconds", by_call(|c| c.blocked.as_secs_f64())),
            Family {
                name: "blocked_seconds",
                kind: "summary",
                samples: Cause::ALL
                    .into_iter()
                    .flat_map(|cause| self.summary(cause))
                    .collect(),
            },
            Family::counter("wait_seconds", self.waits.iter().flat_map(wait_times)),
            Family::counter("waits", self.waits.iter().flat_map(wait_counts)),
            Family::gauge("tier_bytes", self.tier_bytes()),
            Family::counter("tier_copies", self.tier_copies()),
            Family::counter("hinted", [Sample::new([], self.hinted as f64)]),
            Family::counter("pruned", [Sample::new([], self.pruned as f64)]),
            Family::gauge("compression_bytes_per_second", rates),
            Family::counter("transfers", by_hop(|h| h.transfers as f64)),
            Family::counter("transfer_bytes", by_hop(|h| h.bytes as f64)),
            Family::counter("transfer_failures", by_hop(|h| h.failed as f64)),
            Family::counter("transfer_busy_seconds", by_hop(|h| h.busy.as_secs_f64())),
        ]
    }

    fn summary(&self, cause: Cause) -> Vec<Sample> {
        let times = self.times(cause);
        let label = ("cause", cause.name());
        let quantiles = [
            ("0.5", times.p50),
            ("0.99", times.p99),
            ("0.999", times.p999),
            ("1", times.worst),
        ];
        let quantiles = quantiles.map(|(quantile, time)| {
            Sample::new([label, ("quantile", quantile)], time.as_secs_f64())
        });
        let sums = [
            ("sum", times.total.as_secs_f64()),
            ("count", times.count as f64),
        ];
        let sums = sums.map(|(part, value)| Sample {
            part,
            ..Sample::new([label], value)
        });
        quantiles.into_iter().chain(sums).collect()
    }

    fn tier_bytes(&self) -> impl Iterator<Item = Sample> {
        self.tiers.iter().flat_map(|tier| {
            let kinds = [
                ("capacity", tier.capacity),
                ("limit", tier.limit),
                ("used", tier.used),
                ("peak", tier.peak),
            ];
            kinds.map(|(kind, bytes)| {
                let value = match bytes < UNLIMITED {
                    true => bytes as f64,
                    false => f64::INFINITY,
                };
                Sample::new([("tier", tier.name), ("kind", kind)], value)
            })
        })
    }

    fn tier_copies(&self) -> impl Iterator<Item = Sample> {
        self.tiers.iter().flat_map(|tier| {
            let kinds = [
                ("restores", tier.restores),
                ("evictions", tier.evictions),
                ("dropped prefetches", tier.dropped_prefetches),
                ("damaged", tier.damaged),
            ];
            kinds.map(|(kind, copies)| {
                Sample::new([("tier", tier.name), ("kind", kind)], copies as f64)
            })
        })
    }
}

/// Returns the labels of waits, followed by `last`.
fn wait_labels(waits: &Waits, last: Label) -> [Label; 4] {
    [
        ("cause", waits.cause.name()),
        ("from", waits.from),
        ("to", waits.to),
        last,
    ]
}

fn wait_times(waits: &Waits) -> [Sample; 4] {
    let other = waits.total - waits.before - waits.queued - waits.moving;
    let parts = [
        ("before", waits.before),
        ("queued", waits.queued),
        ("moving", waits.moving),
        ("other", other),
    ];
    parts.map(|(part, time): (_, Duration)| {
        Sample::new(wait_labels(waits, ("part", part)), time.as_secs_f64())
    })
}

fn wait_counts(waits: &Waits) -> [Sample; 2] {
    let late = waits.count - waits.ahead;
    let asked = [("before", waits.ahead), ("with the call", late)];
    asked.map(|(when, count)| Sample::new(wait_labels(waits, ("asked", when)), count as f64))
}
