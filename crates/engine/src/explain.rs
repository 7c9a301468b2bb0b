//! Measurements as sentences.

use crate::blocked::Cause;
use crate::metrics::{Metrics, Waits};
use std::fmt::Write;
use std::time::Duration;

/// Smallest share of the blocked time for which a cause gets a sentence.
const SMALLEST: f64 = 0.01;

impl Metrics {
    /// Returns sentences about what blocked the application, the largest cause first: what calls waited for, what ended these
    /// waits, and the share of the run. Times of several threads add up.
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
            // Writing to a `String` cannot fail.
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
