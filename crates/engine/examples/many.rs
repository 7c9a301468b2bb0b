//! Measures many small versions from end to end: the time of a call, and the memory of a held version beyond its bytes in the
//! caches.
//!
//! `cargo run --release --example many`, with numbers of versions as arguments. The default is 10 000, 100 000 and 1 000 000.
//!
//! | history | places of its versions |
//! |---|---|
//! | cached | all in the host cache |
//! | flushed | a host cache of 64 MiB and a scratch file, restored backwards as hinted |
//! | unhinted | the same without hints |
//! | named | as cached; each version has a region with a name, a type and a shape |
//! | lasting | as flushed, without hints, and each version becomes durable in a directory; a hundredth of the versions |

use std::time::{Duration, Instant};
use tierflow_device::{Choice, Device, open};
use tierflow_engine::{AfterRestore, Element, Engine, EngineBuilder, Region, RegionMut, Version};

const BYTES: usize = 4096;
const SMALL: usize = 64 << 20;

/// Measurements of a history.
struct Seen {
    checkpoint: Duration,
    wait: Duration,
    restore: Duration,
    hint: Duration,
    /// Bytes of the process beyond its caches, for each held version.
    held: Option<f64>,
    hinted: f64,
}

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [of, history, count] = arguments.as_slice()
        && of == "--history"
    {
        return tell(history, count.parse()?);
    }
    let counts = arguments.iter().map(|count| count.parse());
    let counts: Vec<u64> = counts.collect::<Result<_, _>>()?;
    let counts = match counts.as_slice() {
        [] => &[10_000, 100_000, 1_000_000],
        given => given,
    };
    println!("  history versions  checkpoint  waited  restore    hint      held  hinted");
    println!("                          us/v    us/v     us/v    us/v  bytes/v bytes/v");
    for &count in counts {
        for history in ["cached", "flushed", "unhinted", "named", "lasting"] {
            let count = match history {
                "lasting" => count / 100,
                _ => count,
            };
            // Each history runs in a process of its own, so that memory which one history frees does not serve the next.
            let own = std::process::Command::new(std::env::current_exe()?)
                .args(["--history", history, &count.to_string()])
                .status()?;
            anyhow::ensure!(own.success(), "{history}: {own}");
        }
    }
    Ok(())
}

fn tell(history: &str, count: u64) -> anyhow::Result<()> {
    let seen = run(&open(Choice::Host)?, history, count)?;
    let us = |time: Duration| time.as_secs_f64() * 1e6 / count as f64;
    println!(
        "{history:>9} {count:>8} {:>11.2} {:>7.2} {:>8.2} {:>7.2} {:>8} {:>7.0}",
        us(seen.checkpoint),
        us(seen.wait),
        us(seen.restore),
        us(seen.hint),
        seen.held
            .map_or("-".to_owned(), |held| format!("{held:.0}")),
        seen.hinted,
    );
    Ok(())
}

fn run(device: &Device, history: &str, count: u64) -> anyhow::Result<Seen> {
    let home = tempfile::tempdir()?;
    let builder: EngineBuilder = Engine::builder(device).after_restore(AfterRestore::Discard);
    let cache = match history {
        "cached" | "named" => count as usize * BYTES + SMALL,
        _ => SMALL,
    };
    let builder = builder.host_cache(cache);
    let engine = match history {
        "cached" | "named" => builder,
        "lasting" => builder.external(home.path()),
        _ => builder.scratch(home.path()),
    };
    let engine = engine.build()?;
    let mut state = vec![0_u8; BYTES];
    // All of a small cache is touched before the first measurement.
    let warm = (u64::MAX - (SMALL / BYTES) as u64)..u64::MAX;
    for version in warm.clone() {
        engine.checkpoint(version, &[Region::from(state.as_slice())])?;
    }
    for version in warm {
        engine.discard(version)?;
    }
    let at_first = resident()?;
    let begun = Instant::now();
    if history == "flushed" {
        engine.hint((0..count).rev());
    }
    let hint = begun.elapsed();
    let hinted = resident()? - at_first;
    let begun = Instant::now();
    for version in 0..count {
        state[..8].copy_from_slice(&version.to_le_bytes());
        let region = Region::from(state.as_slice());
        let region = match history {
            "named" => region.array("state", Element::F64, &[8, 64]),
            _ => region,
        };
        engine.checkpoint(version, &[region])?;
    }
    let checkpoint = begun.elapsed();
    let begun = Instant::now();
    engine.wait()?;
    let wait = begun.elapsed();
    // The engine touches large caches ahead of their use, so the bytes of versions cannot be told from the rest of the cache.
    let held = (resident()? - at_first) / count as f64;
    let held = (cache == SMALL).then_some(held);
    let begun = Instant::now();
    for version in (0..count).rev() {
        engine.restore(version, &mut [RegionMut::from(state.as_mut_slice())])?;
        check(&state, version)?;
    }
    eprintln!("{}", engine.metrics().explain().join("\n"));
    Ok(Seen {
        checkpoint,
        wait,
        restore: begun.elapsed(),
        hint,
        held,
        hinted: hinted / count as f64,
    })
}

fn check(state: &[u8], version: Version) -> anyhow::Result<()> {
    anyhow::ensure!(
        state[..8] == version.to_le_bytes(),
        "version {version} came back as another"
    );
    Ok(())
}

/// Returns the bytes of this process that are in memory.
fn resident() -> anyhow::Result<f64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB"));
    let kib = kib.ok_or_else(|| anyhow::anyhow!("/proc/self/status says nothing of VmRSS"))?;
    Ok(kib.parse::<f64>()? * 1024.0)
}
