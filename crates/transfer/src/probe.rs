//! Measures the data paths of an otherwise idle machine: first touch and pinning of memory, copies, the links of a device, and
//! storage.

use crate::volume::buffer::AlignedBuffer;
use crate::volume::{self, Effort, Points, measure};
use std::time::{Duration, Instant};
use tierflow_device::{Device, Kind, Memory, Pinned, Result, Stream, WhyUnpinned};
use tierflow_store::Storage;

/// Bytes of one request to storage.
const REQUEST: usize = 4 << 20;

/// Number of measurements of a path. The best one counts, as others were disturbed.
const TRIALS: u32 = 3;

/// The rates of a machine's memory.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct MemoryRates {
    /// Bytes per second by path, such as "pinned host memory to device".
    pub paths: Vec<(&'static str, f64)>,
    /// The reason why host memory cannot be pinned, if it cannot.
    pub unpinned: Option<WhyUnpinned>,
}

/// Measures memory with two buffers of `bytes` bytes: first touch, pinning and copies; for a GPU also its links, in each direction
/// and in both at once.
///
/// # Errors
/// [`Error::OutOfMemory`](tierflow_device::Error::OutOfMemory) and other errors of the device.
pub fn memory(device: &Device, bytes: usize) -> Result<MemoryRates> {
    let mut rates = MemoryRates::default();
    let (stream, back) = (device.stream()?, device.stream()?);
    let (host, other) = (device.reserve_host(bytes)?, device.reserve_host(bytes)?);
    let all = || 0..bytes;
    rates.note("first touch of host memory", bytes, || host.touch(all()), 1)?;
    other.touch(all())?;
    let copy = |from: &Memory, to: &Memory, stream: &Stream| {
        stream.copy_now(&from.lend(all())?, &mut to.lend_mut(all())?)
    };
    let (host_memory, other_memory) = (host.memory(), other.memory());
    let within = || copy(host_memory, other_memory, &stream);
    rates.note("copy within host memory", bytes, within, TRIALS)?;
    let on_device = match device.info().kind {
        Kind::Cuda => Some((device.alloc(bytes)?, device.alloc(bytes)?)),
        _ => None,
    };
    if let Some((first, second)) = &on_device {
        let within = || copy(first, second, &stream);
        rates.note("copy within device memory", bytes, within, TRIALS)?;
        let unpinned = || copy(host_memory, first, &stream);
        rates.note("unpinned host memory to device", bytes, unpinned, TRIALS)?;
    }
    let mut pinned = Pinned::Yes;
    let mut pin = || {
        pinned = host.pin(all())?;
        Ok(())
    };
    rates.note("pinning of host memory", bytes, &mut pin, 1)?;
    if let Pinned::No(why) = pinned {
        rates.paths.pop();
        rates.unpinned = Some(why);
    } else if let Some((first, second)) = &on_device {
        let up = || copy(host_memory, first, &stream);
        rates.note("pinned host memory to device", bytes, up, TRIALS)?;
        let down = || copy(first, host_memory, &stream);
        rates.note("device to pinned host memory", bytes, down, TRIALS)?;
        let half = bytes / 2;
        let both = || {
            let up = stream.copy(host_memory.lend(0..half)?, first.lend_mut(0..half)?);
            let to = host_memory.lend_mut(half..2 * half)?;
            let down = back.copy(second.lend(half..2 * half)?, to);
            up.wait().result?;
            down.wait().result
        };
        rates.note("both directions at once", 2 * half, both, TRIALS)?;
    }
    Ok(rates)
}

impl MemoryRates {
    fn note(
        &mut self,
        path: &'static str,
        bytes: usize,
        mut copy: impl FnMut() -> Result<()>,
        trials: u32,
    ) -> Result<()> {
        let mut best = Duration::MAX;
        for _ in 0..trials {
            let begun = Instant::now();
            copy()?;
            best = best.min(begun.elapsed());
        }
        self.paths.push((path, rate(bytes, best)));
        Ok(())
    }
}

/// The rates of storage with one request at a time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StorageRates {
    /// Bytes per second of writes.
    pub write: f64,
    /// Bytes per second of reads.
    pub read: f64,
}

/// Measures storage with requests of 4 MiB, for about half a second. Overwrites the first 64 MiB.
///
/// # Errors
/// [`VolumeError::Store`](volume::VolumeError::Store) if a request fails.
pub fn storage(storage: &dyn Storage) -> volume::Result<StorageRates> {
    let effort = Effort {
        points: Points::Doubling { samples: 1 },
        trials: TRIALS,
        at_least: Duration::from_millis(100),
    };
    let write = measure(&[(storage, 1)], REQUEST, effort)?;
    let mut buffer = AlignedBuffer::new(REQUEST, storage.alignment());
    let begun = Instant::now();
    let mut read = 0;
    // `measure` wrote 16 requests.
    while read < 16 || begun.elapsed() < effort.at_least {
        storage.read_at((read % 16 * REQUEST) as u64, buffer.bytes_mut())?;
        read += 1;
    }
    Ok(StorageRates {
        write: write[0],
        read: rate(read * REQUEST, begun.elapsed()),
    })
}

fn rate(bytes: usize, time: Duration) -> f64 {
    bytes as f64 / time.as_secs_f64().max(1e-9)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tierflow_device::{Choice, open};
    use tierflow_store::{Scratch, Throttled};

    #[test]
    fn storage_is_as_slow_as_it_is() {
        let directory = tempfile::tempdir().unwrap();
        let scratch = Scratch::open(directory.path()).unwrap();
        let limit = 256_u64 << 20;
        let rates = storage(&Throttled::new(scratch, limit)).unwrap();
        for rate in [rates.write, rates.read] {
            assert!(rate > 0.0 && rate <= limit as f64, "{rates:?}");
        }
    }

    #[test]
    fn memory_has_a_rate_for_each_path() {
        let device = open(Choice::Host).unwrap();
        let rates = memory(&device, 8 << 20).unwrap();
        let pinned = usize::from(rates.unpinned.is_none());
        assert_eq!(rates.paths.len(), 2 + pinned, "{rates:?}");
        assert!(rates.paths.iter().all(|(_, rate)| *rate > 0.0));
    }
}
