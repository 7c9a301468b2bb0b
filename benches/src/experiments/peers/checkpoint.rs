//! The group checkpoint: the bytes of each GPU, and the time for which the group is blocked.

use std::time::Duration;

use anyhow::{Result, ensure};
use rayon::prelude::*;
use tierflow_device::{Device, Memory, Stream};
use tierflow_peers::{ConcurrentCopy, Overflow, Remainder};
use tierflow_placement::{Problem, Schedule, Topology};

use super::PATIENCE;
use crate::experiments::Run;
use crate::random::fill;
use crate::report::Spread;

/// Alignment of schedules, in bytes: the unit in which memory is mapped.
pub(super) const GRAIN: usize = 2 << 20;
const TRIALS: usize = 7;
const BLOCK: usize = 4 << 20;

pub(super) struct Group<'a> {
    name: String,
    pub(super) devices: &'a [Device],
    sizes: Vec<u64>,
    /// Bytes of each device's cache.
    fair: usize,
    /// The bytes that each application writes, the remainder last.
    data: Vec<Memory>,
    caches: Vec<Memory>,
    streams: Vec<Stream>,
    remainders: Vec<Option<Remainder>>,
}

impl<'a> Group<'a> {
    /// Makes a group checkpoint: the first device writes 4 × `unit` bytes, each other device `unit`. All caches together hold these bytes,
    /// each an equal part.
    pub(super) fn new(name: String, devices: &'a [Device], unit: usize) -> Result<Self> {
        let count = devices.len();
        let fair = ((count + 3) * unit / count).next_multiple_of(GRAIN);
        let size = |gpu: usize| if gpu == 0 { 4 * unit } else { unit };
        let mut group = Self {
            name,
            devices,
            sizes: (0..count).map(|gpu| size(gpu) as u64).collect(),
            fair,
            data: Vec::new(),
            caches: Vec::new(),
            streams: Vec::new(),
            remainders: vec![None; count],
        };
        for (gpu, device) in devices.iter().enumerate() {
            let (stream, len) = (device.stream()?, size(gpu));
            let data = device.alloc(len)?;
            stream.fill(&mut data.lend_mut(0..len.min(fair))?, 1)?;
            if len > fair {
                let bytes = pattern(gpu, len - fair);
                stream.write(&bytes, &mut data.lend_mut(fair..len)?)?;
                group.remainders[gpu] = Some(Remainder {
                    memory: data.clone(),
                    start: fair,
                });
            }
            group.caches.push(device.alloc(len.min(fair))?);
            group.data.push(data);
            group.streams.push(stream);
        }
        Ok(group)
    }

    pub(super) fn problem<'t>(&self, topology: &'t Topology) -> Result<Problem<'t>> {
        let free = vec![self.fair as u64; self.devices.len()];
        let problem = Problem::of_checkpoints(topology, &self.sizes, &free)?;
        Ok(problem.aligned_to(GRAIN as u64)?)
    }

    pub(super) fn case(&self, strategy: &str) -> String {
        format!("{}, strategy={strategy}", self.name)
    }

    /// Measures a schedule within this process. Returns the seconds for which the checkpoint blocks.
    pub(super) fn measure(&self, run: &mut Run, name: &str, schedule: &Schedule) -> Result<f64> {
        for transfer in schedule.transfers() {
            eprintln!("  {transfer}, by {:?}", transfer.via);
        }
        eprintln!("  limited by {:?}", schedule.busiest());
        let overflow = Overflow::new(self.devices, schedule)?;
        self.time(run, &self.case(name), schedule, &overflow)
    }

    /// Stores and loads the remainders, and reports both.
    pub(super) fn time(
        &self,
        run: &mut Run,
        case: &str,
        schedule: &Schedule,
        overflow: &Overflow,
    ) -> Result<f64> {
        let predicted = schedule.makespan().as_secs_f64();
        run.value(case, "blocking, predicted", "ns", predicted * 1e9)?;
        let mut alone = Vec::new();
        let mut whole = Vec::new();
        for trial in 0..=TRIALS {
            let took = overflow.store(&self.remainders, PATIENCE)?;
            let with_local = overflow.store_beside(&self.remainders, self.local()?, PATIENCE)?;
            if trial == 0 {
                eprintln!("  first: {:?}, each transfer {:?}", took.all, took.each);
                continue;
            }
            alone.push(nanoseconds(took.all));
            whole.push(nanoseconds(with_local.all));
            if trial == TRIALS {
                eprintln!("  last: {:?}, each transfer {:?}", took.all, took.each);
            }
        }
        let row = run.samples(case, "blocking, real", "ns", &alone)?;
        row.against(predicted * 1e9);
        let row = run.samples(case, "blocking with the local parts", "ns", &whole)?;
        row.against(predicted * 1e9);
        self.spoil()?;
        let back = overflow.load(&self.remainders, PATIENCE)?;
        run.value(case, "way back", "ns", nanoseconds(back.all))?;
        let wrong = self.wrong()?;
        run.value(case, "bytes that came back wrong", "bytes", wrong as f64)?;
        ensure!(wrong == 0, "{wrong} bytes of {case} came back wrong");
        Ok(Spread::of(&alone)?.median / 1e9)
    }

    pub(super) fn remainders(&self) -> &[Option<Remainder>] {
        &self.remainders
    }

    /// Returns the copies of the bytes that stay on their GPU.
    fn local(&self) -> Result<Vec<ConcurrentCopy<'_>>> {
        let parts = self.data.iter().zip(&self.caches).zip(&self.streams);
        let copies = parts.map(|((data, cache), stream)| {
            Ok(ConcurrentCopy {
                stream,
                from: data.lend(0..cache.len())?,
                to: cache.lend_mut(0..cache.len())?,
            })
        });
        copies.collect()
    }

    /// Overwrites the remainders, so that only a load brings them back.
    pub(super) fn spoil(&self) -> Result<()> {
        for (gpu, remainder) in self.remainders.iter().enumerate() {
            if let Some(Remainder { memory, start }) = remainder {
                let mut loan = memory.lend_mut(*start..memory.len())?;
                self.streams[gpu].fill(&mut loan, 0xee)?;
            }
        }
        Ok(())
    }

    /// Returns the number of bytes of the remainders that differ from the written ones.
    pub(super) fn wrong(&self) -> Result<usize> {
        let mut wrong = 0;
        for (gpu, remainder) in self.remainders.iter().enumerate() {
            if let Some(Remainder { memory, start }) = remainder {
                let mut seen = vec![0; memory.len() - start];
                let loan = memory.lend(*start..memory.len())?;
                self.streams[gpu].read(&loan, &mut seen)?;
                let blocks = seen.par_chunks(BLOCK).enumerate();
                let differing = blocks.map(|(at, seen)| {
                    let mut wanted = vec![0; seen.len()];
                    fill(&mut wanted, seed(gpu, at));
                    let pairs = seen.iter().zip(&wanted);
                    pairs.filter(|(seen, wanted)| seen != wanted).count()
                });
                wrong += differing.sum::<usize>();
            }
        }
        Ok(wrong)
    }
}

fn nanoseconds(time: Duration) -> f64 {
    time.as_nanos() as f64
}

/// Returns the content of a GPU's remainder: bytes that differ from place to place.
pub(super) fn pattern(gpu: usize, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    let blocks = bytes.par_chunks_mut(BLOCK).enumerate();
    blocks.for_each(|(at, block)| fill(block, seed(gpu, at)));
    bytes
}

/// Returns the seed of block `at` of a GPU's remainder.
fn seed(gpu: usize, at: usize) -> u64 {
    ((gpu as u64 + 1) << 32) + at as u64
}

/// Returns a checksum by which two processes compare bytes.
pub(super) fn sum(bytes: &[u8]) -> u64 {
    let words = bytes.par_chunks(BLOCK).enumerate();
    let sums = words.map(|(at, block)| {
        let mut sum = at as u64 + 1;
        for word in block.chunks(8) {
            let mut padded = [0; 8];
            padded[..word.len()].copy_from_slice(word);
            sum = (sum.rotate_left(5) ^ u64::from_le_bytes(padded))
                .wrapping_mul(0x9e37_79b9_7f4a_7c15);
        }
        sum
    });
    sums.reduce(|| 0, u64::wrapping_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_sees_one_byte_and_the_order() {
        let mut bytes = pattern(0, 3 * BLOCK + 5);
        let before = sum(&bytes);
        bytes[BLOCK + 1] ^= 1;
        assert_ne!(sum(&bytes), before);
        bytes[BLOCK + 1] ^= 1;
        assert_eq!(sum(&bytes), before);
        bytes.rotate_left(BLOCK);
        assert_ne!(sum(&bytes), before);
        assert_ne!(pattern(0, 64), pattern(1, 64));
    }
}
