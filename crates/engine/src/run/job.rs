//! Tasks of workers: transfers between tiers, and help with copies that callers make.

use crate::plan::Transfer;
use std::sync::Arc;
use tierflow_sync::model::{AtomicBool, AtomicU64, Ordering};
use tierflow_transfer::Helper;

/// Bytes of a small transfer at most. Small transfers are carried together.
pub(super) const SMALL: u64 = 64 << 10;

/// The direction in which a worker copies.
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
    /// Help with a copy that a caller makes between its memory and the link's storage. The caller waits for the end of it.
    Help(Helper),
    /// The queued events, to be handed to the plan.
    Plan,
}

/// A transfer, and the flag that stops it.
#[derive(Debug)]
pub(crate) struct Job {
    pub(super) transfer: Transfer,
    /// Number of encoding transfers that the plan started before this one.
    pub(super) turn: u64,
    pub(super) cancelled: Arc<AtomicBool>,
    /// Time at which the plan asked for the transfer, in ns on its clock.
    pub(super) asked_ns: u64,
    /// Time at which a worker last began the transfer, in ns on the plan's clock; 0 before.
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

    /// Notes that a worker begins the transfer.
    pub(super) fn begin(&self, now_ns: u64) {
        self.begun_ns.store(now_ns, Ordering::Relaxed);
    }
}
