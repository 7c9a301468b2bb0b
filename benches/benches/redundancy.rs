//! How fast one core makes redundancy, and rebuilds what was lost, in bytes of data a second. The chunks are those in which
//! parts pass; 64 MiB of them, so that data comes from memory.

#![allow(missing_docs, clippy::expect_used, reason = "a bench is no library")]

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use std::hint::black_box;
use tierflow_redundancy::{CHUNK, Code};

const DATA: usize = 64 << 20;

/// Data shards and parity shards.
const CODES: &[(usize, usize)] = &[(1, 1), (3, 1), (7, 1), (4, 2), (8, 2), (8, 4)];

fn stripes(data: usize) -> Vec<Vec<Vec<u8>>> {
    let shard = |seed: usize| {
        (0..CHUNK)
            .map(|at| (at * 31 + seed * 17 + at / 251) as u8)
            .collect()
    };
    let stripes = 0..DATA / (data * CHUNK);
    stripes
        .map(|stripe| (0..data).map(|of| shard(stripe * data + of)).collect())
        .collect()
}

fn encode(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("redundancy/encode");
    for &(data, parity) in CODES {
        let stripes = stripes(data);
        let mut code = Code::new(data, parity).expect("a sound code");
        let mut made = vec![vec![0; CHUNK]; parity];
        group.throughput(Throughput::Bytes((stripes.len() * data * CHUNK) as u64));
        group.bench_function(
            BenchmarkId::from_parameter(format!("{data}+{parity}")),
            |bencher| {
                bencher.iter(|| {
                    for stripe in &stripes {
                        let shards: Vec<&[u8]> = stripe.iter().map(Vec::as_slice).collect();
                        let mut into: Vec<&mut [u8]> =
                            made.iter_mut().map(Vec::as_mut_slice).collect();
                        code.encode(black_box(&shards), &mut into)
                            .expect("sound shards");
                    }
                });
            },
        );
    }
    group.finish();
}

/// As many data shards are lost as the code tolerates.
fn rebuild(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("redundancy/rebuild");
    for &(data, parity) in CODES {
        let stripes = stripes(data);
        let mut code = Code::new(data, parity).expect("a sound code");
        let lost = parity.min(data);
        let wanted: Vec<usize> = (0..lost).collect();
        let encoded: Vec<Vec<Vec<u8>>> = stripes
            .iter()
            .map(|stripe| {
                let shards: Vec<&[u8]> = stripe.iter().map(Vec::as_slice).collect();
                let mut made = vec![vec![0; CHUNK]; parity];
                let mut into: Vec<&mut [u8]> = made.iter_mut().map(Vec::as_mut_slice).collect();
                code.encode(&shards, &mut into).expect("sound shards");
                made
            })
            .collect();
        group.throughput(Throughput::Bytes((stripes.len() * data * CHUNK) as u64));
        group.bench_function(
            BenchmarkId::from_parameter(format!("{data}+{parity}")),
            |bencher| {
                bencher.iter(|| {
                    for (stripe, parity) in stripes.iter().zip(&encoded) {
                        let data = stripe
                            .iter()
                            .enumerate()
                            .map(|(index, shard)| (index >= lost).then_some(shard.as_slice()));
                        let parity = parity.iter().map(|shard| Some(shard.as_slice()));
                        let shards: Vec<Option<&[u8]>> = data.chain(parity).collect();
                        code.rebuild(black_box(&shards), &wanted)
                            .expect("sound shards");
                    }
                });
            },
        );
    }
    group.finish();
}

criterion_group!(benches, encode, rebuild);
criterion_main!(benches);
