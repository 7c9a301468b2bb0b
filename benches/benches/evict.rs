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
use tierflow_evict::{Candidates, Distance, Outlook, Policy, Score};

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
    }
}

/// A cache of `n` copies, every twentieth of which has been evicted again; no gap lies beside another.
fn candidates(sizes: &str, n: u64) -> Candidates {
    let is_evicted = |key: u64| random(key + 4 * n).is_multiple_of(20);
    let mut candidates = Candidates::new();
    for key in 0..n {
        let size = match sizes {
            "same" => 32 * MIB,
            _ => (4 * MIB + random(key + 3 * n) % (60 * MIB)).next_multiple_of(256),
        };
        let stays = !is_evicted(key) || is_evicted(key + 1);
        candidates.push(size, stays.then(|| outlook(key, n)));
    }
    candidates
}

fn choose(criterion: &mut Criterion) {
    for sizes in ["same", "mixed"] {
        let mut group = criterion.benchmark_group(format!("evict/{sizes}"));
        for n in FRAGMENTS {
            let candidates = candidates(sizes, n);
            group.throughput(Throughput::Elements(candidates.len() as u64));
            group.bench_function(BenchmarkId::new("score", n), |bencher| {
                bencher.iter(|| Score.choose_victims(black_box(&candidates), 96 * MIB));
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
