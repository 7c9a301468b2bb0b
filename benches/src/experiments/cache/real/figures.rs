//! By iteration (HPDC'23, Figure 7), by compute interval and by cache size (Figure 8), at a quarter of its size.

use std::time::Duration;

use anyhow::Result;
use tierflow_sim::{Hints, Order, Shot};

use super::super::HINTS;
use super::sitting::Sitting;
use super::{Machine, Way};
use crate::experiments::Run;

/// Restores that are summed up in one row of Figure 7.
const PARTS: usize = 12;

const PATIENCE: Duration = Duration::from_secs(95);

pub(super) fn run(run: &mut Run) -> Result<()> {
    let mut sitting = Sitting::new(run, PATIENCE);
    let machine = Machine::measure(sitting.run, 1)?;
    let [none, _, all] = HINTS;
    // The cells that tell most come first: time may not suffice for all.
    for way in [Way::Residency, Way::Uvm] {
        for hints in [all, none] {
            by_iteration(&mut sitting, &machine, way, hints)?;
        }
    }
    for (hints, ways) in [
        (all, &[Way::InMemory, Way::Uvm, Way::Residency][..]),
        (none, &[Way::InMemory, Way::Uvm]),
        (all, &[Way::Score, Way::Lru]),
        (none, &[Way::Residency, Way::Score, Way::Lru]),
    ] {
        for &way in ways {
            by_cache_and_interval(&mut sitting, &machine, way, hints)?;
        }
    }
    sitting.end()
}

/// Hints with their name.
type Named = (&'static str, Hints);

fn by_iteration(
    sitting: &mut Sitting<'_>,
    machine: &Machine,
    way: Way,
    (name, hints): Named,
) -> Result<()> {
    let shot = Shot {
        order: Order::Sequential,
        hints,
        ..machine.scale.shot(machine.scale.uniform())
    };
    let policy = way.name();
    let case = format!("order=sequential, sizes=uniform, hints={name}, policy={policy}");
    let Some(played) = sitting.compare(machine, &case, way, &shot.workload())? else {
        return Ok(());
    };
    let run = &mut *sitting.run;
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

/// Both figures have the case of the usual interval and cache: it is run once.
fn by_cache_and_interval(
    sitting: &mut Sitting<'_>,
    machine: &Machine,
    way: Way,
    (name, hints): Named,
) -> Result<()> {
    let policy = way.name();
    let case = format!("order=irregular, sizes=variable, hints={name}, policy={policy}");
    let by_interval = |interval: Duration| {
        let us = interval.as_micros();
        format!("{case}, compute interval in us={us}")
    };
    let usual = machine.scale.interval;
    for percent in [100, 50, 200] {
        let workload = irregular(machine, hints, usual)?.workload();
        let bytes = machine.scale.device * percent / 100;
        let machine = machine.with_device_cache(bytes);
        let case = format!("{case}, device cache in KiB={}", bytes >> 10);
        let played = sitting.compare(&machine, &case, way, &workload)?;
        if let (Some(played), 100) = (played, percent) {
            let case = by_interval(usual);
            machine.report(sitting.run, &case, way, &workload, &played)?;
        }
    }
    for interval in [usual / 2, usual * 2] {
        let workload = irregular(machine, hints, interval)?.workload();
        sitting.compare(machine, &by_interval(interval), way, &workload)?;
    }
    Ok(())
}
