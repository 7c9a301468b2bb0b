//! The costs of planning: a checkpoint that evicts, a restore, a hint of 100 000 versions; with few versions held, and with a
//! million.
//!
//! The device caches 100 versions, a file has the others. For HPDC'23's Score, whose choice looks at every copy in the cache, the
//! device caches a thousand versions and more, beside the default policy with as many. Measured is all that the plan is told on account of one request,
//! from the call to the last report, where copies and transfers end at once. Of many requests the median counts, so that
//! others who use the machine do not.
#![allow(clippy::expect_used, reason = "a bench may panic")]
#![allow(missing_docs, reason = "criterion's macros write public functions")]

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use tierflow_benches::random::mix as random;
use tierflow_plan::{
    Coding, Event, Executor, Lru, Piece, PlanConfig, Policy, Refusal, Residency, Score, Ticket,
    TierConfig, TierId, Transfer, TransferId, Version, World,
};

/// Bytes of a version: one extent.
const SIZE: u64 = 16 << 20;
const CACHED: u64 = 100;
const HELD: [u64; 2] = [1000, 1_000_000];
/// Versions on the device where the policy looks at all of them.
const CACHED_MANY: [u64; 3] = [1000, 10_000, 100_000];
const HINTED: u64 = 100_000;
const DEVICE: TierId = TierId(0);
const FILE: TierId = TierId(1);

type MakePolicy = fn() -> Box<dyn Policy>;

const POLICIES: [(&str, MakePolicy); 2] = [
    ("residency", || Box::new(Residency)),
    ("lru", || Box::new(Lru)),
];

/// Ends everything at once: these are the reports that the plan is still to be told.
#[derive(Default)]
struct Reports(VecDeque<Event>);

impl Executor for Reports {
    fn write(&mut self, ticket: Ticket, _: Version, _: Vec<Piece>) {
        self.0.push_back(Event::Written { ticket, ok: true });
    }

    fn read(&mut self, ticket: Ticket, _: Version, _: Vec<Piece>, _: Coding) {
        self.0.push_back(Event::Read { ticket, ok: true });
    }

    fn transfer(&mut self, transfer: Transfer) {
        let (id, stored) = (transfer.id, None);
        self.0.push_back(Event::TransferDone { id, stored });
    }

    fn cancel(&mut self, _: TransferId) {}

    fn answer(&mut self, _: Ticket, answer: Result<(), Refusal>) {
        answer.expect("every version is held, and the file has room");
    }
}

/// A plan with as many versions as it is to hold: the newest on the device, all others in the file.
struct Driver {
    world: World,
    reports: Reports,
    now_ns: u64,
    held: std::ops::Range<Version>,
}

impl Driver {
    fn new(policy: MakePolicy, held: u64, cached: u64) -> Self {
        let config = PlanConfig {
            policy: policy(),
            ..PlanConfig::new(vec![
                TierConfig::new(cached * SIZE),
                TierConfig::new(1 << 50),
            ])
        };
        let mut driver = Self {
            world: World::new(config).expect("sound tiers"),
            reports: Reports::default(),
            now_ns: 0,
            held: 0..held - cached,
        };
        for version in driver.held.clone() {
            driver.request(Event::Adopt {
                version,
                size: SIZE,
                tier: FILE,
                difference: None,
            });
        }
        for _ in 0..cached {
            driver.checkpoint();
        }
        assert_eq!(driver.world.plan().versions().count() as u64, held);
        driver
    }

    fn tell(&mut self, event: Event) {
        self.now_ns += 1_000_000;
        let told = self.world.tell(self.now_ns, event, &mut self.reports);
        told.expect("an event that can be");
    }

    fn settle(&mut self) {
        while let Some(report) = self.reports.0.pop_front() {
            self.tell(report);
        }
    }

    fn request(&mut self, event: Event) -> Duration {
        let begun = Instant::now();
        self.tell(event);
        self.settle();
        begun.elapsed()
    }

    fn checkpoint(&mut self) -> Duration {
        let (ticket, version) = (self.world.ticket(), self.held.end);
        self.held.end += 1;
        self.request(Event::Checkpoint {
            ticket,
            version,
            size: SIZE,
        })
    }

    fn evictions(&self) -> u64 {
        self.world.plan().statistics().tiers[DEVICE.0].evictions
    }

    /// Times a checkpoint that pushes another version out. The oldest of all is dropped, so that as many are held as before.
    fn checkpoint_that_evicts(&mut self) -> Duration {
        let before = self.evictions();
        let took = self.checkpoint();
        assert!(self.evictions() > before, "nothing was evicted");
        let (ticket, version) = (self.world.ticket(), self.held.start);
        self.held.start += 1;
        self.request(Event::Drop { ticket, version });
        took
    }

    fn restore(&mut self, version: Version) -> Duration {
        let ticket = self.world.ticket();
        self.request(Event::Restore { ticket, version })
    }

    /// The event alone; what is prefetched then, and forgetting it all, is not measured.
    fn hint(&mut self) -> Duration {
        let versions = (self.held.start..).take(HINTED as usize).collect();
        let begun = Instant::now();
        self.tell(Event::Hint { versions });
        let took = begun.elapsed();
        self.settle();
        let versions = self.world.plan().hinted().collect();
        self.request(Event::ForgetHints { versions });
        took
    }
}

fn median(mut calls: Vec<Duration>) -> Duration {
    let middle = calls.len() / 2;
    *calls.select_nth_unstable(middle).1
}

fn plan(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("plan");
    for held in HELD {
        for (name, policy) in POLICIES {
            let mut driver = Driver::new(policy, held, CACHED);
            let mut seed = 0;
            let mut measure = |what: &str, call: &mut dyn FnMut(&mut Driver) -> Duration| {
                group.bench_function(
                    BenchmarkId::new(format!("{what}/{name}"), held),
                    |bencher| {
                        bencher.iter_custom(|iterations| {
                            let calls = (0..iterations).map(|_| call(&mut driver));
                            median(calls.collect()) * u32::try_from(iterations).expect("few enough")
                        });
                    },
                );
            };
            measure(
                "checkpoint that evicts",
                &mut Driver::checkpoint_that_evicts,
            );
            measure("restore", &mut |driver| {
                seed += 1;
                driver.restore(driver.held.start + random(seed) % held)
            });
            measure("hint of 100 000", &mut Driver::hint);
        }
    }
    group.finish();
}

fn windows(criterion: &mut Criterion) {
    let mut group =
        criterion.benchmark_group("plan/checkpoint that evicts, by copies in the cache");
    let policies: [(&str, MakePolicy); 2] = [
        ("score", || Box::new(Score)),
        ("residency", || Box::new(Residency)),
    ];
    for cached in CACHED_MANY {
        for (name, policy) in policies {
            let mut driver = Driver::new(policy, 2 * cached, cached);
            group.bench_function(BenchmarkId::new(name, cached), |bencher| {
                bencher.iter_custom(|iterations| {
                    let calls = (0..iterations).map(|_| driver.checkpoint_that_evicts());
                    median(calls.collect()) * u32::try_from(iterations).expect("few enough")
                });
            });
        }
    }
    group.finish();
}

criterion_group! {
    name = benches;
    // Not of the groups: what the command line says would count for nothing.
    config = Criterion::default()
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1))
        .sample_size(20);
    targets = plan, windows
}
criterion_main!(benches);
