//! The links down of an engine, in a sweep of unknown length.

use crate::schedule::Schedule;
use tierflow_engine::Engine;

/// The transfers of a link down.
#[derive(Clone, Copy, Debug, Default)]
struct Traffic {
    /// Transfers that the rule began.
    sent: usize,
    /// Transfers that had arrived when it began the last one.
    arrived: u64,
}

impl Traffic {
    /// Returns true if a transfer arrived since the rule began its last one: so it begins as many as the link carries.
    fn is_idle(&mut self, sent: usize, arrived: u64) -> bool {
        if self.sent != sent {
            *self = Self { sent, arrived };
        }
        sent == 0 || arrived > self.arrived
    }
}

/// The links down of an engine, in a sweep of unknown length.
#[derive(Clone, Debug, Default)]
pub struct Links(Vec<Traffic>);

impl Links {
    /// Tells of the link down to each tier whether it is idle, as [`Schedule::next_action`] asks. As soon as the length is
    /// known, there is nothing to tell.
    pub fn idle(&mut self, engine: &Engine, schedule: &Schedule) -> Vec<bool> {
        let moved = schedule.moved();
        if moved.is_empty() {
            return Vec::new();
        }
        let metrics = engine.metrics();
        self.0.resize(moved.len(), Traffic::default());
        let links = self.0.iter_mut().zip(moved);
        let links = links.zip(metrics.tiers.iter().skip(1));
        let idle = links.map(|((link, sent), below)| {
            let hops = metrics.hops.iter().filter(|hop| hop.to == below.name);
            let arrived = hops.map(|hop| hop.transfers).sum::<u64>();
            link.is_idle(sent, below.checkpoints + arrived)
        });
        idle.collect()
    }
}
