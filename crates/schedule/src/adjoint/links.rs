//! The links down of an engine, in a sweep of unknown length.

use crate::schedule::Schedule;
use tierflow_engine::{Engine, HopMetrics};

/// The transfers of a link down.
#[derive(Clone, Copy, Debug, Default)]
struct Traffic {
    /// States that the rule sent.
    sent: usize,
    /// States that had arrived when it sent the last one.
    arrived: u64,
}

impl Traffic {
    /// Returns true if a state arrived since the rule sent its last one: so it sends as many as the link carries.
    fn is_idle(&mut self, sent: usize, arrived: u64) -> bool {
        if self.sent != sent {
            *self = Self { sent, arrived };
        }
        sent == 0 || arrived > self.arrived
    }
}

/// The links down of an engine, in a sweep of unknown length.
#[derive(Clone, Debug)]
pub struct Links {
    /// Bytes of a state.
    state: u64,
    links: Vec<Traffic>,
}

impl Links {
    /// The links of a sweep whose states have so many bytes.
    #[must_use]
    pub fn new(state: u64) -> Self {
        Self {
            state: state.max(1),
            links: Vec::new(),
        }
    }

    /// Tells of the link down to each tier if it is idle, as [`Schedule::next_action`] asks. As soon as the length is known, there is
    /// nothing to tell. States arrive by their bytes, as an engine may cut them; those that an engine compresses count with their bytes
    /// below, so fewer are sent than the link carries.
    pub fn idle(&mut self, engine: &Engine, schedule: &Schedule) -> Vec<bool> {
        let moved = schedule.moved();
        if moved.is_empty() {
            return Vec::new();
        }
        let metrics = engine.metrics();
        self.links.resize(moved.len(), Traffic::default());
        let links = self.links.iter_mut().zip(moved);
        let links = links.zip(metrics.tiers.iter().skip(1));
        let idle = links.map(|((link, sent), below)| {
            let arrived = arrived(&metrics.hops, below.name, self.state);
            link.is_idle(sent, below.checkpoints + arrived)
        });
        idle.collect()
    }
}

/// Returns the states of so many bytes that arrived on a tier.
fn arrived(hops: &[HopMetrics], tier: &str, state: u64) -> u64 {
    let hops = hops.iter().filter(|hop| hop.to == tier);
    hops.map(|hop| hop.bytes).sum::<u64>() / state
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_state_that_was_cut_arrives_once() {
        let hop = |from, transfers, bytes| HopMetrics {
            from,
            to: "file",
            transfers,
            bytes,
            busy: Duration::ZERO,
            cancelled: 0,
            failed: 0,
        };
        // Two states and a half: some in parts of a quarter, one whole.
        let hops = [hop("device", 4, 400), hop("host", 3, 600)];
        assert_eq!(arrived(&hops, "file", 400), 2);
        assert_eq!(arrived(&hops, "host", 400), 0);
    }
}
