//! Transfers as fluid flows: every moment the bandwidth of each link is shared max-min fairly by those that pass it
//! (Bertsekas and Gallager, *Data Networks*, §6.5.2: progressive filling).

use crate::hardware::{Hardware, UNLIMITED};
use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

/// Names a flow within its network until it ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FlowId(usize);

/// Which way bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    Down,
    Up,
}

#[derive(Debug)]
struct Flow {
    /// Counts the flows of the network: the smaller, the earlier it started.
    order: u64,
    /// Bytes left when its rate was looked at last, in ns.
    remaining: f64,
    looked_at: u64,
    /// Bytes/ns.
    rate: f64,
    /// The rate that the filling gives it; infinite until then.
    next_rate: f64,
    /// When the last byte arrives at this rate, rounded up to whole ns.
    ends: u64,
    path: Box<[usize]>,
}

/// One direction of one link, or both together.
#[derive(Debug)]
struct Resource {
    /// Bytes/ns.
    capacity: f64,
    /// The flows that pass it, by their starts.
    flows: Vec<(u64, usize)>,
    /// Scratch of the filling: what is left, and for how many.
    left: f64,
    users: usize,
    /// The sharing that came here last.
    visit: u64,
}

impl Resource {
    fn new(capacity: f64) -> Self {
        Self {
            capacity,
            flows: Vec::new(),
            left: 0.0,
            users: 0,
            visit: 0,
        }
    }

    fn share(&self) -> f64 {
        self.left / self.users as f64
    }
}

/// What a flow of a resource has of it, and which: the smallest first.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Share(f64, usize);

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

/// All links and flows of one group of GPUs that share any.
///
/// Flows that meet nowhere, not by way of others either, do not change each other's rates: when some come or go, those are
/// looked at alone that they meet.
#[derive(Debug)]
pub(crate) struct Network {
    resources: Vec<Resource>,
    /// By GPU of the group, hop and direction: the resources on the way.
    paths: Vec<Vec<[Vec<usize>; 2]>>,
    flows: Vec<Option<Flow>>,
    free: Vec<usize>,
    started: u64,
    /// Resources of flows that came or went, and flows that pass none, since the links were shared.
    changed: Vec<usize>,
    unlimited: Vec<usize>,
    /// The flows that end first of those that meet: when, which, where. Some are outdated.
    ends: BinaryHeap<Reverse<(u64, u64, usize)>>,
    visit: u64,
}

impl Network {
    pub(crate) fn new(hardware: &Hardware, gpus: usize) -> Self {
        let mut resources = Vec::new();
        let mut paths = vec![vec![[Vec::new(), Vec::new()]; hardware.hops.len()]; gpus];
        for (at, hop) in hardware.hops.iter().enumerate() {
            for link in &hop.links {
                for first in (0..gpus).step_by(link.gpus) {
                    let sharers = first..gpus.min(first + link.gpus);
                    let ways = [
                        (link.down, true, false),
                        (link.up, false, true),
                        (link.both, true, true),
                    ];
                    for (bandwidth, down, up) in ways {
                        if bandwidth == UNLIMITED {
                            continue;
                        }
                        for gpu in sharers.clone() {
                            let [on_down, on_up] = &mut paths[gpu][at];
                            on_down.extend(down.then_some(resources.len()));
                            on_up.extend(up.then_some(resources.len()));
                        }
                        resources.push(Resource::new(bandwidth as f64 / 1e9));
                    }
                }
            }
        }
        Self {
            resources,
            paths,
            flows: Vec::new(),
            free: Vec::new(),
            started: 0,
            changed: Vec::new(),
            unlimited: Vec::new(),
            ends: BinaryHeap::new(),
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
        let ways = &self.paths[gpu][hops];
        let path = ways.iter().flat_map(|way| &way[direction as usize]);
        let path: Box<[usize]> = path.copied().collect();
        let index = self.free.pop().unwrap_or_else(|| {
            self.flows.push(None);
            self.flows.len() - 1
        });
        self.started += 1;
        let order = self.started;
        for &at in &path {
            self.resources[at].flows.push((order, index));
        }
        match path.is_empty() {
            true => self.unlimited.push(index),
            false => self.changed.extend(&path),
        }
        self.flows[index] = Some(Flow {
            order,
            remaining: bytes as f64,
            looked_at: 0,
            rate: 0.0,
            next_rate: f64::INFINITY,
            ends: u64::MAX,
            path,
        });
        FlowId(index)
    }

    /// Takes a flow out, whatever it still had to carry.
    pub(crate) fn remove(&mut self, id: FlowId) {
        let Some(flow) = self.flows[id.0].take() else {
            return;
        };
        for &at in &flow.path {
            let flows = &mut self.resources[at].flows;
            if let Ok(place) = flows.binary_search_by_key(&flow.order, |&(order, _)| order) {
                flows.remove(place);
            }
        }
        self.changed.extend(&flow.path);
        self.free.push(id.0);
    }

    /// A flow that has ended by `now`, in the order of their starts.
    pub(crate) fn ended(&mut self, now: u64) -> Option<FlowId> {
        let (ends, index) = self.first_end()?;
        (ends <= now).then_some(FlowId(index))
    }

    /// When the next flow ends, if nothing changes before.
    pub(crate) fn next_end(&mut self) -> Option<u64> {
        self.first_end().map(|(ends, _)| ends)
    }

    fn first_end(&mut self) -> Option<(u64, usize)> {
        while let Some(&Reverse((ends, order, index))) = self.ends.peek() {
            let flow = self.flows[index].as_ref();
            if flow.is_some_and(|flow| (flow.order, flow.ends) == (order, ends)) {
                return Some((ends, index));
            }
            self.ends.pop();
        }
        None
    }

    /// Shares the links anew, from `now` on, among the flows that are there.
    pub(crate) fn share(&mut self, now: u64) {
        self.visit += 1;
        for index in std::mem::take(&mut self.unlimited) {
            self.look_at(&[index], now);
        }
        for first in std::mem::take(&mut self.changed) {
            if self.resources[first].visit < self.visit {
                let met = self.fill(first);
                self.look_at(&met, now);
            }
        }
    }

    /// Moves flows that meet on to `now`, at their old rates, and gives them their new ones.
    fn look_at(&mut self, met: &[usize], now: u64) {
        let mut first = u64::MAX;
        for &index in met {
            let Some(flow) = &mut self.flows[index] else {
                continue;
            };
            if flow.ends < u64::MAX {
                let elapsed = (now - flow.looked_at) as f64;
                flow.remaining = (flow.remaining - flow.rate * elapsed).max(0.0);
            }
            flow.looked_at = now;
            if flow.next_rate != flow.rate {
                flow.rate = flow.next_rate;
                flow.ends = now.saturating_add((flow.remaining / flow.rate).ceil() as u64);
            }
            first = first.min(flow.ends);
        }
        let flows = met
            .iter()
            .filter_map(|&index| Some((index, self.flows[index].as_ref()?)));
        let ending = flows.filter(|(_, flow)| flow.ends == first && first < u64::MAX);
        self.ends
            .extend(ending.map(|(index, flow)| Reverse((first, flow.order, index))));
    }

    /// The max-min fair rates of the flows that meet those of a resource: the tightest resource fixes those that pass it, and
    /// so on. Returns these flows.
    fn fill(&mut self, first: usize) -> Vec<usize> {
        let Self {
            resources,
            flows,
            visit,
            ..
        } = self;
        let (mut met, mut reached) = (Vec::new(), vec![first]);
        resources[first].visit = *visit;
        let mut next = 0;
        while let Some(&at) = reached.get(next) {
            next += 1;
            resources[at].left = resources[at].capacity;
            resources[at].users = resources[at].flows.len();
            for passing in 0..resources[at].flows.len() {
                let (_, index) = resources[at].flows[passing];
                let Some(flow) = &mut flows[index] else {
                    continue;
                };
                // Met at the first resource of its path alone.
                if flow.path[0] == at {
                    flow.next_rate = f64::INFINITY;
                    met.push(index);
                }
                for &other in &flow.path {
                    if resources[other].visit < *visit {
                        resources[other].visit = *visit;
                        reached.push(other);
                    }
                }
            }
        }
        let share = |&at: &usize| Share(resources[at].share(), at);
        let used = reached.iter().filter(|at| resources[**at].users > 0);
        let mut shares: BinaryHeap<Share> = used.map(share).collect();
        while let Some(Share(share, tightest)) = shares.pop() {
            if resources[tightest].users == 0 {
                continue;
            }
            // Others were fixed since: what they leave is shared by fewer.
            let now = resources[tightest].share();
            if now != share {
                shares.push(Share(now, tightest));
                continue;
            }
            let rate = share.max(f64::MIN_POSITIVE);
            for passing in 0..resources[tightest].flows.len() {
                let (_, index) = resources[tightest].flows[passing];
                let Some(flow) = flows[index]
                    .as_mut()
                    .filter(|f| f.next_rate == f64::INFINITY)
                else {
                    continue;
                };
                flow.next_rate = rate;
                for &at in &flow.path {
                    resources[at].left = (resources[at].left - rate).max(0.0);
                    resources[at].users -= 1;
                }
            }
        }
        met
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hardware::{Hop, Link, Tier};

    /// GPUs with links of 10 bytes/ns, two of which share 12.
    fn network(gpus: usize) -> Network {
        let links = Hop::over(Link::own(10_000_000_000).together(16_000_000_000), 0)
            .and(Link::own(12_000_000_000).shared_by(2));
        Network::new(
            &Hardware::new().tier(Tier::new("host", UNLIMITED), links),
            gpus,
        )
    }

    /// The rates of the flows, in the order of their starts.
    fn rates(network: &mut Network) -> Vec<f64> {
        network.share(0);
        let mut flows: Vec<_> = network.flows.iter().flatten().collect();
        flows.sort_by_key(|flow| flow.order);
        flows.iter().map(|flow| flow.rate).collect()
    }

    /// All flows at once, as the definition has it: each round fixes those that pass the tightest resource.
    fn filled(net: &Network) -> Vec<(usize, f64)> {
        let flows = net.flows.iter().enumerate();
        let flows: Vec<_> = flows
            .filter_map(|(index, flow)| Some((index, flow.as_ref()?)))
            .collect();
        let mut rates = vec![f64::INFINITY; flows.len()];
        loop {
            let share = |at: usize| {
                let mut left = net.resources[at].capacity;
                let mut users = 0.0;
                for ((_, flow), rate) in flows.iter().zip(&rates) {
                    match flow.path.contains(&at) {
                        true if rate.is_finite() => left -= rate,
                        true => users += 1.0,
                        false => {}
                    }
                }
                (users > 0.0).then_some((left / users, at))
            };
            let tightest = (0..net.resources.len()).filter_map(share);
            let Some((rate, at)) = tightest.min_by(|a, b| a.0.total_cmp(&b.0)) else {
                break;
            };
            for ((_, flow), own) in flows.iter().zip(&mut rates) {
                if *own == f64::INFINITY && flow.path.contains(&at) {
                    *own = rate;
                }
            }
        }
        flows.iter().map(|(index, _)| *index).zip(rates).collect()
    }

    #[test]
    fn what_is_looked_at_alone_is_as_if_all_were() {
        let mut word = 7_u64;
        let mut random = |below: u64| {
            word = word.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(1);
            (word >> 33) % below
        };
        for gpus in [4, 16] {
            // Links of GPUs, of nodes of four, and of all.
            let link = Link::own(10_000_000_000).together(16_000_000_000);
            let hardware = Hardware::new()
                .tier(
                    Tier::new("host", UNLIMITED),
                    Hop::over(link, 0).and(Link::own(30_000_000_000).shared_by(4)),
                )
                .tier(
                    Tier::new("file", UNLIMITED),
                    Hop::over(Link::own(25_000_000_000).shared_by(gpus), 0),
                );
            let mut net = Network::new(&hardware, gpus);
            // What is left of each flow, kept by the definition.
            let mut left: Vec<Option<(FlowId, f64)>> = Vec::new();
            let mut now = 0;
            for step in 0..600 {
                let rates: std::collections::BTreeMap<usize, f64> =
                    filled(&net).into_iter().collect();
                for (id, left) in left.iter().flatten() {
                    let flow = net.flows[id.0].as_ref().unwrap();
                    let rate = rates[&id.0];
                    assert!(
                        (flow.rate - rate).abs() <= 1e-9 * rate,
                        "step {step}: {} {rate}",
                        flow.rate
                    );
                    let ends = now as f64 + left / rate;
                    assert!(
                        (flow.ends as f64 - ends).abs() <= 1.0 + 1e-9 * ends,
                        "step {step}: {} {ends}",
                        flow.ends
                    );
                }
                let all = net.flows.iter().flatten().map(|flow| flow.ends).min();
                let next = net.next_end();
                assert_eq!(next, all, "step {step}");
                // Until the next one ends, or something happens before.
                let until = now + 1 + random(300);
                let then = next.filter(|next| *next <= until).unwrap_or(until);
                for (id, left) in left.iter_mut().flatten() {
                    *left = (*left - rates[&id.0] * (then - now) as f64).max(0.0);
                }
                now = then;
                while let Some(ended) = net.ended(now) {
                    net.remove(ended);
                    left.retain(|flow| flow.is_none_or(|(id, _)| id != ended));
                }
                for _ in 0..random(3) {
                    let hops = [0..=0, 1..=1, 0..=1][random(3) as usize].clone();
                    let direction = [Direction::Down, Direction::Up][random(2) as usize];
                    let bytes = 1 + random(5_000);
                    let id = net.start(random(gpus as u64) as usize, hops, direction, bytes);
                    left.push(Some((id, bytes as f64)));
                }
                if random(5) == 0
                    && !left.is_empty()
                    && let Some((id, _)) = left.swap_remove(random(left.len() as u64) as usize)
                {
                    net.remove(id);
                }
                net.share(now);
            }
        }
    }

    #[test]
    fn one_flow_has_its_link_and_two_share_what_they_share() {
        let mut net = network(3);
        net.start(0, 0..=0, Direction::Down, 100);
        assert_eq!(rates(&mut net), [10.0]);
        net.start(1, 0..=0, Direction::Down, 100);
        net.start(2, 0..=0, Direction::Down, 100);
        assert_eq!(rates(&mut net), [6.0, 6.0, 10.0]);
    }

    #[test]
    fn what_one_flow_cannot_use_goes_to_the_others() {
        let mut net = network(2);
        for gpu in [0, 0, 0, 1] {
            net.start(gpu, 0..=0, Direction::Down, 100);
        }
        // The shared link gives 3 to each of four; nobody is limited earlier.
        assert_eq!(rates(&mut net), [3.0; 4]);
        let mut net = network(2);
        net.start(0, 0..=0, Direction::Down, 100);
        net.start(0, 0..=0, Direction::Up, 100);
        // Both directions together have 16.
        assert_eq!(rates(&mut net), [8.0, 8.0]);
        net.start(1, 0..=0, Direction::Down, 100);
        // The shared link's 12 go 6 and 6; the way up keeps what its own link leaves: 10.
        assert_eq!(rates(&mut net), [6.0, 10.0, 6.0]);
    }

    #[test]
    fn a_flow_ends_when_its_bytes_have_passed_at_changing_rates() {
        let mut net = network(2);
        let first = net.start(0, 0..=0, Direction::Down, 1000);
        net.share(0);
        assert_eq!(net.next_end(), Some(100));
        let second = net.start(1, 0..=0, Direction::Down, 120);
        net.share(50);
        // 500 left at 6 bytes/ns; the second one's 120 take 20 ns.
        assert_eq!((net.ended(69), net.next_end()), (None, Some(70)));
        assert_eq!(net.ended(70), Some(second));
        net.remove(second);
        net.share(70);
        assert_eq!(net.next_end(), Some(108));
        net.remove(first);
        net.share(108);
        assert_eq!(net.next_end(), None);
    }
}
