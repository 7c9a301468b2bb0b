//! Progressive filling of the flows that meet on narrow links, with the levels of trunks as given.

use super::trunk::Bounds;
use super::{Limit, Network};
use crate::ordered::Ordered;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The possible bottleneck of a flow. At the same share, trunks come first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Bottleneck {
    Trunk(usize),
    Narrow(usize),
}

/// A bottleneck and the rate that it gives each of its flows, the smallest first.
type BottleneckShare = Reverse<(Ordered, Bottleneck)>;

/// Flows that share narrow links, directly or through others.
#[derive(Debug, Default)]
struct Component {
    flows: Vec<usize>,
    /// The narrow links of the flows.
    links: Vec<usize>,
    /// The flows of each trunk.
    by_trunk: Vec<(usize, Vec<usize>)>,
}

impl Network {
    /// Finds the max-min fair rates of the flows of a narrow link's component, and returns these flows. The tightest link or
    /// trunk fixes the rates of the flows that pass it, then the tightest of the others, and so on.
    pub(super) fn fill(&mut self, first: usize) -> Vec<usize> {
        let component = self.component(first);
        let share = |&at: &usize| (self.resources[at].share(), Bottleneck::Narrow(at));
        let links = component
            .links
            .iter()
            .filter(|at| self.resources[**at].users > 0);
        let trunks = component.by_trunk.iter().map(|(at, _)| *at);
        let levels = trunks.map(|at| (self.trunks[at].level, Bottleneck::Trunk(at)));
        let levels = levels.filter(|(level, _)| *level < f64::INFINITY);
        let shares = links.map(share).chain(levels);
        let shares = shares.map(|(share, of)| Reverse((Ordered(share), of)));
        let mut shares: BinaryHeap<BottleneckShare> = shares.collect();
        while let Some(Reverse((Ordered(share), tightest))) = shares.pop() {
            match tightest {
                Bottleneck::Trunk(trunk) => {
                    let of_trunk = component.by_trunk.iter().find(|(at, _)| *at == trunk);
                    for &index in of_trunk.map_or(&[][..], |(_, flows)| flows) {
                        self.fix(index, Limit::Trunk(trunk), share);
                    }
                }
                Bottleneck::Narrow(at) if self.resources[at].users > 0 => {
                    // Flows of this link were fixed since this share was computed, and fewer flows share the rest.
                    let now = self.resources[at].share();
                    if now != share {
                        shares.push(Reverse((Ordered(now), tightest)));
                        continue;
                    }
                    let rate = share.max(f64::MIN_POSITIVE);
                    self.resources[at].limits = true;
                    for passing in 0..self.resources[at].flows.len() {
                        let (_, index) = self.resources[at].flows[passing];
                        self.fix(index, Limit::Rate(rate), rate);
                    }
                }
                Bottleneck::Narrow(_) => {}
            }
        }
        self.watch_levels(first, &component);
        component.flows
    }

    /// Returns a narrow link's component, in which no flow has a rate.
    fn component(&mut self, first: usize) -> Component {
        let Self {
            resources,
            flows,
            visit,
            ..
        } = self;
        let mut component = Component {
            links: vec![first],
            ..Component::default()
        };
        resources[first].visit = *visit;
        let mut next = 0;
        while let Some(&at) = component.links.get(next) {
            next += 1;
            let resource = &mut resources[at];
            (resource.left, resource.users) = (resource.capacity, resource.flows.len());
            (resource.capped, resource.limits) = (0, false);
            for passing in 0..resources[at].flows.len() {
                let (_, index) = resources[at].flows[passing];
                let Some(flow) = &mut flows[index] else {
                    continue;
                };
                // A flow enters at the first link of its path alone.
                if flow.path[0] != at {
                    continue;
                }
                flow.next_limit = Limit::Unknown;
                component.flows.push(index);
                for &trunk in &flow.trunks {
                    match component.by_trunk.iter_mut().find(|(at, _)| *at == trunk) {
                        Some((_, passing)) => passing.push(index),
                        None => component.by_trunk.push((trunk, vec![index])),
                    }
                }
            }
            for passing in 0..resources[at].flows.len() {
                let (_, index) = resources[at].flows[passing];
                for &other in flows[index].iter().flat_map(|flow| &flow.path) {
                    if resources[other].visit < *visit {
                        resources[other].visit = *visit;
                        component.links.push(other);
                    }
                }
            }
        }
        component
    }

    /// Gives a flow its rate, unless it has one.
    fn fix(&mut self, index: usize, limit: Limit, rate: f64) {
        let flow = self.flows[index].as_mut();
        let Some(flow) = flow.filter(|flow| flow.next_limit == Limit::Unknown) else {
            return;
        };
        flow.next_limit = limit;
        for &at in &flow.path {
            let resource = &mut self.resources[at];
            resource.left = (resource.left - rate).max(0.0);
            resource.users -= 1;
            resource.capped += usize::from(matches!(limit, Limit::Trunk(_)));
        }
    }

    /// Watches the levels of trunks between which the component's flows keep their bottlenecks. The lower bound is the
    /// highest rate that narrow links give to flows of the trunk. The upper bound is the room that narrow links have
    /// for flows that trunks limit. If such a link limits others too, their rates follow every change of the level.
    fn watch_levels(&mut self, first: usize, component: &Component) {
        let links = component.links.iter().map(|at| &self.resources[*at]);
        let shared = links.filter(|link| link.capped > 0);
        let (mut room, mut fixed) = (f64::INFINITY, false);
        for link in shared {
            match link.limits {
                true => fixed = true,
                false => room = room.min(link.left / link.capped as f64),
            }
        }
        for (trunk, passing) in &component.by_trunk {
            let (mut low, mut limited) = (0.0_f64, false);
            for flow in passing.iter().filter_map(|at| self.flows[*at].as_ref()) {
                match flow.next_limit {
                    Limit::Rate(rate) => low = low.max(rate),
                    limit => limited |= limit == Limit::Trunk(*trunk),
                }
            }
            let high = match limited {
                true => self.trunks[*trunk].level + room,
                false => f64::INFINITY,
            };
            let fixed = fixed && limited;
            self.watch(*trunk, first, Bounds { low, high, fixed });
        }
    }
}
