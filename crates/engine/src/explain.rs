//! Measurements in sentences, and as OpenMetrics text.

use crate::blocked::{Calls, Cause};
use crate::metrics::{HopMetrics, Metrics, Waits};
use std::fmt::{self, Write};
use std::io;
use std::path::Path;
use std::time::Duration;

/// Causes below this share of the blocked time have no sentence.
const SMALLEST: f64 = 0.01;

impl Metrics {
    /// Says for what calls blocked the application, what that waited for in turn, and which share of the run it was, the
    /// largest cause first. Times of several threads add up.
    #[must_use]
    pub fn explain(&self) -> Vec<String> {
        let blocked = self.blocked();
        let own = self.times(Cause::Plan).total.as_secs_f64();
        let mut sentences = vec![format!(
            "Calls blocked the application for {blocked:.3?} of {:.3?}, {} of the run; {:.1}% of that were waits and copies, the rest \
             the engine's own work.",
            self.running,
            self.share(blocked),
            100.0 - 100.0 * own / blocked.as_secs_f64().max(1e-9)
        )];
        let mut causes = Cause::ALL.map(|cause| (cause, self.times(cause)));
        causes.sort_by_key(|(_, times)| std::cmp::Reverse(times.total));
        let least = blocked.mul_f64(SMALLEST);
        for (cause, times) in causes {
            if times.total.is_zero() || times.total < least {
                break;
            }
            sentences.push(format!(
                "{}: {:.3?}, {} of the run, in {} calls, half of them at most {:.3?}, the longest {:.3?}.",
                subject(cause),
                times.total,
                self.share(times.total),
                times.count,
                times.p50,
                times.worst
            ));
            let mut waits: Vec<_> = self.waits.iter().filter(|w| w.cause == cause).collect();
            waits.sort_by_key(|waits| std::cmp::Reverse(waits.total));
            sentences.extend(waits.iter().map(|waits| self.explain_waits(waits)));
        }
        sentences
    }

    fn explain_waits(&self, waits: &Waits) -> String {
        let Waits {
            from,
            to,
            total,
            before,
            queued,
            moving,
            ..
        } = *waits;
        if from.is_empty() {
            return format!(
                "Other calls, which gave memory or versions up, ended {total:.3?} of that."
            );
        }
        let hop = self
            .hops
            .iter()
            .find(|hop| (hop.from, hop.to) == (from, to));
        let (bytes, busy) = hop.map_or((0, Duration::ZERO), |hop| (hop.bytes, hop.busy));
        let rate = bytes as f64 / busy.as_secs_f64().max(1e-9) / 1e9;
        let why = if waits.cause == Cause::Arrival && waits.ahead < waits.count.div_ceil(2) {
            "Most were asked for when the calls came: hint versions earlier, or leave prefetching more room"
        } else if before > total / 2 {
            "Most of it passed before they were asked for: other transfers had to be first"
        } else if queued > moving {
            "Most of it they stood behind other transfers of this hop"
        } else {
            "Most of it they moved"
        };
        let mut text = format!(
            "Transfers from {from} to {to} ended {total:.3?} of that. {why}; the hop carried {rate:.3} GB/s while it was busy, \
             {} of the run.",
            self.share(busy)
        );
        if let Some(transferred) = waits.transferred {
            let version = match waits.waiting {
                Some(version) => format!("version {version}"),
                None => "all versions".to_owned(),
            };
            // A `String` takes all that is written.
            let _ = write!(
                text,
                " The longest, {:.3?} for {version}, ended with version {transferred}.",
                waits.longest
            );
        }
        text
    }

    fn share(&self, time: Duration) -> String {
        let share = time.as_secs_f64() / self.running.as_secs_f64().max(1e-9);
        format!("{:.1}%", share * 100.0)
    }

    /// Returns the measurements in the text format of [OpenMetrics](https://prometheus.io/docs/specs/om/open_metrics_spec/), for
    /// a file or a socket that Prometheus and others read. Times are seconds.
    #[must_use]
    pub fn open_metrics(&self) -> String {
        let mut text = String::new();
        // A `String` takes all that is written.
        let _ = self.format_open_metrics(&mut text);
        text
    }

    /// Replaces a file by the text of [`open_metrics`](Self::open_metrics), in one step: readers such as the text collector of Prometheus's
    /// node exporter see the old text or the new one. The engine never writes it by itself.
    ///
    /// # Errors
    /// The errors of the file, and of the one beside it with the extension `new` that takes its place.
    pub fn write_open_metrics(&self, path: impl AsRef<Path>) -> io::Result<()> {
        let path = path.as_ref();
        let new = path.with_extension("new");
        std::fs::write(&new, self.open_metrics())?;
        std::fs::rename(new, path)
    }

    fn format_open_metrics(&self, out: &mut String) -> fmt::Result {
        let running = [(String::new(), self.running.as_secs_f64())];
        family(out, "running_seconds", "gauge", running)?;
        let calls = [
            ("checkpoint", self.checkpoint),
            ("restore", self.restore),
            ("produce", self.produce),
            ("consume", self.consume),
            ("wait", self.wait),
        ];
        let by_call = |value: fn(Calls) -> f64| {
            calls.map(|(call, calls)| (format!("call=\"{call}\""), value(calls)))
        };
        family(out, "calls", "counter", by_call(|c| c.count as f64))?;
        family(
            out,
            "call_failures",
            "counter",
            by_call(|c| c.failed as f64),
        )?;
        family(out, "call_bytes", "counter", by_call(|c| c.bytes as f64))?;
        let blocked = by_call(|c| c.blocked.as_secs_f64());
        family(out, "call_blocked_seconds", "counter", blocked)?;
        writeln!(out, "# TYPE tierflow_blocked_seconds summary")?;
        for cause in Cause::ALL {
            let (times, name) = (self.times(cause), cause.name());
            for (quantile, time) in [
                ("0.5", times.p50),
                ("0.99", times.p99),
                ("0.999", times.p999),
                ("1", times.worst),
            ] {
                let time = time.as_secs_f64();
                writeln!(
                    out,
                    "tierflow_blocked_seconds{{cause=\"{name}\",quantile=\"{quantile}\"}} {time}"
                )?;
            }
            let (sum, count) = (times.total.as_secs_f64(), times.count);
            writeln!(
                out,
                "tierflow_blocked_seconds_sum{{cause=\"{name}\"}} {sum}"
            )?;
            writeln!(
                out,
                "tierflow_blocked_seconds_count{{cause=\"{name}\"}} {count}"
            )?;
        }
        let parts = self.waits.iter().flat_map(|waits| {
            let (from, to) = (waits.from, waits.to);
            let other = waits.total - waits.before - waits.queued - waits.moving;
            let parts = [
                ("before", waits.before),
                ("queued", waits.queued),
                ("moving", waits.moving),
                ("other", other),
            ];
            let labels = format!(
                "cause=\"{}\",from=\"{from}\",to=\"{to}\"",
                waits.cause.name()
            );
            parts.map(|(part, time)| (format!("{labels},part=\"{part}\""), time.as_secs_f64()))
        });
        family(out, "wait_seconds", "counter", parts)?;
        let counts = self.waits.iter().flat_map(|waits| {
            let Waits { from, to, .. } = waits;
            let labels = format!(
                "cause=\"{}\",from=\"{from}\",to=\"{to}\"",
                waits.cause.name()
            );
            let late = waits.count - waits.ahead;
            let asked = [("before", waits.ahead), ("with the call", late)];
            asked.map(|(when, count)| (format!("{labels},asked=\"{when}\""), count as f64))
        });
        family(out, "waits", "counter", counts)?;
        let tiers = self.tiers.iter().flat_map(|tier| {
            let kinds = [
                ("capacity", tier.capacity),
                ("limit", tier.limit),
                ("used", tier.used),
                ("peak", tier.peak),
            ];
            kinds.map(|(kind, bytes)| {
                let labels = format!("tier=\"{}\",kind=\"{kind}\"", tier.name);
                (labels, bytes as f64)
            })
        });
        family(out, "tier_bytes", "gauge", tiers)?;
        let counts = self.tiers.iter().flat_map(|tier| {
            let kinds = [
                ("restores", tier.restores),
                ("evictions", tier.evictions),
                ("dropped prefetches", tier.dropped_prefetches),
                ("damaged", tier.damaged),
            ];
            kinds.map(|(kind, copies)| {
                let labels = format!("tier=\"{}\",kind=\"{kind}\"", tier.name);
                (labels, copies as f64)
            })
        });
        family(out, "tier_copies", "counter", counts)?;
        for (name, count) in [("hinted", self.hinted), ("pruned", self.pruned)] {
            family(out, name, "counter", [(String::new(), count as f64)])?;
        }
        let rates = self.compression.iter().flat_map(|compression| {
            let sides = [
                ("stage", compression.stage_rate),
                ("link", compression.link_rate),
            ];
            sides.map(|(side, rate)| (format!("side=\"{side}\""), rate as f64))
        });
        family(out, "compression_bytes_per_second", "gauge", rates)?;
        let by_hop = |value: fn(&HopMetrics) -> f64| {
            let hops = self.hops.iter();
            hops.map(move |hop| {
                (
                    format!("from=\"{}\",to=\"{}\"", hop.from, hop.to),
                    value(hop),
                )
            })
        };
        family(out, "transfers", "counter", by_hop(|h| h.transfers as f64))?;
        family(out, "transfer_bytes", "counter", by_hop(|h| h.bytes as f64))?;
        family(
            out,
            "transfer_failures",
            "counter",
            by_hop(|h| h.failed as f64),
        )?;
        let busy = by_hop(|h| h.busy.as_secs_f64());
        family(out, "transfer_busy_seconds", "counter", busy)?;
        writeln!(out, "# EOF")
    }
}

/// Writes the values of one name, each behind its labels.
fn family(
    out: &mut String,
    name: &str,
    kind: &str,
    values: impl IntoIterator<Item = (String, f64)>,
) -> fmt::Result {
    writeln!(out, "# TYPE tierflow_{name} {kind}")?;
    let suffix = if kind == "counter" { "_total" } else { "" };
    for (labels, value) in values {
        writeln!(out, "tierflow_{name}{suffix}{{{labels}}} {value}")?;
    }
    Ok(())
}

fn subject(cause: Cause) -> &'static str {
    match cause {
        Cause::Room => "Checkpoints waited for memory",
        Cause::Arrival => "Restores waited for versions on their way up",
        Cause::Flushes => "Waits lasted until versions lay on the lowest tier",
        Cause::Protection => "Waits lasted until other ranks protected versions",
        Cause::Lock => "Calls waited for the plan's lock, which other threads held",
        Cause::WakeUp => "Threads slept on although their answers were there",
        Cause::Stream => {
            "Calls waited for the application's streams to finish with memory that slots gave back"
        }
        Cause::Growth => "Calls waited for memory of a cache that was not mapped yet",
        Cause::Copy => "Calls copied between memories",
        Cause::Storage => "Calls copied to or from storage, past the caches",
        Cause::Plan => "Calls did the engine's own work",
    }
}
