//! Transfers as fluid flows: every moment the bandwidth of each link is shared max-min fairly by those that pass it
//! (Bertsekas and Gallager, *Data Networks*, §6.5.2: progressive filling).

use crate::hardware::{Hardware, UNLIMITED};

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
    /// Bytes left at the time of the last update.
    remaining: f64,
    /// Bytes/ns.
    rate: f64,
    /// When the last byte arrives at this rate, rounded up to whole ns.
    ends: u64,
    path: Box<[usize]>,
}

/// One direction of one link, or both together: bytes/ns, and scratch of the filling.
#[derive(Debug)]
struct Resource {
    capacity: f64,
    left: f64,
    users: usize,
}

/// All links and flows of one group of GPUs that share any.
#[derive(Debug)]
pub(crate) struct Network {
    resources: Vec<Resource>,
    /// By GPU of the group, hop and direction: the resources on the way.
    paths: Vec<Vec<[Vec<usize>; 2]>>,
    flows: Vec<Option<Flow>>,
    free: Vec<usize>,
    /// Time of the last update, in ns.
    now: u64,
    active: Vec<usize>,
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
                        resources.push(Resource {
                            capacity: bandwidth as f64 / 1e9,
                            left: 0.0,
                            users: 0,
                        });
                    }
                }
            }
        }
        Self {
            resources,
            paths,
            flows: Vec::new(),
            free: Vec::new(),
            now: 0,
            active: Vec::new(),
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
        let flow = Flow {
            remaining: bytes as f64,
            rate: 0.0,
            ends: u64::MAX,
            path: path.copied().collect(),
        };
        let index = self.free.pop().unwrap_or_else(|| {
            self.flows.push(None);
            self.flows.len() - 1
        });
        self.flows[index] = Some(flow);
        self.active.push(index);
        FlowId(index)
    }

    /// Takes a flow out, whatever it still had to carry.
    pub(crate) fn remove(&mut self, id: FlowId) {
        if self.flows[id.0].take().is_some() {
            self.active.retain(|&index| index != id.0);
            self.free.push(id.0);
        }
    }

    /// A flow that has ended by `now`, in the order of their starts.
    pub(crate) fn ended(&self, now: u64) -> Option<FlowId> {
        let ended = |index: &&usize| self.flows[**index].as_ref().is_some_and(|f| f.ends <= now);
        self.active.iter().find(ended).map(|&index| FlowId(index))
    }

    /// When the next flow ends, if nothing changes before.
    pub(crate) fn next_end(&self) -> Option<u64> {
        let flows = self
            .active
            .iter()
            .filter_map(|&index| self.flows[index].as_ref());
        flows
            .map(|flow| flow.ends)
            .min()
            .filter(|&ends| ends < u64::MAX)
    }

    /// Moves all flows on to `now` and shares the links anew among those that are there.
    pub(crate) fn share(&mut self, now: u64) {
        let elapsed = (now - self.now) as f64;
        self.now = now;
        let rates = self.fill();
        for (&index, rate) in self.active.iter().zip(rates) {
            let Some(flow) = &mut self.flows[index] else {
                continue;
            };
            if elapsed > 0.0 && flow.ends < u64::MAX {
                flow.remaining = (flow.remaining - flow.rate * elapsed).max(0.0);
            }
            if rate != flow.rate {
                flow.rate = rate;
                flow.ends = now.saturating_add((flow.remaining / rate).ceil() as u64);
            }
        }
    }

    /// The max-min fair rates of the active flows: the tightest resource fixes those that pass it, and so on.
    fn fill(&mut self) -> Vec<f64> {
        let Self {
            resources,
            flows,
            active,
            ..
        } = self;
        let path = |at: usize| flows[active[at]].as_ref().map_or(&[][..], |f| &f.path);
        let mut used = Vec::new();
        for at in 0..active.len() {
            for &index in path(at) {
                let resource = &mut resources[index];
                if resource.users == 0 {
                    resource.left = resource.capacity;
                    used.push(index);
                }
                resource.users += 1;
            }
        }
        let mut rates = vec![f64::INFINITY; active.len()];
        loop {
            let share = |&index: &usize| resources[index].left / resources[index].users as f64;
            let waiting = used.iter().filter(|&&index| resources[index].users > 0);
            let Some(&tightest) = waiting.min_by(|a, b| share(a).total_cmp(&share(b))) else {
                return rates;
            };
            let rate = share(&tightest).max(f64::MIN_POSITIVE);
            for (at, own) in rates.iter_mut().enumerate() {
                if *own == f64::INFINITY && path(at).contains(&tightest) {
                    *own = rate;
                    for &index in path(at) {
                        resources[index].left = (resources[index].left - rate).max(0.0);
                        resources[index].users -= 1;
                    }
                }
            }
        }
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

    fn rates(network: &mut Network) -> Vec<f64> {
        network.fill()
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
