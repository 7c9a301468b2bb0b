//! Transfers as fluid flows: at every moment, the flows that pass a link share its bandwidth max-min fairly (Bertsekas
//! and Gallager, *Data Networks*, §6.5.2: progressive filling).
//!
//! A link is *narrow* if at most [`NARROW`] GPUs share it, else a *trunk*. A component is a set of flows that share
//! narrow links, directly or through others. When flows start or end, their components are filled anew with the levels
//! of the trunks as given (`fill`). Then the trunks find their new levels, and only the components whose bottlenecks
//! change are filled again (`trunk`). So an event costs the number of a node's flows, and the logarithm of all others.

mod fill;
#[cfg(test)]
mod tests;
mod trunk;

use crate::hardware::{Hardware, UNLIMITED};
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use trunk::Trunk;

/// The most GPUs that share a narrow link.
const NARROW: usize = 16;

/// The name of a flow within its network until it ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FlowId(usize);

/// The direction in which bytes move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    Down,
    Up,
}

/// The limit of a flow's rate.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Limit {
    /// Not known yet.
    Unknown,
    /// A narrow link gives the flow this rate, in bytes/ns; infinite if it passes no link.
    Rate(f64),
    /// The flow's rate is the level of this trunk.
    Trunk(usize),
}

#[derive(Debug)]
struct Flow {
    /// Number of the flow in its network: the smaller, the earlier it started.
    order: u64,
    limit: Limit,
    /// The limit that the filling found.
    next_limit: Limit,
    /// Bytes left at `updated_at` (in ns). For a flow that a trunk limits: the trunk's service with which its last byte
    /// arrives.
    remaining: f64,
    updated_at: u64,
    /// Time at which the last byte arrives at its rate, rounded up to whole ns; never while a trunk limits it.
    ends: u64,
    /// The narrow links that it passes.
    path: Box<[usize]>,
    /// The trunks that it passes.
    trunks: Box<[usize]>,
}

/// A direction of a narrow link, or both together.
#[derive(Debug)]
struct Resource {
    /// Bytes/ns.
    capacity: f64,
    /// The flows that pass it, by their starts.
    flows: Vec<(u64, usize)>,
    /// Scratch of the filling: bytes/ns that no flow has been given.
    left: f64,
    /// Scratch: flows that have no rate yet, and share `left`.
    users: usize,
    /// Scratch: flows that a trunk limits.
    capped: usize,
    /// Scratch: true if this link limits flows.
    limits: bool,
    /// The number of the last filling that visited this link.
    visit: u64,
}

impl Resource {
    fn new(capacity: f64) -> Self {
        Self {
            capacity,
            flows: Vec::new(),
            left: 0.0,
            users: 0,
            capped: 0,
            limits: false,
            visit: 0,
        }
    }

    fn share(&self) -> f64 {
        self.left / self.users as f64
    }
}

/// The links of one hop that a GPU passes in one direction.
#[derive(Debug, Clone, Default)]
struct Route {
    narrow: Vec<usize>,
    trunks: Vec<usize>,
}

/// All links and flows of one group of GPUs that share links.
#[derive(Debug)]
pub(crate) struct Network {
    resources: Vec<Resource>,
    trunks: Vec<Trunk>,
    /// By GPU of the group, hop and direction.
    routes: Vec<Vec<[Route; 2]>>,
    flows: Vec<Option<Flow>>,
    free: Vec<usize>,
    started: u64,
    /// Narrow links whose components are to be filled anew.
    changed: Vec<usize>,
    /// Trunks whose levels are to be found anew.
    changed_trunks: BTreeSet<usize>,
    /// New flows that pass no link.
    unlimited: Vec<usize>,
    /// The flows that end first in their components: time, number, index. Some are outdated.
    ends: BinaryHeap<Reverse<(u64, u64, usize)>>,
    /// Ended flows of trunks that are not removed yet, by their starts.
    due: BTreeSet<(u64, usize)>,
    /// Time at which the flows of `due` ended, in ns.
    due_at: u64,
    visit: u64,
}

impl Network {
    pub(crate) fn new(hardware: &Hardware, gpus: usize) -> Self {
        Self::with_narrow(hardware, gpus, NARROW)
    }

    /// Makes a network in which links that more than `narrow` GPUs share are trunks.
    fn with_narrow(hardware: &Hardware, gpus: usize, narrow: usize) -> Self {
        let (mut resources, mut trunks) = (Vec::new(), Vec::new());
        let mut routes =
            vec![vec![[Route::default(), Route::default()]; hardware.hops.len()]; gpus];
        for (at, hop) in hardware.hops.iter().enumerate() {
            for link in &hop.links {
                for first in (0..gpus).step_by(link.gpus) {
                    let sharers = first..gpus.min(first + link.gpus);
                    let directions = [
                        (link.down, true, false),
                        (link.up, false, true),
                        (link.both, true, true),
                    ];
                    for (bandwidth, down, up) in directions {
                        if bandwidth == UNLIMITED {
                            continue;
                        }
                        let capacity = bandwidth as f64 / 1e9;
                        let is_trunk = sharers.len() > narrow;
                        for gpu in sharers.clone() {
                            for (route, passes) in routes[gpu][at].iter_mut().zip([down, up]) {
                                match is_trunk {
                                    _ if !passes => {}
                                    true => route.trunks.push(trunks.len()),
                                    false => route.narrow.push(resources.len()),
                                }
                            }
                        }
                        match is_trunk {
                            true => trunks.push(Trunk::new(capacity)),
                            false => resources.push(Resource::new(capacity)),
                        }
                    }
                }
            }
        }
        // A component is found by its narrow links, so a route of trunks alone gets a narrow link, as wide as the first trunk.
        for route in routes.iter_mut().flatten().flatten() {
            if let (true, Some(&trunk)) = (route.narrow.is_empty(), route.trunks.first()) {
                route.narrow.push(resources.len());
                resources.push(Resource::new(trunks[trunk].capacity));
            }
        }
        Self {
            resources,
            trunks,
            routes,
            flows: Vec::new(),
            free: Vec::new(),
            started: 0,
            changed: Vec::new(),
            changed_trunks: BTreeSet::new(),
            unlimited: Vec::new(),
            ends: BinaryHeap::new(),
            due: BTreeSet::new(),
            due_at: 0,
            visit: 0,
        }
    }

    /// Starts a flow of a GPU over some hops. The flow moves after the next call of [`Network::share`].
    pub(crate) fn start(
        &mut self,
        gpu: usize,
        hops: std::ops::RangeInclusive<usize>,
        direction: Direction,
        bytes: u64,
    ) -> FlowId {
        let routes = self.routes[gpu][hops].iter();
        let routes = routes.map(|route| &route[direction as usize]);
        let path: Box<[usize]> = routes
            .clone()
            .flat_map(|route| &route.narrow)
            .copied()
            .collect();
        let trunks: Box<[usize]> = routes.flat_map(|route| &route.trunks).copied().collect();
        let index = self.free.pop().unwrap_or_else(|| {
            self.flows.push(None);
            self.flows.len() - 1
        });
        self.started += 1;
        let order = self.started;
        for &at in &path {
            self.resources[at].flows.push((order, index));
        }
        for &at in &trunks {
            let others = trunks.iter().filter(|other| **other != at);
            self.trunks[at].crossing.extend(others);
        }
        match path.is_empty() {
            true => self.unlimited.push(index),
            false => self.changed.extend(&path),
        }
        self.flows[index] = Some(Flow {
            order,
            limit: Limit::Unknown,
            next_limit: Limit::Rate(f64::INFINITY),
            remaining: bytes as f64,
            updated_at: 0,
            ends: u64::MAX,
            path,
            trunks,
        });
        FlowId(index)
    }

    /// Removes a flow, ended or not.
    pub(crate) fn remove(&mut self, id: FlowId) {
        let Some(flow) = self.flows[id.0].take() else {
            return;
        };
        self.uncount(&flow);
        self.leave_trunk(&flow, id.0);
        for &at in &flow.path {
            let flows = &mut self.resources[at].flows;
            if let Ok(place) = flows.binary_search_by_key(&flow.order, |&(order, _)| order) {
                flows.remove(place);
            }
        }
        self.changed.extend(&flow.path);
        self.free.push(id.0);
    }

    /// Returns the flow that started first of those that have ended by `now`.
    pub(crate) fn ended(&mut self, now: u64) -> Option<FlowId> {
        self.due_at = now;
        for trunk in &mut self.trunks {
            while let Some((ends, order, index)) = trunk.first_end()
                && ends <= now
            {
                trunk.limited.pop_first();
                self.due.insert((order, index));
            }
        }
        let narrow = self.first_end().filter(|(ends, ..)| *ends <= now);
        let narrow = narrow.map(|(_, order, index)| (order, index));
        let first = narrow.into_iter().chain(self.due.first().copied()).min();
        first.map(|(_, index)| FlowId(index))
    }

    /// Returns the time at which the next flow ends if nothing changes before.
    pub(crate) fn next_end(&mut self) -> Option<u64> {
        if !self.due.is_empty() {
            return Some(self.due_at);
        }
        let trunks = self.trunks.iter().filter_map(Trunk::first_end);
        let trunks = trunks.map(|(ends, ..)| ends).min();
        let narrow = self.first_end().map(|(ends, ..)| ends);
        narrow.into_iter().chain(trunks).min()
    }

    /// Returns the first to end of the flows that narrow links limit: time, number, index.
    fn first_end(&mut self) -> Option<(u64, u64, usize)> {
        while let Some(&Reverse((ends, order, index))) = self.ends.peek() {
            let flow = self.flows[index].as_ref();
            if flow.is_some_and(|flow| (flow.order, flow.ends) == (order, ends)) {
                return Some((ends, order, index));
            }
            self.ends.pop();
        }
        None
    }

    /// Shares the links anew from `now` on among the flows that are there.
    pub(crate) fn share(&mut self, now: u64) {
        for index in std::mem::take(&mut self.unlimited) {
            self.update(&[index], now);
        }
        for round in 0_u32.. {
            self.visit += 1;
            for first in std::mem::take(&mut self.changed) {
                if self.resources[first].visit < self.visit {
                    let component = self.fill(first);
                    self.update(&component, now);
                }
            }
            if !self.level_next(round, now) {
                return;
            }
        }
    }

    /// Moves the flows of a component on to `now` at their former rates, and gives them the limits that the filling
    /// found.
    fn update(&mut self, component: &[usize], now: u64) {
        let mut first = u64::MAX;
        for &index in component {
            let Some(flow) = self.flows[index].as_ref() else {
                continue;
            };
            if flow.limit != flow.next_limit {
                self.change_limit(index, now);
            }
            first = first.min(self.flows[index].as_ref().map_or(first, |flow| flow.ends));
        }
        let flows = component
            .iter()
            .filter_map(|&index| Some((index, self.flows[index].as_ref()?)));
        let ending = flows.filter(|(_, flow)| flow.ends == first && first < u64::MAX);
        self.ends
            .extend(ending.map(|(index, flow)| Reverse((first, flow.order, index))));
    }

    fn change_limit(&mut self, index: usize, now: u64) {
        let Some(mut flow) = self.flows[index].take() else {
            return;
        };
        self.uncount(&flow);
        let left = match flow.limit {
            Limit::Unknown => flow.remaining,
            Limit::Rate(rate) => flow.remaining - rate * (now - flow.updated_at) as f64,
            Limit::Trunk(at) => flow.remaining - self.trunks[at].serve(now),
        };
        let left = left.max(0.0);
        self.leave_trunk(&flow, index);
        flow.limit = flow.next_limit;
        self.count(&flow);
        match flow.limit {
            Limit::Unknown => {}
            Limit::Rate(rate) => {
                (flow.remaining, flow.updated_at) = (left, now);
                flow.ends = now.saturating_add((left / rate).ceil() as u64);
            }
            Limit::Trunk(at) => {
                flow.remaining = left + self.trunks[at].serve(now);
                flow.ends = u64::MAX;
                self.trunks[at].admit(flow.remaining, flow.order, index);
            }
        }
        self.flows[index] = Some(flow);
    }
}
