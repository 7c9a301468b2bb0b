//! Algorithm 2 of VeloC (IPDPS'19) chooses between a write to the slower store and a wait for room. In a chain of tiers a checkpoint that
//! waits is never later than one that is written past the full cache, except for the start of a pipeline, as both need the same links.

#![allow(clippy::unwrap_used, clippy::panic)]

use proptest::prelude::*;
use tierflow_plan::AfterRestore;
use tierflow_sim::{Hardware, Hop, Link, Op, Simulation, Tier, UNLIMITED, Workload, fluid_bound};

const MIB: u64 = 1 << 20;

/// The largest extent of the plan in bytes. Each hop must carry the first extent before the next hop has work.
const EXTENT: u64 = 16 * MIB;

/// Draws caches in MiB and rates of the hops in MB/s. No hop is faster than the hop above it, and the last tier has no limit.
fn chain() -> impl Strategy<Value = Vec<(u64, u64)>> {
    prop::collection::vec((64_u64..512, 50_u64..5000), 2..5).prop_map(|mut tiers| {
        tiers.sort_by_key(|(_, rate)| std::cmp::Reverse(*rate));
        tiers
    })
}

fn hardware(chain: &[(u64, u64)]) -> Hardware {
    let last = chain.len() - 1;
    let tiers = chain.iter().enumerate();
    tiers.fold(Hardware::new(), |hardware, (at, (capacity, rate))| {
        let capacity = if at == last {
            UNLIMITED
        } else {
            capacity * MIB
        };
        let hop = Hop::over(Link::own(rate * 1_000_000), 0);
        hardware.tier(Tier::new("tier", capacity), hop)
    })
}

fn workload(sizes: &[u64], pauses: &[u64]) -> Workload {
    let calls = sizes.iter().zip(pauses).enumerate();
    let ops = calls.flat_map(|(version, (mib, pause))| {
        let checkpoint = Op::Checkpoint {
            version: version as u64,
            bytes: mib * MIB,
        };
        [Op::Compute(pause * 1_000_000), checkpoint]
    });
    Workload {
        ops: ops.collect(),
        after_restore: AfterRestore::Keep,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// The fluid bound is below the time of every schedule, including one that writes past the cache whenever that is faster.
    #[test]
    fn no_choice_of_a_slower_tier_would_have_blocked_for_less(
        chain in chain(),
        calls in prop::collection::vec((1_u64..64, 0_u64..500), 4..24),
    ) {
        let (sizes, pauses): (Vec<u64>, Vec<u64>) = calls.into_iter().unzip();
        let (hardware, workload) = (hardware(&chain), [workload(&sizes, &pauses)]);
        let blocked = Simulation::new(hardware.clone()).run(&workload).unwrap().blocking_ns();
        let least = fluid_bound(&hardware, &workload).unwrap().lost_ns;
        let over = |bytes: u64, rate: u64| bytes as f64 / rate as f64 * 1e3;
        // Each checkpoint may wait until its room is free as a whole, and each hop for the first extent of the hop above it.
        let copies: f64 = sizes.iter().map(|mib| over(mib * MIB, chain[0].1)).sum();
        let fill: f64 = chain.iter().map(|(_, rate)| over(EXTENT, *rate)).sum();
        let slack = copies + sizes.len() as f64 * fill;
        prop_assert!(
            blocked as f64 <= least as f64 + slack,
            "{blocked} ns are blocked, {least} are the least, {slack} may be lost: {chain:?} {sizes:?} {pauses:?}"
        );
    }
}

/// Prints the ratio of the time for which checkpoints are blocked to the bound, for the book.
#[test]
fn how_much_is_lost_by_waiting() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;
    let mut runner = TestRunner::deterministic();
    let calls = prop::collection::vec((8_u64..64, 0_u64..500), 24);
    let mut ratios = Vec::new();
    for _ in 0..400 {
        let chain = chain().new_tree(&mut runner).unwrap().current();
        let calls = calls.new_tree(&mut runner).unwrap().current();
        let (sizes, pauses): (Vec<u64>, Vec<u64>) = calls.into_iter().unzip();
        let (hardware, workload) = (hardware(&chain), [workload(&sizes, &pauses)]);
        let outcome = Simulation::new(hardware.clone()).run(&workload).unwrap();
        let least = fluid_bound(&hardware, &workload).unwrap().lost_ns;
        ratios.push(outcome.blocking_ns() as f64 / least as f64);
    }
    ratios.sort_by(f64::total_cmp);
    let mean = ratios.iter().map(|ratio| ratio.ln()).sum::<f64>() / ratios.len() as f64;
    println!(
        "blocked over the bound: geometric mean {:.3}, median {:.3}, 95% {:.3}, worst {:.3}",
        mean.exp(),
        ratios[200],
        ratios[380],
        ratios[399]
    );
}
