//! What a call costs, of small checkpoints and of 1 MiB: medians in µs, to compare front doors with.
//!
//! `cargo run --release --example calls`, with `cuda` as an argument on a GPU.

use std::time::Instant;
use tierflow_device::{Choice, open};
use tierflow_engine::{Engine, Region, RegionMut};

fn main() -> anyhow::Result<()> {
    let on_gpu = std::env::args().any(|argument| argument == "cuda");
    let device = open(if on_gpu {
        Choice::Cuda { ordinal: 0 }
    } else {
        Choice::Host
    })?;
    for (size, count) in [(8, 100_000), (4096, 100_000), (1 << 20, 2000)] {
        let cache = count as usize * size.max(4096) + (64 << 20);
        let engine = Engine::builder(&device).device_cache(cache).build()?;
        let mut plain = vec![1_u8; size];
        let field = device.alloc(size)?;
        let written = median(count, |version| match on_gpu {
            true => engine.checkpoint(version, &[Region::from(&field)]),
            false => engine.checkpoint(version, &[Region::from(plain.as_slice())]),
        })?;
        let read = median(count, |version| match on_gpu {
            true => engine.restore(version, &mut [RegionMut::from(&field)]),
            false => engine.restore(version, &mut [RegionMut::from(plain.as_mut_slice())]),
        })?;
        println!(
            "{size:>8} bytes, {count} calls: checkpoint {written:.2} µs, restore {read:.2} µs"
        );
    }
    Ok(())
}

/// The median time of `count` calls, in µs.
fn median(
    count: u64,
    mut call: impl FnMut(u64) -> tierflow_engine::Result<()>,
) -> tierflow_engine::Result<f64> {
    let mut times = Vec::new();
    for version in 0..count {
        let begun = Instant::now();
        call(version)?;
        times.push(begun.elapsed());
    }
    times.sort_unstable();
    Ok(times[times.len() / 2].as_secs_f64() * 1e6)
}
