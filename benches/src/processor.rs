//! The processor time of this process, and the bytes that it moves to and from disks.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::time::{ClockId, clock_gettime};

/// The time and the processor time of a piece of work.
#[derive(Clone, Copy, Debug)]
pub struct Timings {
    /// Wall time.
    pub time: Duration,
    /// Processor time of all threads together.
    pub processor: Duration,
    /// Bytes that disks were asked to read.
    pub read: u64,
    /// Bytes that disks were asked to write.
    pub written: u64,
    /// Number of system calls that wrote.
    pub writes: u64,
}

impl Timings {
    /// Returns the number of cores that were busy on average.
    pub fn cores(&self) -> f64 {
        self.processor.as_secs_f64() / self.time.as_secs_f64()
    }

    /// Returns the bytes/s of work on `bytes` bytes.
    pub fn rate(&self, bytes: u64) -> f64 {
        bytes as f64 / self.time.as_secs_f64()
    }
}

/// Does the work and measures it. Nothing else may be under way in this process.
///
/// # Errors
/// The errors of the work, and an error if the kernel does not provide the figures.
pub fn measure(work: impl FnOnce() -> Result<()>) -> Result<Timings> {
    let (disks, processor, begun) = (disks()?, used(), Instant::now());
    work()?;
    let (time, processor) = (begun.elapsed(), used().saturating_sub(processor));
    let after = self::disks()?;
    Ok(Timings {
        time,
        processor,
        read: after[0] - disks[0],
        written: after[1] - disks[1],
        writes: after[2] - disks[2],
    })
}

fn used() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

/// Returns the bytes that this process read from disks, the bytes that it wrote to them, and the number of its calls that wrote.
fn disks() -> Result<[u64; 3]> {
    let text = std::fs::read_to_string("/proc/self/io")?;
    let value = |key: &str| {
        let mut lines = text.lines();
        let found = lines.find_map(|line| line.strip_prefix(key)?.trim().parse().ok());
        found.with_context(|| format!("/proc/self/io has no {key}"))
    };
    Ok([
        value("read_bytes:")?,
        value("write_bytes:")?,
        value("syscw:")?,
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_loop_takes_processor_time() {
        let took = measure(|| {
            let begun = used();
            while used() - begun < Duration::from_millis(20) {}
            Ok(())
        })
        .unwrap();
        assert!(took.processor >= Duration::from_millis(20), "{took:?}");
        assert!(took.time > Duration::ZERO);
    }
}
