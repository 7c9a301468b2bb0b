//! The file system as a link that nodes share evenly.
//!
//! A node's link limits each flow alike, so at any moment all flows have the same rate. The *level* is the number of
//! bytes that a flow since the beginning would have got. A flow ends when the level has risen by its bytes.

use crate::ordered::Ordered;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

#[derive(Debug)]
pub(super) struct SharedLink {
    own: f64,
    shared: f64,
    level: f64,
    now: f64,
    /// The node of each flow, by the level at which the flow ends.
    flows: BinaryHeap<Reverse<(Ordered, usize)>>,
}

impl SharedLink {
    pub(super) fn new(own: f64, shared: f64) -> Self {
        Self {
            own,
            shared,
            level: 0.0,
            now: 0.0,
            flows: BinaryHeap::new(),
        }
    }

    fn rate(&self) -> f64 {
        self.own.min(self.shared / self.flows.len() as f64)
    }

    fn pass(&mut self, now: f64) {
        if self.flows.is_empty() {
            // Levels count from here, so they stay small and exact.
            self.level = 0.0;
        } else {
            self.level += (now - self.now) * self.rate();
        }
        self.now = now;
    }

    pub(super) fn begin(&mut self, node: usize, bytes: f64, now: f64) {
        self.pass(now);
        self.flows
            .push(Reverse((Ordered(self.level + bytes), node)));
    }

    /// Returns the time at which the next flow ends, in s.
    pub(super) fn next_end(&self) -> Option<f64> {
        let Reverse((Ordered(level), _)) = self.flows.peek()?;
        Some(self.now + (level - self.level).max(0.0) / self.rate())
    }

    /// Ends the next flow at its time. Returns its node.
    pub(super) fn end(&mut self) -> Option<usize> {
        let at = self.next_end()?;
        self.pass(at);
        self.flows.pop().map(|Reverse((Ordered(level), node))| {
            self.level = level;
            node
        })
    }

    /// Removes all flows.
    pub(super) fn clear(&mut self) {
        self.flows.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Plays flows in small steps. Returns when each ends.
    fn stepped(flows: &[(f64, f64)], own: f64, shared: f64) -> Vec<f64> {
        let step = 1e-4;
        let mut left: Vec<_> = flows.iter().map(|flow| flow.1).collect();
        let mut ends = vec![0.0; flows.len()];
        let mut now = 0.0;
        while left.iter().any(|left| *left > 0.0) {
            let is_active = |at: usize, left: &[f64]| flows[at].0 <= now && left[at] > 0.0;
            let active = (0..flows.len()).filter(|&at| is_active(at, &left)).count();
            let rate = own.min(shared / active as f64);
            for at in 0..flows.len() {
                if is_active(at, &left) {
                    left[at] -= rate * step;
                    ends[at] = now + step;
                }
            }
            now += step;
        }
        ends
    }

    #[test]
    fn flows_end_when_small_steps_say_so() {
        let mut random = super::super::straggle::Random(3);
        for _ in 0..20 {
            let mut flows: Vec<(f64, f64)> = (0..6)
                .map(|_| (random.uniform() * 3.0, 0.2 + random.uniform() * 4.0))
                .collect();
            flows.sort_by(|a, b| a.0.total_cmp(&b.0));
            let (own, shared) = (1.0 + random.uniform(), 2.0 + random.uniform());
            let mut link = SharedLink::new(own, shared);
            let mut ends = vec![0.0; flows.len()];
            let mut begun = 0;
            loop {
                let begins = flows.get(begun).map(|flow| flow.0);
                match (begins, link.next_end()) {
                    (None, None) => break,
                    (Some(at), end) if end.is_none_or(|end| at < end) => {
                        link.begin(begun, flows[begun].1, at);
                        begun += 1;
                    }
                    (_, end) => {
                        let node = link.end().unwrap();
                        ends[node] = end.unwrap();
                    }
                }
            }
            for (end, expected) in ends.iter().zip(stepped(&flows, own, shared)) {
                assert!((end - expected).abs() < 5e-3, "{end} {expected}");
            }
        }
    }
}
