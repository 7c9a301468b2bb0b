//! Measures the rates of compression and of the links below, for the governor. The governor compresses if fewer bytes shorten the
//! time on the slowest link.

use crate::CompressionMetrics;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use tierflow_codec::{Decision, Governor, Policy};
use tierflow_sync::model::Mutex;

#[derive(Debug)]
pub(super) struct Measured {
    governor: Mutex<Governor>,
    /// Time of encoding alone, without waiting for input.
    pub(super) encoding: Meter,
    sending: Meter,
    /// Bytes of checkpoints that were compressed. `stored` counts the bytes of their compressed forms.
    compressed: AtomicU64,
    stored: AtomicU64,
    /// Bytes of checkpoints that were stored uncompressed.
    as_they_are: AtomicU64,
}

impl Default for Measured {
    fn default() -> Self {
        Self {
            governor: Mutex::new(Governor::new(Policy::default())),
            encoding: Meter::default(),
            sending: Meter::default(),
            compressed: AtomicU64::new(0),
            stored: AtomicU64::new(0),
            as_they_are: AtomicU64::new(0),
        }
    }
}

impl Measured {
    /// Decides whether to compress a checkpoint of `bytes` bytes.
    pub(super) fn decide(&self, bytes: u64) -> Decision {
        self.governor.lock().decide(bytes)
    }

    /// Tells the governor that `raw` bytes became `stored` bytes within `nanoseconds`.
    pub(super) fn encoded(&self, raw: u64, stored: u64, nanoseconds: u64) {
        self.governor.lock().encoded(raw, stored, nanoseconds);
    }

    /// Sends `bytes` bytes, the compressed or plain form of `raw` bytes, by calling `work`. The target tier passes bytes on at
    /// `below` bytes/s, if that was measured.
    pub(super) fn send<T, E>(
        &self,
        raw: u64,
        bytes: u64,
        below: Option<f64>,
        work: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        let (sent, nanoseconds) = self.sending.time(work);
        let sent = sent?;
        let below = below.map_or(0.0, |rate| bytes as f64 / rate * 1e9);
        self.governor
            .lock()
            .sent(bytes, nanoseconds.max(below as u64));
        if bytes == raw {
            self.as_they_are.fetch_add(raw, Ordering::Relaxed);
        } else {
            self.compressed.fetch_add(raw, Ordering::Relaxed);
            self.stored.fetch_add(bytes, Ordering::Relaxed);
        }
        Ok(sent)
    }

    pub(super) fn metrics(&self) -> CompressionMetrics {
        let figures = self.governor.lock().figures();
        CompressionMetrics {
            is_on: figures.is_on,
            compressed: self.compressed.load(Ordering::Relaxed),
            stored: self.stored.load(Ordering::Relaxed),
            as_they_are: self.as_they_are.load(Ordering::Relaxed),
            stage_rate: figures.stage_rate as u64,
            link_rate: figures.link_rate as u64,
            switches: figures.switches,
        }
    }
}

/// Counts the pieces of work that share a rate.
#[derive(Debug, Default)]
pub(super) struct Meter {
    under_way: AtomicU64,
}

impl Meter {
    /// Returns the result of `work`, and the nanoseconds that it would have taken alone: its time, divided by the mean number of
    /// pieces of work that ran when it began and when it ended.
    pub(super) fn time<T>(&self, work: impl FnOnce() -> T) -> (T, u64) {
        let before = self.under_way.fetch_add(1, Ordering::Relaxed) + 1;
        // Dropped when `work` panics, too.
        let ended = UnderWay(&self.under_way);
        let begun = Instant::now();
        let done = work();
        let nanoseconds = begun.elapsed().as_nanos();
        let after = self.under_way.load(Ordering::Relaxed);
        drop(ended);
        let alone = 2 * nanoseconds / u128::from(before + after);
        (done, u64::try_from(alone).unwrap_or(u64::MAX))
    }
}

/// A piece of work that a [`Meter`] counts until this is dropped.
struct UnderWay<'m>(&'m AtomicU64);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_that_panics_is_not_under_way_any_more() {
        let meter = Meter::default();
        let work = std::panic::AssertUnwindSafe(|| meter.time(|| panic!("asked for")));
        assert!(std::panic::catch_unwind(work).is_err());
        assert_eq!(meter.under_way.load(Ordering::Relaxed), 0);
    }
}
