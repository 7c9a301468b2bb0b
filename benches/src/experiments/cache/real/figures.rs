//! By iteration (HPDC'23, Figure 7), by compute interval and by cache size (Figure 8), at a quarter of its size.

use std::time::Duration;

use anyhow::Result;
use tierflow_sim::{Hints, Order, Shot};

use super::super::HINTS;
use super::{Machine, Way};
use crate::experiments::Run;

/// Restores that are summed up in one row of Figure 7.
const PARTS: usize = 12;

pub(super) fn run(run: &mut Run) -> Result<()> {
    let machine = Machine::measure(run, 1)?;
    by_iteration(run, &machine)?;
    by_interval(run, &machine)?;
    by_cache(run, &machine)
}

fn by_iteration(run: &mut Run, machine: &Machine) -> Result<()> {
    for (name, hints) in HINTS {
        let shot = Shot {
            order: Order::Sequential,
            hints,
            ..machine.scale.shot(machine.scale.uniform())
        };
        let case = format!("order=sequential, sizes=uniform, hints={name}, policy=cost");
        let played = machine.compare(run, &case, Way::Cost, &shot.workload())?;
        let part = played.each_restore.len().div_ceil(PARTS).max(1);
        for (at, restores) in played.each_restore.chunks(part).enumerate() {
            let case = format!("{case}, iteration={}", at * part);
            let bytes: u64 = restores.iter().map(|restore| restore.bytes).sum();
            let time: Duration = restores.iter().map(|restore| restore.took).sum();
            let distances: u64 = restores.iter().map(|restore| restore.distance).sum();
            let rate = bytes as f64 / time.as_secs_f64().max(1e-9);
            run.value(&case, "restore rate", "bytes/s", rate)?;
            let distance = distances as f64 / restores.len() as f64;
            run.value(&case, "prefetch distance", "versions", distance)?;
        }
    }
    Ok(())
}

fn irregular(machine: &Machine, hints: Hints, interval: Duration) -> Result<Shot> {
    let sizes = machine.scale.variable(1)?.swap_remove(0);
    Ok(Shot {
        order: Order::Irregular(1),
        hints,
        compute_ns: interval.as_nanos() as u64,
        ..machine.scale.shot(sizes)
    })
}

fn by_interval(run: &mut Run, machine: &Machine) -> Result<()> {
    for (name, hints) in [HINTS[0], HINTS[2]] {
        for halves in [1, 2, 3, 6] {
            let interval = machine.scale.interval * halves / 2;
            let workload = irregular(machine, hints, interval)?.workload();
            for way in [Way::Cost, Way::Score] {
                let case = format!(
                    "order=irregular, sizes=variable, hints={name}, policy={}, compute interval in us={}",
                    way.name(),
                    interval.as_micros()
                );
                machine.compare(run, &case, way, &workload)?;
            }
        }
    }
    Ok(())
}

fn by_cache(run: &mut Run, machine: &Machine) -> Result<()> {
    for (name, hints) in [HINTS[0], HINTS[2]] {
        let workload = irregular(machine, hints, machine.scale.interval)?.workload();
        for percent in [50, 100, 200] {
            let bytes = machine.scale.device * percent / 100;
            let machine = machine.with_device_cache(bytes);
            for way in [Way::Cost, Way::Score] {
                let case = format!(
                    "order=irregular, sizes=variable, hints={name}, policy={}, device cache in KiB={}",
                    way.name(),
                    bytes >> 10
                );
                machine.compare(run, &case, way, &workload)?;
            }
        }
    }
    Ok(())
}
