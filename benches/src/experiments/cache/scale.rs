//! By number of GPUs (HPDC'23, Figure 9): eight on a node share its links to the host and its disk; nodes share nothing
//! but the barriers of coupled runs.

use std::time::Instant;

use anyhow::Result;
use tierflow_sim::{Hardware, Hints, Order, Shot, Workload, fluid_bound};

use super::{INTERVAL_NS, POLICIES, SimulatedScale, inputs};
use crate::experiments::Run;

const NODE: usize = 8;

pub(crate) fn run(run: &mut Run) -> Result<()> {
    let scale = SimulatedScale::of(run);
    let hardware = Hardware::hgx_h200(scale.device, scale.host);
    let (versions, most): (usize, usize) = match run.is_quick() {
        true => (24, 16),
        false => (scale.versions / 2, 1024),
    };
    let shots = inputs::shots(most, versions)?;
    let shot = |gpu: usize, coupled| {
        let shot = Shot {
            // Nodes do not all do the same, even where few shots were recorded.
            order: Order::Irregular(gpu as u64),
            hints: Hints::All,
            coupled,
            ..Shot::new(shots.sizes[gpu].clone(), INTERVAL_NS)
        };
        shot.workload()
    };
    for coupled in [false, true] {
        let all: Vec<_> = (0..most).map(|gpu| shot(gpu, coupled)).collect();
        for policy in POLICIES {
            let counts = [1, 2, 4, NODE, 64, most].into_iter();
            for gpus in counts.filter(|gpus| *gpus <= most) {
                let case = format!("coupled={coupled}, policy={}, GPUs={gpus}", policy.name);
                let began = Instant::now();
                let outcome = policy.simulate(&hardware, &all[..gpus])?;
                let took = began.elapsed();
                let each = |ns: u64| ns as f64 / gpus as f64;
                let row = run.value(
                    &case,
                    "simulated time lost per GPU",
                    "ns",
                    each(outcome.lost_ns()),
                )?;
                if gpus <= NODE {
                    row.against(each(fluid_bound(&hardware, &all[..gpus])?.lost_ns));
                }
                run.value(
                    &case,
                    "simulated blocking per GPU",
                    "ns",
                    each(outcome.blocking_ns()),
                )?;
                run.time(&case, "time to simulate", took)?;
            }
            if !coupled {
                let node: Vec<Workload> = all[..NODE].to_vec();
                representative(
                    run,
                    policy.name,
                    policy.simulate(&hardware, &node)?.lost_ns(),
                )?;
            }
        }
    }
    Ok(())
}

/// 100 000 GPUs whose nodes all do the same: one node is simulated and stands for all, which is exact as nodes share
/// nothing. It says nothing about storage that all of them share.
fn representative(run: &mut Run, policy: &str, node_lost_ns: u64) -> Result<()> {
    let case = format!("one node stands for all, policy={policy}, GPUs=100000");
    run.value(
        &case,
        "simulated time lost per GPU",
        "ns",
        node_lost_ns as f64 / NODE as f64,
    )?;
    Ok(())
}
