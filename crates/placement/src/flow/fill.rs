//! An estimated flow over links, from which the search begins if there are many links.

use super::{Carried, EdgeKind, Network};

/// Most rounds of adjustment.
const ROUNDS: usize = 20;
/// A round is the last if more than this share of the missing units is left after it.
const ENOUGH: f64 = 0.97;
/// Least factor. Factors stay between it and its inverse, so that the product of two is finite.
const LEAST: f64 = 1e-100;
/// Links that are computed together.
const LANES: usize = 4;
/// Share of all units that may be missing.
const LITTLE: f64 = 1.0 / 256.0;

/// An estimate that spreads each GPU's units over all its links, in proportion to their bandwidth and to the room of the
/// peers behind them, so that little is left for a search of paths. Links get no more than they carry, GPUs send no more
/// than they have, and peers get no more than they have room for.
///
/// Link (i, j) with capacity c gets c · min(1, aᵢ bⱼ). In turn, each a is adjusted to the units of GPU i, and each b ≤ 1 to
/// the room of peer j (iterative proportional fitting). The estimate is computed in floating point and rounded down.
#[derive(Debug, Default)]
pub(crate) struct Fill {
    /// By node: units that a GPU has or a peer has room for.
    limit: Vec<u64>,
    /// By node: factor a of a GPU, or factor b of a peer.
    factor: Vec<f64>,
    /// By node: units that a peer would get.
    sum: Vec<f64>,
    /// Units that one GPU would send over each of its links, if all links carried them.
    wants: Vec<f64>,
    /// Factors of the peers behind the links of one GPU.
    peers: Vec<f64>,
}

impl Fill {
    /// Begins with the same factor for all nodes.
    pub(crate) fn start(&mut self, network: &Network) {
        self.factor.clear();
        self.factor.resize(network.nodes, 1.0);
    }

    /// Adjusts the factors to the units that links carry by a time.
    pub(crate) fn adjust(&mut self, network: &Network, carried: &Carried) {
        self.limit(network, carried);
        let total = network.total as f64 * carried.units();
        let mut before = f64::INFINITY;
        for _ in 0..ROUNDS {
            let missing = self.round(network, carried.about());
            if missing > before * ENOUGH || missing < total * LITTLE {
                break;
            }
            before = missing;
        }
    }

    fn limit(&mut self, network: &Network, carried: &Carried) {
        self.limit.clear();
        self.limit.resize(network.nodes, 0);
        for edge in &network.edges {
            match edge.kind {
                EdgeKind::Remainder(_) => self.limit[edge.to as usize] = carried.through(edge),
                EdgeKind::Spare(_) => self.limit[edge.from as usize] = carried.through(edge),
                _ => {}
            }
        }
    }

    /// Runs one round. Returns the units that find no place.
    fn round(&mut self, network: &Network, time: f64) -> f64 {
        let links = &network.links;
        self.sum.clear();
        self.sum.resize(network.nodes, 0.0);
        let mut missing = 0.0;
        for (from, row) in links.rows() {
            let (to, bandwidth) = (&links.to[row.clone()], &links.bandwidth[row]);
            let has = self.limit[from as usize] as f64;
            let factor = self.factor[from as usize];
            self.wants.resize(to.len(), 0.0);
            // The factors of consecutive peers need no gathering.
            let side_by_side = links.side_by_side(to);
            let (sum, full) = match side_by_side.clone() {
                Some(peers) => wants(
                    &self.factor[peers],
                    bandwidth,
                    factor,
                    time,
                    &mut self.wants,
                ),
                None => {
                    self.peers.clear();
                    let factors = to.iter().map(|to| self.factor[*to as usize]);
                    self.peers.extend(factors);
                    wants(&self.peers, bandwidth, factor, time, &mut self.wants)
                }
            };
            missing += has;
            let change = if sum > 0.0 {
                ((has - full) / sum).clamp(1e-3, 1e3)
            } else if full > has {
                0.5
            } else {
                1.0
            };
            self.factor[from as usize] = (factor * change).clamp(LEAST, 1.0 / LEAST);
            let amounts = self.wants.iter().zip(bandwidth);
            let amounts = amounts.map(|(wants, carries)| (wants * change).min(carries * time));
            match side_by_side {
                Some(peers) => {
                    let sums = self.sum[peers].iter_mut();
                    sums.zip(amounts).for_each(|(sum, amount)| *sum += amount);
                }
                None => {
                    for (&to, amount) in to.iter().zip(amounts) {
                        self.sum[to as usize] += amount;
                    }
                }
            }
        }
        let peers = self.sum.iter().zip(&self.limit);
        for (factor, (&sum, &takes)) in self.factor.iter_mut().zip(peers) {
            missing -= sum.min(takes as f64);
            if sum > 0.0 {
                *factor = (*factor * (takes as f64 / sum)).clamp(LEAST, 1.0);
            }
        }
        missing
    }

    /// Fills `through` with the estimated units of each link.
    pub(crate) fn links(&mut self, network: &Network, carried: &Carried, through: &mut [u64]) {
        self.limit(network, carried);
        let links = &network.links;
        for (from, row) in links.rows() {
            let mut has = self.limit[from as usize];
            let factor = self.factor[from as usize];
            for at in row {
                let to = links.to[at] as usize;
                let carries = carried.at(links.bandwidth[at] as u64);
                let share = (factor * self.factor[to]).min(1.0);
                let amount = if share < 1.0 {
                    ((carries as f64 * share) as u64).min(carries)
                } else {
                    carries
                };
                let amount = amount.min(has).min(self.limit[to]);
                has -= amount;
                self.limit[to] -= amount;
                through[at] = amount;
            }
        }
    }

    /// Returns the nodes behind a cut that, by estimate, proves the time to be too short; `None` if no tried cut does. The
    /// factors of GPUs that have too much grow, and the factors of the peers that they fill fall. Nodes are therefore sorted by
    /// their factors, and every place between two nodes is tried as a cut.
    pub(crate) fn cut(&mut self, network: &Network, carried: &Carried) -> Option<Vec<bool>> {
        let links = &network.links;
        let mut order: Vec<u32> = Vec::new();
        // By node: units that are more behind the cut once the node is behind it.
        let mut volume = vec![0.0; network.nodes];
        let mut ports: Vec<Vec<(u32, f64)>> = vec![Vec::new(); network.nodes];
        let mut shared = vec![f64::INFINITY; network.nodes];
        for edge in &network.edges {
            match edge.kind {
                EdgeKind::Remainder(_) => {
                    order.push(edge.to);
                    volume[edge.to as usize] = self.limit[edge.to as usize] as f64;
                }
                EdgeKind::Spare(_) => {
                    order.push(edge.from);
                    volume[edge.from as usize] = -(self.limit[edge.from as usize] as f64);
                }
                EdgeKind::Send(_) | EdgeKind::HostPort(_) => {
                    ports[edge.from as usize].push((edge.to, edge.bandwidth as f64));
                }
                EdgeKind::HostLink(_) => shared[edge.from as usize] = edge.bandwidth as f64,
                _ => {}
            }
        }
        let height = |node: u32| match volume[node as usize] > 0.0 {
            true => self.factor[node as usize],
            false => self.factor[node as usize].recip(),
        };
        order.sort_by(|a, b| height(*b).total_cmp(&height(*a)));
        let mut place = vec![0; network.nodes];
        for (at, &node) in order.iter().enumerate() {
            place[node as usize] = at;
        }
        let mut across = vec![0.0; order.len()];
        for (from, row) in links.rows() {
            let own = place[from as usize];
            let (to, bandwidth) = (&links.to[row.clone()], &links.bandwidth[row]);
            for (&to, &bandwidth) in to.iter().zip(bandwidth) {
                let place = place[to as usize];
                if place > own {
                    across[own] += bandwidth;
                    across[place] -= bandwidth;
                }
            }
        }
        let mut arrives = vec![0.0; network.nodes];
        let (mut too_much, mut bandwidth, mut best) = (0.0, 0.0, (1.0, 0));
        for (at, &node) in order.iter().enumerate() {
            too_much += volume[node as usize];
            bandwidth += across[at];
            for &(to, port) in &ports[node as usize] {
                let (arrives, shared) = (&mut arrives[to as usize], shared[to as usize]);
                bandwidth -= shared.min(*arrives);
                *arrives += port;
                bandwidth += shared.min(*arrives);
            }
            let longer = too_much / (bandwidth * carried.about());
            if longer > best.0 {
                best = (longer, at + 1);
            }
        }
        if best.1 == 0 {
            return None;
        }
        let mut behind = vec![false; network.nodes];
        behind[super::SOURCE as usize] = true;
        arrives.fill(0.0);
        for &node in &order[..best.1] {
            behind[node as usize] = true;
            for &(to, port) in &ports[node as usize] {
                arrives[to as usize] += port;
                behind[to as usize] = arrives[to as usize] > shared[to as usize];
            }
        }
        Some(behind)
    }
}

/// Fills `wants` with the units that would be sent over each link. Returns the sum of these over the links that carry them,
/// and the sum of the capacities of the other links.
fn wants(factors: &[f64], bandwidth: &[f64], own: f64, time: f64, wants: &mut [f64]) -> (f64, f64) {
    let (mut sum, mut full) = ([0.0; LANES], [0.0; LANES]);
    let links = factors.chunks(LANES).zip(bandwidth.chunks(LANES));
    for (wants, (factors, bandwidth)) in wants.chunks_mut(LANES).zip(links) {
        let links = factors.iter().zip(bandwidth);
        for (lane, (wants, (factor, bandwidth))) in wants.iter_mut().zip(links).enumerate() {
            let (share, carries) = (own * factor, bandwidth * time);
            *wants = carries * share;
            let is_full = share >= 1.0;
            sum[lane] += if is_full { 0.0 } else { *wants };
            full[lane] += if is_full { carries } else { 0.0 };
        }
    }
    (sum.iter().sum(), full.iter().sum())
}
