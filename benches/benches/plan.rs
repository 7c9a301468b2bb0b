//! What planning costs a caller: one request to a plan whose fastest tier caches 1000 versions, all hinted.
//!
//! Measured is the call of `Plan::handle` alone that a checkpoint, or a restore, waits for; copies and transfers end at once,
//! outside of what is measured. Checkpoints that find a gap are not counted; and of many calls the median is, so that
//! others who use the machine are not.
#![allow(clippy::expect_used, reason = "a bench may panic")]
#![allow(missing_docs, reason = "criterion's macros write public functions")]

use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use tierflow_engine::Flush;
use tierflow_engine::plan::{AfterRestore, Command, Event, Plan, PlanConfig, Ticket, TierConfig};
use tierflow_evict::{Cost, Fifo, Lru, Policy, Score};

const MIB: u64 = 1 << 20;

/// A plan and what it said last.
struct Driver {
    plan: Plan,
    commands: Vec<Command>,
    tickets: u64,
}

type MakePolicy = fn() -> Box<dyn Policy + Send>;

/// Sizes of versions in MiB: all the same, or any between 4 and 35.
type Sizes = fn(u64) -> u64;

/// Pseudo-random numbers that are the same in every run (SplitMix64).
fn random(seed: u64) -> u64 {
    let mut x = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

/// What a request took.
struct Took {
    call: Duration,
    evicted: bool,
}

impl Driver {
    fn new(policy: MakePolicy, cached: u64, sizes: Sizes) -> Self {
        let room: u64 = (0..cached).map(sizes).sum();
        let tier = |capacity| TierConfig {
            capacity,
            alignment: 4096,
            policy: policy(),
            flush_bandwidth: 50_000_000_000,
            flush: Flush::Eager,
            flush_depth: 1,
            prefetch_depth: 1,
        };
        let config = PlanConfig {
            tiers: vec![tier(room * MIB), tier(1 << 50)],
            after_restore: AfterRestore::Keep,
            differences: None,
        };
        Self {
            plan: Plan::new(config).expect("sound tiers"),
            commands: Vec::new(),
            tickets: 0,
        }
    }

    fn ticket(&mut self) -> Ticket {
        self.tickets += 1;
        Ticket(self.tickets)
    }

    /// The time of one call; what follows from it ends at once.
    fn request(&mut self, event: Event) -> Took {
        let mut commands = std::mem::take(&mut self.commands);
        let begun = Instant::now();
        self.plan.handle(event, &mut commands);
        let call = begun.elapsed();
        let is_drop = |command: &Command| matches!(command, Command::Drop { .. });
        let evicted = commands.iter().any(is_drop);
        while let Some(command) = commands.pop() {
            let event = match command {
                Command::Write { ticket, .. } => Event::Written { ticket, ok: true },
                Command::Read { ticket, .. } => Event::Read { ticket, ok: true },
                Command::Transfer { id, .. } => Event::TransferDone {
                    id,
                    elapsed_ns: 1_000_000,
                    stored: None,
                },
                _ => continue,
            };
            self.plan.handle(event, &mut commands);
        }
        self.commands = commands;
        Took { call, evicted }
    }

    fn checkpoint(&mut self, version: u64, sizes: Sizes) -> Took {
        let ticket = self.ticket();
        self.request(Event::Checkpoint {
            ticket,
            version,
            size: sizes(version) * MIB,
        })
    }

    fn restore(&mut self, version: u64) -> Duration {
        let ticket = self.ticket();
        self.request(Event::Restore { ticket, version }).call
    }
}

fn median(mut calls: Vec<Duration>) -> Duration {
    let middle = calls.len() / 2;
    *calls.select_nth_unstable(middle).1
}

fn plan(criterion: &mut Criterion) {
    const CACHED: u64 = 1000;
    let sizes: [(&str, Sizes); 2] = [
        ("same", |_| 16),
        ("mixed", |version| 4 + random(version) % 32),
    ];
    let policies: [(&str, MakePolicy); 4] = [
        ("cost", || Box::<Cost>::default()),
        ("score", || Box::new(Score)),
        ("fifo", || Box::<Fifo>::default()),
        ("lru", || Box::<Lru>::default()),
    ];
    let mut group = criterion.benchmark_group("plan");
    for (kind, sizes) in sizes {
        for (name, policy) in policies {
            let id = |what: &str| BenchmarkId::new(format!("{what}/{kind}/{name}"), CACHED);
            group.bench_function(id("checkpoint that evicts"), |bencher| {
                bencher.iter_custom(|iterations| {
                    let mut driver = Driver::new(policy, CACHED, sizes);
                    // Some find a gap.
                    let last = CACHED + 8 * iterations;
                    driver.request(Event::Hint {
                        versions: (0..last).rev().collect(),
                    });
                    for version in 0..CACHED {
                        driver.checkpoint(version, sizes);
                    }
                    let wanted = usize::try_from(iterations).expect("few enough");
                    let calls: Vec<_> = (CACHED..last)
                        .map(|version| driver.checkpoint(version, sizes))
                        .filter(|took| took.evicted)
                        .take(wanted)
                        .map(|took| took.call)
                        .collect();
                    assert_eq!(calls.len(), wanted, "too many found a gap");
                    median(calls) * u32::try_from(iterations).expect("few enough")
                });
            });
            group.bench_function(id("restore from the cache"), |bencher| {
                bencher.iter_custom(|iterations| {
                    let mut driver = Driver::new(policy, CACHED, sizes);
                    driver.request(Event::Hint {
                        versions: (0..CACHED).rev().collect(),
                    });
                    for version in 0..CACHED {
                        driver.checkpoint(version, sizes);
                    }
                    let calls = (0..iterations).map(|at| driver.restore(CACHED - 1 - at % CACHED));
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
    targets = plan
}
criterion_main!(benches);
