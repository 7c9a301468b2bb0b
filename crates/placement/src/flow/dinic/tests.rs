use petgraph::algo::ford_fulkerson;
use petgraph::graph::{DiGraph, NodeIndex};
use proptest::prelude::*;

use super::super::{Edge, Links, UNLIMITED};
use super::*;

fn network(nodes: usize, edges: &[(u32, u32, u64)]) -> Network {
    let edges = edges.iter().map(|&(from, to, volume)| Edge {
        kind: EdgeKind::Link(0),
        from,
        to,
        volume,
        bandwidth: UNLIMITED,
    });
    let mut links = Links::default();
    links.finish(nodes);
    Network {
        edges: edges.collect(),
        links,
        nodes,
        ..Network::default()
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

        let mut residual = Residual::default();
        let network = network(9, &edges);
        residual.reset(&network);
        // Half of the capacity first: a flow can be augmented later.
        edges.iter().enumerate().for_each(|(at, edge)| residual.set_capacity(at, edge.2 / 2));
        let half = residual.augment(&network, u64::MAX);
        edges.iter().enumerate().for_each(|(at, edge)| residual.set_capacity(at, edge.2));
        prop_assert_eq!(half + residual.augment(&network, u64::MAX), wanted);

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
