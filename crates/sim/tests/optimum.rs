//! Searches the optimum of small instances over all plans that keep versions whole and let a link carry one transfer at a time. The optimum
//! lies between the fluid bound and every run with whole versions. The optimum's loss beyond the bound is the price of whole versions. The loss of
//! `residency` beyond the optimum is due to decisions.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod optimum {
    pub(crate) mod bound;
    pub(crate) mod instance;
    pub(crate) mod model;
    pub(crate) mod search;
}

use optimum::instance::{LARGEST, instance};
use optimum::model::Model;
use optimum::search::{Failure, optimum as search};
use tierflow_plan::ExtentSize;
use tierflow_sim::{Hardware, Simulation, Workload, fluid_bound};

/// Returns the time that `residency` loses, with whole versions if `whole` is true.
fn lost_ns(hardware: &Hardware, workload: &Workload, whole: bool) -> u64 {
    let simulation = Simulation::new(hardware.clone());
    let simulation = match whole {
        true => simulation.extents(ExtentSize {
            least: LARGEST,
            most: 2 * LARGEST,
        }),
        false => simulation,
    };
    let outcome = simulation.run(std::slice::from_ref(workload));
    outcome.unwrap().lost_ns()
}

/// The test draws 150 instances, or `TIERFLOW_OPTIMA`. About 40 of 150 overflow their caches.
#[test]
fn a_small_instance_takes_no_less_than_the_bound_and_no_more_than_a_run_with_whole_versions() {
    let count = std::env::var("TIERFLOW_OPTIMA").ok();
    let count = count.map_or(150, |count| count.parse().unwrap());
    let (mut unsolved, mut price, mut decisions) = (0, Vec::new(), Vec::new());
    for seed in 0..count {
        let (hardware, workload) = instance(seed);
        let bound = fluid_bound(&hardware, std::slice::from_ref(&workload));
        let bound = bound.unwrap().lost_ns;
        // If only copies cost time, nearly every plan is optimal.
        if bound < 5_000_000 {
            continue;
        }
        let compute = workload.compute_ns();
        let whole = lost_ns(&hardware, &workload, true);
        let model = Model::new(&hardware, &workload);
        // The model counts 10 µs of latency for a copy that may have none in a run.
        let most = compute + whole + whole / 1_000;
        let makespan = match search(&model, most, LIMIT) {
            Ok(makespan) => makespan,
            Err(Failure::Limit) => {
                unsolved += 1;
                continue;
            }
            Err(Failure::NoPlan) => panic!("seed {seed}: the search misses {whole}, a run"),
        };
        let best = makespan - compute;
        assert!(
            bound <= best + 1_000,
            "seed {seed}: {best} below the bound of {bound}"
        );
        let own = lost_ns(&hardware, &workload, false);
        price.push(best as f64 / bound as f64);
        decisions.push(own as f64 / best as f64);
    }
    let mean = |ratios: &[f64]| ratios.iter().sum::<f64>() / ratios.len() as f64;
    let solved = price.len();
    println!(
        "{solved} solved, {unsolved} not: optimum {:.3} x the bound, residency {:.3} x the optimum",
        mean(&price),
        mean(&decisions),
    );
    assert!(
        unsolved * 2 <= solved,
        "{unsolved} of {solved} were not found"
    );
    assert!(mean(&decisions) <= 1.6, "{}", mean(&decisions));
}

/// Most states that the search visits in one instance.
const LIMIT: usize = 60_000;
