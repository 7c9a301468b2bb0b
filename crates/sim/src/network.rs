//! Transfers as fluid flows: every moment the bandwidth of each link is shared max-min fairly by those that pass it
//! (Bertsekas and Gallager, *Data Networks*, §6.5.2: progressive filling).
//!
//! A link is *narrow* if at most [`NARROW`] GPUs share it, else a *trunk*. When flows come or go, the flows that meet theirs on
//! narrow links are filled anew, with the levels of the trunks as given (`fill`); then the trunks find their new levels, and only
//! those flows are looked at again whose bottleneck changes by that (`trunk`). So an event costs what the flows of a node do,
//! and the logarithm of all others.

mod fill;
#[cfg(test)]
mod tests;
mod trunk;

use crate::hardware::{Hardware, UNLIMITED};
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use trunk::Trunk;

/// GPUs that share a narrow link, at most.
const NARROW: usize = 16;

/// Names a flow within its network until it ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FlowId(usize);

/// Which way bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    Down,
    Up,
}

/// What decides how fast a flow is.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Limit {
    /// Not known yet.
    Unknown,
    /// A narrow link gives it so many bytes/ns; infinitely many if it passes no link.
    Rate(f64),
    /// It has the level of this trunk, whatever that is.
    Trunk(usize),
}

#[derive(Debug)]
struct Flow {
    /// Counts the flows of the network: the smaller, the earlier it started.
    order: u64,
    limit: Limit,
    /// What the filling found.
    next_limit: Limit,
    /// Bytes left at `looked_at`, in ns. Of a flow that a trunk limits: the trunk's service with which its last byte arrives.
    remaining: f64,
    looked_at: u64,
    /// When the last byte arrives at its rate, rounded up to whole ns; never while a trunk limits it.
    ends: u64,
    /// The narrow links that it passes, and the trunks.
    path: Box<[usize]>,
    trunks: Box<[usize]>,
}

/// One direction of one narrow link, or both together.
#[derive(Debug)]
struct Resource {
    /// Bytes/ns.
    capacity: f64,
    /// The flows that pass it, by their starts.
    flows: Vec<(u64, usize)>,
    /// Scratch of the filling: what is left, for how many; how many have a trunk's level; whether others have its own.
    left: f64,
    users: usize,
    capped: usize,
    limits: bool,
    /// The filling that came here last.
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

/// The links of one hop that one GPU passes one way.
#[derive(Debug, Clone, Default)]
struct Way {
    narrow: Vec<usize>,
    trunks: Vec<usize>,
}

/// All links and flows of one group of GPUs that share any.
#[derive(Debug)]
pub(crate) struct Network {
    resources: Vec<Resource>,
    trunks: Vec<Trunk>,
    /// By GPU of the group, hop and direction.
    ways: Vec<Vec<[Way; 2]>>,
    flows: Vec<Option<Flow>>,
    free: Vec<usize>,
    started: u64,
    /// Narrow links whose flows are to be filled anew, trunks whose levels are, and flows that pass no link.
    changed: Vec<usize>,
    uneven: BTreeSet<usize>,
    unlimited: Vec<usize>,
    /// The flows that end first of those that meet on narrow links: when, which, where. Some are outdated.
    ends: BinaryHeap<Reverse<(u64, u64, usize)>>,
    /// Flows limited by trunks that have ended and were not taken out yet, by their starts; since when.
    due: BTreeSet<(u64, usize)>,
    due_at: u64,
    visit: u64,
}

impl Network {
    pub(crate) fn new(hardware: &Hardware, gpus: usize) -> Self {
        Self::with_narrow(hardware, gpus, NARROW)
    }

    /// A network in which links that more than `narrow` GPUs share are trunks.
    fn with_narrow(hardware: &Hardware, gpus: usize, narrow: usize) -> Self {
        let (mut resources, mut trunks) = (Vec::new(), Vec::new());
        let mut ways = vec![vec![[Way::default(), Way::default()]; hardware.hops.len()]; gpus];
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
                            for (way, passes) in ways[gpu][at].iter_mut().zip([down, up]) {
                                match is_trunk {
                                    _ if !passes => {}
                                    true => way.trunks.push(trunks.len()),
                                    false => way.narrow.push(resources.len()),
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
        // Every flow is found by way of a narrow link: a way of trunks alone has one more that is as wide as they are.
        for way in ways.iter_mut().flatten().flatten() {
            if let (true, Some(&trunk)) = (way.narrow.is_empty(), way.trunks.first()) {
                way.narrow.push(resources.len());
                resources.push(Resource::new(trunks[trunk].capacity));
            }
        }
        Self {
            resources,
            trunks,
            ways,
            flows: Vec::new(),
            free: Vec::new(),
            started: 0,
            changed: Vec::new(),
            uneven: BTreeSet::new(),
            unlimited: Vec::new(),
            ends: BinaryHeap::new(),
            due: BTreeSet::new(),
            due_at: 0,
            visit: 0,
        }
    }

    /// Starts a flow of one GPU over some hops. It moves once [`Network::share`] was called.
    pub(crate) fn start(
        &mut self,
        gpu: usize,
        hops: std::ops::RangeInclusive<usize>,
        direction: Direction,
        bytes: u64,
    ) -> FlowId {
        let ways = self.ways[gpu][hops].iter();
        let ways = ways.map(|way| &way[direction as usize]);
        let path: Box<[usize]> = ways.clone().flat_map(|way| &way.narrow).copied().collect();
        let trunks: Box<[usize]> = ways.flat_map(|way| &way.trunks).copied().collect();
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
            self.trunks[at].meets.extend(others);
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
            looked_at: 0,
            ends: u64::MAX,
            path,
            trunks,
        });
        FlowId(index)
    }

    /// Takes a flow out, whatever it still had to carry.
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

    /// The flow that started first of those that have ended by `now`.
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

    /// When the next flow ends, if nothing changes before.
    pub(crate) fn next_end(&mut self) -> Option<u64> {
        if !self.due.is_empty() {
            return Some(self.due_at);
        }
        let trunks = self.trunks.iter().filter_map(Trunk::first_end);
        let trunks = trunks.map(|(ends, ..)| ends).min();
        let narrow = self.first_end().map(|(ends, ..)| ends);
        narrow.into_iter().chain(trunks).min()
    }

    /// Of the flows that narrow links limit: when it ends, which, where.
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

    /// Shares the links anew, from `now` on, among the flows that are there.
    pub(crate) fn share(&mut self, now: u64) {
        for index in std::mem::take(&mut self.unlimited) {
            self.look_at(&[index], now);
        }
        for round in 0_u32.. {
            self.visit += 1;
            for first in std::mem::take(&mut self.changed) {
                if self.resources[first].visit < self.visit {
                    let met = self.fill(first);
                    self.look_at(&met, now);
                }
            }
            if !self.level_next(round, now) {
                return;
            }
        }
    }

    /// Moves flows that meet on to `now` as they were limited, and limits them as the filling found.
    fn look_at(&mut self, met: &[usize], now: u64) {
        let mut first = u64::MAX;
        for &index in met {
            let Some(flow) = self.flows[index].as_ref() else {
                continue;
            };
            if flow.limit != flow.next_limit {
                self.change_limit(index, now);
            }
            first = first.min(self.flows[index].as_ref().map_or(first, |flow| flow.ends));
        }
        let flows = met
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
            Limit::Rate(rate) => flow.remaining - rate * (now - flow.looked_at) as f64,
            Limit::Trunk(at) => flow.remaining - self.trunks[at].serve(now),
        };
        let left = left.max(0.0);
        self.leave_trunk(&flow, index);
        flow.limit = flow.next_limit;
        self.count(&flow);
        match flow.limit {
            Limit::Unknown => {}
            Limit::Rate(rate) => {
                (flow.remaining, flow.looked_at) = (left, now);
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
