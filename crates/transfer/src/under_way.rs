//! Copies that a device makes alone.

use crate::copy::Result;
use crate::{FailedEnd, TransferError};
use std::collections::VecDeque;
use tierflow_device::Transfer;

/// Parts of one copy that a device makes at a time: while a thread learns of the end of the first, the device makes the second.
const MOST: usize = 2;

/// Waits for the device, if it is at work.
pub(crate) fn settle(transfer: Option<Transfer>) -> crate::Result<()> {
    transfer.map_or(Ok(()), |transfer| Ok(transfer.wait().result?))
}

/// The parts of a copy that a device still makes, the oldest first. Dropping them waits for the device.
#[derive(Debug, Default)]
pub struct UnderWay(VecDeque<(FailedEnd, Transfer)>);

impl UnderWay {
    /// Returns true if the device makes no part any more, so that [`finish`](Self::finish) returns at once.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.0.iter().all(|(_, transfer)| transfer.is_done())
    }

    /// Waits until all parts are made.
    ///
    /// # Errors
    /// [`TransferError::Failed`]: the end that failed.
    pub fn finish(&mut self) -> Result<()> {
        self.wait_for_all_but(0)
    }

    /// Waits until one more part can be begun.
    pub(crate) fn make_room(&mut self) -> Result<()> {
        self.wait_for_all_but(MOST - 1)
    }

    /// Adds a part that was begun; `end` is at fault if it fails.
    pub(crate) fn add(&mut self, end: FailedEnd, transfer: Option<Transfer>) {
        self.0.extend(transfer.map(|transfer| (end, transfer)));
    }

    fn wait_for_all_but(&mut self, most: usize) -> Result<()> {
        while self.0.len() > most
            && let Some((end, transfer)) = self.0.pop_front()
        {
            let ended = settle(Some(transfer));
            ended.map_err(|error| TransferError::of(end, error))?;
        }
        Ok(())
    }
}
