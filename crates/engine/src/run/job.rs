//! Tasks of workers: transfers between tiers, and help with copies that callers make.

use crate::plan::Transfer;
use std::sync::Arc;
use tierflow_sync::model::{AtomicBool, AtomicU64, Ordering};
use tierflow_transfer::Helper;

/// Bytes of a transfer that is small: it goes with others.
pub(super) const SMALL: u64 = 64 << 10;

/// Which way a worker carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Direction {
    /// Into its tier from above.
    Down,
    /// Out of its tier upwards.
    Up,
}

/// A task for one worker.
#[derive(Debug)]
pub(crate) enum Task {
    Transfer(Arc<Job>),
    /// A caller copies between its memory and the link's storage, and waits.
    Help(Helper),
    /// The plan is to hear of the queued events.
    Plan,
}

/// A transfer, and the flag that stops it.
#[derive(Debug)]
pub(crate) struct Job {
    pub(super) transfer: Transfer,
    /// How many that encode were begun before it.
    pub(super) turn: u64,
    pub(super) cancelled: Arc<AtomicBool>,
    /// When the plan asked for it, on the plan's clock.
    pub(super) asked_ns: u64,
    /// When a worker began it last; 0 before.
    pub(super) begun_ns: AtomicU64,
}

impl Job {
    pub(super) fn new(transfer: Transfer, turn: u64, asked_ns: u64) -> Self {
        Self {
            transfer,
            turn,
            cancelled: Arc::default(),
            asked_ns,
            begun_ns: AtomicU64::new(0),
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.transfer
            .from
            .iter()
            .map(|piece| piece.place.size)
            .sum()
    }

    /// A worker begins it.
    pub(super) fn begin(&self, now_ns: u64) {
        self.begun_ns.store(now_ns, Ordering::Relaxed);
    }
}
