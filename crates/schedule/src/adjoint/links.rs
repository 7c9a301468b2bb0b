//! The links down of an engine, in a sweep of unknown length.

use crate::schedule::Schedule;
use tierflow_engine::{Calls, Engine, HopMetrics, Metrics};

/// The traffic on a link down.
#[derive(Clone, Copy, Debug, Default)]
struct Traffic {
    /// States that the rule sent.
    sent: usize,
    /// Bytes or transfers that had arrived when the rule sent its last state.
    arrived: u64,
}

impl Traffic {
    /// Returns true if a state arrived since the rule sent its last one. The rule therefore sends as many states as the link
    /// carries.
    fn is_idle(&mut self, sent: usize, arrived: u64, state: u64) -> bool {
        if self.sent != sent {
            *self = Self { sent, arrived };
        }
        sent == 0 || arrived.saturating_sub(self.arrived) >= state
    }
}

/// The links down of an engine, in a sweep of unknown length.
#[derive(Clone, Debug, Default)]
pub struct Links {
    /// Checkpoints before the sweep.
    before: Option<Calls>,
    links: Vec<Traffic>,
}

impl Links {
    /// Returns for the link down to each tier true if it is idle, as [`Schedule::next_action`] takes it. Empty once the length of
    /// the sweep is known.
    pub fn idle(&mut self, engine: &Engine, schedule: &Schedule) -> Vec<bool> {
        let moved = schedule.moved();
        if moved.is_empty() {
            return Vec::new();
        }
        let metrics = engine.metrics();
        let before = self.before.get_or_insert(metrics.checkpoint);
        let bytes = state_bytes(&metrics, before);
        let state = bytes.unwrap_or(1);
        self.links.resize(moved.len(), Traffic::default());
        let links = self.links.iter_mut().zip(moved);
        let links = links.zip(metrics.tiers.iter().skip(1));
        let idle = links.map(|((link, sent), below)| {
            let arrived = arrived(&metrics.hops, below.name, bytes.is_some());
            link.is_idle(sent, arrived + below.checkpoints * state, state)
        });
        idle.collect()
    }
}

/// Returns the mean bytes of the checkpoints so far. `None` if the engine compresses them: fewer bytes then arrive below, and
/// the engine does not cut a state into several transfers. An engine that stores differences is not recognised, so fewer states
/// are sent than its links carry.
fn state_bytes(metrics: &Metrics, before: &Calls) -> Option<u64> {
    let count = metrics.checkpoint.count.saturating_sub(before.count);
    let bytes = metrics.checkpoint.bytes.saturating_sub(before.bytes);
    let is_plain = metrics.compression.is_none();
    is_plain.then(|| bytes.checked_div(count).unwrap_or(0))
}

/// Returns the bytes that arrived on a tier, as an engine may cut a state; or the transfers, if `by_bytes` is false.
fn arrived(hops: &[HopMetrics], tier: &str, by_bytes: bool) -> u64 {
    let hops = hops.iter().filter(|hop| hop.to == tier);
    let arrived = hops.map(|hop| if by_bytes { hop.bytes } else { hop.transfers });
    arrived.sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_state_that_was_cut_arrives_once_and_an_encoded_one_as_a_transfer() {
        let hop = |transfers, bytes| HopMetrics {
            from: "device",
            to: "file",
            transfers,
            bytes,
            busy: Duration::ZERO,
            cancelled: 0,
            failed: 0,
        };
        let mut link = Traffic::default();
        let mut is_idle = |sent, transfers, bytes, state: Option<u64>| {
            let arrived = arrived(&[hop(transfers, bytes)], "file", state.is_some());
            link.is_idle(sent, arrived, state.unwrap_or(1))
        };
        assert!(is_idle(0, 0, 0, Some(400)));
        assert!(!is_idle(1, 3, 300, Some(400)));
        assert!(!is_idle(1, 6, 699, Some(400)));
        assert!(is_idle(1, 7, 700, Some(400)));
        assert!(!is_idle(2, 7, 700, None));
        assert!(is_idle(2, 8, 800, None));
        assert_eq!(arrived(&[hop(1, 1)], "host", true), 0);
    }
}
