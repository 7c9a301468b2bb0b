//! Slows down a storage, so that it represents a slower one, or a share of one, in tests and experiments that say so.

use crate::{Result, Storage};
use std::time::{Duration, Instant};
use tierflow_sync::Mutex;

/// Limits the rate at which all threads together move bytes.
#[derive(Debug)]
pub struct Throttled<S> {
    inner: S,
    bytes_per_second: u64,
    /// The time at which the bytes moved so far are paid for.
    paid_until: Mutex<Instant>,
}

impl<S: Storage> Throttled<S> {
    /// Limits `inner` to `bytes_per_second` (at least 1) for reads and writes together.
    pub fn new(inner: S, bytes_per_second: u64) -> Self {
        Self {
            inner,
            bytes_per_second: bytes_per_second.max(1),
            paid_until: Mutex::new(Instant::now()),
        }
    }

    /// Adds the cost of this call to `paid_until`, and sleeps until then.
    fn pay(&self, bytes: usize) {
        let cost = Duration::from_secs_f64(bytes as f64 / self.bytes_per_second as f64);
        let until = {
            let mut paid_until = self.paid_until.lock();
            *paid_until = (*paid_until).max(Instant::now()) + cost;
            *paid_until
        };
        std::thread::sleep(until.saturating_duration_since(Instant::now()));
    }
}

impl<S: Storage> Storage for Throttled<S> {
    fn alignment(&self) -> usize {
        self.inner.alignment()
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.inner.write_at(offset, bytes)?;
        self.pay(bytes.len());
        Ok(())
    }

    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        self.inner.read_at(offset, bytes)?;
        self.pay(bytes.len());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Scratch;

    #[test]
    fn conforms_and_takes_its_time() {
        let directory = tempfile::tempdir().unwrap();
        let begun = Instant::now();
        crate::conformance::run_all(&Throttled::new(
            Scratch::open(directory.path()).unwrap(),
            100 << 20,
        ));
        // The suite moves more than 6 MiB, and no machine may exceed the limit.
        assert!(
            begun.elapsed() >= Duration::from_millis(60),
            "{:?}",
            begun.elapsed()
        );
    }
}
