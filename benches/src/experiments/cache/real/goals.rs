//! The goals, at the paper's size: 384 versions, 4 GiB on the device and 32 GiB on the host, 10 ms. What tells
//! most comes first, and no run is begun that may not end in time.

use std::time::Duration;

use anyhow::Result;
use tierflow_sim::{Hints, Order, Shot};

use super::super::ORDERS;
use super::sitting::Sitting;
use super::{Machine, Way, play};
use crate::experiments::Run;

const PATIENCE: Duration = Duration::from_secs(450);

pub(super) fn run(run: &mut Run) -> Result<()> {
    let mut goals = Sitting::new(run, PATIENCE);
    // A quarter of the history in a quarter of the caches is enough to see that all runs.
    let quarters = u32::from(goals.run.is_quick());
    let machine = Machine::measure(goals.run, quarters)?;
    let quarter = machine.quarter();
    fits(&mut goals, &machine)?;
    without_disk(&mut goals, &quarter)?;
    uniform(&mut goals, &machine)?;
    variable(&mut goals, &machine)?;
    goals.end()
}

/// A history that fits the device cache: nothing but copies within the device.
fn fits(goals: &mut Sitting<'_>, machine: &Machine) -> Result<()> {
    let versions = (machine.scale.device / machine.scale.version) as usize;
    let shot = machine.scale.shot(vec![machine.scale.version; versions]);
    let case = "a history that fits, policy=residency";
    let workload = shot.workload();
    let plain = play::copies(machine, &workload)?.as_nanos() as f64;
    if let Some(played) = goals.compare(machine, case, Way::Residency, &workload)? {
        let blocking = played.blocking().as_nanos() as f64;
        let row = goals.run.value(
            case,
            "blocking, beside plain copies with the same pauses",
            "ns",
            blocking,
        )?;
        row.against(plain);
    }
    Ok(())
}

/// A history that fits the device and the host, faster than the way between them. No disk takes part, as its rate changes from run
/// to run.
/// The goal: the simulator is right within a tenth.
fn without_disk(goals: &mut Sitting<'_>, machine: &Machine) -> Result<()> {
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
            goals.compare(machine, &case, Way::Residency, &shot.workload())?;
        }
    }
    Ok(())
}

/// All hints in all three orders; the goal is 1.15 × the bound.
fn uniform(goals: &mut Sitting<'_>, machine: &Machine) -> Result<()> {
    for (name, order) in ORDERS {
        let shot = Shot {
            order,
            hints: Hints::All,
            ..machine.scale.shot(machine.scale.uniform())
        };
        let case = format!("sizes=uniform, order={name}, hints=all, policy=residency");
        goals.compare(machine, &case, Way::Residency, &shot.workload())?;
    }
    Ok(())
}

/// Sizes that vary, those of recorded shots and fresh ones of their shape, in all three orders; the goal is 1.1 × the bound.
fn variable(goals: &mut Sitting<'_>, machine: &Machine) -> Result<()> {
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
            goals.compare(machine, &case, Way::Residency, &shot.workload())?;
        }
    }
    Ok(())
}
