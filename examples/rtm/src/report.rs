//! The program's report on a run.

use std::fmt;
use std::time::Duration;

use tierflow_device::Device;
use tierflow_engine::Metrics;
use tierflow_schedule::adjoint::RunTimes;
use tierflow_schedule::{Estimate, Plan};

use crate::survey::Survey;
use crate::tally::{ArrayBytes, Times};

/// The run to come.
pub fn introduce(survey: &Survey, device: &Device, arrays: ArrayBytes, checkpoint_bytes: u64) {
    let [nx, ny, nz] = survey.grid.inner;
    let [gx, gy, gz] = survey.grid.shape;
    let axes = |x, y, z| {
        if ny == 1 {
            format!("{x}x{z}")
        } else {
            format!("{x}x{y}x{z}")
        }
    };
    let info = device.info();
    println!(
        "model       {} cells of {} m, {} with the absorbing layer",
        axes(nx, ny, nz),
        survey.grid.spacing,
        axes(gx, gy, gz)
    );
    println!(
        "device      {} ({} processors)",
        info.name, info.multiprocessors
    );
    if let Some(why) = device.why_host() {
        println!("            not a GPU: {why}");
    }
    println!(
        "survey      {} shots of {:.1} Hz, {} receivers, {} steps of {:.3} ms",
        survey.sources.len(),
        survey.frequency,
        survey.receivers.len(),
        survey.steps(),
        survey.grid.dt * 1e3
    );
    println!(
        "history     {} checkpoints a shot, one every {} steps, {} each: {}",
        survey.checkpoints(),
        survey.every,
        Bytes(checkpoint_bytes),
        Bytes(survey.checkpoints() * checkpoint_bytes)
    );
    println!(
        "arrays      {} of the application's own in device memory, {} in main memory",
        Bytes(arrays.device),
        Bytes(arrays.host)
    );
}

/// A shot to come, by its plan and the time that is expected.
pub fn planned(
    which: &str,
    known: &Estimate,
    plan: Option<&Plan>,
    expected: Option<Duration>,
    planned_in: Duration,
) -> String {
    let Estimate { machine, quiet, .. } = known;
    let rate = |rate: f64| format!("{}/s", Bytes(rate as u64));
    let links = machine
        .tiers
        .iter()
        .map(|tier| format!("{} down, {} up", rate(tier.down), rate(tier.up)));
    format!(
        "machine     a step forward {}, reversed {}; {} and {} while no state is under way; device {} of copies, below it {}\n\
         known       rates to {:.0}%; a run over tiers took {:.3} of what its rates tell, one on the device {:.3}\n\
         plan        {which}: expected {}, at least {}; planned in {}",
        Time(machine.forward),
        Time(machine.backward),
        Time(quiet.forward),
        Time(quiet.backward),
        rate(machine.copy),
        links.collect::<Vec<_>>().join(", then "),
        known.doubt * 100.0,
        known.lateness,
        known.quiet_lateness,
        expected.map_or(
            "nothing, as the states do not fit or are not counted".into(),
            |time| Time(time).to_string()
        ),
        Time(plan.map_or(Duration::ZERO, |plan| plan.bound().time)),
        Time(planned_in)
    )
}

/// A shot at the end of its forward sweep.
pub fn planned_again(plan: &Plan, expected: Duration) -> String {
    format!(
        "at the end  of the sweep: expected {}, the reversal {} of it; at least {}",
        Time(expected),
        Time(plan.reversal().unwrap_or_default()),
        Time(plan.bound().time)
    )
}

/// A shot that was, and the time that was expected before it.
pub fn played(expected: Option<Duration>, times: &RunTimes) -> String {
    let bound = times.machine.bound(times.reversed).time;
    let over = |time: Duration| times.total.as_secs_f64() / time.as_secs_f64().max(1e-9);
    let over_expected = |expected: Option<Duration>| expected.map_or(f64::NAN, over);
    format!(
        "took        {}: {:.3} of the time expected before, {:.3} of that at the end of the sweep, {:.3} of the least with the rates \
         of this shot, {}\n            \
         {} steps forward in {}, {} of them again; {} reversed in {}; {} stored, blocked {}",
        Time(times.total),
        over_expected(expected),
        over_expected(times.expected),
        over(bound),
        Time(bound),
        times.advanced,
        Time(times.forward),
        times.advanced.saturating_sub(times.reversed),
        times.reversed,
        Time(times.backward),
        Bytes(times.stored),
        Time(times.blocked)
    )
}

/// The run that was.
pub struct Summary<'a> {
    pub times: &'a Times,
    pub metrics: &'a Metrics,
    pub plain_copy: Duration,
    pub built_in: Duration,
    pub first_accepted: Option<Duration>,
    /// Bytes of arrays in main memory.
    pub arrays: u64,
    /// Bytes of tiers in main memory.
    pub tiers: u64,
}

impl Summary<'_> {
    pub fn print(&self) {
        let Times {
            total,
            paused,
            verify,
            hints,
            ..
        } = self.times;
        println!(
            "time        {} in all, {} computing",
            Time(*total),
            Time(self.times.computing())
        );
        for (what, time) in [("pausing", paused), ("verifying", verify)] {
            if !time.is_zero() {
                println!("            {} {what}", Time(*time));
            }
        }
        let calls = [
            (
                "checkpoint",
                &self.times.checkpoints,
                self.metrics.checkpoint,
            ),
            ("restore", &self.times.restores, self.metrics.restore),
        ];
        // A schedule makes the calls itself, and its report says what they took.
        let timed = calls
            .into_iter()
            .filter(|(_, blocked, _)| !blocked.is_empty());
        for (name, blocked, counted) in timed {
            let mut sorted = blocked.clone();
            sorted.sort_unstable();
            let sum: Duration = sorted.iter().sum();
            let at = |share: f64| {
                let rank = (sorted.len().saturating_sub(1) as f64 * share) as usize;
                sorted.get(rank).copied().unwrap_or_default()
            };
            let mean = sum / u32::try_from(sorted.len().max(1)).unwrap_or(u32::MAX);
            println!(
                "{name:<11} {} calls, {}, blocked {}: {} at {}/s",
                counted.count,
                Bytes(counted.bytes),
                Time(sum),
                name,
                Bytes((counted.bytes as f64 / sum.as_secs_f64().max(1e-9)) as u64)
            );
            println!(
                "            mean {}, median {}, 99% {}, worst {}; mean is {:.2}, median {:.2} plain copies",
                Time(mean),
                Time(at(0.5)),
                Time(at(0.99)),
                Time(at(1.0)),
                mean.as_secs_f64() / self.plain_copy.as_secs_f64().max(1e-9),
                at(0.5).as_secs_f64() / self.plain_copy.as_secs_f64().max(1e-9)
            );
        }
        println!(
            "            one plain copy within the device {}; hints {}",
            Time(self.plain_copy),
            Time(*hints)
        );
        println!(
            "start       engine built in {}, first checkpoint accepted {} later, the steps up to it included",
            Time(self.built_in),
            Time(self.first_accepted.unwrap_or_default())
        );
        let served = self
            .metrics
            .tiers
            .iter()
            .map(|tier| format!("{} {}", tier.name, tier.restores));
        println!("served from {}", served.collect::<Vec<_>>().join(", "));
        for hop in &self.metrics.hops {
            println!(
                "moved       {:<7}→ {:<7} {} in {} transfers, {} cancelled, {} failed",
                hop.from,
                hop.to,
                Bytes(hop.bytes),
                hop.transfers,
                hop.cancelled,
                hop.failed
            );
        }
        for tier in &self.metrics.tiers {
            let of = if tier.capacity < 1 << 50 {
                format!(" of {}", Bytes(tier.capacity))
            } else {
                String::new()
            };
            println!(
                "tier        {:<7} peak {}{of}, {} evictions",
                tier.name,
                Bytes(tier.peak),
                tier.evictions
            );
        }
        println!(
            "blocked     {}",
            self.metrics.explain().join("\n            ")
        );
        if let Some(compression) = self.metrics.compression {
            let smaller = compression.compressed as f64 / compression.stored.max(1) as f64;
            println!(
                "compressed  {} to {}, {smaller:.2} times smaller; {} as they are; {}/s before a way of {}/s; {}",
                Bytes(compression.compressed),
                Bytes(compression.stored),
                Bytes(compression.as_they_are),
                Bytes(compression.stage_rate),
                Bytes(compression.link_rate),
                if compression.is_on { "on" } else { "off" }
            );
        }
        if let Some(peak) = peak_resident() {
            let planned = self.tiers + self.arrays;
            println!(
                "memory      peak of the process {}; tiers and arrays in main memory {} ({:+.1}%)",
                Bytes(peak),
                Bytes(planned),
                (peak as f64 / planned as f64 - 1.0) * 100.0
            );
        }
    }
}

/// The most main memory that this process ever had, in bytes. Linux tells.
fn peak_resident() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim()
        .strip_suffix("kB")?
        .trim()
        .parse::<u64>()
        .ok()
        .map(|kib| kib * 1024)
}

struct Bytes(u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = ["B", "KiB", "MiB", "GiB", "TiB"];
        let mut value = self.0 as f64;
        let mut unit = 0;
        while value >= 1024.0 && unit + 1 < units.len() {
            value /= 1024.0;
            unit += 1;
        }
        if unit == 0 {
            write!(f, "{value} B")
        } else {
            write!(f, "{value:.1} {}", units[unit])
        }
    }
}

struct Time(Duration);

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs_f64();
        match seconds {
            s if s >= 1.0 => write!(f, "{s:.2} s"),
            s if s >= 1e-3 => write!(f, "{:.2} ms", s * 1e3),
            s => write!(f, "{:.1} µs", s * 1e6),
        }
    }
}
