//! Tests of the worked example on slide 46 of the SC'22 showcase, on a DGX-1: GPU 0 has 480 MB too much and GPU 6
//! 240 MB, GPU 4 has room for 480 MB and GPU 1 for 240 MB.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::num::NonZeroU64;

use tierflow_placement::{
    Destination, GpuId, Greedy, HostId, Limit, LocalOnly, MinTimeMaxFlow, Problem, Schedule, Share,
    Strategy, Topology, UnitIncrement,
};

const MB: u64 = 1_000_000;

fn example(strategy: &mut dyn Strategy) -> Schedule {
    let topology = Topology::dgx_1();
    let mut shares = [Share::Spare(0); 8];
    shares[0] = Share::Remainder(480 * MB);
    shares[6] = Share::Remainder(240 * MB);
    shares[4] = Share::Spare(480 * MB);
    shares[1] = Share::Spare(240 * MB);
    let problem = Problem::new(&topology, &shares).unwrap();
    strategy.schedule(&problem).unwrap()
}

fn milliseconds(schedule: &Schedule) -> f64 {
    schedule.makespan().as_secs_f64() * 1e3
}

/// Returns the transfers as a GPU, its target (a peer, or 8 for the host), and megabytes.
fn megabytes(schedule: &Schedule) -> Vec<(usize, usize, u64)> {
    let number = |to| match to {
        Destination::Peer(GpuId(gpu)) => gpu,
        Destination::Host(HostId(host)) => 8 + host,
    };
    let transfers = schedule.transfers().iter();
    transfers
        .map(|transfer| (transfer.from.0, number(transfer.to), transfer.bytes / MB))
        .collect()
}

#[test]
fn greedy_takes_20_ms() {
    let schedule = example(&mut Greedy);
    assert_eq!(megabytes(&schedule), [(0, 4, 480), (6, 8, 240)]);
    assert_eq!(milliseconds(&schedule), 20.0);
}

#[test]
fn local_only_takes_40_ms() {
    let schedule = example(&mut LocalOnly);
    assert_eq!(megabytes(&schedule), [(0, 8, 480), (6, 8, 240)]);
    assert_eq!(milliseconds(&schedule), 40.0);
}

#[test]
fn min_time_max_flow_takes_6_67_ms() {
    let schedule = example(&mut MinTimeMaxFlow::default());
    assert_eq!(format!("{:.2}", milliseconds(&schedule)), "6.67");

    // GPU 6 has one NVLink to GPU 4 and its way to the host, and needs both from start to end.
    let bound = schedule.bound().unwrap();
    assert_eq!((bound.time.numerator(), bound.time.denominator()), (1, 150));
    assert_eq!(bound.cut.gpus, [GpuId(6)]);
    assert_eq!(bound.cut.bandwidth, 36_000_000_000);
    let is_link_to_4 =
        |limit: &Limit| matches!(limit, Limit::Link { from, to, .. } if (from.0, to.0) == (6, 4));
    assert!(bound.cut.limits.iter().any(is_link_to_4), "{}", bound.cut);
    // 240 MB cannot be split exactly at 36 GB/s, so the schedule takes longer by one byte on the slower link.
    let extra = schedule.makespan().as_secs_f64() - bound.time.as_secs_f64();
    assert!((0.0..=1.0 / 12e9).contains(&extra), "{extra}");
    assert_eq!(schedule.makespan().ceil().as_nanos(), 6_666_667);
}

/// The published algorithm makes the amounts on the slide: each link carries as much as it can in the time that its GPU needs.
#[test]
fn unit_increment_makes_the_schedule_on_the_slide() {
    let schedule = example(&mut UnitIncrement::new(NonZeroU64::new(MB).unwrap()));
    assert_eq!(
        megabytes(&schedule),
        [
            (0, 1, 137),
            (0, 4, 275),
            (0, 8, 68),
            (6, 4, 160),
            (6, 8, 80)
        ]
    );
    assert_eq!(format!("{:.2}", milliseconds(&schedule)), "6.67");
}

#[test]
fn bytes_that_peers_take_in_time_do_not_go_to_the_host() {
    let schedule = example(&mut MinTimeMaxFlow::default());
    // In that time, GPU 4 takes 320 MB from GPU 0 and 160 MB from GPU 6, and GPU 1 takes 160 MB.
    assert_eq!(schedule.to_hosts() / MB, 80);
}
