//! One transfer, and the flag that stops it.

use super::sync::AtomicBool;
use crate::plan::Transfer;
use std::sync::Arc;

/// One transfer, for one worker.
#[derive(Debug)]
pub(crate) struct Job {
    pub(super) transfer: Transfer,
    pub(super) cancelled: Arc<AtomicBool>,
}
