//! Takes checkpoints of 8 bytes, and restores each, which discards it. For counting instructions: the difference of two counts is
//! the cost of the additional pairs.
//!
//! ```sh
//! cargo build --release --example instructions
//! valgrind --tool=callgrind target/release/examples/instructions 1000
//! valgrind --tool=callgrind target/release/examples/instructions 3000
//! ```

use tierflow_device::{Choice, open};
use tierflow_engine::{AfterRestore, Engine, Region, RegionMut};

fn main() -> anyhow::Result<()> {
    let pairs: u64 = match std::env::args().nth(1) {
        Some(pairs) => pairs.parse()?,
        None => 1_000,
    };
    let device = open(Choice::Host)?;
    let engine = Engine::builder(&device)
        .device_cache(64 << 20)
        .after_restore(AfterRestore::Discard)
        .build()?;
    let field = device.alloc(8)?;
    device.stream()?.fill(&mut field.lend_mut(0..8)?, 1)?;
    for version in 0..pairs {
        engine.checkpoint(version, &[Region::from(&field)])?;
        engine.restore(version, &mut [RegionMut::from(&field)])?;
    }
    Ok(())
}
