//! Measures the share of checksums in the time of a disk transfer to scratch storage, for transfers of 4 MiB with direct I/O.
//!
//! `cargo run --release -p tierflow-store --example checksums -- DIRECTORY [ROUNDS]`

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tierflow_store::{Scratch, Storage, Verified};

const BLOCK: usize = 4 << 20;
/// Transfers of a round.
const BLOCKS: usize = 128;

/// Times of one round.
struct Times {
    write: Duration,
    read: Duration,
}

/// Returns the part of `memory` that begins at an address which direct I/O accepts.
fn aligned(memory: &mut [u8]) -> &mut [u8] {
    let from = memory.as_ptr().align_offset(4096);
    &mut memory[from..from + BLOCK]
}

/// Writes and reads all blocks by `threads` threads, as an engine's workers do.
fn transfer(storage: &dyn Storage, threads: usize) -> tierflow_store::Result<Times> {
    let all = |is_write: bool| {
        let begun = Instant::now();
        let work = move |first: usize| {
            let mut memory: Vec<u8> = (0..BLOCK + 4096).map(|at| ((at * at) >> 7) as u8).collect();
            let block = aligned(&mut memory);
            (first..BLOCKS).step_by(threads).try_for_each(|at| {
                let offset = (at * BLOCK) as u64;
                match is_write {
                    true => storage.write_at(offset, block),
                    false => storage.read_at(offset, block),
                }
            })
        };
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..threads)
                .map(|first| scope.spawn(move || work(first)))
                .collect();
            let mut ended = workers.into_iter().map(|worker| worker.join());
            ended.try_for_each(|ended| ended.unwrap_or(Ok(())))
        })?;
        tierflow_store::Result::Ok(begun.elapsed())
    };
    Ok(Times {
        write: all(true)?,
        read: all(false)?,
    })
}

/// Returns the median of times in seconds.
fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or_default()
}

fn main() -> tierflow_store::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let directory = arguments.next().unwrap_or_else(|| ".".to_owned());
    let rounds = arguments.next().and_then(|text| text.parse().ok());
    let plain = Arc::new(Scratch::open(Path::new(&directory))?);
    println!("direct I/O: {}", plain.obtained().direct);
    let verified = Verified::new(Arc::clone(&plain));
    transfer(&*plain, 1)?;
    for threads in [1, 4] {
        let mut times: [Vec<Times>; 2] = [Vec::new(), Vec::new()];
        for _ in 0..rounds.unwrap_or(5) {
            // Both storages take turns, so that they meet the same disk.
            times[0].push(transfer(&*plain, threads)?);
            times[1].push(transfer(&verified, threads)?);
        }
        for (what, of) in [
            ("write", (|times| times.write) as fn(&Times) -> Duration),
            ("read", |times| times.read),
        ] {
            let [plain, verified] = [0, 1].map(|which| {
                let all = times[which].iter().map(|times| of(times).as_secs_f64());
                median(all.collect())
            });
            let rate = (BLOCK * BLOCKS) as f64 / plain / 1e6;
            let more = 100.0 * (verified - plain) / plain;
            println!(
                "{what}, {threads} at a time: {rate:.0} MB/s without checksums, {more:+.1} % of the time with them"
            );
        }
    }
    let mut memory = vec![1; BLOCK + 4096];
    let block = aligned(&mut memory);
    let begun = Instant::now();
    for _ in 0..BLOCKS {
        for granule in block.chunks(64 << 10) {
            std::hint::black_box(tierflow_store::container::checksum(granule));
        }
    }
    let rate = (BLOCK * BLOCKS) as f64 / begun.elapsed().as_secs_f64() / 1e9;
    println!("checksums alone: {rate:.1} GB/s");
    Ok(())
}
