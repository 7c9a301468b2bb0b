//! All states of a small world, each visited once.

use crate::world::{Ending, World};
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use tierflow_engine::plan::{AfterRestore, Difference, Differences, TierId};

/// A small world, and all that its application may do, each once, in any order.
#[derive(Debug, Clone)]
pub(crate) struct Model {
    pub(crate) name: &'static str,
    pub(crate) capacities: &'static [u64],
    pub(crate) depth: usize,
    pub(crate) policy: usize,
    pub(crate) percent: u8,
    pub(crate) after: AfterRestore,
    /// The first versions are of an earlier run and lie on these tiers, the lowest named first: each as a difference to
    /// the one before, if versions are stored as such.
    pub(crate) adopts: &'static [&'static [usize]],
    /// Sizes of the versions, checkpointed in this order.
    pub(crate) sizes: &'static [u64],
    /// Versions that are restored, each at most once.
    pub(crate) restores: &'static [u64],
    pub(crate) hints: &'static [u64],
    pub(crate) drops: &'static [u64],
    pub(crate) wait: bool,
    /// Whether versions are written and read in place.
    pub(crate) in_place: bool,
    /// Limits that are set to tiers, each once.
    pub(crate) limits: &'static [(usize, u64)],
    /// Whether versions are stored as differences.
    pub(crate) differences: Option<Differences>,
    /// How many things may fail.
    pub(crate) failures: usize,
    /// Calls that may be open at a time: 1 is an application of one thread.
    pub(crate) calls: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    Checkpoint,
    Restore(u64),
    Drop(u64),
    Hint,
    PrefetchStart,
    Wait,
    Limit(usize, u64),
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
        let mut world = World::of(
            model.capacities,
            model.depth,
            model.policy,
            model.percent,
            model.after,
            model.differences,
        );
        let mut base = None;
        for (tiers, &size) in model.adopts.iter().zip(model.sizes) {
            let version = world.next_version;
            let difference = model.differences.map(|_| Difference { bytes: size, base });
            world.adopt_as(size, tiers, difference);
            base = Some(version);
        }
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
                match model.in_place {
                    true => self.world.produce(size),
                    false => self.world.checkpoint(size),
                }
            }
            Action::Restore(version) if model.in_place => self.world.consume(version),
            Action::Restore(version) => self.world.restore(version),
            Action::Drop(version) => self.world.drop_version(version),
            Action::Hint => self.world.hint(model.hints.to_vec()),
            Action::PrefetchStart => self.world.prefetch_start(),
            Action::Wait => self.world.wait(),
            Action::Limit(tier, bytes) => self.world.limit(TierId(tier), bytes),
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
        let limits = model.limits.iter();
        calls.extend(limits.map(|&(tier, bytes)| Action::Limit(tier, bytes)));
        calls.extend((!model.hints.is_empty()).then_some(Action::Hint));
        calls.extend((!model.hints.is_empty()).then_some(Action::PrefetchStart));
        calls.retain(|call| {
            let was_written = match call {
                Action::Restore(version) | Action::Drop(version) => *version < versions,
                _ => true,
            };
            let is_new = *call == Action::Checkpoint || !self.done.contains(call);
            let blocks = !matches!(
                call,
                Action::Hint | Action::PrefetchStart | Action::Drop(_) | Action::Limit(..)
            );
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
pub(crate) struct Explored {
    states: HashMap<(u64, u64), usize>,
    /// By state: the state that it was first reached from, and how.
    origins: Vec<Option<(usize, Action)>>,
    pub(crate) steps: usize,
    /// Steps in which something under way ended well, or as the plan asked.
    endings: Vec<(usize, usize)>,
    pub(crate) quiet: usize,
}

impl Explored {
    pub(crate) fn of(model: &Model) -> Self {
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
                // What is lent may never be given back.
                if replay.world.under_way() == replay.world.slots() {
                    assert_eq!(replay.world.open_calls(), 0, "somebody waits for nothing");
                }
                if replay.world.under_way() == 0 {
                    explored.quiet += 1;
                    assert!(
                        replay.failures > 0 || replay.world.is_released(),
                        "what may not be used any more never becomes free"
                    );
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

    /// How many states there are.
    pub(crate) fn states(&self) -> usize {
        self.origins.len()
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
