//! The checkpointed workloads. Each has a first state, which goes on from one checkpoint to the next in place. All runs have the same
//! states.

use std::time::Instant;

use rayon::prelude::*;

use super::gdv::{self, Graph};
use crate::random::{mix, unit};

/// The size of a workload.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size {
    /// Approximate bytes of a checkpoint.
    pub(super) bytes: usize,
    /// Checkpoints in all.
    pub(super) checkpoints: usize,
}

/// A function that changes the state to that of the next checkpoint.
pub(super) type Step = Box<dyn FnMut(&mut [u8])>;

pub(super) struct Workload {
    pub(super) name: &'static str,
    pub(super) start: fn(Size) -> (Vec<u8>, Step),
}

impl Workload {
    /// Returns all checkpoints, with the first one.
    pub(super) fn history(&self, size: Size) -> Vec<Vec<u8>> {
        self.beginning(size, size.checkpoints)
    }

    /// Returns the first `checkpoints` checkpoints of a workload of this size.
    pub(super) fn beginning(&self, size: Size, checkpoints: usize) -> Vec<Vec<u8>> {
        let began = Instant::now();
        let (mut state, mut step) = (self.start)(size);
        let mut history = vec![state.clone()];
        while history.len() < checkpoints {
            step(&mut state);
            history.push(state.clone());
        }
        let (name, took) = (self.name, began.elapsed());
        eprintln!("  {name}: {} checkpoints made in {took:?}", history.len());
        history
    }
}

/// All workloads, the graphs first.
pub(super) const WORKLOADS: &[Workload] = &[
    Workload {
        name: "gdv-events",
        start: |size| gdv::start(Graph::Events, size),
    },
    Workload {
        name: "gdv-road",
        start: |size| gdv::start(Graph::Road, size),
    },
    Workload {
        name: "gdv-bubbles",
        start: |size| gdv::start(Graph::Bubbles, size),
    },
    Workload {
        name: "gdv-delaunay",
        start: |size| gdv::start(Graph::Delaunay, size),
    },
    Workload {
        name: "wavefield",
        start: wavefield,
    },
    Workload {
        name: "embedding",
        start: embedding,
    },
    Workload {
        name: "append",
        start: append,
    },
    Workload {
        name: "rotation",
        start: rotation,
    },
    Workload {
        name: "zeros",
        start: zeros,
    },
    Workload {
        name: "adam",
        start: adam,
    },
];

/// Returns random bytes.
fn random(len: usize, seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; len];
    fill(&mut bytes, seed);
    bytes
}

fn fill(bytes: &mut [u8], seed: u64) {
    let words = bytes.par_chunks_mut(8).enumerate();
    words.for_each(|(at, word)| {
        let random = mix(seed << 40 ^ at as u64).to_le_bytes();
        word.copy_from_slice(&random[..word.len()]);
    });
}

fn read(bytes: &[u8]) -> f32 {
    bytes
        .first_chunk()
        .map_or(0.0, |bytes| f32::from_le_bytes(*bytes))
}

/// Makes the pressure of an acoustic wave in two dimensions, single precision: a point source in the middle of a medium with layers,
/// second order in space and time, with the two time levels that a solver keeps. At least sixteen steps are between checkpoints. Ahead
/// of the wave, the field is zero.
fn wavefield(size: Size) -> (Vec<u8>, Step) {
    let side = ((size.bytes / 8) as f64).sqrt() as usize;
    let state = vec![0; 2 * side * side * 4];
    let (mut now, mut before) = (vec![0_f32; side * side], vec![0_f32; side * side]);
    // With as many steps, the wave reaches the border at the last checkpoint.
    let steps = (side / size.checkpoints).max(16);
    let mut time = 0;
    let step = move |state: &mut [u8]| {
        for _ in 0..steps {
            time += 1;
            let pulse = (time as f32 * 0.1 - 3.0).powi(2);
            now[side / 2 * side + side / 2] += (1.0 - 2.0 * pulse) * (-pulse).exp();
            let rows = before.par_chunks_mut(side).enumerate();
            rows.filter(|(row, _)| (1..side - 1).contains(row))
                .for_each(|(row, next)| {
                    let speed = if row / 64 % 2 == 0 { 0.25 } else { 0.16 };
                    let inner = next.iter_mut().enumerate().take(side - 1).skip(1);
                    for (at, next) in inner {
                        let i = row * side + at;
                        let around = now[i - 1] + now[i + 1] + now[i - side] + now[i + side];
                        *next = 2.0 * now[i] - *next + speed * (around - 4.0 * now[i]);
                    }
                });
            std::mem::swap(&mut now, &mut before);
        }
        let fields = now.iter().chain(&before);
        for (word, value) in state.chunks_exact_mut(4).zip(fields) {
            word.copy_from_slice(&value.to_le_bytes());
        }
    };
    (state, Box::new(step))
}

/// Makes the weights, first and second moments of Adam under random gradients, single precision, with one step between checkpoints. All
/// bytes change, which is the worst case.
fn adam(size: Size) -> (Vec<u8>, Step) {
    let n = size.bytes / 12;
    let mut state = random(12 * n, 3);
    let uniform = |word: &mut [u8], scale: f32| {
        let value = (mix(u64::from(u32::from_le_bytes([
            word[0], word[1], word[2], word[3],
        ]))) >> 40) as f32;
        word.copy_from_slice(&(value / (1 << 24) as f32 * scale).to_le_bytes());
    };
    state
        .par_chunks_exact_mut(4)
        .for_each(|word| uniform(word, 0.02));
    let mut round = 0;
    let step = move |state: &mut [u8]| {
        round += 1;
        let (weights, moments) = state.split_at_mut(4 * n);
        let (first, second) = moments.split_at_mut(4 * n);
        let parameters = weights
            .par_chunks_exact_mut(4)
            .zip(first.par_chunks_exact_mut(4))
            .zip(second.par_chunks_exact_mut(4))
            .enumerate();
        parameters.for_each(|(at, ((w, m), v))| {
            let gradient = (mix(round << 40 ^ at as u64) >> 40) as f32 / (1 << 24) as f32 - 0.5;
            let mean = 0.9 * read(m) + 0.1 * gradient;
            let square = 0.999 * read(v) + 0.001 * gradient * gradient;
            let weight = read(w) - 1e-3 * mean / (square.sqrt() + 1e-8);
            m.copy_from_slice(&mean.to_le_bytes());
            v.copy_from_slice(&square.to_le_bytes());
            w.copy_from_slice(&weight.to_le_bytes());
        });
    };
    (state, Box::new(step))
}

/// Makes rows of 64 single-precision numbers. A training step changes a hundredth of the table, chosen by Zipf's law: few rows often,
/// most rows never.
fn embedding(size: Size) -> (Vec<u8>, Step) {
    const ROW: usize = 256;
    let rows = size.bytes / ROW;
    let mut round = 0;
    let step = move |state: &mut [u8]| {
        for n in 0..rows as u64 / 100 {
            round += 1;
            let share = unit(mix(round));
            // The inverse of the distribution function, for exponent 1.
            let rank = ((rows as f64).powf(share) as usize).min(rows) - 1;
            // Frequent rows are not next to each other.
            let row = (mix(rank as u64 ^ 0x5EED) % rows as u64) as usize;
            fill_serially(&mut state[row * ROW..(row + 1) * ROW], round ^ n << 32);
        }
    };
    (random(rows * ROW, 4), Box::new(step))
}

fn fill_serially(bytes: &mut [u8], seed: u64) {
    for (word, n) in bytes.chunks_mut(8).zip(0..) {
        let random = mix(seed.wrapping_mul(31).wrapping_add(n)).to_le_bytes();
        word.copy_from_slice(&random[..word.len()]);
    }
}

/// Makes a log or a particle list: each step fills the same share, and the rest is zero.
fn append(size: Size) -> (Vec<u8>, Step) {
    let mut filled = 0;
    let share = size.bytes / size.checkpoints;
    let step = move |state: &mut [u8]| {
        let end = (filled + share).min(state.len());
        fill(&mut state[filled..end], 5 + filled as u64);
        filled = end;
    };
    (vec![0; size.bytes], Box::new(step))
}

/// Makes a ring buffer or a periodic domain: each step moves all bytes on by a little more than a megabyte.
fn rotation(size: Size) -> (Vec<u8>, Step) {
    let by = (1 << 20) + 4096;
    let step = move |state: &mut [u8]| state.rotate_left(by % state.len().max(1));
    (random(size.bytes, 6), Box::new(step))
}

/// Makes memory that was not written yet.
fn zeros(size: Size) -> (Vec<u8>, Step) {
    (vec![0; size.bytes], Box::new(|_: &mut [u8]| ()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_workload_is_the_same_in_every_run_and_goes_on() {
        let size = Size {
            bytes: 1 << 18,
            checkpoints: 4,
        };
        for workload in WORKLOADS {
            let first = workload.history(size);
            assert!(first == workload.history(size), "{}", workload.name);
            let changes = first.windows(2).any(|pair| pair[0] != pair[1]);
            assert_eq!(changes, workload.name != "zeros", "{}", workload.name);
            let bytes = first[0].len();
            assert!(
                (size.bytes / 2..=size.bytes * 2).contains(&bytes),
                "{} {bytes}",
                workload.name
            );
        }
    }
}
