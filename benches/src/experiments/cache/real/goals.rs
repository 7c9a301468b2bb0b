//! The goals, at the paper's size: 384 versions, 4 GiB on the device and 32 GiB on the host, 10 ms. Against the paper's
//! scorer at a quarter of it. What tells most comes first, and no run is begun that may not end in time.

use std::time::Duration;

use anyhow::Result;
use tierflow_sim::{Hints, Order, Shot};

use super::super::{HINTS, ORDERS};
use super::sitting::Sitting;
use super::{Machine, Way};
use crate::experiments::Run;

const PATIENCE: Duration = Duration::from_secs(200);

pub(super) fn run(run: &mut Run) -> Result<()> {
    let mut goals = Sitting::new(run, PATIENCE);
    let machine = Machine::measure(goals.run, 0)?;
    let quarter = machine.quarter();
    fits(&mut goals, &machine)?;
    without_disk(&mut goals, &quarter)?;
    uniform(&mut goals, &machine)?;
    variable(&mut goals, &machine)?;
    six_pairs(&mut goals, &quarter)?;
    goals.end()
}

/// A history that fits the device cache: nothing but copies within the device.
fn fits(goals: &mut Sitting<'_>, machine: &Machine) -> Result<()> {
    let versions = (machine.scale.device / machine.scale.version) as usize;
    let shot = machine.scale.shot(vec![machine.scale.version; versions]);
    let case = "a history that fits, policy=cost";
    goals.compare(machine, case, Way::Cost, &shot.workload())?;
    Ok(())
}

/// A history that fits the device and the host, faster than the way between them: no disk, whose rate is anybody's guess.
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
                "no disk, order={name}, hints=all, policy=cost, compute interval in us={interval}"
            );
            goals.compare(machine, &case, Way::Cost, &shot.workload())?;
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
        let case = format!("sizes=uniform, order={name}, hints=all, policy=cost");
        goals.compare(machine, &case, Way::Cost, &shot.workload())?;
    }
    Ok(())
}

/// Sizes that vary in an irregular order, with all hints; the goal is 1.3 × the bound.
fn variable(goals: &mut Sitting<'_>, machine: &Machine) -> Result<()> {
    for (at, sizes) in machine.scale.variable(4)?.into_iter().enumerate() {
        let shot = Shot {
            order: Order::Irregular(1 + at as u64),
            ..machine.scale.shot(sizes)
        };
        let case = format!("sizes=variable, shot={at}, order=irregular, hints=all, policy=cost");
        goals.compare(machine, &case, Way::Cost, &shot.workload())?;
    }
    Ok(())
}

/// Six runs of the irregular, variable half, each beside the paper's scorer: the goal is 1.2 times as fast.
fn six_pairs(goals: &mut Sitting<'_>, machine: &Machine) -> Result<()> {
    let (mut logarithms, mut pairs) = (0.0, 0);
    for (at, sizes) in machine.scale.variable(2)?.into_iter().enumerate() {
        for (name, hints) in HINTS {
            let shot = Shot {
                order: Order::Irregular(1 + at as u64),
                hints,
                ..machine.scale.shot(sizes.clone())
            };
            let workload = shot.workload();
            // A disk is slower after much was written: each goes first half of the time.
            let mut ways = [Way::Cost, Way::Score];
            if pairs % 2 == 1 {
                ways.reverse();
            }
            let mut ratio = 1.0;
            for way in ways {
                let name_of = way.name();
                let case = format!(
                    "a quarter, sizes=variable, shot={at}, order=irregular, hints={name}, policy={name_of}"
                );
                let Some(played) = goals.compare(machine, &case, way, &workload)? else {
                    return Ok(());
                };
                let seconds = played.blocking().as_secs_f64();
                ratio *= if way == Way::Cost {
                    1.0 / seconds
                } else {
                    seconds
                };
            }
            logarithms += ratio.ln();
            pairs += 1;
            let metric = "blocking of score over that of cost, geometric mean so far";
            let ahead = (logarithms / f64::from(pairs)).exp();
            goals
                .run
                .value(&format!("irregular pairs={pairs}"), metric, "1", ahead)?;
        }
    }
    Ok(())
}
