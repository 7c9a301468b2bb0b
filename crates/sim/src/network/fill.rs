//! Progressive filling of the flows that meet on narrow links, with the levels of trunks as given.

use super::trunk::Bounds;
use super::{Limit, Network};
use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// What may be the bottleneck of flows. At the same share, trunks come first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Bottleneck {
    Trunk(usize),
    Narrow(usize),
}

/// What a flow has at a bottleneck: the smallest first.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Share(f64, Bottleneck);

impl Eq for Share {}

impl Ord for Share {
    fn cmp(&self, other: &Self) -> Ordering {
        let order = self.0.total_cmp(&other.0).then(self.1.cmp(&other.1));
        order.reverse()
    }
}

impl PartialOrd for Share {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Flows that meet on narrow links.
#[derive(Debug, Default)]
struct Met {
    flows: Vec<usize>,
    /// The narrow links that they pass.
    links: Vec<usize>,
    /// By trunk, those that pass it.
    by_trunk: Vec<(usize, Vec<usize>)>,
}

impl Network {
    /// The max-min fair rates of the flows that meet those of a narrow link: the tightest link or trunk fixes those that pass it,
    /// and so on. Returns these flows.
    pub(super) fn fill(&mut self, first: usize) -> Vec<usize> {
        let met = self.meet(first);
        let share = |&at: &usize| Share(self.resources[at].share(), Bottleneck::Narrow(at));
        let links = met.links.iter().filter(|at| self.resources[**at].users > 0);
        let trunks = met.by_trunk.iter().map(|(at, _)| *at);
        let levels = trunks.map(|at| Share(self.trunks[at].level, Bottleneck::Trunk(at)));
        let levels = levels.filter(|share| share.0 < f64::INFINITY);
        let mut shares: BinaryHeap<Share> = links.map(share).chain(levels).collect();
        while let Some(Share(share, tightest)) = shares.pop() {
            match tightest {
                Bottleneck::Trunk(trunk) => {
                    let of_trunk = met.by_trunk.iter().find(|(at, _)| *at == trunk);
                    for &index in of_trunk.map_or(&[][..], |(_, flows)| flows) {
                        self.fix(index, Limit::Trunk(trunk), share);
                    }
                }
                Bottleneck::Narrow(at) if self.resources[at].users > 0 => {
                    // Others were fixed since: what they leave is shared by fewer.
                    let now = self.resources[at].share();
                    if now != share {
                        shares.push(Share(now, tightest));
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
        self.watch_levels(first, &met);
        met.flows
    }

    /// All flows that meet those of a narrow link, and what they pass, with nothing given to any of them.
    fn meet(&mut self, first: usize) -> Met {
        let Self {
            resources,
            flows,
            visit,
            ..
        } = self;
        let mut met = Met {
            links: vec![first],
            ..Met::default()
        };
        resources[first].visit = *visit;
        let mut next = 0;
        while let Some(&at) = met.links.get(next) {
            next += 1;
            let resource = &mut resources[at];
            (resource.left, resource.users) = (resource.capacity, resource.flows.len());
            (resource.capped, resource.limits) = (0, false);
            for passing in 0..resources[at].flows.len() {
                let (_, index) = resources[at].flows[passing];
                let Some(flow) = &mut flows[index] else {
                    continue;
                };
                // Met at the first link of its path alone.
                if flow.path[0] != at {
                    continue;
                }
                flow.next_limit = Limit::Unknown;
                met.flows.push(index);
                for &trunk in &flow.trunks {
                    match met.by_trunk.iter_mut().find(|(at, _)| *at == trunk) {
                        Some((_, passing)) => passing.push(index),
                        None => met.by_trunk.push((trunk, vec![index])),
                    }
                }
            }
            for passing in 0..resources[at].flows.len() {
                let (_, index) = resources[at].flows[passing];
                for &other in flows[index].iter().flat_map(|flow| &flow.path) {
                    if resources[other].visit < *visit {
                        resources[other].visit = *visit;
                        met.links.push(other);
                    }
                }
            }
        }
        met
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

    /// Between which levels of the trunks the flows that were filled keep their bottlenecks: no lower than what narrow links give to
    /// those that pass the trunk, and no higher than what the narrow links bear that flows pass to which trunks give their level.
    /// Where such a link limits others, too, their rates follow every change.
    fn watch_levels(&mut self, first: usize, met: &Met) {
        let links = met.links.iter().map(|at| &self.resources[*at]);
        let shared = links.filter(|link| link.capped > 0);
        let (mut room, mut fixed) = (f64::INFINITY, false);
        for link in shared {
            match link.limits {
                true => fixed = true,
                false => room = room.min(link.left / link.capped as f64),
            }
        }
        for (trunk, passing) in &met.by_trunk {
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
