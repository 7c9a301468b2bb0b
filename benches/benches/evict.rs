//! How long a choice takes, over N fragments: it must grow as N, at a few ns a fragment.
//!
//! `same` is a history of equal checkpoints, `mixed` one of compressed checkpoints whose sizes
//! differ 16-fold, where the processor cannot foresee how many fragments make a window.
#![allow(clippy::expect_used, reason = "a bench may panic")]
#![allow(missing_docs, reason = "criterion's macros write public functions")]

use std::hint::black_box;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use tierflow_benches::random::mix as random;
use tierflow_evict::{AllocationTable, Candidates, Distance, Fifo, Lru, Outlook, Policy, Score};

const FRAGMENTS: [u64; 6] = [16, 1000, 4096, 65_536, 262_144, 1_000_000];
const MIB: u64 = 1 << 20;

/// Half of the copies may go now, a third are being flushed, the rest are pinned.
fn outlook(key: u64, n: u64) -> Outlook {
    let dice = random(key) % 100;
    Outlook {
        evictable_in: match dice {
            0..50 => Some(0),
            50..85 => Some(random(key + n) % 1_000_000_000),
            _ => None,
        },
        distance: if dice.is_multiple_of(10) {
            Distance::Unhinted
        } else {
            Distance::At(n - key)
        },
        written: key,
        used: random(key + 2 * n) % n,
    }
}

/// A cache of `n` copies, every twentieth of which has been evicted again.
fn table(sizes: &str, n: u64) -> AllocationTable<u64> {
    let size = |key: u64| match sizes {
        "same" => 32 * MIB,
        _ => 4 * MIB + random(key + 3 * n) % (60 * MIB),
    };
    let capacity = (0..n).map(|key| size(key).next_multiple_of(256)).sum();
    let mut table = AllocationTable::new(capacity, 256).expect("a sound layout");
    let mut offset = 0;
    for key in 0..n {
        offset += table
            .insert(offset, key, size(key))
            .expect("the end is free")
            .reserved;
    }
    for key in (0..n).filter(|key| random(key + 4 * n).is_multiple_of(20)) {
        // A gap beside a gap would move everything behind it, which takes long in large tables.
        if !random(key + 1 + 4 * n).is_multiple_of(20) {
            table.remove(&key).expect("it is there");
        }
    }
    table
}

fn choose(criterion: &mut Criterion) {
    for sizes in ["same", "mixed"] {
        let mut group = criterion.benchmark_group(format!("evict/{sizes}"));
        for n in FRAGMENTS {
            let table = table(sizes, n);
            let mut candidates = Candidates::new();
            table.candidates_into(&mut candidates, |key| outlook(key, n));
            group.throughput(Throughput::Elements(candidates.len() as u64));
            let policies: [&mut dyn Policy; 3] =
                [&mut Score, &mut Fifo::default(), &mut Lru::default()];
            for policy in policies {
                group.bench_function(BenchmarkId::new(policy.name(), n), |bencher| {
                    bencher.iter(|| policy.choose_victims(black_box(&candidates), 96 * MIB));
                });
            }
            group.bench_function(BenchmarkId::new("candidates_into", n), |bencher| {
                bencher.iter(|| {
                    table.candidates_into(black_box(&mut candidates), |key| Outlook {
                        evictable_in: Some(key % 2),
                        distance: Distance::At(key),
                        written: key,
                        used: key,
                    });
                });
            });
        }
        group.finish();
    }
}

criterion_group! {
    name = benches;
    // Not of the groups: what the command line says would count for nothing.
    config = Criterion::default()
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1))
        .sample_size(20);
    targets = choose
}
criterion_main!(benches);
