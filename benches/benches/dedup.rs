//! The CPU path's parts: encoding with 1% changed by chunk size and method, restoring, and resuming.
#![allow(clippy::expect_used, reason = "a bench may panic")]
#![allow(missing_docs, reason = "criterion's macros write public functions")]

use std::hint::black_box;
use std::time::Duration;

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use tierflow_benches::random::mix as random;
use tierflow_dedup::{Chain, Config, Lineage, Method};

const LEN: usize = 32 << 20;

fn state() -> Vec<u8> {
    (0..LEN as u64 / 8)
        .flat_map(|at| random(at).to_le_bytes())
        .collect()
}

/// Changes one chunk in a hundred.
fn change(state: &mut [u8], chunk: usize, round: u64) {
    for n in 0..(LEN / chunk / 100) as u64 {
        let at = random(round << 32 | n) as usize % (LEN / chunk) * chunk;
        state[at..at + 8].copy_from_slice(&random(round ^ n << 40).to_le_bytes());
    }
}

fn encode(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("dedup/encode");
    group.throughput(Throughput::Bytes(LEN as u64));
    for (name, method) in [
        ("basic", Method::Basic),
        ("list", Method::List),
        ("tree", Method::Tree),
    ] {
        for chunk in [64, 128, 256] {
            let mut lineage =
                Lineage::new(Config::new(method).chunk(chunk)).expect("a sound configuration");
            let mut state = state();
            lineage.encode(0, &state).expect("a sound checkpoint");
            let mut version = 0;
            group.bench_function(BenchmarkId::new(name, chunk), |bencher| {
                bencher.iter_batched(
                    || {
                        version += 1;
                        change(&mut state, chunk as usize, version);
                        (version, state.clone())
                    },
                    |(version, state)| {
                        lineage
                            .encode(version, black_box(&state))
                            .expect("a sound checkpoint")
                    },
                    BatchSize::PerIteration,
                );
            });
        }
    }
    group.finish();
}

fn chain(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("dedup/chain");
    group.throughput(Throughput::Bytes(LEN as u64));
    for versions in [1, 10] {
        let config = Config::new(Method::Tree).chunk(128);
        let mut lineage = Lineage::new(config).expect("a sound configuration");
        let mut chain = Chain::new();
        let mut state = state();
        for version in 1..=versions {
            change(&mut state, 128, version);
            let difference = lineage.encode(version, &state).expect("a sound checkpoint");
            chain
                .push(difference.into_bytes())
                .expect("a sound difference");
        }
        let mut out = vec![0; LEN];
        group.bench_function(BenchmarkId::new("restore", versions), |bencher| {
            bencher.iter(|| {
                chain
                    .restore(versions, black_box(&mut out))
                    .expect("a sound chain")
            });
        });
        group.bench_function(BenchmarkId::new("resume", versions), |bencher| {
            bencher.iter(|| Lineage::resume(config, black_box(&chain)).expect("a sound chain"));
        });
    }
    group.finish();
}

criterion_group! {
    name = benches;
    // Not of the groups: what the command line says would count for nothing.
    config = Criterion::default()
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(2))
        .sample_size(10);
    targets = encode, chain
}
criterion_main!(benches);
