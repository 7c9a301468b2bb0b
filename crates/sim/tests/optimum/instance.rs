//! Small instances like the wide cells whose caches hold a few versions.

use tierflow_plan::AfterRestore;
use tierflow_sim::{
    Hardware, Hints, Hop, Link, Op, Order, Schedule, Shot, Tier, UNLIMITED, Workload,
};
use tierflow_testing::Draws;

/// Bytes of the largest versions.
pub(crate) const LARGEST: u64 = 64 << 20;

/// Usual ns between two calls.
const STEP_NS: u64 = 100_000_000;

/// Draws a link that carries 0.2 to 5 of the largest versions per step.
fn link(draws: &mut Draws) -> Link {
    let share = draws.below(1_000) as f64 / 1_000.0;
    let versions = 0.2 * 25.0_f64.powf(share);
    let rate = (versions * LARGEST as f64 / (STEP_NS as f64 / 1e9)) as u64;
    match draws.below(2) {
        0 => Link::own(rate),
        _ => Link::own(rate).together(rate),
    }
}

/// Returns the instance of a seed.
pub(crate) fn instance(seed: u64) -> (Hardware, Workload) {
    let mut draws = Draws(seed << 32);
    let count = 4 + draws.below(5);
    let device = 1 + draws.below(4);
    let host = device.max(2 + draws.below(5));
    let mut links = [link(&mut draws), link(&mut draws)];
    links.sort_by_key(|link| std::cmp::Reverse(link.down));
    let hardware = Hardware::new()
        .tier(
            Tier::new("device", device * LARGEST),
            Hop::over(Link::own(1_458_000_000_000), 10_000),
        )
        .tier(Tier::new("host", host * LARGEST), Hop::over(links[0], 0))
        .tier(
            Tier::new("file", UNLIMITED).depth(4),
            Hop::over(links[1], 0),
        );
    let shares: [&[u64]; 4] = [&[1], &[1], &[1, 2], &[1, 2, 4]];
    let shares = *draws.one_of(&shares);
    let sizes = (0..count).map(|_| LARGEST / *draws.one_of(shares));
    let sizes: Vec<_> = sizes.collect();
    let workload = match draws.below(8) {
        0..4 => shot(&mut draws, sizes, seed),
        4..6 => again(&mut draws, &sizes),
        _ => {
            let slots = 2 + draws.below(count - 2);
            Schedule::revolve(count as usize, slots as usize).workload(LARGEST, STEP_NS, Hints::All)
        }
    };
    (hardware, workload)
}

fn shot(draws: &mut Draws, mut sizes: Vec<u64>, seed: u64) -> Workload {
    let order = *draws.one_of(&[
        Order::Sequential,
        Order::Reverse,
        Order::Irregular(seed),
        Order::ReverseBlocks(2),
        Order::Strides(3),
    ]);
    let (after_restore, passes) = *draws.one_of(&[
        (AfterRestore::Discard, 1),
        (AfterRestore::Keep, 1),
        (AfterRestore::Keep, 2),
    ]);
    if passes > 1 {
        sizes.truncate(6);
    }
    Shot {
        order,
        passes,
        after_restore,
        ..Shot::new(sizes, STEP_NS)
    }
    .workload()
}

/// Returns a program that reads versions between its writes, and drops the oldest.
fn again(draws: &mut Draws, sizes: &[u64]) -> Workload {
    let (reads, most) = (1 + draws.below(3), (sizes.len() as u64).div_ceil(2).max(3));
    let (mut ops, mut first) = (Vec::new(), 0);
    for (version, &bytes) in (0..).zip(sizes) {
        ops.push(Op::Compute(STEP_NS));
        ops.push(Op::Checkpoint { version, bytes });
        if version + 1 - first > most {
            ops.push(Op::Drop(first));
            first += 1;
        }
        for _ in 0..reads {
            ops.push(Op::Restore(first + draws.below(version + 1 - first)));
            ops.push(Op::Compute(STEP_NS));
        }
    }
    Workload {
        ops,
        after_restore: AfterRestore::Keep,
    }
    .hinted(Hints::All)
}
