//! Trunks: links that many flows share, so that not all flows are updated when a flow starts or ends.
//!
//! All flows that a trunk limits have the same rate, its *level*. So a trunk counts the service that each of them gets,
//! in bytes, as fair queueing counts virtual time (Demers, Keshav and Shenker, *Analysis and Simulation of a Fair
//! Queueing Algorithm*, SIGCOMM'89). A flow ends when the service has grown by the flow's bytes since its start. A
//! change of the level changes no flow's order.
//!
//! The rate through the trunk is a concave and piecewise linear function of the level: each flow has the level, or its
//! rate elsewhere if that is less. Newton's method finds the level at which the trunk is full. From below it never
//! passes that level; from above it goes from one kink to the next. Components of flows give the levels at which they
//! have to be filled again.

use super::{Flow, Limit, Network};
use crate::ordered::Ordered;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

/// Relative differences of levels that are rounding.
const ROUNDING: f64 = 1e-12;

/// Factor that takes a level below a kink.
const BELOW: f64 = 1.0 - 1e-9;

/// Rounds after which the difference that counts as rounding doubles.
const ROUNDS: u32 = 10_000;

/// A component of flows: the narrow link that it was filled from, and the number of the filling.
type ComponentId = (usize, u64);

/// The level at which a component is to be filled again.
type LevelWatch = (Ordered, ComponentId);

/// The levels of a trunk between which a component need not be filled again.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    /// Lowest level: below it, the trunk limits more of the flows.
    pub(super) low: f64,
    /// Highest level: above it, the trunk limits fewer of the flows.
    pub(super) high: f64,
    /// True if no change is allowed: the rates of others follow the level.
    pub(super) fixed: bool,
}

/// A direction of a link, or both together.
#[derive(Debug)]
pub(super) struct Trunk {
    /// Bytes/ns.
    pub(super) capacity: f64,
    /// Bytes/ns of each flow that it limits; infinite while it limits none.
    pub(super) level: f64,
    /// Number of flows that it limits.
    users: usize,
    /// Flows that it limits, without ended ones, by the service with which they end, then by their starts.
    pub(super) limited: BTreeSet<(Ordered, u64, usize)>,
    /// Bytes that each of `limited` got until `at`.
    service: f64,
    /// Time of the last change of `service`, in ns.
    at: u64,
    /// Sum of the rates that narrow links give to flows of this trunk, in 2⁻⁶⁴ bytes/ns, so that it stays exact.
    elsewhere: i128,
    /// Number of this trunk's flows that each other trunk limits.
    others: BTreeMap<usize, usize>,
    /// The other trunks that flows of this trunk pass.
    pub(super) crossing: BTreeSet<usize>,
    /// Components to be filled again when the level falls below a level. Some are outdated.
    below: BinaryHeap<LevelWatch>,
    /// Components to be filled again when the level rises above a level. Some are outdated.
    above: BinaryHeap<Reverse<LevelWatch>>,
    /// Components to be filled again at every change of the level. Some are outdated.
    always: Vec<ComponentId>,
}

fn exact(rate: f64) -> i128 {
    (rate * 2_f64.powi(64)) as i128
}

impl Trunk {
    pub(super) fn new(capacity: f64) -> Self {
        Self {
            capacity,
            level: f64::INFINITY,
            users: 0,
            limited: BTreeSet::new(),
            service: 0.0,
            at: 0,
            elsewhere: 0,
            others: BTreeMap::new(),
            crossing: BTreeSet::new(),
            below: BinaryHeap::new(),
            above: BinaryHeap::new(),
            always: Vec::new(),
        }
    }

    /// Returns the service of each flow until `now`, in bytes.
    pub(super) fn serve(&mut self, now: u64) -> f64 {
        if self.limited.is_empty() {
            self.service = 0.0;
        } else {
            self.service += self.level * (now - self.at) as f64;
        }
        self.at = now;
        self.service
    }

    pub(super) fn admit(&mut self, service: f64, order: u64, index: usize) {
        self.limited.insert((Ordered(service), order, index));
    }

    /// Returns the first to end of the flows that it limits: time, rounded up to whole ns; number; index.
    pub(super) fn first_end(&self) -> Option<(u64, u64, usize)> {
        let &(Ordered(service), order, index) = self.limited.first()?;
        let left = (service - self.service).max(0.0) / self.level;
        Some((self.at.saturating_add(left.ceil() as u64), order, index))
    }

    /// Returns the time at which a flow with this final service ends, in ns that are not rounded.
    #[cfg(test)]
    pub(super) fn end(&self, service: f64) -> f64 {
        self.at as f64 + (service - self.service) / self.level
    }

    /// Returns the bytes/ns that the flows limited elsewhere leave.
    fn left(&self, level: impl Fn(usize) -> f64) -> f64 {
        let others = self.others.iter();
        let others = others.map(|(trunk, flows)| *flows as f64 * level(*trunk));
        self.capacity - self.elsewhere as f64 / 2_f64.powi(64) - others.sum::<f64>()
    }
}

impl Network {
    /// Adds a flow to the sums of its trunks.
    pub(super) fn count(&mut self, flow: &Flow) {
        for &at in &flow.trunks {
            let trunk = &mut self.trunks[at];
            match flow.limit {
                Limit::Unknown => continue,
                Limit::Rate(rate) => trunk.elsewhere += exact(rate),
                Limit::Trunk(limiting) if limiting == at => trunk.users += 1,
                Limit::Trunk(other) => *trunk.others.entry(other).or_default() += 1,
            }
            self.changed_trunks.insert(at);
        }
    }

    /// Removes a flow from the sums of its trunks.
    pub(super) fn uncount(&mut self, flow: &Flow) {
        for &at in &flow.trunks {
            let trunk = &mut self.trunks[at];
            match flow.limit {
                Limit::Unknown => continue,
                Limit::Rate(rate) => trunk.elsewhere -= exact(rate),
                Limit::Trunk(limiting) if limiting == at => trunk.users -= 1,
                Limit::Trunk(other) => {
                    if let Some(flows) = trunk.others.get_mut(&other) {
                        *flows -= 1;
                        if *flows == 0 {
                            trunk.others.remove(&other);
                        }
                    }
                }
            }
            self.changed_trunks.insert(at);
        }
    }

    /// Removes a flow from the trunk that limits it, if one does.
    pub(super) fn leave_trunk(&mut self, flow: &Flow, index: usize) {
        if let Limit::Trunk(at) = flow.limit {
            let limited = &mut self.trunks[at].limited;
            if !limited.remove(&(Ordered(flow.remaining), flow.order, index)) {
                self.due.remove(&(flow.order, index));
            }
        }
    }

    /// Notes that the component that was filled from a narrow link is to be filled again when the trunk's level leaves
    /// the bounds.
    pub(super) fn watch(&mut self, trunk: usize, first: usize, bounds: Bounds) {
        let (resources, filled) = (&self.resources, (first, self.visit));
        let trunk = &mut self.trunks[trunk];
        if bounds.fixed {
            trunk.always.push(filled);
        }
        if bounds.low > 0.0 {
            trunk.below.push((Ordered(bounds.low), filled));
        }
        if bounds.high < f64::INFINITY {
            trunk.above.push(Reverse((Ordered(bounds.high), filled)));
        }
        let most = 64 + 4 * resources.len();
        let holds = |&(at, visit): &ComponentId| resources[at].visit == visit;
        if trunk.below.len() > most {
            trunk.below.retain(|(_, filled)| holds(filled));
        }
        if trunk.above.len() > most {
            trunk.above.retain(|Reverse((_, filled))| holds(filled));
        }
        if trunk.always.len() > most {
            trunk.always.retain(holds);
        }
    }

    /// Finds the level of the lowest of the trunks whose sums changed. Returns false if there is none.
    pub(super) fn level_next(&mut self, round: u32, now: u64) -> bool {
        let level = |at: &usize| Ordered(self.trunks[*at].level);
        let Some(&at) = self.changed_trunks.iter().min_by_key(|at| level(at)) else {
            return false;
        };
        self.changed_trunks.remove(&at);
        let rounding = ROUNDING * 2_f64.powi((round / ROUNDS) as i32);
        let old = self.trunks[at].level;
        let new = self.level_of(at, rounding);
        if new == old || (old.is_finite() && (new - old).abs() <= rounding * old) {
            return true;
        }
        let trunk = &mut self.trunks[at];
        trunk.serve(now);
        trunk.level = new;
        if trunk.users > 0 {
            // There may be a kink on the way.
            self.changed_trunks.insert(at);
        }
        self.mark_dependents(at);
        true
    }

    /// Returns the level at which the trunk is full, or the next kink if the level falls below one.
    fn level_of(&mut self, at: usize, rounding: f64) -> f64 {
        let left = self.trunks[at].left(|other| self.trunks[other].level);
        let trunk = &self.trunks[at];
        if trunk.users == 0 && left >= -rounding * trunk.capacity {
            return f64::INFINITY;
        }
        let level = left / trunk.users as f64;
        if trunk.users > 0 && level >= trunk.level {
            return level;
        }
        let others = trunk.others.keys().map(|other| self.trunks[*other].level);
        let others = others.fold(0.0, f64::max);
        let (users, old) = (trunk.users, trunk.level);
        let kink = self.highest_below(at).max(others).min(old) * BELOW;
        match users {
            // Flows that other links limit are too much for the trunk, so there is a kink below which it limits them.
            0 => kink.max(f64::MIN_POSITIVE),
            _ => level.max(kink).max(f64::MIN_POSITIVE),
        }
    }

    /// Returns the highest level below which a component is to be filled again; 0 if there is none.
    fn highest_below(&mut self, at: usize) -> f64 {
        let below = &mut self.trunks[at].below;
        while let Some(&(Ordered(low), (first, visit))) = below.peek() {
            if self.resources[first].visit == visit {
                return low;
            }
            below.pop();
        }
        0.0
    }

    /// Marks the components to be filled again, and the trunks to be levelled again, after a trunk's level changed.
    fn mark_dependents(&mut self, at: usize) {
        let Self {
            trunks,
            resources,
            changed,
            ..
        } = self;
        let trunk = &mut trunks[at];
        let level = trunk.level;
        let mut leaving = std::mem::take(&mut trunk.always);
        while let Some(&(Ordered(low), filled)) = trunk.below.peek()
            && low > level
        {
            trunk.below.pop();
            leaving.push(filled);
        }
        while let Some(&Reverse((Ordered(high), filled))) = trunk.above.peek()
            && high < level
        {
            trunk.above.pop();
            leaving.push(filled);
        }
        let holds = |(at, visit): &ComponentId| resources[*at].visit == *visit;
        changed.extend(leaving.into_iter().filter(holds).map(|(first, _)| first));
        for other in self.trunks[at].crossing.clone() {
            if self.trunks[other].others.contains_key(&at) {
                self.changed_trunks.insert(other);
                self.pass(at, other);
            }
            if self.trunks[at].others.contains_key(&other) {
                self.pass(other, at);
            }
        }
    }

    /// Marks the components of the flows that pass both trunks, if the level of `limiting` has risen above that of `other`.
    fn pass(&mut self, limiting: usize, other: usize) {
        let [limits, lower] = [limiting, other].map(|at| &self.trunks[at]);
        if limits.level <= lower.level * (1.0 + ROUNDING) {
            return;
        }
        let flows = limits.limited.iter();
        let flows = flows.filter_map(|(.., index)| self.flows[*index].as_ref());
        let both = flows.filter(|flow| flow.trunks.contains(&other));
        self.changed.extend(both.map(|flow| flow.path[0]));
    }
}
