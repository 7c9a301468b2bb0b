//! Problems that cannot be scheduled are refused, and the message names the part of the machine.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::num::NonZeroU64;

use tierflow_placement::{
    GpuId, Greedy, HostId, HostLinkId, LocalOnly, MAX_BYTES, MinTimeMaxFlow, PlacementError,
    Problem, Share, Strategy, SwitchId, Topology, TopologyError, UnitIncrement,
};

const NONE: [f64; 8] = [
    0.0,
    -0.0,
    0.4,
    -1e9,
    f64::INFINITY,
    f64::NEG_INFINITY,
    f64::NAN,
    2e15,
];

fn strategies() -> [Box<dyn Strategy>; 4] {
    [
        Box::new(MinTimeMaxFlow::default()),
        Box::new(UnitIncrement::new(NonZeroU64::new(1 << 20).unwrap())),
        Box::new(Greedy),
        Box::new(LocalOnly),
    ]
}

/// Returns a machine of two GPUs, a link, a switch, a host and a host link.
fn machine() -> Topology {
    let mut topology = Topology::new();
    let (a, b) = (topology.gpu(), topology.gpu());
    topology.link_both(a, b, 1e9).unwrap();
    topology.switch();
    let host = topology.host();
    topology.host_link(host, 1e9).unwrap();
    topology
}

#[test]
fn bandwidths_that_are_none_are_refused_by_name() {
    type Add = fn(&mut Topology, f64) -> Result<(), TopologyError>;
    let parts: [(&str, Add); 8] = [
        ("the egress of GPU 1", |t, b| t.egress(GpuId(1), b)),
        ("the ingress of GPU 1", |t, b| t.ingress(GpuId(1), b)),
        ("the link from GPU 0 to GPU 1", |t, b| {
            t.link(GpuId(0), GpuId(1), b).map(|_| ())
        }),
        ("the port by which GPU 0 sends to switch 0", |t, b| {
            t.port(SwitchId(0), GpuId(0), b)
        }),
        ("the backplane of switch 0", |t, b| {
            t.backplane(SwitchId(0), b)
        }),
        ("host link 1", |t, b| t.host_link(HostId(0), b).map(|_| ())),
        ("the way of GPU 1 to host link 0", |t, b| {
            t.host_port(HostLinkId(0), GpuId(1), b)
        }),
        ("the ingress of host 0", |t, b| t.host_ingress(HostId(0), b)),
    ];
    for (name, add) in parts {
        let mut topology = machine();
        for bandwidth in NONE {
            let error = add(&mut topology, bandwidth).unwrap_err();
            assert!(
                matches!(error, TopologyError::BadBandwidth { .. }),
                "{error}"
            );
            assert!(error.to_string().contains(name), "{error}");
            assert_eq!(topology, machine(), "nothing has changed");
        }
        add(&mut topology, 1e9).unwrap();
    }
}

#[test]
fn parts_that_are_not_there_or_twice_are_refused() {
    let mut topology = machine();
    let (no_gpu, gpus) = (GpuId(2), 2);
    let gpu = TopologyError::NoSuchGpu { gpu: no_gpu, gpus };
    assert_eq!(topology.egress(no_gpu, 1e9), Err(gpu));
    assert_eq!(topology.link(GpuId(0), no_gpu, 1e9).unwrap_err(), gpu);
    assert_eq!(topology.port(SwitchId(0), no_gpu, 1e9), Err(gpu));
    let error = topology.port(SwitchId(1), GpuId(0), 1e9).unwrap_err();
    assert_eq!(error, TopologyError::NoSuchSwitch(SwitchId(1)));
    let error = topology.host_link(HostId(1), 1e9).unwrap_err();
    assert_eq!(error, TopologyError::NoSuchHost(HostId(1)));
    let link = HostLinkId(1);
    let error = topology.host_port(link, GpuId(0), 1e9).unwrap_err();
    assert_eq!(error, TopologyError::NoSuchHostLink(link));
    let error = topology.link(GpuId(1), GpuId(1), 1e9).unwrap_err();
    assert_eq!(error, TopologyError::SelfLink(GpuId(1)));

    topology.port(SwitchId(0), GpuId(0), 1e9).unwrap();
    let error = topology.port(SwitchId(0), GpuId(0), 1e9).unwrap_err();
    assert!(matches!(error, TopologyError::Twice { .. }), "{error}");
    topology.egress(GpuId(0), 1e9).unwrap();
    let error = topology.egress(GpuId(0), 1e9).unwrap_err();
    assert!(error.to_string().contains("the egress of GPU 0"), "{error}");
}

#[test]
fn bandwidths_add_up_to_what_can_be_computed_with() {
    let mut topology = machine();
    let error = (0..10_000)
        .find_map(|_| topology.link(GpuId(0), GpuId(1), 1e15).err())
        .expect("it ends before 10^19 bytes/s");
    assert!(
        matches!(error, TopologyError::TotalBandwidth { .. }),
        "{error}"
    );
    assert!(error.to_string().contains("from GPU 0 to GPU 1"), "{error}");
}

#[test]
fn an_empty_topology_has_no_problem() {
    let error = Problem::new(&Topology::new(), &[]).unwrap_err();
    assert_eq!(error, PlacementError::NoGpus);
    assert_eq!(
        Problem::new(&Topology::pcie_only(0), &[]).unwrap_err(),
        PlacementError::NoGpus
    );
}

#[test]
fn problems_that_do_not_match_the_topology_are_refused() {
    let topology = machine();
    let (shares, gpus) = (3, 2);
    assert_eq!(
        Problem::new(&topology, &[Share::Spare(0); 3]).unwrap_err(),
        PlacementError::WrongCount { shares, gpus }
    );
    assert!(Problem::of_checkpoints(&topology, &[1, 2], &[1]).is_err());
    let problem = Problem::new(&topology, &[Share::Spare(0); 2]).unwrap();
    for alignment in [0, MAX_BYTES + 1, u64::MAX] {
        let error = problem.clone().aligned_to(alignment).unwrap_err();
        assert_eq!(error, PlacementError::BadAlignment(alignment));
    }
    let error = problem.with_host_spare(HostId(1), 5).unwrap_err();
    assert_eq!(error, PlacementError::NoSuchHost(HostId(1)));
}

#[test]
fn totals_that_overflow_name_the_gpu() {
    let topology = Topology::dgx_1();
    let mut shares = [Share::Remainder(MAX_BYTES / 8); 8];
    assert!(Problem::new(&topology, &shares).is_ok());
    shares[7] = Share::Remainder(MAX_BYTES / 8 + 1);
    let gpu = GpuId(7);
    let error = Problem::new(&topology, &shares).unwrap_err();
    assert_eq!(error, PlacementError::TotalOverflows { gpu });
    shares[5] = Share::Remainder(u64::MAX);
    let error = Problem::new(&topology, &shares).unwrap_err();
    assert!(error.to_string().contains("GPU 5"), "{error}");
    // Eight remainders of one byte each overflow, too, once they are rounded up.
    let problem = Problem::new(&topology, &[Share::Remainder(1); 8]).unwrap();
    let gpu = GpuId(2);
    assert_eq!(
        problem.aligned_to(MAX_BYTES / 2).unwrap_err(),
        PlacementError::TotalOverflows { gpu }
    );
}

#[test]
fn the_largest_problem_is_still_exact() {
    let topology = Topology::dgx_1();
    let mut shares = [Share::Spare(u64::MAX); 8];
    shares[0] = Share::Remainder(MAX_BYTES);
    let problem = Problem::new(&topology, &shares).unwrap();
    let schedule = MinTimeMaxFlow::default().schedule(&problem).unwrap();
    let sent: u64 = schedule.transfers().iter().map(|t| t.bytes).sum();
    assert_eq!(sent, MAX_BYTES);
    // Two links have 24 GB/s, two have 48 GB/s, and the link to the host has 12 GB/s.
    let wanted = MAX_BYTES as f64 / 156e9;
    assert!((schedule.makespan().as_secs_f64() / wanted - 1.0).abs() < 1e-12);
    assert!(schedule.makespan().ceil().as_secs() > 29_000_000);
}

#[test]
fn a_gpu_that_reaches_nothing_is_named() {
    let mut topology = machine();
    topology.gpu();
    let shares = [Share::Spare(9), Share::Spare(9), Share::Remainder(7)];
    let problem = Problem::new(&topology, &shares).unwrap();
    let (gpu, bytes) = (GpuId(2), 7);
    for mut strategy in strategies() {
        let name = strategy.name();
        let error = strategy.schedule(&problem).unwrap_err();
        let wanted = if name == "unit-increment" {
            let (gpus, missing) = (vec![gpu], 1 << 20);
            PlacementError::DoesNotFit { gpus, missing }
        } else {
            PlacementError::Disconnected { gpu, bytes }
        };
        assert_eq!(error, wanted, "{name}");
        assert!(error.to_string().contains("GPU 2"), "{name}: {error}");
    }
}

#[test]
fn remainders_that_fit_nowhere_are_named_with_what_is_missing() {
    // The machine has no host, and GPU 1 has less room than GPU 0 needs.
    let mut topology = Topology::new();
    let gpus: Vec<_> = (0..4).map(|_| topology.gpu()).collect();
    topology.link_both(gpus[0], gpus[1], 1e9).unwrap();
    topology.link_both(gpus[2], gpus[3], 1e9).unwrap();
    let shares = [
        Share::Remainder(30 << 20),
        Share::Spare(10 << 20),
        Share::Remainder(5 << 20),
        Share::Spare(10 << 20),
    ];
    let problem = Problem::new(&topology, &shares).unwrap();
    let (gpus, missing) = (vec![GpuId(0)], 20 << 20);
    let wanted = PlacementError::DoesNotFit { gpus, missing };
    for mut strategy in strategies().into_iter().take(3) {
        assert_eq!(
            strategy.schedule(&problem).unwrap_err(),
            wanted,
            "{}",
            strategy.name()
        );
    }
    assert!(
        wanted.to_string().contains("GPU 0 have 20971520 bytes"),
        "{wanted}"
    );

    // A host without room does not help.
    let topology = Topology::dgx_1();
    let shares = [Share::Remainder(10); 8];
    let problem = Problem::new(&topology, &shares)
        .unwrap()
        .with_host_spare(HostId(0), 79)
        .unwrap();
    let error = MinTimeMaxFlow::default().schedule(&problem).unwrap_err();
    let gpus = (0..8).map(GpuId).collect();
    assert_eq!(error, PlacementError::DoesNotFit { gpus, missing: 1 });
}

#[test]
fn nothing_to_place_takes_no_time() {
    let topology = Topology::dgx_1();
    let problem = Problem::new(&topology, &[Share::Spare(1); 8]).unwrap();
    for mut strategy in strategies() {
        let schedule = strategy.schedule(&problem).unwrap();
        assert!(schedule.transfers().is_empty());
        assert_eq!(schedule.makespan().ceil().as_nanos(), 0);
        assert_eq!(schedule.busiest(), None);
    }
}

#[test]
fn a_part_that_is_refused_changes_nothing() {
    let mut topology = machine();
    let (a, b) = (GpuId(0), GpuId(1));
    // Links are added until the limit on the sum of all bandwidths leaves less than twice 5e14.
    while topology.link(a, b, 1e15).is_ok() {}
    let before = topology.clone();
    let total = |refused| matches!(refused, Err(TopologyError::TotalBandwidth { .. }));
    assert!(total(topology.link_both(a, b, 5e14)));
    assert!(total(topology.port(SwitchId(0), a, 5e14)));
    assert_eq!(topology, before);
    topology.egress(a, 5e14).unwrap();
}
