//! What a store writes, by number of writers (IPDPS'19, §IV-C).

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use tierflow_placement::stores::Calibration;
use tierflow_store::Storage;

use crate::Options;
use crate::buffer::Buffer;
use crate::error::Result;

/// Which numbers of writers are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effort {
    /// The first number.
    pub first: u32,
    /// From one number to the next.
    pub step: u32,
    /// How many numbers.
    pub samples: u32,
    /// Measurements of each, of which the median counts.
    pub trials: u32,
}

/// Measures a store with a few numbers of writers and interpolates between them.
///
/// # Errors
/// [`Error::Store`](crate::Error::Store) if a write fails, [`Error::Calibration`](crate::Error::Calibration) for
/// no samples.
pub fn calibrate(storage: &dyn Storage, options: &Options, effort: Effort) -> Result<Calibration> {
    let mut samples = Vec::new();
    for at in 0..effort.samples {
        let writers = effort.first + at * effort.step;
        samples.push(measure(storage, options, writers, effort.trials)?);
    }
    Ok(Calibration::new(effort.first, effort.step, &samples)?)
}

/// What so many writers together write, in bytes per second: each one chunk after another, the median of
/// `trials`. A trial writes two chunks for each writer, and 16 at least.
///
/// # Errors
/// [`Error::Store`](crate::Error::Store) if a write fails.
pub fn measure(storage: &dyn Storage, options: &Options, writers: u32, trials: u32) -> Result<f64> {
    let writers = writers.max(1);
    let each = 16_u32.div_ceil(writers).max(2);
    let buffers: Vec<_> = (0..writers)
        .map(|writer| {
            let mut buffer = Buffer::new(options.chunk_size, storage.alignment());
            buffer.bytes_mut().fill(writer as u8 + 1);
            buffer
        })
        .collect();
    let mut found = Vec::new();
    // The first finds nothing warm.
    for _ in 0..=trials.max(1) {
        found.push(once(storage, &buffers, each)?);
    }
    found.remove(0);
    found.sort_by(f64::total_cmp);
    Ok(found[found.len() / 2])
}

fn once(storage: &dyn Storage, buffers: &[Buffer], each: u32) -> Result<f64> {
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
                    (0..u64::from(each)).try_for_each(|chunk| {
                        let offset = (at as u64 * u64::from(each) + chunk) * len;
                        storage.write_at(offset, buffer.bytes())
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
