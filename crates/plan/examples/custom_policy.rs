//! Custom policies for versions that are read again and again: one decides by the number of reads, one by the time of the next read.
//! The example compares them with the crate's own policies.
//!
//! `cargo run -p tierflow-plan --example custom_policy`

use std::collections::HashMap;
use std::error::Error;
use tierflow_plan::{
    Coding, Event, Executor, Lru, Piece, PlanConfig, Policy, Refusal, Residency, Standing, Ticket,
    TierConfig, Transfer, TransferId, Usage, Version, World,
};

/// Least frequently used (LFU): the versions with the most reads stay, and among equals the versions that were read last.
#[derive(Debug)]
struct Frequency;

impl Policy for Frequency {
    fn standing(&self, usage: &Usage) -> Standing {
        let last = usage.read.unwrap_or(usage.written);
        // Ticks have 40 bits, as many as a trillion events; counts have 22.
        Standing::Recent(u64::from(usage.reads).min(1 << 22) << 40 | last)
    }

    fn follows_hints(&self) -> bool {
        false
    }

    fn name(&self) -> &'static str {
        "frequency"
    }
}

/// Farthest next use (Belady, *A study of replacement algorithms for a virtual-storage computer*, 1966), for an application that
/// knows its whole trace: versions stay in the order of their next reads, and versions without further reads leave first. As the policy
/// gives the order of use, the plan also prefetches the next version.
#[derive(Debug)]
struct FarthestNextUse {
    /// Places of each version's reads in the trace. The count of its reads so far selects the next one.
    uses: HashMap<Version, Vec<u64>>,
}

impl Policy for FarthestNextUse {
    fn standing(&self, usage: &Usage) -> Standing {
        let uses = self.uses.get(&usage.version);
        match uses.and_then(|uses| uses.get(usage.reads as usize)) {
            Some(next) => Standing::Known(*next),
            None => Standing::Passed(usage.read.unwrap_or(usage.written)),
        }
    }

    fn follows_hints(&self) -> bool {
        false
    }

    fn name(&self) -> &'static str {
        "farthest-next-use"
    }
}

/// An executor that copies nothing, and reports every command as done as soon as the plan may be called.
#[derive(Default)]
struct Instant {
    done: Vec<Event>,
}

impl Executor for Instant {
    fn write(&mut self, ticket: Ticket, _: Version, _: Vec<Piece>) {
        self.done.push(Event::Written { ticket, ok: true });
    }
    fn read(&mut self, ticket: Ticket, _: Version, _: Vec<Piece>, _: Coding) {
        self.done.push(Event::Read { ticket, ok: true });
    }
    fn transfer(&mut self, transfer: Transfer) {
        let (id, stored) = (transfer.id, None);
        self.done.push(Event::TransferDone { id, stored });
    }
    fn cancel(&mut self, _: TransferId) {}
    fn answer(&mut self, _: Ticket, _: Result<(), Refusal>) {}
}

/// Returns the versions in the order of their reads. Half of the reads are of a few versions, and now and then all are read in turn.
fn trace() -> Vec<Version> {
    let mut word = 1_u64;
    let mut random = |below: u64| {
        word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (word >> 33) % below
    };
    let mut trace = Vec::new();
    while trace.len() < 4_000 {
        match random(60) {
            0 => trace.extend(0..VERSIONS),
            1..30 => trace.push(random(VERSIONS)),
            _ => trace.push(random(12) * 5),
        }
    }
    trace
}

const VERSIONS: u64 = 64;
const SIZE: u64 = 1 << 20;

/// Returns the share of the trace's reads that the fastest tier serves, which has room for 16 of 64 versions.
fn hits(policy: Box<dyn Policy>, trace: &[Version]) -> Result<f64, Box<dyn Error>> {
    let mut config = PlanConfig::new([16 * SIZE, 256 * SIZE].map(TierConfig::new).into());
    config.policy = policy;
    let (mut world, mut executor) = (World::new(config)?, Instant::default());
    let mut tell = |world: &mut World, event| -> Result<(), Box<dyn Error>> {
        world.tell(0, event, &mut executor)?;
        while let Some(done) = executor.done.pop() {
            world.tell(0, done, &mut executor)?;
        }
        Ok(())
    };
    for version in 0..VERSIONS {
        let (ticket, size) = (world.ticket(), SIZE);
        #[rustfmt::skip]
        tell(&mut world, Event::Checkpoint { ticket, version, size })?;
    }
    for &version in trace {
        let ticket = world.ticket();
        tell(&mut world, Event::Restore { ticket, version })?;
    }
    let served = world.plan().statistics().tiers[0].restores;
    Ok(served as f64 / trace.len() as f64)
}

/// Prints the share of hits of each policy.
fn compare() -> Result<Vec<(&'static str, f64)>, Box<dyn Error>> {
    let trace = trace();
    let mut uses = HashMap::<Version, Vec<u64>>::new();
    for (at, &version) in (0..).zip(&trace) {
        uses.entry(version).or_default().push(at);
    }
    let policies: [Box<dyn Policy>; 4] = [
        Box::new(Residency),
        Box::new(Lru),
        Box::new(Frequency),
        Box::new(FarthestNextUse { uses }),
    ];
    let hits = policies.into_iter().map(|policy| {
        let name = policy.name();
        hits(policy, &trace).map(|hits| (name, hits))
    });
    hits.collect()
}

fn main() -> Result<(), Box<dyn Error>> {
    for (name, hits) in compare()? {
        println!("{name:<18} {hits:.2} of the reads from the fastest tier");
    }
    Ok(())
}

#[test]
fn policies_with_more_knowledge_have_more_hits() {
    let hits = compare().unwrap();
    println!("{hits:?}");
    let of = |name| hits.iter().find(|(own, _)| *own == name).unwrap().1;
    assert!(of("frequency") > of("lru"), "{hits:?}");
    for (name, hits) in &hits {
        assert!(*hits <= of("farthest-next-use"), "{name}: {hits}");
    }
}
