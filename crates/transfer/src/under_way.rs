//! Transfers that a device continues alone.

use crate::copy::Result;
use crate::{FailedEnd, TransferError};
use std::collections::VecDeque;
use tierflow_device::Transfer;

/// Parts of one copy that a device makes at a time: while a thread learns that the first has ended, the device makes the second.
const MOST: usize = 2;

/// Waits for the end of a transfer, if there is one.
pub(crate) fn settle(transfer: Option<Transfer>) -> crate::Result<()> {
    transfer.map_or(Ok(()), |transfer| Ok(transfer.wait().result?))
}

/// The parts of a copy that a device still makes, oldest first. Dropping them waits for the device.
#[derive(Debug, Default)]
pub(crate) struct UnderWay(VecDeque<(FailedEnd, Transfer)>);

impl UnderWay {
    /// Waits until all parts have ended.
    ///
    /// # Errors
    /// [`TransferError::Failed`] with the end that failed.
    pub(crate) fn finish(&mut self) -> Result<()> {
        self.wait_for_all_but(0)
    }

    /// Waits until another part may start.
    pub(crate) fn make_room(&mut self) -> Result<()> {
        self.wait_for_all_but(MOST - 1)
    }

    /// Adds a part that was started. `end` is the end to blame if it fails.
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;
    use std::time::Duration;
    use tierflow_device::host;

    #[test]
    fn a_device_has_two_parts_and_the_third_waits_for_the_first() {
        let device = host::open(host::Options::default()).unwrap();
        let (stream, ends) = host::late_stream(&device).unwrap();
        let (from, to) = (device.alloc(3).unwrap(), device.alloc(3).unwrap());
        let part = |at| {
            let (from, to) = (from.lend(at..at + 1), to.lend_mut(at..at + 1));
            Some(stream.copy(from.unwrap(), to.unwrap()))
        };
        let mut under_way = UnderWay::default();
        for at in 0..MOST {
            under_way.make_room().unwrap();
            under_way.add(FailedEnd::Target, part(at));
        }
        assert!(to.lend_mut(0..1).is_err(), "the device writes there");
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(5));
                assert!(ends.reach_next());
            });
            under_way.make_room().unwrap();
        });
        assert!(to.lend_mut(0..1).is_ok() && to.lend_mut(1..2).is_err());
        under_way.add(FailedEnd::Target, part(MOST));
        while ends.reach_next() {}
        under_way.finish().unwrap();
        assert!(to.lend_mut(0..3).is_ok());
    }
}
