//! RTM snapshots over 8 GPUs that checkpoint together (SC'22 showcase, slides 18 and 19): each GPU has some free space, and the bytes that
//! do not fit are placed elsewhere.
//!
//! `TIERFLOW_TRACES` names a folder of `*.csv` files with the columns `version,bytes`, one for each shot. Without it, sizes are made up
//! that grow and fall like such snapshots, and the rows say so.

use anyhow::Result;
use tierflow_placement::{Problem, Topology};

use super::{MB, machines::random, strategies};
use crate::experiments::Run;
use crate::experiments::cache::recorded_shots;

const GPUS: usize = 8;
/// Free space in percent of the mean snapshot. The showcase's 128 MB are 187% of its 53 GB / 776.
const FREE: [u64; 4] = [100, 150, PAPERS_FREE, 225];
const PAPERS_FREE: u64 = 187;

pub(super) fn blocking(run: &mut Run) -> Result<()> {
    let (input, shots) = match recorded_shots()? {
        Some(shots) => ("recorded", shots),
        None => ("made up", made_up()),
    };
    let checkpoints = group_checkpoints(&shots);
    let every = if run.is_quick() { 8 } else { 1 };
    let checkpoints: Vec<_> = checkpoints.into_iter().step_by(every).collect();
    let bytes: u64 = checkpoints.iter().flatten().sum();
    let mean = bytes / (checkpoints.len() * GPUS) as u64;
    for (machine, topology) in [
        ("dgx-1", Topology::dgx_1()),
        ("hgx-h200", Topology::hgx_h200()),
    ] {
        let mut best = [0.0; FREE.len()];
        for mut strategy in strategies(MB) {
            for (best, percent) in best.iter_mut().zip(FREE) {
                let free = [mean * percent / 100; GPUS];
                let mut total = 0.0;
                for sizes in &checkpoints {
                    let problem = Problem::of_checkpoints(&topology, sizes, &free)?;
                    total += strategy.schedule(&problem)?.makespan().as_secs_f64() * 1e9;
                }
                let name = strategy.name();
                let case = format!(
                    "traces={input}, machine={machine}, strategy={name}, free in % of the mean={percent}"
                );
                run.value(&case, "predicted blocking time", "ns", total)?;
                if name == "min-time-max-flow" {
                    *best = total;
                }
                let row = run.value(&case, "blocking over the optimum's", "1", total / *best)?;
                // Slide 19 has 97% and 400% more on a DGX-1, with other traces.
                match (machine, name, percent) {
                    ("dgx-1", "greedy", PAPERS_FREE) => row.against(1.97),
                    ("dgx-1", "local-only", PAPERS_FREE) => row.against(5.0),
                    _ => {}
                }
            }
        }
    }
    Ok(())
}

/// Returns the sizes of all 8 GPUs' checkpoints, version by version. With fewer shots than GPUs, several GPUs have one shot, each an
/// eighth of its versions ahead of the GPU before.
fn group_checkpoints(shots: &[Vec<u64>]) -> Vec<[u64; GPUS]> {
    let versions = shots.iter().map(Vec::len).min().unwrap_or_default();
    let size = |gpu: usize, version: usize| {
        let ahead = gpu / shots.len() * versions / GPUS;
        shots[gpu % shots.len()][(version + ahead) % versions]
    };
    (0..versions)
        .map(|version| std::array::from_fn(|gpu| size(gpu, version)))
        .collect()
}

/// Makes eight shots of 384 snapshots, which grow as the square of time up to some 300 MB at three quarters, and fall to half of that.
fn made_up() -> Vec<Vec<u64>> {
    let shot = |shot: u64| {
        let share = |seed: u64| (random(seed) % 1000) as f64 / 1000.0;
        let peak = 200e6 + 200e6 * share(shot);
        let top = 260.0 + 80.0 * share(shot + 100);
        let snapshot = move |version: u32| {
            let t = f64::from(version) / top;
            let envelope = if t < 1.0 {
                t * t
            } else {
                1.0 - 1.5 * (t - 1.0)
            };
            let noise = 0.9 + 0.2 * share(1000 * (shot + 1) + u64::from(version));
            (peak * envelope.max(0.0) * noise) as u64 + 1
        };
        (0..384).map(snapshot).collect()
    };
    (0..GPUS as u64).map(shot).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shot_on_two_gpus_is_not_at_the_same_version() {
        let shots: Vec<Vec<u64>> = (0..4)
            .map(|shot| (0..80).map(|v| 100 * shot + v).collect())
            .collect();
        let checkpoints = group_checkpoints(&shots);
        assert_eq!(checkpoints.len(), 80);
        assert_eq!(checkpoints[0], [0, 100, 200, 300, 10, 110, 210, 310]);
    }

    #[test]
    fn made_up_shots_differ_and_overflow() {
        let shots = made_up();
        assert!(
            shots
                .iter()
                .all(|shot| shot.iter().any(|size| *size > 150 * MB))
        );
        assert_ne!(shots[0], shots[1]);
    }
}
