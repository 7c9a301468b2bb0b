//! What workers do: transfers between tiers, and requests of callers.

use super::bypass::Help;
use super::sync::AtomicBool;
use crate::plan::Transfer;
use std::sync::Arc;

/// A task for one worker.
#[derive(Debug)]
pub(crate) enum Task {
    Transfer(Arc<Job>),
    Help(Help),
}

/// One transfer, and the flag that stops it.
#[derive(Debug)]
pub(crate) struct Job {
    pub(super) transfer: Transfer,
    pub(super) cancelled: Arc<AtomicBool>,
}
