//! Graphlet degree vectors, as ORANGES computes and checkpoints them. For each of N vertices, 73 counters of 32 bits count how often the
//! vertex has each position in the connected subgraphs of two to five vertices. Counters are stored column by column: N × 73 × u32.
//!
//! The subgraphs are really enumerated (ESU, Wernicke 2006), vertex after vertex. A checkpoint is taken after equal shares of the
//! vertices. Two parts are cheaper than the originals:
//!
//! - the graphs are generated, with the degrees and the order of vertices of the paper's kinds of graphs, not read from its files;
//! - positions are distinguished by the degrees within the subgraph, not by its automorphisms, so a few of the 73 orbits share a column.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

use rayon::prelude::*;

use super::workloads::{Size, Step};
use crate::random::mix;

const COLUMNS: usize = 73;

/// Vertices of the largest subgraphs that are counted.
const LARGEST: usize = 5;

/// Ranks that send in [`Graph::Events`], 32 with the one that receives. A prime number, so that multiples modulo it are
/// orders in which a round's messages arrive.
const SENDERS: usize = 31;

/// A kind of graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Graph {
    /// Events of a message race: one rank receives the messages of [`SENDERS`] others, in rounds, each round in another order. Each
    /// rank is a chain, rank after rank, and each message an edge, so a vertex has 1.5 edges.
    Events,
    /// Roads: long chains, a crossing at every eighth vertex.
    Road,
    /// The walls of bubbles: a honeycomb, three neighbours.
    Bubbles,
    /// A triangulation: six neighbours.
    Delaunay,
}

impl Graph {
    /// Returns the neighbours of `v` in a graph of `count` vertices in rows of `width`, and their number.
    fn neighbours(self, v: usize, width: usize, count: usize) -> ([usize; 6], usize) {
        let (row, column) = (v / width, v % width);
        let right = (column + 1 < width).then_some(v + 1);
        let left = (column > 0).then(|| v - 1);
        let down = (v + width < count).then_some(v + width);
        let up = (row > 0).then(|| v - width);
        let picked: [Option<usize>; 6] = match self {
            Self::Events => {
                let rounds = count / (2 * SENDERS);
                let (rank, event) = match v.checked_sub(rounds * SENDERS) {
                    None => (0, v),
                    Some(sent) => (1 + sent / rounds.max(1), sent % rounds.max(1)),
                };
                let events = if rank == 0 { rounds * SENDERS } else { rounds };
                let is_event = rank <= SENDERS && rounds > 0;
                [
                    (is_event && event > 0).then(|| v - 1),
                    (is_event && event + 1 < events).then_some(v + 1),
                    is_event.then(|| other_end(rank, event, rounds)),
                    None,
                    None,
                    None,
                ]
            }
            Self::Road => {
                let crosses = |v: usize| mix(v as u64).is_multiple_of(8);
                [
                    left,
                    right,
                    down.filter(|_| crosses(v)),
                    up.filter(|&up| crosses(up)),
                    None,
                    None,
                ]
            }
            Self::Bubbles => {
                let goes_down = (row + column).is_multiple_of(2);
                [
                    left,
                    right,
                    down.filter(|_| goes_down),
                    up.filter(|_| !goes_down),
                    None,
                    None,
                ]
            }
            Self::Delaunay => {
                let diagonal_down = (column > 0 && v + width - 1 < count).then(|| v + width - 1);
                let diagonal_up = up.filter(|_| column + 1 < width).map(|up| up + 1);
                [left, right, down, up, diagonal_down, diagonal_up]
            }
        };
        let mut neighbours = [0; 6];
        let mut found = 0;
        let is_there = |&n: &usize| n < count && self.has_edge(v.min(n), v.max(n));
        for neighbour in picked.into_iter().flatten().filter(is_there) {
            neighbours[found] = neighbour;
            found += 1;
        }
        (neighbours, found)
    }

    /// Returns true if an edge is not missing. Each mesh lacks an edge in twelve; otherwise all vertices far from the border would have
    /// the same counters.
    fn has_edge(self, low: usize, high: usize) -> bool {
        let is_mesh = matches!(self, Self::Bubbles | Self::Delaunay);
        !(is_mesh && mix((low as u64) << 32 ^ high as u64).is_multiple_of(12))
    }
}

/// Returns the vertex of [`Graph::Events`] at the other end of an event's message. Rank 0's receives come first, then the sends of one
/// rank after the other.
fn other_end(rank: usize, event: usize, rounds: usize) -> usize {
    let round = if rank == 0 { event / SENDERS } else { event };
    // The sender `s` of 0 to 30 is received at position `factor * s + first` modulo 31 of its round.
    let order = mix(round as u64) as usize;
    let (factor, first) = (1 + order % (SENDERS - 1), order / SENDERS % SENDERS);
    let position = |sender: usize| (factor * sender + first) % SENDERS;
    match rank.checked_sub(1) {
        Some(sender) => round * SENDERS + position(sender),
        None => {
            let is_it = |&sender: &usize| position(sender) == event % SENDERS;
            let sender = (0..SENDERS).find(is_it).unwrap_or_default();
            (SENDERS + sender) * rounds + round
        }
    }
}

/// Returns the counters, all zero, and the step that counts one more share of the vertices.
pub(super) fn start(graph: Graph, size: Size) -> (Vec<u8>, Step) {
    let count = (size.bytes / (COLUMNS * 4)).max(16);
    let width = count.isqrt();
    let neighbours: Vec<_> = (0..count)
        .into_par_iter()
        .map(|v| graph.neighbours(v, width, count))
        .collect();
    let mut counters: Vec<AtomicU32> = Vec::new();
    counters.resize_with(count * COLUMNS, AtomicU32::default);
    let share = count.div_ceil(size.checkpoints);
    let mut next = 0;
    let step = move |state: &mut [u8]| {
        let end = (next + share).min(count);
        (next..end).into_par_iter().for_each(|v| {
            let mut search = Search {
                neighbours: &neighbours,
                counters: &counters,
                subgraph: vec![v],
            };
            search.count_from(v);
        });
        next = end;
        let words = state.par_chunks_exact_mut(4).zip(&counters);
        words
            .for_each(|(word, counter)| word.copy_from_slice(&counter.load(Relaxed).to_le_bytes()));
    };
    (vec![0; count * COLUMNS * 4], Box::new(step))
}

struct Search<'a> {
    neighbours: &'a [([usize; 6], usize)],
    counters: &'a [AtomicU32],
    subgraph: Vec<usize>,
}

impl Search<'_> {
    fn neighbours(&self, v: usize) -> &[usize] {
        let (neighbours, count) = &self.neighbours[v];
        &neighbours[..*count]
    }

    fn is_edge(&self, a: usize, b: usize) -> bool {
        self.neighbours(a).contains(&b)
    }

    fn count_from(&mut self, v: usize) {
        let extension = self
            .neighbours(v)
            .iter()
            .copied()
            .filter(|&n| n > v)
            .collect();
        self.extend(v, extension);
    }

    /// Enumerates each connected subgraph once that contains the current subgraph, has the smallest vertex `root`, and grows by vertices of
    /// the extension.
    fn extend(&mut self, root: usize, mut extension: Vec<usize>) {
        if self.subgraph.len() > 1 {
            self.tally();
        }
        if self.subgraph.len() == LARGEST {
            return;
        }
        while let Some(w) = extension.pop() {
            let mut wider = extension.clone();
            for &u in self.neighbours(w) {
                let is_new =
                    u > root && !self.subgraph.contains(&u) && !wider.contains(&u) && u != w;
                let is_exclusive = is_new && !self.subgraph.iter().any(|&s| self.is_edge(s, u));
                if is_exclusive {
                    wider.push(u);
                }
            }
            self.subgraph.push(w);
            self.extend(root, wider);
            self.subgraph.pop();
        }
    }

    /// Counts the current subgraph for each of its vertices.
    fn tally(&self) {
        let size = self.subgraph.len();
        let mut degrees = [0_u8; 5];
        for a in 0..size {
            for b in a + 1..size {
                if self.is_edge(self.subgraph[a], self.subgraph[b]) {
                    degrees[a] += 1;
                    degrees[b] += 1;
                }
            }
        }
        let mut sorted = degrees;
        sorted.sort_unstable();
        let kind = sorted
            .iter()
            .fold(size as u64, |kind, &d| kind * 5 + u64::from(d));
        for (&v, &degree) in self.subgraph.iter().zip(&degrees) {
            let column = (mix(kind * 5 + u64::from(degree)) % COLUMNS as u64) as usize;
            self.counters[column * self.neighbours.len() + v].fetch_add(1, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_mutual() {
        for graph in [Graph::Events, Graph::Road, Graph::Bubbles, Graph::Delaunay] {
            let (width, count) = (13, 13 * 11 + 5);
            let mut ends = 0;
            for v in 0..count {
                let (neighbours, found) = graph.neighbours(v, width, count);
                ends += found;
                for &n in &neighbours[..found] {
                    let (back, found) = graph.neighbours(n, width, count);
                    assert!(back[..found].contains(&v), "{graph:?} {v} {n}");
                }
            }
            if graph == Graph::Events {
                // Two rounds of 31 messages: 62 edges of messages, and one less than the events in each rank's chain.
                assert_eq!(ends / 2, 62 + (62 - 1) + 31);
            }
        }
    }

    #[test]
    fn every_connected_subgraph_is_counted_once() {
        // A honeycomb of 20 vertices, against all choices of two to five vertices.
        let count = 20;
        let size = Size {
            bytes: count * COLUMNS * 4,
            checkpoints: 1,
        };
        let (mut state, mut step) = start(Graph::Bubbles, size);
        step(&mut state);
        let words = state
            .chunks(4)
            .map(|word| u64::from(u32::from_le_bytes([word[0], word[1], word[2], word[3]])));
        let counted: u64 = words.sum();
        let width = count.isqrt();
        let is_edge = |a: usize, b: usize| {
            let (neighbours, found) = Graph::Bubbles.neighbours(a, width, count);
            neighbours[..found].contains(&b)
        };
        let mut expected = 0;
        for mask in 0_u32..1 << count {
            let size = mask.count_ones();
            if !(2..=5).contains(&size) {
                continue;
            }
            let mut reached = mask & mask.wrapping_neg();
            loop {
                let grown = (0..count)
                    .filter(|&v| mask >> v & 1 == 1)
                    .filter(|&v| (0..count).any(|u| reached >> u & 1 == 1 && is_edge(u, v)));
                let wider = grown.fold(reached, |bits, v| bits | 1 << v);
                if wider == reached {
                    break;
                }
                reached = wider;
            }
            expected += if reached == mask { u64::from(size) } else { 0 };
        }
        assert_eq!(counted, expected);
    }
}
