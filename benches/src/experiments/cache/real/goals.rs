//! The goals, at the paper's size: 384 versions, 4 GiB on the device and 32 GiB on the host, 10 ms. The most important runs come first,
//! and no run begins that may not end in time.

use anyhow::Result;
use tierflow_plan::Residency;
use tierflow_sim::{Hardware, Hints, Order, Shot, Simulation, Workload, fluid_bound};

use super::super::ORDERS;
use super::play::{self, Played};
use super::{Approach, Machine, calibrate, host_for_all};
use crate::experiments::Run;

struct Goals<'a> {
    run: &'a mut Run,
    /// The bandwidths of this machine, measured just before.
    hardware: Hardware,
}

pub(crate) fn run(run: &mut Run) -> Result<()> {
    // A quarter of the history in a quarter of the caches is enough to see that everything runs.
    let quarters = u32::from(run.is_quick());
    let machine = Machine::open(run, quarters)?;
    let hardware = calibrate::hardware(run, &machine.device, &machine.scale)?;
    let mut goals = Goals { run, hardware };
    let quarter = machine.quarter();
    fits(&mut goals, &machine)?;
    without_disk(&mut goals, &quarter)?;
    uniform(&mut goals, &machine)?;
    variable(&mut goals, &machine)
}

impl Goals<'_> {
    /// Plays a workload with the engine's own policy and reports it beside its bound and its simulation.
    fn compare(
        &mut self,
        machine: &Machine,
        case: &str,
        way: Approach,
        workload: &Workload,
    ) -> Result<()> {
        let hardware = self.hardware_of(machine, way, workload);
        let expected = std::time::Duration::from_nanos(workload.compute_ns()) * 3 / 2;
        self.run.cell(case, expected, |run| {
            let played = play::play(machine, way, workload)?;
            report(run, case, &hardware, workload, &played)
        })
    }

    /// Returns the tiers that an approach has for this workload.
    fn hardware_of(&self, machine: &Machine, way: Approach, workload: &Workload) -> Hardware {
        let mut hardware = self.hardware.clone();
        hardware.tiers[0].capacity = machine.scale.device;
        hardware.tiers[1].capacity = machine.scale.host;
        if way.keeps_all_in_memory() {
            hardware.tiers.truncate(2);
            hardware.hops.truncate(2);
            hardware.tiers[1].capacity = host_for_all(workload);
        }
        hardware
    }
}

fn report(
    run: &mut Run,
    case: &str,
    hardware: &Hardware,
    workload: &Workload,
    played: &Played,
) -> Result<()> {
    let workloads = std::slice::from_ref(workload);
    let lost = (played.blocking() + played.waited).as_nanos() as f64;
    let blocking = played.blocking().as_nanos() as f64;
    for &(tier, restores) in &played.served {
        run.value(case, &format!("restores from {tier}"), "1", restores as f64)?;
    }
    let rates = [("down", played.storage.down), ("up", played.storage.up)];
    for (direction, rate) in rates {
        if let Some(rate) = rate {
            let metric = format!("storage carried, {direction}");
            run.value(case, &metric, "bytes/s", rate)?;
        }
    }
    let carried = played.storage.of_hardware(hardware);
    for (hardware, rates) in [(hardware, ""), (&carried, ", at what the storage carried")] {
        let bound = fluid_bound(hardware, workloads)?.lost_ns as f64;
        run.value(case, &format!("time lost{rates}"), "ns", lost)?
            .against(bound);
        let simulation = Simulation::new(hardware.clone()).policy(|| Residency);
        let simulated = simulation.run(workloads)?.blocking_ns() as f64;
        run.value(
            case,
            &format!("blocking, beside its simulation{rates}"),
            "ns",
            blocking,
        )?
        .against(simulated);
    }
    Ok(())
}

/// Measures a history that fits the device cache, so that all copies are within the device.
fn fits(goals: &mut Goals<'_>, machine: &Machine) -> Result<()> {
    let versions = (machine.scale.device / machine.scale.version) as usize;
    let shot = machine.scale.shot(vec![machine.scale.version; versions]);
    let case = "a history that fits, policy=residency";
    let workload = shot.workload();
    let plain = play::copies(machine, &workload)?.as_nanos() as f64;
    let expected = std::time::Duration::from_nanos(workload.compute_ns()) * 3 / 2;
    goals.run.cell(case, expected, |run| {
        let blocking = play::play(machine, Approach::Tierflow, &workload)?.blocking();
        let metric = "blocking, beside plain copies with the same pauses";
        run.time(case, metric, blocking)?.against(plain);
        Ok(())
    })
}

/// Measures a history that fits the device and the host, and that is faster than the link between them. No disk takes part, as its
/// rate changes from run to run. The goal: the simulator is right within a tenth.
fn without_disk(goals: &mut Goals<'_>, machine: &Machine) -> Result<()> {
    let scale = machine.scale;
    let versions = (scale.host / scale.version) as usize;
    for (name, order) in ORDERS {
        for percent in [5, 15] {
            let interval = scale.interval * percent / 100;
            let shot = Shot {
                order,
                hints: Hints::All,
                compute_ns: interval.as_nanos() as u64,
                ..scale.shot(vec![scale.version; versions])
            };
            let interval = interval.as_micros();
            let case = format!(
                "no disk, order={name}, hints=all, policy=residency, compute interval in us={interval}"
            );
            goals.compare(machine, &case, Approach::Tierflow, &shot.workload())?;
        }
    }
    Ok(())
}

/// Measures all hints in all three orders; the goal is 1.15 × the bound.
fn uniform(goals: &mut Goals<'_>, machine: &Machine) -> Result<()> {
    for (name, order) in ORDERS {
        let shot = Shot {
            order,
            hints: Hints::All,
            ..machine.scale.shot(machine.scale.uniform())
        };
        let case = format!("sizes=uniform, order={name}, hints=all, policy=residency");
        goals.compare(machine, &case, Approach::Tierflow, &shot.workload())?;
    }
    Ok(())
}

/// Measures sizes that vary, of recorded and of made-up shots, in all three orders; the goal is 1.1 × the bound.
fn variable(goals: &mut Goals<'_>, machine: &Machine) -> Result<()> {
    for (at, sizes) in machine.scale.variable(8)?.into_iter().enumerate() {
        let orders = [
            Order::Irregular(1 + at as u64),
            Order::Sequential,
            Order::Reverse,
        ];
        for (name, order) in ["irregular", "sequential", "reverse"]
            .into_iter()
            .zip(orders)
        {
            let shot = Shot {
                order,
                hints: Hints::All,
                ..machine.scale.shot(sizes.clone())
            };
            let case =
                format!("sizes=variable, shot={at}, order={name}, hints=all, policy=residency");
            goals.compare(machine, &case, Approach::Tierflow, &shot.workload())?;
        }
    }
    Ok(())
}
