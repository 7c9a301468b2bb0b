//! Takes checkpoints of 2 MiB, and waits after each until its file is durable. A trace shows the source files that a checkpoint enters:
//! the difference of two traces leaves out the start and the end. docs/measurements.md has the commands.

use std::error::Error;

use tierflow_device::{Choice, open};
use tierflow_engine::{Engine, Region};

const BYTES: usize = 2 << 20;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(directory), Some(checkpoints)) = (arguments.next(), arguments.next()) else {
        return Err("entered DIRECTORY CHECKPOINTS".into());
    };
    let device = open(Choice::Host)?;
    let engine = Engine::builder(&device)
        .host_cache(4 * BYTES)
        .external(directory)
        .build()?;
    let field = device.alloc(BYTES)?;
    device.stream()?.fill(&mut field.lend_mut(0..BYTES)?, 1)?;
    for version in 0..checkpoints.parse()? {
        engine.checkpoint(version, &[Region::from(&field)])?;
        engine.call().wait_version(version)?;
    }
    Ok(())
}
