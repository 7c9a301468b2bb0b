//! The distance of each node from the sink.

use std::ops::Range;

use super::super::{Network, SINK, SOURCE};
use super::{Residual, UNSEEN, range};

impl Residual {
    /// Finds the levels, breadth first from the sink backwards. Returns true if the source is reached.
    pub(super) fn find_levels(&mut self, network: &Network) -> bool {
        let nodes = self.first.len() - 1;
        self.level.clear();
        self.level.resize(nodes, UNSEEN);
        self.level[SINK as usize] = 0;
        let has_links = network.links.len() > 0;
        if has_links {
            let all = 0..nodes as u32;
            let is_receiver = |node: &u32| !range(&self.first_in, *node).is_empty();
            self.receivers.clear();
            self.receivers.extend(all.filter(is_receiver));
            self.senders.clear();
            let senders = network.links.rows().map(|(node, _)| node);
            self.senders.extend(senders);
        }
        self.queue.clear();
        self.queue.push(SINK);
        let mut layer = 0..1;
        while !layer.is_empty() && self.level[SOURCE as usize] == UNSEEN {
            let level = self.level[self.queue[layer.start] as usize] + 1;
            let end = layer.end;
            for at in layer.clone() {
                let node = self.queue[at];
                for arc in range(&self.first, node) {
                    let (tail, back) = (self.head[arc], self.reverse[arc]);
                    if self.level[tail as usize] == UNSEEN && self.left[back as usize] > 0 {
                        self.level[tail as usize] = level;
                        if tail == SOURCE {
                            return true;
                        }
                        self.queue.push(tail);
                    }
                }
            }
            if has_links {
                self.look(network, layer.clone(), level);
            }
            layer = end..self.queue.len();
        }
        self.level[SOURCE as usize] != UNSEEN
    }

    /// Adds the nodes that links connect to a layer. If fewer nodes are unseen than are in the layer, each unseen node looks for
    /// a neighbour in the layer: mostly one or two looks are enough.
    fn look(&mut self, network: &Network, layer: Range<usize>, level: u32) {
        let mut lists = [
            std::mem::take(&mut self.senders),
            std::mem::take(&mut self.receivers),
        ];
        let mut ahead = [0, 0];
        for &node in &self.queue[layer.clone()] {
            ahead[0] += usize::from(!range(&self.first_in, node).is_empty());
            ahead[1] += usize::from(!network.links.row(node).is_empty());
        }
        for (list, &ahead) in lists.iter_mut().zip(&ahead) {
            if ahead > 0 {
                list.retain(|node| self.level[*node as usize] == UNSEEN);
            }
        }
        // Senders read rows, which are consecutive in memory. Receivers read columns, which are not.
        let is_pull = [
            ahead[0] > 0 && lists[0].len() < 8 * ahead[0],
            ahead[1] > 0 && lists[1].len() < ahead[1],
        ];
        if is_pull[0] {
            lists[0].retain(|&node| {
                let finds = network.links.row(node).any(|link| {
                    let head = network.links.to[link];
                    self.level[head as usize] == level - 1
                        && self.link_left(network, link as u32) > 0
                });
                self.see(node, finds, level);
                !finds
            });
        }
        if is_pull[1] {
            lists[1].retain(|&node| {
                let finds = range(&self.first_in, node).any(|into| {
                    let (tail, link) = self.into[into];
                    self.level[tail as usize] == level - 1 && self.through[link as usize] > 0
                });
                self.see(node, finds, level);
                !finds
            });
        }
        let unseen = lists.each_ref().map(Vec::len);
        [self.senders, self.receivers] = lists;
        for at in layer {
            let node = self.queue[at];
            if !is_pull[0] && unseen[0] > 0 {
                for into in range(&self.first_in, node) {
                    let (tail, link) = self.into[into];
                    let is_unseen = self.level[tail as usize] == UNSEEN;
                    self.see(tail, is_unseen && self.link_left(network, link) > 0, level);
                }
            }
            if !is_pull[1] && unseen[1] > 0 {
                for link in network.links.row(node) {
                    let head = network.links.to[link];
                    let is_unseen = self.level[head as usize] == UNSEEN;
                    self.see(head, is_unseen && self.through[link] > 0, level);
                }
            }
        }
    }

    fn see(&mut self, node: u32, is_seen: bool, level: u32) {
        if is_seen {
            self.level[node as usize] = level;
            self.queue.push(node);
        }
    }
}
