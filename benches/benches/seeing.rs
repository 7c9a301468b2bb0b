//! The costs that time line and `tracing` add to a checkpoint and a restore of a small version: time line off and on; no subscriber, one
//! that turns the level down, one that takes every span.
//!
//! The engine runs on plain memory, with one tier: nothing else happens while a call is measured. A version has 4 KiB, of which both
//! copies together take a fraction of a microsecond, and the cache has room for 64.
#![allow(clippy::expect_used, reason = "a bench may panic")]
#![allow(missing_docs, reason = "criterion's macros write public functions")]

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use tierflow_device::{Choice, open};
use tierflow_engine::{AfterRestore, Engine, Region, RegionMut};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

const SIZE: usize = 4096;

/// Gives spans numbers and forgets them: what is measured is `tracing`'s own part, and reading the fields.
struct Taking {
    level: LevelFilter,
    spans: Arc<AtomicU64>,
}

impl Subscriber for Taking {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= self.level
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(self.level)
    }

    fn new_span(&self, attributes: &Attributes<'_>) -> Id {
        black_box(attributes.values());
        Id::from_u64(1 + self.spans.fetch_add(1, Ordering::Relaxed))
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, _: &Event<'_>) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

fn engine(timeline: usize) -> Engine {
    let device = open(Choice::Host).expect("plain memory");
    Engine::builder(&device)
        .device_cache(64 * SIZE)
        .after_restore(AfterRestore::Discard)
        .timeline(timeline)
        .build()
        .expect("a small engine")
}

fn seeing(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("seeing, a checkpoint and a restore");
    let mut measure = |name: &str, timeline: usize| {
        let engine = engine(timeline);
        let (from, mut to) = (vec![7_u8; SIZE], vec![0_u8; SIZE]);
        let mut version = 0;
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                version += 1;
                let out = [Region::from(from.as_slice())];
                engine.checkpoint(version, &out).expect("there is room");
                let mut back = [RegionMut::from(to.as_mut_slice())];
                engine.restore(version, &mut back).expect("it is there");
            });
        });
        assert_eq!(from, to);
    };
    // First, as long as no subscriber was ever there.
    measure("time line off", 0);
    // The last entries: it is full after a moment, and each entry pushes one out.
    measure("time line on", 1 << 14);
    for (name, level) in [
        ("tracing, turned down", LevelFilter::INFO),
        ("tracing, taken", LevelFilter::DEBUG),
    ] {
        let spans = Arc::default();
        let taking = Taking {
            level,
            spans: Arc::clone(&spans),
        };
        tracing::subscriber::with_default(taking, || measure(name, 0));
        let is_taken = spans.load(Ordering::Relaxed) > 0;
        assert_eq!(is_taken, level == LevelFilter::DEBUG, "{name}");
    }
}

criterion_group! {
    name = benches;
    // Not of the group: what the command line says would count for nothing.
    config = Criterion::default()
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2));
    targets = seeing
}
criterion_main!(benches);
