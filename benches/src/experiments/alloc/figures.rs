//! The figures of the paper's evaluation (HiPC'22 §V-E), one metric each. Blocking counts the time of making the caches, as in the
//! paper. The experiment may run in pieces: `experiments run alloc --minutes 8 --out FILE`, again and again with the same file.

use std::time::Duration;

use anyhow::Result;

use super::child::{Done, Family, Task, aggregate, each};
use super::goals::{report_machine, touch_the_machine};
use super::passes::{Load, Passes, UVM, is_here, passes, variable};
use super::scale::{AllocScale, MIB, tolerate};
use crate::experiments::Run;

/// The longest expected time of a cell: pinning some 4 GiB five times, in eight processes.
const CELL: Duration = Duration::from_secs(45);

/// The strategies that figures 3, 5a and 5b compare: for the device cache, and for the host cache.
const STRATEGIES: [(&str, &str); 6] = [
    ("DirectAlloc", "DirectPin"),
    ("IncrementalVmm", UVM),
    ("IncrementalVmm", "IncrementalMemset"),
    ("IncrementalVmm", "TouchThenPin-Auto"),
    ("IncrementalVmm", "VmmHost"),
    ("IncrementalVmm", "Pieces"),
];

/// Returns the strategies that Figure 6 compares.
fn compared() -> impl Iterator<Item = (&'static str, &'static str)> {
    let is_compared = |host: &str| matches!(host, "DirectPin" | "TouchThenPin-Auto" | "Pieces");
    STRATEGIES
        .into_iter()
        .filter(move |strategy| is_compared(strategy.1))
}

type MeasureFigure = fn(&mut Run, &AllocScale) -> Result<()>;

pub(crate) fn run(run: &mut Run) -> Result<()> {
    let scale = AllocScale::of_this_machine(run.is_quick())?;
    // Each piece may run on a machine whose memory no process has touched yet.
    let touched = touch_the_machine(&scale)?;
    run.cell("size=all", CELL, |run| report_machine(run, &scale, touched))?;
    let figures: [(&str, MeasureFigure); 7] = [
        ("4a", rates),
        ("5a and 5b", large_host),
        ("6a and 6b", weak_scaling),
        ("5c", concurrency),
        ("6c", host_sizes),
        ("4b and 4c", large_device),
        ("3b and 3c", variable_sizes),
    ];
    for (name, figure) in figures {
        let found = figure(run, &scale);
        tolerate(run, name, found)?;
    }
    Ok(())
}

/// Measures Figure 4a, and the rates of touching and pinning in §V-E.
fn rates(run: &mut Run, scale: &AllocScale) -> Result<()> {
    for &processes in &scale.processes {
        let name = format!("figure=4a, processes={processes}");
        run.cell(&name, CELL, |run| rates_of(run, scale, processes))?;
    }
    Ok(())
}

fn rates_of(run: &mut Run, scale: &AllocScale, processes: usize) -> Result<()> {
    let mut family = Family::start(processes)?;
    let bytes = scale.share;
    for growth in ["DirectAlloc", "IncrementalVmm"] {
        let task = Task::Device {
            bytes,
            growth: growth.to_owned(),
        };
        let done = family.all(&task)?;
        family.all(&Task::Free)?;
        let case = format!("strategy={growth}, processes={processes}");
        run.value(
            &case,
            "4a: device allocation, each process",
            "bytes/s",
            each(&done),
        )?;
    }
    let host = scale.pinnable;
    let done = family.all(&Task::Touch { bytes: host })?;
    let case = format!("strategy=touch-1-thread, processes={processes}");
    run.value(
        &case,
        "4a: host allocation, each process",
        "bytes/s",
        each(&done),
    )?;
    let pin = Task::Pin { lock: None };
    host_row(run, "pin-touched", processes, &family.all(&pin)?)?;
    family.all(&Task::Free)?;
    let done = family.all(&Task::DirectPin { bytes: host })?;
    family.all(&Task::Free)?;
    host_row(run, "DirectPin", processes, &done)?;
    let pieces = Task::Pieces { bytes: host };
    host_row(run, "Pieces", processes, &family.all(&pieces)?)?;
    Ok(())
}

fn host_row(run: &mut Run, strategy: &str, processes: usize, done: &[Done]) -> Result<()> {
    let case = format!("strategy={strategy}, processes={processes}");
    if let Some(note) = done.iter().find_map(|done| done.note.as_ref()) {
        eprintln!("    {case}: {note}");
    }
    run.value(
        &case,
        "4a: host allocation, each process",
        "bytes/s",
        each(done),
    )?;
    run.value(
        &case,
        "4a: host allocation, all together",
        "bytes/s",
        aggregate(done)?,
    )?;
    Ok(())
}

/// Reports two rows of one run, or of several processes: the mean times for which each was blocked.
fn blocking(run: &mut Run, case: &str, figures: (&str, &str), found: &[Passes]) -> Result<()> {
    let mean = |time: fn(&Passes) -> Duration| {
        let sum: f64 = found
            .iter()
            .map(|passes| time(passes).as_nanos() as f64)
            .sum();
        sum / found.len().max(1) as f64
    };
    let metric = format!("{}: checkpoint blocking", figures.0);
    run.value(case, &metric, "ns", mean(Passes::forward))?;
    let metric = format!("{}: checkpoint and restore blocking", figures.1);
    run.value(case, &metric, "ns", mean(Passes::total))?;
    Ok(())
}

/// Measures Figures 5a and 5b.
fn large_host(run: &mut Run, scale: &AllocScale) -> Result<()> {
    let load = |strategy, interval| scale.load(scale.sweep_count, strategy, interval);
    by_strategy(run, scale, ("5a", "5b"), &scale.intervals, load)
}

/// Measures Figures 3b and 3c.
fn variable_sizes(run: &mut Run, scale: &AllocScale) -> Result<()> {
    let load = |strategy, interval| {
        let mut load = scale.load(scale.sweep_count, strategy, interval);
        load.sizes = variable(scale.sweep_count, scale.checkpoint);
        // An eighth more room, for the gaps between checkpoints of different sizes.
        load.host_bytes = load.sizes.iter().sum::<usize>() / 8 * 9;
        let largest = load.sizes.iter().copied().max().unwrap_or(0);
        load.device_bytes = load.device_bytes.max(2 * largest);
        load
    };
    let intervals = &scale.intervals[..scale.intervals.len().min(3)];
    by_strategy(run, scale, ("3b", "3c"), intervals, load)
}

/// Measures blocking by strategy and interval (in ms), with the load that `load` makes of both. A strategy that this machine lacks is
/// left out. After a failure, the further intervals of the strategy are left out.
fn by_strategy(
    run: &mut Run,
    scale: &AllocScale,
    figures: (&str, &str),
    intervals: &[u64],
    load: impl Fn((&'static str, &'static str), u64) -> Load,
) -> Result<()> {
    for strategy in STRATEGIES {
        if !is_here(strategy.1, scale.is_gpu()) {
            continue;
        }
        let name = format!(
            "figures={}-{}, strategy={}",
            figures.0, figures.1, strategy.1
        );
        run.cell(&name, CELL, |run| {
            for &interval in intervals {
                let found = passes(&scale.device, &load(strategy, interval));
                let Some(found) = tolerate(run, strategy.1, found)? else {
                    break;
                };
                let case = format!("strategy={}, interval={interval}", strategy.1);
                blocking(run, &case, figures, &[found])?;
            }
            Ok(())
        })?;
    }
    Ok(())
}

/// Measures Figures 4b and 4c, in which the device holds everything.
fn large_device(run: &mut Run, scale: &AllocScale) -> Result<()> {
    for device in ["DirectAlloc", "IncrementalVmm"] {
        run.cell(&format!("figures=4b-4c, strategy={device}"), CELL, |run| {
            for &interval in &scale.intervals {
                let mut load = scale.load(scale.sweep_count, (device, "Pieces"), interval);
                load.device_bytes = load.host_bytes;
                load.host_bytes = 0;
                let found = passes(&scale.device, &load)?;
                let case = format!("strategy={device}, interval={interval}");
                blocking(run, &case, ("4b", "4c"), &[found])?;
            }
            Ok(())
        })?;
    }
    Ok(())
}

/// Measures Figure 5c: two processes, which touch while they flush or not. Both pin at once; `alloc-serial` has both orders.
fn concurrency(run: &mut Run, scale: &AllocScale) -> Result<()> {
    for host in ["TouchThenPin-Sequential", "TouchThenPin-Concurrent"] {
        run.cell(&format!("figure=5c, touching={host}"), CELL, |run| {
            let mut family = Family::start(2)?;
            for &interval in &scale.intervals {
                let load = scale.load(scale.sweep_count, ("IncrementalVmm", host), interval);
                let found = in_family(&mut family, load)?;
                let case = format!("touching={host}, interval={interval}");
                blocking(run, &case, ("5c", "5c"), &found)?;
            }
            Ok(())
        })?;
    }
    Ok(())
}

/// Measures Figures 6a and 6b: a checkpoint every 20 ms, by the number of processes.
fn weak_scaling(run: &mut Run, scale: &AllocScale) -> Result<()> {
    for &processes in &scale.processes {
        run.cell(
            &format!("figures=6a-6b, processes={processes}"),
            CELL,
            |run| {
                let mut family = Family::start(processes)?;
                for strategy in compared() {
                    let load = scale.load(scale.sweep_count, strategy, 20);
                    let found = in_family(&mut family, load)?;
                    let case = format!("strategy={}, processes={processes}", strategy.1);
                    blocking(run, &case, ("6a", "6b"), &found)?;
                }
                Ok(())
            },
        )?;
    }
    Ok(())
}

fn in_family(family: &mut Family, load: Load) -> Result<Vec<Passes>> {
    let done = family.all(&Task::Passes(Box::new(load)))?;
    Ok(done.into_iter().filter_map(|done| done.passes).collect())
}

/// Measures Figure 6c: an eighth, a quarter, a half and all of the goals' host cache, a checkpoint every 5 ms.
fn host_sizes(run: &mut Run, scale: &AllocScale) -> Result<()> {
    for strategy in compared() {
        for count in [scale.count / 4, scale.count / 2, scale.count, scale.longest] {
            let mut load = scale.load(count, strategy, 5);
            load.device_bytes = load.device_bytes.max(2 * scale.checkpoint);
            let mib = load.host_bytes / MIB;
            let case = format!("strategy={}, host MiB={mib}", strategy.1);
            run.cell(&format!("figure=6c, {case}"), CELL, |run| {
                let found = passes(&scale.device, &load)?;
                blocking(run, &case, ("6c", "6c"), &[found])
            })?;
        }
    }
    Ok(())
}
