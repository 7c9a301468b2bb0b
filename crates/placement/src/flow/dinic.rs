use std::ops::{AddAssign, SubAssign};

use super::{Network, SINK, SOURCE};

/// What flows are counted in: whole grains, or grains times a denominator.
pub(crate) trait Capacity: Copy + Ord + Default + AddAssign + SubAssign {}
impl Capacity for u64 {}
impl Capacity for u128 {}

/// A network's residual graph, and maximum flows in it by Dinic's algorithm.
///
/// Arcs lie in one array, sorted by their tail, each with the position of its reverse.
#[derive(Debug)]
pub(crate) struct Residual<C> {
    /// Where the arcs of a node start; one more than there are nodes.
    first: Vec<u32>,
    head: Vec<u32>,
    reverse: Vec<u32>,
    left: Vec<C>,
    /// Where the arc of an edge is.
    arc: Vec<u32>,
    /// Distance to the sink, or [`UNSEEN`]. Counted from that end, few paths are dead ends.
    level: Vec<u32>,
    /// The next arc to look at, for each node.
    next: Vec<u32>,
    queue: Vec<u32>,
    path: Vec<u32>,
}

const UNSEEN: u32 = u32::MAX;

impl<C> Default for Residual<C> {
    fn default() -> Self {
        Self {
            first: Vec::new(),
            head: Vec::new(),
            reverse: Vec::new(),
            left: Vec::new(),
            arc: Vec::new(),
            level: Vec::new(),
            next: Vec::new(),
            queue: Vec::new(),
            path: Vec::new(),
        }
    }
}

impl<C: Capacity> Residual<C> {
    /// Takes the shape of `network`; every edge has the capacity 0.
    pub(crate) fn reset(&mut self, network: &Network) {
        let (nodes, edges) = (network.nodes, &network.edges);
        self.first.clear();
        self.first.resize(nodes + 1, 0);
        for edge in edges {
            self.first[edge.from as usize + 1] += 1;
            self.first[edge.to as usize + 1] += 1;
        }
        for node in 0..nodes {
            self.first[node + 1] += self.first[node];
        }
        self.next.clear();
        self.next.extend_from_slice(&self.first);
        let arcs = 2 * edges.len();
        for list in [&mut self.head, &mut self.reverse] {
            list.clear();
            list.resize(arcs, 0);
        }
        self.left.clear();
        self.left.resize(arcs, C::default());
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
    }

    /// What passes an edge.
    pub(crate) fn flow(&self, edge: usize) -> C {
        self.left[self.reverse[self.arc[edge] as usize] as usize]
    }

    /// Gives an edge a capacity, which must not be below its flow.
    pub(crate) fn set_capacity(&mut self, edge: usize, mut capacity: C) {
        capacity -= self.flow(edge);
        self.left[self.arc[edge] as usize] = capacity;
    }

    /// Takes every flow back, and every capacity.
    pub(crate) fn clear(&mut self) {
        self.left.fill(C::default());
    }

    /// Makes the flow a maximum one; what was added to it is returned.
    pub(crate) fn augment(&mut self) -> C {
        let mut added = C::default();
        while self.find_levels() {
            self.block(&mut added);
        }
        added
    }

    /// Whether a node is on the source's side of the minimum cut, after [`augment`](Self::augment).
    pub(crate) fn is_behind_cut(&self, node: u32) -> bool {
        self.level[node as usize] == UNSEEN
    }

    /// Breadth first from the sink backwards; whether the source is reached.
    fn find_levels(&mut self) -> bool {
        self.level.clear();
        self.level.resize(self.first.len() - 1, UNSEEN);
        self.level[SINK as usize] = 0;
        self.queue.clear();
        self.queue.push(SINK);
        let mut at = 0;
        while let Some(&node) = self.queue.get(at) {
            at += 1;
            let level = self.level[node as usize] + 1;
            let arcs = self.first[node as usize] as usize..self.first[node as usize + 1] as usize;
            for (&tail, &arc) in self.head[arcs.clone()].iter().zip(&self.reverse[arcs]) {
                if self.level[tail as usize] == UNSEEN && self.left[arc as usize] > C::default() {
                    self.level[tail as usize] = level;
                    if tail == SOURCE {
                        return true;
                    }
                    self.queue.push(tail);
                }
            }
        }
        false
    }

    /// Pushes a blocking flow along shortest paths, depth first and without recursion.
    fn block(&mut self, added: &mut C) {
        self.next.clear();
        self.next.extend_from_slice(&self.first);
        self.path.clear();
        let mut node = SOURCE;
        loop {
            if node == SINK {
                node = self.push(added);
                continue;
            }
            let arc = self.next[node as usize];
            if arc < self.first[node as usize + 1] {
                let head = self.head[arc as usize];
                let is_next = self.level[head as usize] == self.level[node as usize] - 1;
                if is_next && self.left[arc as usize] > C::default() {
                    self.path.push(arc);
                    node = head;
                } else {
                    self.next[node as usize] += 1;
                }
            } else if let Some(arc) = self.path.pop() {
                node = self.tail(arc);
                self.next[node as usize] += 1;
            } else {
                return;
            }
        }
    }

    /// Fills the path; where to go on from is the tail of its first full arc.
    fn push(&mut self, added: &mut C) -> u32 {
        let left = |arc: &u32| self.left[*arc as usize];
        let amount = self.path.iter().map(left).min().unwrap_or_default();
        let mut full = self.path.len();
        for (at, &arc) in self.path.iter().enumerate().rev() {
            self.left[arc as usize] -= amount;
            self.left[self.reverse[arc as usize] as usize] += amount;
            if self.left[arc as usize] == C::default() {
                full = at;
            }
        }
        *added += amount;
        let node = self.path.get(full).map_or(SOURCE, |&arc| self.tail(arc));
        self.path.truncate(full);
        node
    }

    fn tail(&self, arc: u32) -> u32 {
        self.head[self.reverse[arc as usize] as usize]
    }
}

#[cfg(test)]
mod tests {
    use petgraph::algo::ford_fulkerson;
    use petgraph::graph::{DiGraph, NodeIndex};
    use proptest::prelude::*;

    use super::super::{Edge, EdgeKind, UNLIMITED};
    use super::*;

    fn network(nodes: usize, edges: &[(u32, u32, u64)]) -> Network {
        let edges = edges.iter().map(|&(from, to, volume)| Edge {
            kind: EdgeKind::Link(0),
            from,
            to,
            volume,
            bandwidth: UNLIMITED,
        });
        Network {
            edges: edges.collect(),
            nodes,
            total: 0,
            grain: 1,
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1000))]

        #[test]
        fn the_flow_is_a_maximum_one_and_the_cut_is_its_proof(
            edges in prop::collection::vec((0..9_u32, 0..9_u32, 0..50_u64), 0..40),
        ) {
            let edges: Vec<_> = edges.into_iter().filter(|edge| edge.0 != edge.1).collect();
            let mut graph = DiGraph::<(), u64>::new();
            for _ in 0..9 {
                graph.add_node(());
            }
            for &(from, to, capacity) in &edges {
                graph.add_edge(NodeIndex::new(from as usize), NodeIndex::new(to as usize), capacity);
            }
            let (wanted, _) = ford_fulkerson(&graph, NodeIndex::new(0), NodeIndex::new(1));

            let mut residual = Residual::<u64>::default();
            residual.reset(&network(9, &edges));
            // Half of the capacity first: a flow can be gone on with.
            edges.iter().enumerate().for_each(|(at, edge)| residual.set_capacity(at, edge.2 / 2));
            let half = residual.augment();
            edges.iter().enumerate().for_each(|(at, edge)| residual.set_capacity(at, edge.2));
            prop_assert_eq!(half + residual.augment(), wanted);

            let mut balance = [0_i64; 9];
            let mut cut = 0;
            for (at, &(from, to, capacity)) in edges.iter().enumerate() {
                prop_assert!(residual.flow(at) <= capacity);
                balance[from as usize] -= residual.flow(at) as i64;
                balance[to as usize] += residual.flow(at) as i64;
                if residual.is_behind_cut(from) && !residual.is_behind_cut(to) {
                    cut += capacity;
                }
            }
            prop_assert_eq!(cut, wanted);
            prop_assert_eq!(balance[1], wanted as i64);
            prop_assert!(balance[2..].iter().all(|balance| *balance == 0));
        }
    }
}
