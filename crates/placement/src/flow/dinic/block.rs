//! A blocking flow: one along shortest paths after which no shortest path is left.

use super::super::{Network, SINK, SOURCE};
use super::{Residual, Step, range};

impl Residual {
    /// Pushes a blocking flow along shortest paths, depth first and without recursion.
    pub(super) fn block(&mut self, network: &Network, added: &mut u64) {
        self.next.clear();
        self.next.extend_from_slice(&self.first);
        if network.links.len() > 0 {
            self.next_link.clear();
            for node in 0..network.nodes as u32 {
                let (out, into) = (network.links.row(node), range(&self.first_in, node));
                let next = if out.is_empty() { into } else { out };
                self.next_link.push(next.start as u32);
            }
        }
        self.path.clear();
        let mut node = SOURCE;
        loop {
            if node == SINK {
                node = self.push(network, added);
            } else if let Some((step, head)) = self.step(network, node) {
                self.path.push((node, step));
                node = head;
            } else if let Some((tail, step)) = self.path.pop() {
                match step {
                    Step::Arc(_) => self.next[tail as usize] += 1,
                    Step::Link(_) | Step::Back(_) => self.next_link[tail as usize] += 1,
                }
                node = tail;
            } else {
                return;
            }
        }
    }

    /// Returns the next step from a node towards the sink, and the node that it leads to.
    fn step(&mut self, network: &Network, node: u32) -> Option<(Step, u32)> {
        let wanted = self.level[node as usize].wrapping_sub(1);
        if network.links.len() > 0
            && let Some(step) = self.step_by_link(network, node, wanted)
        {
            return Some(step);
        }
        let end = self.first[node as usize + 1];
        for arc in self.next[node as usize]..end {
            let head = self.head[arc as usize];
            if self.level[head as usize] == wanted && self.left[arc as usize] > 0 {
                self.next[node as usize] = arc;
                return Some((Step::Arc(arc), head));
            }
        }
        self.next[node as usize] = end;
        None
    }

    fn step_by_link(&mut self, network: &Network, node: u32, wanted: u32) -> Option<(Step, u32)> {
        let (out, into) = (network.links.row(node), range(&self.first_in, node));
        // No node has both outgoing and incoming links.
        let end = if out.is_empty() { into.end } else { out.end };
        for next in self.next_link[node as usize] as usize..end {
            let (head, step) = if out.is_empty() {
                let (head, link) = self.into[next];
                (head, Step::Back(link))
            } else {
                (network.links.to[next], Step::Link(next as u32))
            };
            if self.level[head as usize] == wanted && self.left(network, step) > 0 {
                self.next_link[node as usize] = next as u32;
                return Some((step, head));
            }
        }
        self.next_link[node as usize] = end as u32;
        None
    }

    fn left(&self, network: &Network, step: Step) -> u64 {
        match step {
            Step::Arc(arc) => self.left[arc as usize],
            Step::Link(link) => self.link_left(network, link),
            Step::Back(link) => self.through[link as usize],
        }
    }

    /// Sends as many units as the path carries. Returns the tail of the path's first full step, from which the search goes on.
    fn push(&mut self, network: &Network, added: &mut u64) -> u32 {
        let left = |(_, step): &(u32, Step)| self.left(network, *step);
        let amount = self.path.iter().map(left).min().unwrap_or_default();
        let mut full = self.path.len();
        for (at, &(_, step)) in self.path.iter().enumerate().rev() {
            match step {
                Step::Arc(arc) => {
                    self.left[arc as usize] -= amount;
                    self.left[self.reverse[arc as usize] as usize] += amount;
                }
                Step::Link(link) => self.through[link as usize] += amount,
                Step::Back(link) => self.through[link as usize] -= amount,
            }
            let bandwidth = |link: u32| network.links.bandwidth[link as usize] as u64;
            let is_full = match step {
                Step::Arc(arc) => self.left[arc as usize] == 0,
                Step::Link(link) => self.carried.at(bandwidth(link)) == self.through[link as usize],
                Step::Back(link) => self.through[link as usize] == 0,
            };
            if is_full {
                full = at;
            }
        }
        *added += amount;
        let node = self.path.get(full).map_or(SOURCE, |(node, _)| *node);
        self.path.truncate(full);
        node
    }
}
