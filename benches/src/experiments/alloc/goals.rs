//! Our goals. Every goal is a row whose reference is the goal. The other rows explain the goal's value.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tierflow_device::HostReservation;
use tierflow_tier_alloc::{Baseline, HostArena, HostGrowth, HostReport, Ring, Touching};

use super::child::{Family, Task, aggregate};
use super::passes::{Load, Passes, is_here, passes};
use super::scale::{AllocScale, tolerate};
use crate::experiments::Run;
use crate::threads::on_threads;

const PIECES: &str = "Pieces";

pub(crate) fn run(run: &mut Run) -> Result<()> {
    let scale = AllocScale::of_this_machine(run.is_quick())?;
    report_machine(run, &scale, touch_the_machine(&scale)?)?;
    // A goal that fails does not hide the others.
    let cold = cold_against_warm(run, &scale);
    if let Some(cold) = tolerate(run, "goal 1", cold)? {
        let found = against_others(run, &scale, &cold);
        tolerate(run, "goal 2", found)?;
    }
    let found = unpinned(run, &scale);
    tolerate(run, "flushes into unpinned memory", found)?;
    let found = while_the_application_runs(run, &scale);
    tolerate(run, "goal 3", found)?;
    let found = several_processes(run, &scale);
    tolerate(run, "goal 4", found)?;
    Ok(())
}

/// Measures goal 4 alone, see [`several_processes`].
pub(crate) fn run_serial(run: &mut Run) -> Result<()> {
    let scale = AllocScale::of_this_machine(run.is_quick())?;
    report_machine(run, &scale, touch_the_machine(&scale)?)?;
    several_processes(run, &scale)
}

fn ns(time: Duration) -> f64 {
    time.as_nanos() as f64
}

/// Touches as much memory as the largest host cache has, twice, and returns both rates in bytes/s. A virtual machine gets memory from its
/// host at the first touch, which is slow and happens once. Otherwise the first measurement would take the time of all first touches.
pub(super) fn touch_the_machine(scale: &AllocScale) -> Result<[f64; 2]> {
    let bytes = scale.count * scale.checkpoint;
    let touch = || {
        let memory = scale.device.reserve_host(bytes)?;
        let begun = Instant::now();
        touch_all(&memory, 8)?;
        anyhow::Ok(bytes as f64 / begun.elapsed().as_secs_f64())
    };
    Ok([touch()?, touch()?])
}

/// Reports the size of the experiment and the rates of both touches.
pub(super) fn report_machine(run: &mut Run, scale: &AllocScale, touched: [f64; 2]) -> Result<()> {
    scale.report(run)?;
    for (pass, rate) in (1..).zip(touched) {
        let case = format!("pass={pass}");
        run.value(&case, "touching all, 8 threads", "bytes/s", rate)?;
    }
    Ok(())
}

fn touch_all(memory: &HostReservation, threads: usize) -> Result<()> {
    let len = memory.memory().len();
    let share = len
        .div_ceil(threads)
        .next_multiple_of(HostReservation::GRANULARITY);
    on_threads((0..len).step_by(share), |start| {
        Ok(memory.touch(start..(start + share).min(len))?)
    })
    .map(drop)
}

/// Reports one run in full.
fn detail(run: &mut Run, case: &str, found: &Passes) -> Result<()> {
    run.time(case, "making the caches", found.start)?;
    run.time(case, "checkpoint blocking", found.checkpoint)?;
    run.time(case, "restore blocking", found.restore)?;
    run.time(case, "worst checkpoint", found.worst_checkpoint)?;
    run.time(case, "worst restore", found.worst_restore)?;
    let pinned = found.pinned as f64;
    run.value(case, "pinned when the forward pass ended", "bytes", pinned)?;
    if let Some(after) = found.pinned_after {
        run.time(case, "time until all was pinned", after)?;
    }
    let growth: Vec<_> = found
        .growth
        .iter()
        .map(|(at, touched, pinned)| format!("{at:.1?}: {touched}/{pinned}"))
        .collect();
    eprintln!("    {case}: MiB touched/pinned: {}", growth.join(", "));
    for line in found.metrics.lines() {
        eprintln!("    {line}");
    }
    if !found.slow.is_empty() {
        let first: Vec<_> = found.slow.iter().take(24).collect();
        eprintln!(
            "    {case}: {} calls over 2 ms: {first:?}",
            found.slow.len()
        );
    }
    Ok(())
}

/// Measures goal 1: the blocking of a cold start, divided by that of a warm start, is at most 1.10 at an interval of 10 ms and 1.25 at
/// 5 ms. Returns the cold run at 10 ms.
fn cold_against_warm(run: &mut Run, scale: &AllocScale) -> Result<Passes> {
    let trials = 2;
    let mut kept = None;
    for (interval, goal) in [(10, 1.10), (5, 1.25)] {
        let mut best: [Option<Passes>; 2] = [None, None];
        // Cold and warm runs alternate, so that changes of the machine affect both.
        for trial in 1..=trials {
            for (warm, best) in [false, true].into_iter().zip(&mut best) {
                let start = if warm { "warm" } else { "cold" };
                let case =
                    format!("strategy={PIECES}, start={start}, interval={interval}, trial={trial}");
                let strategy = ("IncrementalVmm", PIECES);
                let load = Load {
                    warm,
                    ..scale.load(scale.count, strategy, interval)
                };
                let found = passes(&scale.device, &load)?;
                detail(run, &case, &found)?;
                if best
                    .as_ref()
                    .is_none_or(|best| found.forward() < best.forward())
                {
                    *best = Some(found);
                }
            }
        }
        let [Some(cold), Some(warm)] = best else {
            continue;
        };
        let case = format!("goal=1, interval={interval}");
        let ratio = ns(cold.checkpoint) / ns(warm.checkpoint);
        run.value(&case, "blocking, cold to warm (at most)", "1", ratio)?
            .against(goal);
        let ratio = ns(cold.forward()) / ns(warm.forward());
        run.value(
            &case,
            "blocking with making the caches, cold to warm (at most)",
            "1",
            ratio,
        )?
        .against(goal);
        if interval == 10 {
            kept = Some(cold);
        }
    }
    kept.context("no run at 10 ms")
}

/// Measures goal 2: the blocking of the papers' strategies is at least 50 and 4 times that of `ours` for checkpoints, and 20 times with
/// restores.
fn against_others(run: &mut Run, scale: &AllocScale, ours: &Passes) -> Result<()> {
    let touch_then_pin = Baseline::TouchThenPin {
        touching: Touching::Auto,
    };
    let others = [
        ("DirectAlloc", Baseline::DirectPin, 50.0, Some(20.0)),
        ("IncrementalVmm", touch_then_pin, 4.0, None),
    ];
    for (device, host, checkpoint_goal, total_goal) in others {
        let name = host.name();
        let load = scale.load(scale.count, (device, name), 10);
        let found = passes(&scale.device, &load);
        let Some(found) = tolerate(run, name, found)? else {
            continue;
        };
        detail(
            run,
            &format!("strategy={name}, start=cold, interval=10, trial=1"),
            &found,
        )?;
        let case = format!("goal=2, against={name}");
        let times = ns(found.forward()) / ns(ours.forward());
        run.value(
            &case,
            "checkpoint blocking, times ours (at least)",
            "1",
            times,
        )?
        .against(checkpoint_goal);
        let times = ns(found.total()) / ns(ours.total());
        let row = run.value(
            &case,
            "checkpoint and restore blocking, times ours (at least)",
            "1",
            times,
        )?;
        if let Some(goal) = total_goal {
            row.against(goal);
        }
    }
    Ok(())
}

/// Measures the rate of a flush into memory that is not pinned: by the driver, and through the ring. The reference is the 19 GB/s for
/// which the ring was chosen.
fn unpinned(run: &mut Run, scale: &AllocScale) -> Result<()> {
    let len = scale.checkpoint * 8;
    let stream = scale.device.stream()?;
    let inner = scale.device.alloc(len)?;
    let ring = Ring::start(&scale.device, Ring::copiers())?;
    // At the first copies, the driver and the ring allocate memory that they keep.
    let warm = scale.device.reserve_host(len)?;
    for _ in 0..2 {
        ring.copy(inner.lend(0..len)?, warm.memory().lend_mut(0..len)?)?;
        stream.copy_all([(inner.lend(0..len)?, warm.memory().lend_mut(0..len)?)])?;
    }
    for way in ["driver", "ring"] {
        let host = scale.device.reserve_host(len)?;
        for memory in ["untouched", "touched", "back from touched"] {
            let out = memory != "back from touched";
            let begun = Instant::now();
            let (src, dst) = if out {
                (inner.lend(0..len)?, host.memory().lend_mut(0..len)?)
            } else {
                (host.memory().lend(0..len)?, inner.lend_mut(0..len)?)
            };
            if way == "ring" {
                ring.copy(src, dst)?;
            } else {
                stream.copy_all([(src, dst)])?;
            }
            let rate = len as f64 / begun.elapsed().as_secs_f64();
            let case = format!("way={way}, memory={memory}");
            let row = run.value(&case, "copy of memory that is not pinned", "bytes/s", rate)?;
            if way == "ring" {
                row.against(19e9);
            }
        }
    }
    Ok(())
}

/// Measures goal 3: the rate at which memory becomes usable by DMA, and the times of the application's copies meanwhile.
fn while_the_application_runs(run: &mut Run, scale: &AllocScale) -> Result<()> {
    let Some(alone) = copies(scale, None)? else {
        return Ok(());
    };
    run.time("background=nothing", "median copy", alone.median)?;
    run.time("background=nothing", "worst copy (at most)", alone.worst)?;
    let pieces = |piece: usize, pause: u64, touchers| HostGrowth::Pieces {
        piece: piece << 20,
        pause: Duration::from_micros(pause),
        touchers,
    };
    let whole = Baseline::TouchThenPin {
        touching: Touching::Concurrent,
    };
    let ways = [
        ("Pieces", HostGrowth::default()),
        ("Pieces-16MiB-20us-4", pieces(16, 20, 4)),
        ("Pieces-8MiB-20us-8", pieces(8, 20, 8)),
        ("Pieces-32MiB-100us-8", pieces(32, 100, 8)),
        ("TouchThenPin", whole.into()),
        ("VmmHost", Baseline::VMM_HOST.into()),
    ];
    for (name, growth) in ways {
        if !is_here(growth.name(), scale.is_gpu()) {
            continue;
        }
        let bytes = scale.count * scale.checkpoint;
        let arena = HostArena::start(&scale.device, bytes, growth).map_err(Into::into);
        let Some(arena) = tolerate(run, name, arena)? else {
            continue;
        };
        let Some(seen) = copies(scale, Some(&arena))? else {
            continue;
        };
        let report = arena.report();
        let case = format!("background={name}");
        let took = report.timeline.last().map(|sample| sample.at);
        if let Some(why) = &report.why_unpinned {
            eprintln!("    {case}: not all is pinned: {why}");
        }
        let rate = report.pinned as f64 / took.map_or(f64::MAX, |took| took.as_secs_f64());
        let default = growth == HostGrowth::default();
        let row = run.value(
            &case,
            "rate at which memory becomes pinned (at least)",
            "bytes/s",
            rate,
        )?;
        if default {
            row.against(18e9);
        }
        run.time(&case, "median copy", seen.median)?;
        let row = run.time(&case, "worst copy (at most)", seen.worst)?;
        if default {
            row.against(2e6);
        }
        run.value(&case, "copies over 1 ms", "copies", seen.slow as f64)?;
        run.value(&case, "copies", "copies", seen.count as f64)?;
        obtained(run, &case, &report)?;
    }
    Ok(())
}

fn obtained(run: &mut Run, case: &str, report: &HostReport) -> Result<()> {
    let capacity = report.capacity as f64;
    run.value(case, "bytes pinned", "bytes", report.pinned as f64)?
        .against(capacity);
    if let Some(huge) = report.huge_pages {
        run.value(case, "bytes in huge pages", "bytes", huge as f64)?
            .against(capacity);
    }
    eprintln!("    {case}: node {:?}", report.node);
    Ok(())
}

struct Copies {
    median: Duration,
    worst: Duration,
    /// Number of copies that took more than a millisecond.
    slow: usize,
    count: usize,
}

/// Makes blocking device copies of one checkpoint each, one every two milliseconds, while the arena grows, and at least 50. The
/// copies take precedence over the arena's growth, as those of the engine do.
fn copies(scale: &AllocScale, arena: Option<&HostArena>) -> Result<Option<Copies>> {
    let len = scale.checkpoint;
    let stream = scale.device.stream()?;
    let (from, to) = (scale.device.alloc(len)?, scale.device.alloc(len)?);
    let mut times = Vec::new();
    while times.len() < 50 || arena.is_some_and(|arena| !arena.is_grown()) {
        let begun = Instant::now();
        let pass = arena.map(|arena| arena.gate().enter());
        stream.copy_all([(from.lend(0..len)?, to.lend_mut(0..len)?)])?;
        drop(pass);
        // The first copy warms the stream up.
        times.push(begun.elapsed());
        std::thread::sleep(Duration::from_millis(2));
    }
    times.remove(0);
    let count = times.len();
    times.sort_unstable();
    let longest: Vec<_> = times.iter().rev().take(8).collect();
    eprintln!("    the longest copies: {longest:.0?}");
    let slow = times
        .iter()
        .filter(|time| **time > Duration::from_millis(1))
        .count();
    Ok(times.last().copied().map(|worst| Copies {
        median: times[count / 2],
        worst,
        slow,
        count,
    }))
}

/// Measures goal 4: several processes pin at least 1.5 times as fast in turn as at once.
fn several_processes(run: &mut Run, scale: &AllocScale) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let lock = folder.path().join("lock");
    let bytes = scale.pinnable;
    for &processes in &scale.processes {
        let mut family = Family::start(processes)?;
        let mut whole = [0.0; 2];
        for (at, serial) in [false, true].into_iter().enumerate() {
            let name = if serial { "serial" } else { "parallel" };
            let case = format!("order={name}, processes={processes}");
            let lock = serial.then(|| lock.clone());
            family.all(&Task::Touch { bytes })?;
            let done = family.all(&Task::Pin { lock })?;
            whole[at] = aggregate(&done)?;
            run.value(
                &case,
                "pinning touched memory, all together",
                "bytes/s",
                whole[at],
            )?;
            if let Some(note) = done.iter().find_map(|done| done.note.as_ref()) {
                eprintln!("    {case}: not pinned: {note}");
            }
            family.all(&Task::Free)?;
        }
        let done = family.all(&Task::Pieces { bytes })?;
        run.value(
            &format!("processes={processes}"),
            "touching and pinning in pieces, all together",
            "bytes/s",
            aggregate(&done)?,
        )?;
        family.all(&Task::Free)?;
        let case = format!("goal=4, processes={processes}");
        let row = run.value(
            &case,
            "pinning, serial to parallel (at least)",
            "1",
            whole[1] / whole[0].max(1.0),
        )?;
        if processes > 1 {
            row.against(1.5);
        }
    }
    Ok(())
}
