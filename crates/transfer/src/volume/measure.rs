//! The throughput of stores by number of writers (IPDPS'19, §IV-C).

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tierflow_placement::stores::{Calibration, CalibrationError};
use tierflow_store::Storage;

use super::Result;
use super::buffer::AlignedBuffer;

/// The numbers of writers that are measured; values between them are interpolated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Points {
    /// Numbers at equal distances, as in the paper.
    Even {
        /// The first number.
        first: u32,
        /// The distance from one number to the next.
        step: u32,
        /// How many numbers there are.
        samples: u32,
    },
    /// The numbers 1, 2, 4, 8 …: see [`Calibration::doubling`].
    Doubling {
        /// How many numbers there are, at most 32.
        samples: u32,
    },
}

/// The effort of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effort {
    /// The numbers of writers.
    pub points: Points,
    /// Number of measurements for each number of writers. The median of them counts.
    pub trials: u32,
    /// The least time of one measurement, so that the start and the end of the writes do not matter.
    pub at_least: Duration,
}

impl Default for Effort {
    /// Measures 1, 2, 4 … 64 writers seven times, for 100 ms each.
    fn default() -> Self {
        Self {
            points: Points::Doubling { samples: 7 },
            trials: 7,
            at_least: Duration::from_millis(100),
        }
    }
}

impl Points {
    /// Returns the numbers of writers.
    pub fn writers(self) -> Vec<u32> {
        match self {
            Self::Even {
                first,
                step,
                samples,
            } => {
                let each = (0..samples).map(|at| first.saturating_add(step.saturating_mul(at)));
                each.collect()
            }
            Self::Doubling { samples } => (0..samples.min(32)).map(|at| 1 << at).collect(),
        }
    }

    /// Returns the spline through samples at these points, in bytes per second.
    ///
    /// # Errors
    /// As [`Calibration::new`].
    pub fn calibration(self, samples: &[f64]) -> Result<Calibration, CalibrationError> {
        match self {
            Self::Even { first, step, .. } => Calibration::new(first, step, samples),
            Self::Doubling { .. } => Calibration::doubling(samples),
        }
    }
}

/// Measures a store with a few numbers of writers, in chunks of `chunk_size` bytes, and interpolates between them.
///
/// # Errors
/// [`VolumeError::Store`](super::VolumeError::Store) if a write fails,
/// [`VolumeError::Calibration`](super::VolumeError::Calibration) if there are no samples.
pub fn calibrate(storage: &dyn Storage, chunk_size: usize, effort: Effort) -> Result<Calibration> {
    let writers = effort.points.writers().into_iter();
    let points: Vec<_> = writers.map(|writers| (storage, writers)).collect();
    let samples = measure(&points, chunk_size, effort)?;
    Ok(effort.points.calibration(&samples)?)
}

/// Returns the throughput of several stores, each with its number of writers, in bytes per second. Each writer writes one chunk
/// after another, and the median of `effort.trials` counts. The points take turns: so other work of the machine disturbs one trial
/// of each point instead of all trials of one, and all stores are compared under the same conditions. `effort.points` is not used.
///
/// # Errors
/// [`VolumeError::Store`](super::VolumeError::Store) if a write fails.
pub fn measure(
    points: &[(&dyn Storage, u32)],
    chunk_size: usize,
    effort: Effort,
) -> Result<Vec<f64>> {
    let most = points.iter().map(|point| point.1).max();
    let alignments = points.iter().map(|point| point.0.alignment());
    let alignment = alignments.max().unwrap_or(1);
    let buffers: Vec<_> = (0..most.unwrap_or_default().max(1))
        .map(|writer| {
            let mut buffer = AlignedBuffer::new(chunk_size, alignment);
            buffer.bytes_mut().fill(writer as u8 + 1);
            buffer
        })
        .collect();
    let mut turns = Vec::new();
    for &(storage, writers) in points {
        let buffers = &buffers[..writers.max(1) as usize];
        // The first trial starts cold. The throughput of this trial determines how much the others write.
        let few = 16_u32.div_ceil(writers.max(1)).max(2);
        let throughput = once(storage, buffers, few, few)?;
        let bytes = throughput * effort.at_least.as_secs_f64();
        let each = bytes / (chunk_size * buffers.len()) as f64;
        let each = (each.ceil() as u32).max(few);
        turns.push((storage, buffers, few, each, Vec::new()));
    }
    for _ in 0..effort.trials.max(1) {
        for (storage, buffers, places, each, found) in &mut turns {
            found.push(once(*storage, buffers, *places, *each)?);
        }
    }
    let medians = turns.into_iter().map(|(.., mut found)| {
        found.sort_by(f64::total_cmp);
        found[found.len() / 2]
    });
    Ok(medians.collect())
}

/// Lets each writer write `each` chunks, over and over to its own `places` places. Returns bytes per second.
fn once(storage: &dyn Storage, buffers: &[AlignedBuffer], places: u32, each: u32) -> Result<f64> {
    let go = AtomicBool::new(false);
    let mut start = Instant::now();
    let written: tierflow_store::Result<Vec<()>> = std::thread::scope(|scope| {
        let writers: Vec<_> = buffers
            .iter()
            .enumerate()
            .map(|(at, buffer)| {
                let go = &go;
                scope.spawn(move || {
                    while !go.load(Ordering::Acquire) {
                        std::thread::yield_now();
                    }
                    let len = buffer.bytes().len() as u64;
                    let first = at as u64 * u64::from(places);
                    (0..each).try_for_each(|chunk| {
                        let place = first + u64::from(chunk % places);
                        storage.write_at(place * len, buffer.bytes())
                    })
                })
            })
            .collect();
        start = Instant::now();
        go.store(true, Ordering::Release);
        let ends = writers.into_iter().map(|writer| match writer.join() {
            Ok(written) => written,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        ends.collect()
    });
    let took = start.elapsed();
    written?;
    let bytes: usize = buffers.iter().map(|buffer| buffer.bytes().len()).sum();
    Ok(bytes as f64 * f64::from(each) / took.as_secs_f64())
}
