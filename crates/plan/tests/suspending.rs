//! What is foreseen when the application is about to go, held against what happens: every choice is played to its end in
//! virtual time, over ways that transfers share evenly, and the best of them is known.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use tierflow_plan::{
    Coding, Event, Executor, Piece, PlanConfig, Refusal, Scope, Ticket, TierConfig, Transfer,
    TransferFailure, TransferId, Version, World,
};

const MIB: u64 = 1 << 20;
const MS: u64 = 1_000_000;

/// Random numbers by xorshift.
struct Draw(u64);

impl Draw {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn within(&mut self, range: std::ops::RangeInclusive<u64>) -> u64 {
        range.start() + self.next() % (range.end() - range.start() + 1)
    }
}

/// A copy under way: into which tier, and how long it still takes, alone.
struct Flow {
    to: usize,
    left_ns: f64,
}

/// Does what the plan says, in virtual time.
#[derive(Default)]
struct Hands {
    /// ns a byte, and ns a transfer, of the way into each tier.
    rates: Vec<(f64, f64)>,
    flows: BTreeMap<TransferId, Flow>,
    cancelled: Vec<TransferId>,
    granted: Vec<Ticket>,
    answers: BTreeMap<Ticket, Result<(), Refusal>>,
}

impl Executor for Hands {
    fn write(&mut self, ticket: Ticket, _: Version, _: Vec<Piece>) {
        self.granted.push(ticket);
    }

    fn read(&mut self, _: Ticket, _: Version, _: Vec<Piece>, _: Coding) {
        panic!("nothing is read");
    }

    fn transfer(&mut self, transfer: Transfer) {
        let bytes: u64 = transfer.to.iter().map(|piece| piece.place.size).sum();
        let to = transfer.to[0].place.tier.0;
        let (byte, each) = self.rates[to];
        let left_ns = each + byte * bytes as f64;
        self.flows.insert(transfer.id, Flow { to, left_ns });
    }

    fn cancel(&mut self, id: TransferId) {
        self.cancelled.push(id);
    }

    fn answer(&mut self, ticket: Ticket, answer: Result<(), Refusal>) {
        self.answers.insert(ticket, answer);
    }
}

/// A plan, its hands, and what it is now.
struct Played {
    world: World,
    hands: Hands,
    now: f64,
}

impl Played {
    fn tell(&mut self, event: Event) {
        let told = self.world.tell(self.now as u64, event, &mut self.hands);
        told.unwrap();
        while let Some(ticket) = self.hands.granted.pop() {
            let written = Event::Written { ticket, ok: true };
            let now = self.now as u64;
            self.world.tell(now, written, &mut self.hands).unwrap();
        }
        while let Some(id) = self.hands.cancelled.pop() {
            if self.hands.flows.remove(&id).is_some() {
                let why = TransferFailure::Cancelled;
                self.tell(Event::TransferFailed { id, why });
            }
        }
    }

    fn sharing(&self, to: usize) -> f64 {
        self.hands
            .flows
            .values()
            .filter(|flow| flow.to == to)
            .count() as f64
    }

    /// Time passes until then, or until one copy ends. False if that is all.
    fn pass(&mut self, until: f64) -> bool {
        let ends = self.hands.flows.iter();
        let ends = ends.map(|(&id, flow)| (flow.left_ns * self.sharing(flow.to), id));
        let first = ends.min_by(|a, b| a.0.total_cmp(&b.0));
        let ends = first.filter(|(left, _)| self.now + left <= until);
        let passed = ends.map_or(until - self.now, |(left, _)| left);
        let sharing: Vec<_> = (0..self.hands.rates.len())
            .map(|to| self.sharing(to))
            .collect();
        if passed.is_finite() {
            for flow in self.hands.flows.values_mut() {
                flow.left_ns -= passed / sharing[flow.to];
            }
            self.now += passed;
        }
        if let Some((_, id)) = ends {
            self.hands.flows.remove(&id);
            self.tell(Event::TransferDone { id, stored: None });
        }
        ends.is_some()
    }

    fn checkpoint(&mut self, version: Version, size: u64) {
        let ticket = self.world.ticket();
        self.tell(Event::Checkpoint {
            ticket,
            version,
            size,
        });
    }

    /// ns until a suspension for this version is answered.
    fn suspend(mut self, version: Version, scope: Scope) -> f64 {
        let ticket = self.world.ticket();
        let begun = self.now;
        self.tell(Event::Suspend {
            ticket,
            version,
            scope,
        });
        while !self.hands.answers.contains_key(&ticket) {
            assert!(self.pass(f64::INFINITY), "nothing is under way");
        }
        assert_eq!(self.hands.answers[&ticket], Ok(()));
        assert!(self.world.plan().is_settled(version));
        self.now - begun
    }
}

/// A history up to some moment: the same each time that it is played.
#[derive(Debug)]
struct History {
    lasting: bool,
    rates: Vec<(f64, f64)>,
    /// Pauses before the checkpoints, and their sizes.
    checkpoints: Vec<(u64, u64)>,
    pause: u64,
}

impl History {
    fn draw(draw: &mut Draw) -> Self {
        let rate = |draw: &mut Draw| {
            let bytes_per_s = draw.within(50..=2000) * MIB;
            (1e9 / bytes_per_s as f64, 0.0)
        };
        let is_node_local = draw.within(0..=1) == 1;
        let mut rates = vec![(0.0, 0.0)];
        rates.extend(is_node_local.then(|| rate(draw)));
        rates.push(rate(draw));
        let equal = (draw.within(0..=1) == 1).then(|| draw.within(1..=200) * MIB);
        let count = draw.within(2..=12);
        let checkpoints = (0..count).map(|_| {
            let size = equal.unwrap_or_else(|| draw.within(1..=200) * MIB);
            (draw.within(0..=400) * MS, size)
        });
        let checkpoints = checkpoints.collect();
        Self {
            lasting: draw.within(0..=3) > 0,
            checkpoints,
            pause: draw.within(0..=1000) * MS,
            rates,
        }
    }

    fn play(&self) -> Played {
        let tiers = (0..self.rates.len()).map(|tier| TierConfig {
            depth: 4,
            eager: tier > 0,
            whole: tier > 0 && self.lasting,
            ..TierConfig::new(1 << 40)
        });
        let world = World::new(PlanConfig::new(tiers.collect())).unwrap();
        let rates = self.rates.clone();
        let hands = Hands {
            rates,
            ..Hands::default()
        };
        let mut played = Played {
            world,
            hands,
            now: 0.0,
        };
        // The first one is there before anything is asked.
        played.checkpoint(0, 32 * MIB);
        while played.pass(f64::INFINITY) {}
        for (version, &(pause, size)) in (1..).zip(&self.checkpoints) {
            played.checkpoint(version, size);
            let until = played.now + pause as f64;
            while played.pass(until) {}
        }
        let until = played.now + self.pause as f64;
        while played.pass(until) {}
        played
    }
}

/// Whether the version that is foreseen is the best, and that it is within 5%.
fn is_best(history: &History, scope: Scope, patience: u64) -> bool {
    let played = history.play();
    let now = played.now as u64;
    let chosen = played.world.plan().foresee(now, now + patience, scope);
    let chosen = chosen.expect("the first version is there");
    let last = history.checkpoints.len() as u64;
    let takes: Vec<f64> = (0..=last)
        .map(|version| history.play().suspend(version, scope))
        .collect();
    let took = takes[chosen.version as usize];
    let patience = patience as f64;
    assert!(
        took <= 1.05 * patience,
        "{took} ns, {chosen:?}, {patience}, {history:?}"
    );
    let told = chosen.ns.expect("the way was measured") as f64;
    assert!(
        (took - told).abs() <= 0.05 * patience,
        "{took} ns, {chosen:?}, {history:?}"
    );
    let newest = |patience: f64| takes.iter().rposition(|took| *took <= patience);
    let sure = newest(0.95 * patience).unwrap() as u64;
    assert!(
        chosen.version >= sure,
        "version {sure} takes {:?}, {chosen:?} of {takes:?}, {patience}, {history:?}",
        takes[sure as usize]
    );
    chosen.version == newest(patience).unwrap() as u64
}

#[test]
fn never_late_and_never_older_than_the_best_that_was_possible() {
    let count = std::env::var("TIERFLOW_SUSPENSIONS").ok();
    let count = count.and_then(|count| count.parse().ok()).unwrap_or(200);
    let mut draw = Draw(0x9e37_79b9_7f4a_7c15);
    let mut best = 0;
    for _ in 0..count {
        let history = History::draw(&mut draw);
        let scope = match draw.within(0..=2) {
            0 => Scope::History,
            _ => Scope::Version,
        };
        let last = history.checkpoints.len() as u64;
        let longest = history.play().suspend(last, scope).max(50e6) as u64;
        let patience = longest * draw.within(2..=150) / 100;
        best += u64::from(is_best(&history, scope, patience));
    }
    println!("{best} of {count} are the best to the nanosecond");
}

#[test]
fn nothing_is_promised_before_anything_was_measured() {
    let history = History {
        lasting: true,
        rates: vec![(0.0, 0.0), (1.0, 0.0)],
        checkpoints: Vec::new(),
        pause: 0,
    };
    let mut played = history.play();
    let plan = played.world.plan();
    assert_eq!(
        plan.foresee(0, u64::MAX, Scope::Version).unwrap().ns,
        Some(0)
    );
    let tiers = vec![TierConfig::new(1 << 40); 2];
    played.world = World::new(PlanConfig::new(tiers)).unwrap();
    assert_eq!(
        played.world.plan().foresee(0, u64::MAX, Scope::Version),
        None
    );
    played.checkpoint(1, MIB);
    let plan = played.world.plan();
    let foreseen = plan.foresee(0, 1, Scope::Version).unwrap();
    assert_eq!((foreseen.version, foreseen.ns), (1, None));
    assert_eq!(plan.ns_to_settle(0, 1, Scope::Version), None);
}

#[test]
fn an_application_that_goes_on_gets_all_that_was_dropped() {
    let history = History {
        lasting: true,
        rates: vec![(0.0, 0.0), (1.0, 0.0), (2.0, 0.0)],
        checkpoints: vec![(0, MIB); 6],
        pause: 0,
    };
    let mut played = history.play();
    let ticket = played.world.ticket();
    played.tell(Event::Suspend {
        ticket,
        version: 6,
        scope: Scope::Version,
    });
    while played.pass(f64::INFINITY) {}
    let settled = |played: &Played| {
        let plan = played.world.plan();
        (0..=7)
            .filter(|&version| plan.is_settled(version))
            .collect::<Vec<_>>()
    };
    assert_eq!(settled(&played), [0, 6]);
    assert!(played.world.plan().is_suspended());
    played.checkpoint(7, MIB);
    assert!(!played.world.plan().is_suspended());
    while played.pass(f64::INFINITY) {}
    assert_eq!(settled(&played), (0..=7).collect::<Vec<_>>());
}
