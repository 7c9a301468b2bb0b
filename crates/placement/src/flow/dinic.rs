mod block;
mod levels;
#[cfg(test)]
mod tests;

use super::{Carried, EdgeKind, Network};

/// A network's residual graph, and maximum flows in it by Dinic's algorithm.
///
/// The arcs of edges are in one array, sorted by their tail, each with the position of its reverse. Links have no arcs. The
/// flow of links is stored row by row, and a list of the links into each node serves as their reverse.
#[derive(Debug, Default)]
pub(crate) struct Residual {
    /// Index of each node's first arc, and the end of the last node's.
    first: Vec<u32>,
    head: Vec<u32>,
    reverse: Vec<u32>,
    left: Vec<u64>,
    /// Index of each edge's arc.
    arc: Vec<u32>,
    /// Units that pass each link.
    through: Vec<u64>,
    /// Units that each link can carry now.
    carried: Carried,
    /// Index in `into` of each node's first incoming link.
    first_in: Vec<u32>,
    /// The incoming links by node: origin and number of each.
    into: Vec<(u32, u32)>,
    /// Distance of each node to the sink, or [`UNSEEN`]. Counted from the sink, few paths are dead ends.
    level: Vec<u32>,
    /// Nodes with outgoing links that were not seen yet.
    senders: Vec<u32>,
    /// Nodes with incoming links that were not seen yet.
    receivers: Vec<u32>,
    /// The next arc to look at, for each node.
    next: Vec<u32>,
    /// The next link to look at, for each node.
    next_link: Vec<u32>,
    queue: Vec<u32>,
    path: Vec<(u32, Step)>,
    /// Units that pass each node.
    flow: Vec<u64>,
}

const UNSEEN: u32 = u32::MAX;
/// Rows that `reset` reads column by column at a time.
const TOGETHER: usize = 16;

/// A step of a path.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// Along an arc.
    Arc(u32),
    /// Along a link.
    Link(u32),
    /// Along a link in reverse, which takes back units that pass the link.
    Back(u32),
}

impl Residual {
    /// Takes the shape of `network`. Every edge and every link then has the capacity 0.
    pub(crate) fn reset(&mut self, network: &Network) {
        let (nodes, edges) = (network.nodes, &network.edges);
        starts(
            &mut self.first,
            nodes,
            edges.iter().flat_map(|edge| [edge.from, edge.to]),
        );
        self.next.clear();
        self.next.extend_from_slice(&self.first);
        let arcs = 2 * edges.len();
        for list in [&mut self.head, &mut self.reverse] {
            list.clear();
            list.resize(arcs, 0);
        }
        self.left.clear();
        self.left.resize(arcs, 0);
        self.arc.clear();
        for edge in edges {
            let mut place = |node: u32| {
                let next = &mut self.next[node as usize];
                *next += 1;
                *next - 1
            };
            let (forward, back) = (place(edge.from), place(edge.to));
            self.head[forward as usize] = edge.to;
            self.head[back as usize] = edge.from;
            self.reverse[forward as usize] = back;
            self.reverse[back as usize] = forward;
            self.arc.push(forward);
        }

        let links = &network.links;
        self.carried = Carried::default();
        self.through.clear();
        if links.len() == 0 {
            return;
        }
        self.through.resize(links.len(), 0);
        starts(&mut self.first_in, nodes, links.to.iter().copied());
        self.next_link.clear();
        self.next_link.extend_from_slice(&self.first_in);
        self.into.clear();
        self.into.resize(links.len(), (0, 0));
        // A few rows at a time are read column by column, so that consecutive entries of `into` are near each other in memory.
        let rows: Vec<_> = links.rows().collect();
        for rows in rows.chunks(TOGETHER) {
            let longest = rows.iter().map(|(_, row)| row.len()).max();
            for column in 0..longest.unwrap_or_default() {
                for (from, row) in rows.iter().filter(|(_, row)| column < row.len()) {
                    let at = row.start + column;
                    let next = &mut self.next_link[links.to[at] as usize];
                    self.into[*next as usize] = (*from, at as u32);
                    *next += 1;
                }
            }
        }
    }

    /// Returns the units that pass an edge or a link. Indices of links come after those of edges.
    pub(crate) fn flow(&self, at: usize) -> u64 {
        match self.arc.get(at) {
            Some(&arc) => self.left[self.reverse[arc as usize] as usize],
            None => self.through[at - self.arc.len()],
        }
    }

    /// Gives an edge a capacity, which must not be below its flow.
    pub(crate) fn set_capacity(&mut self, edge: usize, capacity: u64) {
        let left = capacity - self.flow(edge);
        self.left[self.arc[edge] as usize] = left;
    }

    /// Sets the capacities of all links, none of which may be below the link's flow.
    pub(crate) fn set_links(&mut self, carried: Carried) {
        self.carried = carried;
    }

    /// Changes to units that are 2^`shift` times as large, with `carried` as the links' capacities. The flow of a link is
    /// rounded down, or up if the link was full and its ends have room. Other edges than links lose their flow, except those at
    /// the source and the sink that the links need. The caller has to set all capacities again. Returns the flow that is left.
    pub(crate) fn coarsen(&mut self, network: &Network, shift: u32, carried: Carried) -> u64 {
        for (edge, &arc) in network.edges.iter().zip(&self.arc) {
            if let EdgeKind::Link(_) = edge.kind {
                self.left[self.reverse[arc as usize] as usize] >>= shift;
            }
        }
        if network.links.len() > 0 {
            self.coarsen_links(network, shift, carried);
        }
        self.follow_links(network)
    }

    fn coarsen_links(&mut self, network: &Network, shift: u32, carried: Carried) {
        let mut room = vec![0; network.nodes];
        for edge in &network.edges {
            match edge.kind {
                EdgeKind::Remainder(_) => room[edge.to as usize] = carried.through(edge),
                EdgeKind::Spare(_) => room[edge.from as usize] = carried.through(edge),
                _ => {}
            }
        }
        let links = &network.links;
        let before = std::mem::replace(&mut self.carried, carried);
        let mut full = Vec::new();
        for (from, row) in links.rows() {
            for at in row {
                let amount = self.through[at] >> shift;
                if self.through[at] == before.at(links.bandwidth[at] as u64) {
                    full.push((from, at));
                }
                room[from as usize] -= amount;
                room[links.to[at] as usize] -= amount;
                self.through[at] = amount;
            }
        }
        for (from, at) in full {
            let (from, to) = (from as usize, links.to[at] as usize);
            let more = carried.at(links.bandwidth[at] as u64) - self.through[at];
            let more = more.min(room[from]).min(room[to]);
            room[from] -= more;
            room[to] -= more;
            self.through[at] += more;
        }
    }

    /// Gives the edges at the source and the sink the flow of the links, and all other edges none. Returns that flow.
    pub(crate) fn follow_links(&mut self, network: &Network) -> u64 {
        self.flow.clear();
        self.flow.resize(network.nodes, 0);
        let mut all = 0;
        for (from, row) in network.links.rows() {
            let (to, through) = (&network.links.to[row.clone()], &self.through[row]);
            for (&to, &through) in to.iter().zip(through) {
                self.flow[to as usize] += through;
                self.flow[from as usize] += through;
            }
            all += self.flow[from as usize];
        }
        for (edge, &arc) in network.edges.iter().zip(&self.arc) {
            self.left[arc as usize] = 0;
            let back = self.reverse[arc as usize] as usize;
            match edge.kind {
                EdgeKind::Link(_) => {
                    let through = self.left[back];
                    self.flow[edge.from as usize] += through;
                    self.flow[edge.to as usize] += through;
                    all += through;
                }
                _ => self.left[back] = 0,
            }
        }
        for (edge, &arc) in network.edges.iter().zip(&self.arc) {
            let node = match edge.kind {
                EdgeKind::Remainder(_) => edge.to,
                EdgeKind::Spare(_) => edge.from,
                _ => continue,
            };
            self.left[self.reverse[arc as usize] as usize] = self.flow[node as usize];
        }
        all
    }

    /// Lends the units that pass each link, so that the caller can set a first flow. [`follow_links`](Self::follow_links) has to
    /// be called then.
    pub(crate) fn links_mut(&mut self) -> &mut [u64] {
        &mut self.through
    }

    /// Makes the flow a maximum flow, which needs at most `missing` more units. Returns the units that were added.
    pub(crate) fn augment(&mut self, network: &Network, missing: u64) -> u64 {
        let mut added = 0;
        while added < missing && self.find_levels(network) {
            self.block(network, &mut added);
        }
        added
    }

    /// Returns true if a node is on the source's side of the minimum cut. Valid after [`augment`](Self::augment) added fewer
    /// units than were missing.
    pub(crate) fn is_behind_cut(&self, node: u32) -> bool {
        self.level[node as usize] == UNSEEN
    }

    fn link_left(&self, network: &Network, link: u32) -> u64 {
        let bandwidth = network.links.bandwidth[link as usize] as u64;
        self.carried.at(bandwidth) - self.through[link as usize]
    }
}

/// Counts how often each node occurs, and fills `first` with the index at which each node's places start if all places are
/// sorted by node.
fn starts(first: &mut Vec<u32>, nodes: usize, occurring: impl Iterator<Item = u32>) {
    first.clear();
    first.resize(nodes + 1, 0);
    for node in occurring {
        first[node as usize + 1] += 1;
    }
    for node in 0..nodes {
        first[node + 1] += first[node];
    }
}

fn range(first: &[u32], node: u32) -> std::ops::Range<usize> {
    first[node as usize] as usize..first[node as usize + 1] as usize
}
