//! The goals, at the paper's size: 384 versions, 4 GiB on the device and 32 GiB on the host, 10 ms. Against the paper's
//! scorer at a quarter of it.

use anyhow::Result;
use tierflow_sim::{Hints, Order, Shot};

use super::super::{HINTS, ORDERS};
use super::{Machine, Way};
use crate::experiments::Run;

pub(super) fn run(run: &mut Run) -> Result<()> {
    let machine = Machine::measure(run, 0)?;
    fits(run, &machine)?;
    uniform(run, &machine)?;
    variable(run, &machine)?;
    six_runs(run, &machine.quarter())
}

/// Sizes that vary in an irregular order, with all hints; the goal is 1.3 × the bound.
fn variable(run: &mut Run, machine: &Machine) -> Result<()> {
    for (at, sizes) in machine.scale.variable(2)?.into_iter().enumerate() {
        let shot = Shot {
            order: Order::Irregular(1 + at as u64),
            ..machine.scale.shot(sizes)
        };
        let case = format!("sizes=variable, shot={at}, order=irregular, hints=all, policy=cost");
        machine.compare(run, &case, Way::Cost, &shot.workload())?;
    }
    Ok(())
}

/// All hints in all three orders; the goal is 1.15 × the bound.
fn uniform(run: &mut Run, machine: &Machine) -> Result<()> {
    for (name, order) in ORDERS {
        let shot = Shot {
            order,
            hints: Hints::All,
            ..machine.scale.shot(machine.scale.uniform())
        };
        let case = format!("sizes=uniform, order={name}, hints=all, policy=cost");
        machine.compare(run, &case, Way::Cost, &shot.workload())?;
    }
    Ok(())
}

/// Six runs of the irregular, variable half, against the paper's scorer: the goal is 1.2 times as fast.
fn six_runs(run: &mut Run, machine: &Machine) -> Result<()> {
    let mut logarithms = 0.0;
    for (at, sizes) in machine.scale.variable(2)?.into_iter().enumerate() {
        for (name, hints) in HINTS {
            let shot = Shot {
                order: Order::Irregular(1 + at as u64),
                hints,
                ..machine.scale.shot(sizes.clone())
            };
            let workload = shot.workload();
            let mut seconds = [0.0; 2];
            for (way, seconds) in [Way::Cost, Way::Score].into_iter().zip(&mut seconds) {
                let case = format!(
                    "a quarter, sizes=variable, shot={at}, order=irregular, hints={name}, policy={}",
                    way.name()
                );
                let played = machine.compare(run, &case, way, &workload)?;
                *seconds = played.blocking().as_secs_f64();
            }
            logarithms += (seconds[1] / seconds[0]).ln();
        }
    }
    let ahead = (logarithms / 6.0).exp();
    run.value(
        "six irregular runs",
        "blocking of score over that of cost, geometric mean",
        "1",
        ahead,
    )?;
    Ok(())
}

/// A history that fits the device cache: nothing but copies within the device.
fn fits(run: &mut Run, machine: &Machine) -> Result<()> {
    let versions = (machine.scale.device / machine.scale.version) as usize;
    let shot = machine.scale.shot(vec![machine.scale.version; versions]);
    machine.compare(
        run,
        "a history that fits, policy=cost",
        Way::Cost,
        &shot.workload(),
    )?;
    Ok(())
}
