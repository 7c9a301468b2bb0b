//! The plan explored exhaustively: every order of calls and endings of small configurations, with a failure anywhere.
//!
//! States are told apart by [`Plan::fingerprint`](tierflow_engine::plan::Plan::fingerprint) and the world's own. A
//! state is reached by replaying the events that lead to it, so neither the plan nor a policy has to be cloned. In each
//! state hold the plan's own invariants and the world's; and what is said in [`Explored::assert_it_settles`].

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod world;

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use tierflow_engine::plan::AfterRestore;
use world::{Ending, World};

/// A small world, and all that its application may do, each once, in any order.
#[derive(Debug, Clone)]
struct Model {
    name: &'static str,
    capacities: &'static [u64],
    depth: usize,
    policy: usize,
    percent: u64,
    after: AfterRestore,
    /// Sizes of the versions, checkpointed in this order.
    sizes: &'static [u64],
    /// Versions that are restored, each at most once.
    restores: &'static [u64],
    hints: &'static [u64],
    drops: &'static [u64],
    wait: bool,
    /// How many things may fail.
    failures: usize,
    /// Calls that may be open at a time: 1 is an application of one thread.
    calls: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    Checkpoint,
    Restore(u64),
    Drop(u64),
    Hint,
    PrefetchStart,
    Wait,
    End(Ending),
}

/// A world and what was done to it.
struct Replay<'a> {
    model: &'a Model,
    world: World,
    done: Vec<Action>,
    failures: usize,
}

impl Drop for Replay<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{:?}\nafter {:#?}", self.model, self.done);
        }
    }
}

impl<'a> Replay<'a> {
    fn of(model: &'a Model, actions: &[Action]) -> Self {
        let world = World::new(
            model.capacities,
            model.depth,
            model.policy,
            model.percent,
            model.after,
        );
        let mut replay = Self {
            model,
            world,
            done: Vec::new(),
            failures: 0,
        };
        // All but the last were checked when they came first.
        if let Some((last, known)) = actions.split_last() {
            replay.world.checks = false;
            known.iter().for_each(|&action| replay.act(action));
            replay.world.checks = true;
            replay.act(*last);
        }
        replay
    }

    fn act(&mut self, action: Action) {
        self.done.push(action);
        let model = self.model;
        match action {
            Action::Checkpoint => {
                let size = model.sizes[self.world.next_version as usize];
                self.world.checkpoint(size);
            }
            Action::Restore(version) => self.world.restore(version),
            Action::Drop(version) => self.world.drop_version(version),
            Action::Hint => self.world.hint(model.hints.to_vec()),
            Action::PrefetchStart => self.world.prefetch_start(),
            Action::Wait => self.world.wait(),
            Action::End(ending) => {
                self.failures += usize::from(!ending.is_well() && !ending.is_cancelled());
                self.world.end(ending);
            }
        }
    }

    /// All that may happen next.
    fn actions(&self) -> Vec<Action> {
        let model = self.model;
        let can_fail = self.failures < model.failures;
        let endings = self.world.endings().into_iter();
        let mut actions: Vec<_> = endings
            .filter(|ending| ending.is_well() || ending.is_cancelled() || can_fail)
            .map(Action::End)
            .collect();
        let versions = self.world.next_version;
        let mut calls = Vec::new();
        if (versions as usize) < model.sizes.len() {
            calls.push(Action::Checkpoint);
        }
        calls.extend(
            model
                .restores
                .iter()
                .map(|&version| Action::Restore(version)),
        );
        calls.extend(model.drops.iter().map(|&version| Action::Drop(version)));
        calls.extend(model.wait.then_some(Action::Wait));
        calls.extend((!model.hints.is_empty()).then_some(Action::Hint));
        calls.extend((!model.hints.is_empty()).then_some(Action::PrefetchStart));
        calls.retain(|call| {
            let was_written = match call {
                Action::Restore(version) | Action::Drop(version) => *version < versions,
                _ => true,
            };
            let is_new = *call == Action::Checkpoint || !self.done.contains(call);
            let blocks = !matches!(call, Action::Hint | Action::PrefetchStart | Action::Drop(_));
            was_written && is_new && (!blocks || self.world.open_calls() < model.calls)
        });
        actions.append(&mut calls);
        actions
    }

    /// Tells this state from others. What was called matters only by what may be called yet.
    fn fingerprint(&self) -> (u64, u64) {
        let mut calls: Vec<_> = self
            .done
            .iter()
            .filter(|a| !matches!(a, Action::End(_)))
            .collect();
        calls.sort_unstable_by_key(|call| format!("{call:?}"));
        let hash = |salt: u64| {
            let mut hasher = DefaultHasher::new();
            (salt, self.failures, format!("{calls:?}")).hash(&mut hasher);
            self.world.fingerprint(&mut hasher);
            hasher.finish()
        };
        (hash(0), hash(1))
    }
}

/// The graph of all states.
#[derive(Default)]
struct Explored {
    states: HashMap<(u64, u64), usize>,
    /// By state: the state that it was first reached from, and how.
    origins: Vec<Option<(usize, Action)>>,
    steps: usize,
    /// Steps in which something under way ended well, or as the plan asked.
    endings: Vec<(usize, usize)>,
    quiet: usize,
}

impl Explored {
    fn of(model: &Model) -> Self {
        let mut explored = Self::default();
        let mut open = vec![None];
        while let Some(origin) = open.pop() {
            let mut replay = Replay::of(model, &explored.path(origin));
            let mut origin = origin;
            // The first thing that may happen goes on in the same world; the others are replayed later.
            loop {
                let (state, is_new) = explored.reach(origin, replay.fingerprint());
                if !is_new {
                    break;
                }
                if replay.world.under_way() == 0 {
                    explored.quiet += 1;
                    assert_eq!(replay.world.open_calls(), 0, "somebody waits for nothing");
                    let mut other = Replay::of(model, &replay.done);
                    other.world.read_back();
                }
                let mut actions = replay.actions().into_iter();
                let Some(first) = actions.next() else { break };
                open.extend(actions.map(|action| Some((state, action))));
                replay.act(first);
                origin = Some((state, first));
            }
        }
        explored.assert_it_settles();
        println!(
            "{}: {} states, {} steps, {} of them with nothing under way",
            model.name,
            explored.origins.len(),
            explored.steps,
            explored.quiet
        );
        explored
    }

    fn path(&self, origin: Option<(usize, Action)>) -> Vec<Action> {
        let mut path = Vec::new();
        let mut at = origin;
        while let Some((state, action)) = at {
            path.push(action);
            at = self.origins[state];
        }
        path.reverse();
        path
    }

    /// Notes a step, and whether it led to a state not seen before.
    fn reach(&mut self, origin: Option<(usize, Action)>, fingerprint: (u64, u64)) -> (usize, bool) {
        let next = self.origins.len();
        let state = *self.states.entry(fingerprint).or_insert(next);
        if state == next {
            self.origins.push(origin);
        }
        if let Some((from, action)) = origin {
            self.steps += 1;
            if matches!(action, Action::End(ending) if ending.is_well() || ending.is_cancelled()) {
                self.endings.push((from, state));
            }
        }
        (state, state == next)
    }

    /// Whatever the order in which things end well, there comes a moment when nothing is under way: the graph of these
    /// steps has no circle. As every state with nothing under way has everybody answered, nobody waits for ever.
    fn assert_it_settles(&self) {
        let mut incoming = vec![0_usize; self.origins.len()];
        let mut next = vec![Vec::new(); self.origins.len()];
        for &(from, to) in &self.endings {
            incoming[to] += 1;
            next[from].push(to);
        }
        let mut free: Vec<_> = (0..incoming.len())
            .filter(|&at| incoming[at] == 0)
            .collect();
        let mut sorted = 0;
        while let Some(at) = free.pop() {
            sorted += 1;
            for &to in &next[at] {
                incoming[to] -= 1;
                if incoming[to] == 0 {
                    free.push(to);
                }
            }
        }
        assert_eq!(sorted, incoming.len(), "transfers can go round in circles");
    }
}

/// Two versions that fight for room for one, above a tier with room for all.
const TWO: Model = Model {
    name: "two versions, two tiers",
    capacities: &[1, 4],
    depth: 1,
    policy: 0,
    percent: 0,
    after: AfterRestore::Discard,
    sizes: &[1, 1],
    restores: &[0, 1],
    hints: &[1, 0],
    drops: &[],
    wait: false,
    failures: 1,
    calls: 2,
};

/// Explores a model, and more than that where `TIERFLOW_MODEL=full` asks for it.
fn explore(model: &Model, larger: &[Model]) {
    let is_full = std::env::var_os("TIERFLOW_MODEL").is_some_and(|mode| mode == "full");
    let larger = if is_full { larger } else { &[] };
    for model in std::iter::once(model).chain(larger) {
        let explored = Explored::of(model);
        assert!(explored.quiet > 0 && explored.steps >= explored.origins.len() - 1);
    }
}

#[test]
fn discarded_after_their_restore() {
    let three = Model {
        name: "three versions, two tiers",
        sizes: &[1, 1, 1],
        restores: &[0, 1, 2],
        hints: &[2, 1, 0],
        calls: 1,
        ..TWO
    };
    let tiers = Model {
        name: "two versions, three tiers, two failures",
        capacities: &[1, 1, 4],
        failures: 2,
        ..TWO
    };
    let both = Model {
        name: "three versions, three tiers",
        capacities: &[1, 1, 4],
        calls: 3,
        ..three.clone()
    };
    explore(&TWO, &[]);
    explore(&three, &[tiers, both]);
}

#[test]
fn kept_hinted_twice_and_dropped() {
    let keep = Model {
        name: "kept, dropped and waited for",
        after: AfterRestore::Keep,
        hints: &[0, 1, 0],
        drops: &[0],
        wait: true,
        ..TWO
    };
    let tiers = Model {
        name: "kept, dropped and waited for, three tiers",
        capacities: &[1, 1, 4],
        ..keep.clone()
    };
    explore(&keep, &[tiers]);
}

#[test]
fn windows_of_several_copies() {
    let sizes = Model {
        name: "sizes 1, 2 and 1 in a cache of 2",
        capacities: &[2, 6],
        sizes: &[1, 2, 1],
        restores: &[0, 1],
        hints: &[1, 0],
        calls: 1,
        ..TWO
    };
    let deep = Model {
        name: "sizes 1, 2 and 1 in caches of 2 and 3, two transfers at a time",
        capacities: &[2, 3, 8],
        depth: 2,
        restores: &[0, 1, 2],
        hints: &[1, 0, 2],
        ..sizes.clone()
    };
    explore(&sizes, &[deep]);
}

#[test]
fn too_little_room_for_all() {
    let full = Model {
        name: "three versions in room for two",
        capacities: &[1, 1],
        sizes: &[1, 1, 1],
        restores: &[1, 0],
        drops: &[0],
        wait: true,
        calls: 2,
        ..TWO
    };
    let past = Model {
        name: "a version larger than the cache, three tiers",
        capacities: &[1, 2, 3],
        sizes: &[1, 2, 1],
        restores: &[1, 0, 2],
        ..full.clone()
    };
    explore(&full, &[past]);
}

#[test]
fn flushed_only_when_somebody_needs_it() {
    let lazy = Model {
        name: "flushed above half",
        capacities: &[2, 4],
        percent: 50,
        sizes: &[1, 1, 1],
        restores: &[0, 2],
        hints: &[2, 0],
        wait: true,
        calls: 1,
        ..TWO
    };
    let tiers = Model {
        name: "flushed when full, three tiers",
        capacities: &[1, 2, 4],
        percent: 100,
        calls: 2,
        ..lazy.clone()
    };
    explore(&lazy, &[tiers]);
}

#[test]
fn other_policies() {
    for (policy, name) in [(1, "fifo"), (2, "lru")] {
        let three = Model {
            name,
            policy,
            sizes: &[1, 1, 1],
            restores: &[2, 0, 1],
            hints: &[2, 0, 1],
            calls: 2,
            ..TWO
        };
        explore(
            &Model {
                policy,
                name,
                ..TWO
            },
            &[three],
        );
    }
}

/// How long a random walk is: a million steps and more in a nightly run, with `TIERFLOW_STEPS`.
fn steps() -> usize {
    let asked = std::env::var("TIERFLOW_STEPS").ok();
    asked.and_then(|steps| steps.parse().ok()).unwrap_or(30_000)
}

/// One long history: what small models cannot show, such as counters that drift and numbers that run full.
#[test]
fn a_long_walk() {
    for (after, policy) in [
        (AfterRestore::Discard, 0),
        (AfterRestore::Keep, 1),
        (AfterRestore::Keep, 2),
    ] {
        let mut world = World::new(&[40, 70, 300], 2, policy, 30, after);
        let mut seed = 1_u64;
        let mut random = |below: u64| {
            // xorshift64 (Marsaglia, 2003).
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            seed % below
        };
        for _ in 0..steps() / 3 {
            let held: Vec<_> = world.held.keys().copied().collect();
            let some = held.get(random(held.len().max(1) as u64) as usize).copied();
            match (random(16), some) {
                (0..=2, _) if held.len() < 40 => world.checkpoint(1 + random(12)),
                (3 | 4, Some(version)) => world.restore(version),
                (5, Some(version)) => world.hint(
                    (version.saturating_sub(random(6))..=version)
                        .rev()
                        .collect(),
                ),
                (6, Some(version)) if after == AfterRestore::Keep => world.drop_version(version),
                (7, _) if random(20) == 0 => world.wait(),
                (8, _) => world.prefetch_start(),
                _ => {
                    let is_well = random(30) > 0;
                    world.end_one(random(1 << 20) as usize, is_well);
                }
            }
        }
        world.read_back();
        assert!(world.next_version > 100 && world.transfers_started() > 100);
    }
}
