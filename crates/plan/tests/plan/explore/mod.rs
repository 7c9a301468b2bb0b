//! Visits all states of a small machine, each once.

use crate::machine::{Call, Ending, Machine, Setup};
use std::collections::{BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use tierflow_plan::{Difference, Scope, TransferFailure, Version};

/// A small machine, and the actions of its application, each of which happens at most once, in any order.
#[derive(Debug, Clone)]
pub(crate) struct Model {
    pub(crate) name: &'static str,
    pub(crate) setup: Setup,
    /// The tiers of the first versions, which an earlier run left, the lowest tier first. If the setup has differences, each version is a
    /// difference from the one before.
    pub(crate) adopts: &'static [&'static [usize]],
    /// Sizes of the versions, checkpointed in this order.
    pub(crate) sizes: &'static [u64],
    /// Versions that are restored, each at most once.
    pub(crate) restores: &'static [Version],
    /// Hints, given in this order, each at any time.
    pub(crate) hints: &'static [&'static [Version]],
    /// True if all hints may be withdrawn.
    pub(crate) forget: bool,
    pub(crate) drops: &'static [Version],
    pub(crate) wait: bool,
    /// Versions for which the application suspends, each once.
    pub(crate) suspends: &'static [(Version, Scope)],
    /// Number of calls that may be abandoned before they are answered.
    pub(crate) abandons: usize,
    /// True if versions are written and read in place.
    pub(crate) in_place: bool,
    /// Limits that are set to tiers, each once.
    pub(crate) limits: &'static [(usize, u64)],
    /// Number of copies and transfers that may fail.
    pub(crate) failures: usize,
    /// Calls that may be open at a time: 1 is an application of one thread.
    pub(crate) calls: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    Checkpoint,
    Restore(Version),
    Drop(Version),
    Hint(usize),
    ForgetHints,
    PrefetchStart,
    Wait,
    Suspend(Version, Scope),
    Limit(usize, u64),
    Abandon(Call),
    End(Ending),
}

fn is_well(ending: Ending) -> bool {
    matches!(
        ending,
        Ending::Write(_, true) | Ending::Read(_, true) | Ending::Transfer(_, None)
    )
}

/// Returns true if the copy or transfer ended well, or as the plan asked.
fn is_expected(ending: Ending) -> bool {
    is_well(ending)
        || matches!(
            ending,
            Ending::Transfer(_, Some(TransferFailure::Cancelled))
        )
}

/// A hasher that collects the bytes, so that they can be hashed more than once.
#[derive(Default)]
struct Bytes(Vec<u8>);

impl Hasher for Bytes {
    fn write(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    fn finish(&self) -> u64 {
        self.0.len() as u64
    }
}

/// A machine and its history.
struct Run<'a> {
    model: &'a Model,
    machine: Machine,
    done: Vec<Action>,
    next: Version,
    failures: usize,
    abandoned: usize,
    /// Versions in the order in which they were taken in. The plan compares their times with that of `last_read`, even if it no longer holds
    /// that version.
    written: Vec<Version>,
    last_read: Option<Version>,
    /// False while the run waits for its next step.
    is_looked_at: bool,
}

impl Drop for Run<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() && self.is_looked_at {
            eprintln!("{:#?}\nafter {:?}", self.model, self.done);
        }
    }
}

impl<'a> Run<'a> {
    fn new(model: &'a Model) -> Self {
        let mut machine = Machine::new(&model.setup);
        let mut next: Version = 0;
        for (tiers, &size) in model.adopts.iter().zip(model.sizes) {
            let base = next.checked_sub(1);
            let difference = model.setup.differences;
            let difference = difference.map(|_| Difference { bytes: size, base });
            machine.adopt(next, size, tiers, difference);
            next += 1;
        }
        Self {
            model,
            machine,
            done: Vec::new(),
            next,
            failures: 0,
            abandoned: 0,
            written: (0..next).collect(),
            last_read: None,
            is_looked_at: true,
        }
    }

    fn copy(&self) -> Self {
        Self {
            machine: self.machine.clone(),
            done: self.done.clone(),
            written: self.written.clone(),
            is_looked_at: true,
            ..*self
        }
    }

    fn act(&mut self, action: Action) {
        self.done.push(action);
        let model = self.model;
        let machine = &mut self.machine;
        match action {
            Action::Checkpoint => {
                let size = model.sizes[self.next as usize];
                machine.checkpoint(self.next, size, model.in_place);
                self.next += 1;
            }
            Action::Restore(version) => drop(machine.restore(version, model.in_place)),
            Action::Drop(version) => machine.drop_version(version),
            Action::Hint(at) => machine.hint(model.hints[at].to_vec()),
            Action::ForgetHints => machine.forget_hints(),
            Action::PrefetchStart => machine.prefetch_start(),
            Action::Wait => drop(machine.wait()),
            Action::Suspend(version, scope) => drop(machine.suspend(version, scope)),
            Action::Limit(tier, bytes) => machine.limit(tier, bytes),
            Action::Abandon(call) => {
                let open = machine.open();
                let found = open
                    .iter()
                    .find(|&&(t, c)| c == call && !machine.is_granted(t));
                machine.abandon(found.expect("an open call").0);
                self.abandoned += 1;
            }
            Action::End(ending) => {
                self.failures += usize::from(!is_expected(ending));
                let calls: HashMap<_, _> = machine.open().into_iter().collect();
                match ending {
                    Ending::Write(ticket, true) => {
                        if let Call::Checkpoint(version) = calls[&ticket] {
                            self.written.push(version);
                        }
                    }
                    Ending::Read(ticket, true) => {
                        if let Call::Restore(version) = calls[&ticket] {
                            self.last_read = Some(version);
                        }
                    }
                    _ => {}
                }
                machine.end(ending);
            }
        }
    }

    /// Returns all actions that may happen next.
    fn actions(&self) -> Vec<Action> {
        let model = self.model;
        let can_fail = self.failures < model.failures;
        let endings = self.machine.endings().into_iter();
        let mut actions: Vec<_> = endings
            .filter(|&ending| is_expected(ending) || can_fail)
            .map(Action::End)
            .collect();
        if self.abandoned < model.abandons {
            let open = self.machine.open();
            let open = open.into_iter();
            let open = open.filter(|&(ticket, _)| !self.machine.is_granted(ticket));
            actions.extend(open.map(|(_, call)| Action::Abandon(call)));
        }
        if self.machine.open().len() < model.calls {
            if (self.next as usize) < model.sizes.len() {
                actions.push(Action::Checkpoint);
            }
            let written = model
                .restores
                .iter()
                .filter(|&&version| version < self.next);
            let restores = written.map(|&version| Action::Restore(version));
            let waits = model.wait.then_some(Action::Wait);
            actions.extend(
                restores
                    .chain(waits)
                    .filter(|call| !self.done.contains(call)),
            );
        }
        let written = |version: &Version| *version < self.next;
        let suspends = model
            .suspends
            .iter()
            .filter(|(version, _)| written(version));
        let suspends = suspends.map(|&(version, scope)| Action::Suspend(version, scope));
        actions.extend(suspends.filter(|call| !self.done.contains(call)));
        let drops = model.drops.iter().filter(|&&version| version < self.next);
        let drops = drops.map(|&version| Action::Drop(version));
        let limits = model.limits.iter();
        let limits = limits.map(|&(tier, bytes)| Action::Limit(tier, bytes));
        let given = (0..model.hints.len()).map(Action::Hint);
        let hint = given.filter(|hint| !self.done.contains(hint)).take(1);
        let is_hinted = !model.hints.is_empty();
        let others = drops
            .chain(limits)
            .chain(hint)
            .chain(is_hinted.then_some(Action::PrefetchStart))
            .chain(model.forget.then_some(Action::ForgetHints));
        actions.extend(others.filter(|action| !self.done.contains(action)));
        actions
    }

    /// Returns two hashes that distinguish this state from others. Earlier calls count only by the calls that are still possible.
    fn fingerprint(&self) -> (u64, u64) {
        let calls = self.done.iter();
        let calls = calls.filter(|a| !matches!(a, Action::End(_) | Action::Abandon(_)));
        let mut calls: Vec<_> = calls.map(|call| format!("{call:?}")).collect();
        calls.sort_unstable();
        let mut later: Vec<_> = self.written.clone();
        if let Some(last) = self.last_read
            && let Some(at) = later.iter().position(|&version| version == last)
        {
            later.drain(..=at);
        }
        later.sort_unstable();
        let mut bytes = Bytes::default();
        (self.failures, self.abandoned, calls, later).hash(&mut bytes);
        self.machine.fingerprint(&mut bytes);
        let hash = |salt: u64| {
            let mut hasher = DefaultHasher::new();
            (salt, &bytes.0).hash(&mut hasher);
            hasher.finish()
        };
        (hash(0), hash(1))
    }

    /// Returns the calls that are not answered yet.
    fn unanswered(&self) -> Vec<Call> {
        let open = self.machine.open().into_iter();
        let open = open.filter(|&(ticket, _)| !self.machine.is_granted(ticket));
        open.map(|(_, call)| call).collect()
    }

    /// Adds the rules that the plan followed on the way to this state.
    fn rules(&self, rules: &mut BTreeSet<&'static str>) {
        let statistics = self.machine.plan().statistics();
        let last = statistics.tiers.len() - 1;
        let mut saw = |name, is_seen: bool| {
            if is_seen {
                rules.insert(name);
            }
        };
        for (at, tier) in statistics.tiers.iter().enumerate() {
            saw("evicted for a checkpoint", tier.evicted_for_checkpoints > 0);
            saw("evicted for a flush", tier.evicted_for_flushes > 0);
            saw("evicted for a prefetch", tier.evicted_for_prefetches > 0);
            saw("evicted beyond a limit", tier.evicted_for_limits > 0);
            saw("dropped a prefetched replica", tier.dropped_prefetches > 0);
            saw("wrote past a tier", at > 0 && tier.checkpoints > 0);
            saw("read past a tier", at > 0 && tier.restores > 0);
        }
        for hop in &statistics.hops {
            saw("written down", hop.to > hop.from && hop.transfers > 0);
            saw("prefetched", hop.to < hop.from && hop.transfers > 0);
            let (from, to) = (hop.from.0, hop.to.0);
            saw("down past a tier", from == 0 && to == last && last > 1);
            saw("up past a tier", from == last && to == 0 && last > 1);
            saw("cancelled", hop.cancelled > 0);
            saw("failed", hop.failed > 0);
        }
        for (call, refusal) in self.machine.refusals() {
            use tierflow_plan::Refusal;
            saw("refused: no room", *refusal == Refusal::NoRoom);
            let is_stalled = matches!(refusal, Refusal::Stalled { .. });
            saw("refused: stalled", is_stalled);
            let bytes: u64 = self.model.sizes.iter().sum();
            let last = self
                .model
                .setup
                .tiers
                .last()
                .map_or(0, |tier| tier.capacity);
            let is_healthy = self.failures == 0 && self.model.limits.is_empty() && bytes <= last;
            // A suspension that another one replaces ends in the same way.
            let is_first = matches!(call, Call::Suspend(_)) && self.model.suspends.len() > 1;
            let is_well = !is_stalled || is_first;
            assert!(is_well || !is_healthy, "a healthy tier stalls");
            let is_full = *refusal == Refusal::NoRoom && !self.model.in_place;
            assert!(!is_full || !is_healthy, "a tier with room for all has none");
        }
    }
}

/// The graph of all states.
#[derive(Default)]
pub(crate) struct Explored {
    states: HashMap<(u64, u64), usize>,
    /// For each state, the state from which it was first reached, and the action.
    origins: Vec<Option<(usize, Action)>>,
    pub(crate) steps: usize,
    /// Steps in which a copy or transfer ended well, or as the plan asked.
    endings: Vec<(usize, usize)>,
    pub(crate) quiet: usize,
    /// The rules that the plan followed in any of the states.
    pub(crate) rules: BTreeSet<&'static str>,
}

/// A state, and the actions in it that were not tried yet.
struct Open<'a> {
    state: usize,
    run: Run<'a>,
    actions: Vec<Action>,
}

impl Explored {
    pub(crate) fn of(model: &Model) -> Self {
        let mut explored = Self::default();
        let mut open = Vec::new();
        open.extend(explored.reach(Run::new(model), None));
        while let Some(last) = open.last_mut() {
            let Some(action) = last.actions.pop() else {
                open.pop();
                continue;
            };
            let (from, mut run) = (last.state, last.run.copy());
            run.act(action);
            open.extend(explored.reach(run, Some((from, action))));
        }
        explored.assert_it_settles();
        println!(
            "{}: {} states, {} steps, {} states at rest; {:?}",
            model.name,
            explored.states(),
            explored.steps,
            explored.quiet,
            explored.rules
        );
        explored
    }

    /// Notes a step. Checks the state that it led to unless that is known, and returns it then.
    fn reach<'a>(&mut self, mut run: Run<'a>, step: Option<(usize, Action)>) -> Option<Open<'a>> {
        let next = self.states.len();
        let state = *self.states.entry(run.fingerprint()).or_insert(next);
        if let Some((from, action)) = step {
            self.steps += 1;
            if matches!(action, Action::End(ending) if is_expected(ending)) {
                self.endings.push((from, state));
            }
        }
        // The answers that a call got are no part of a state.
        run.rules(&mut self.rules);
        if state < next {
            return None;
        }
        self.origins.push(step);
        self.look_at_rest(&run);
        let actions = run.actions();
        run.is_looked_at = false;
        Some(Open {
            state,
            run,
            actions,
        })
    }

    /// Checks a state with nothing under way: all calls are answered, and all bytes can be read back. Lent slots may never be given back.
    fn look_at_rest(&mut self, run: &Run) {
        let under_way = run.machine.endings();
        if under_way.iter().all(|&ending| run.machine.is_slot(ending)) {
            assert_eq!(run.unanswered(), [], "calls that nothing will answer");
        }
        if under_way.is_empty() {
            self.quiet += 1;
            assert!(
                run.failures > 0 || run.machine.is_released(),
                "what may not be used any more never becomes free"
            );
            run.machine.clone().read_back();
        }
    }

    /// Returns the number of states.
    pub(crate) fn states(&self) -> usize {
        self.states.len()
    }

    /// Asserts that the machine comes to rest whatever the order in which copies and transfers end well: the graph of these steps has no
    /// cycle. All calls are answered in every state at rest, so none waits for ever.
    fn assert_it_settles(&self) {
        let mut incoming = vec![0_usize; self.states.len()];
        let mut next = vec![Vec::new(); self.states.len()];
        for &(from, to) in &self.endings {
            incoming[to] += 1;
            next[from].push(to);
        }
        let mut free: Vec<_> = (0..incoming.len()).collect();
        free.retain(|&at| incoming[at] == 0);
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
        if sorted < incoming.len() {
            let on = (0..incoming.len()).find(|&at| incoming[at] > 0);
            let origins = std::iter::successors(on.and_then(|at| self.origins[at]), |step| {
                self.origins[step.0]
            });
            let mut path: Vec<_> = origins.map(|(_, action)| action).collect();
            path.reverse();
            panic!("transfers can go round in circles after {path:?}");
        }
    }
}
