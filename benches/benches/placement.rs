//! How long it takes to say where overflow goes: at 8 GPUs it must not depend on the bytes, and at
//! 1024 it must stay far below the transfers themselves.

#![allow(missing_docs, clippy::expect_used, reason = "a bench is no library")]

use std::hint::black_box;
use std::num::NonZeroU64;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use tierflow_benches::experiments::placement::machines;
use tierflow_placement::{
    Greedy, LocalOnly, MinTimeMaxFlow, Problem, Strategy, Topology, UnitIncrement,
};

const MB: u64 = 1_000_000;

fn bench(criterion: &mut Criterion, group: &str, cases: &[(String, Topology, u64)]) {
    let mut group = criterion.benchmark_group(group);
    for (case, topology, mean) in cases {
        let shares = machines::shares(topology.gpus(), *mean, 1);
        let problem = Problem::new(topology, &shares).expect("a sound problem");
        let strategies: [&mut dyn Strategy; 3] =
            [&mut MinTimeMaxFlow::default(), &mut Greedy, &mut LocalOnly];
        for strategy in strategies {
            group.bench_function(BenchmarkId::new(strategy.name(), case), |bencher| {
                bencher.iter(|| strategy.schedule(black_box(&problem)));
            });
        }
    }
    group.finish();
}

fn eight(criterion: &mut Criterion) {
    let machines = [
        ("dgx-1", Topology::dgx_1()),
        ("hgx-h200", Topology::hgx_h200()),
        ("pcie", Topology::pcie_only(8)),
    ];
    for (name, topology) in machines {
        let cases =
            [1, 1000, 1_000_000].map(|mb| (format!("{}", mb * MB), topology.clone(), mb * MB));
        bench(criterion, &format!("placement/8/{name}"), &cases);
    }
}

fn many(criterion: &mut Criterion) {
    for (name, machine, _) in machines::LARGE {
        let cases = [64, 256, 1024].map(|gpus| {
            let topology = machine(gpus).expect("a sound topology");
            (gpus.to_string(), topology, 100 * MB)
        });
        bench(criterion, &format!("placement/{name}"), &cases);
    }
}

/// The published algorithm, whose time grows with the bytes.
fn by_unit(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("placement/8/unit-increment of 1 MB");
    let topology = Topology::dgx_1();
    for mb in [10, 100, 1000] {
        let shares = machines::shares(8, mb * MB, 1);
        let problem = Problem::new(&topology, &shares).expect("a sound problem");
        let unit = NonZeroU64::new(MB).expect("not zero");
        group.bench_function(BenchmarkId::new("dgx-1", mb * MB), |bencher| {
            bencher.iter(|| UnitIncrement::new(unit).schedule(black_box(&problem)));
        });
    }
    group.finish();
}

criterion_group!(benches, eight, many, by_unit);
criterion_main!(benches);
