//! Less memory, and more again.

use super::{DeviceArena, DeviceBacking, DeviceGrowth, rounded};
use crate::error::{Error, Result};
use crate::watermark::End;

impl DeviceArena {
    /// Keeps to the first `bytes` from now on, and gives all others back to the device; or has so many again when it
    /// returns. All of the arena if it has fewer. Returns the bytes that it keeps: those of a chunk that was mapped
    /// across the limit stay.
    ///
    /// # Errors
    ///
    /// [`Error::Fixed`] for [`DeviceGrowth::DirectAlloc`]; [`Error::Device`] if something beyond is lent (it keeps its
    /// memory then), or the device has no more.
    pub fn resize(&self, bytes: usize) -> Result<usize> {
        let shared = &self.shared;
        let (DeviceBacking::Chunks(reservation), DeviceGrowth::IncrementalVmm { chunk }) =
            (&shared.backing, self.growth)
        else {
            let strategy = self.growth.name();
            return Err(Error::Fixed { strategy });
        };
        let mut limit = shared.limit.lock();
        let capacity = self.capacity();
        let asked = bytes.min(capacity);
        let asked = asked
            .next_multiple_of(reservation.granularity())
            .min(capacity);
        let kept = reservation.mapped_end(asked);
        let usable = shared.usable.level();
        if kept < usable {
            reservation.unmap(kept..usable)?;
        }
        shared.usable.reopen(kept);
        *limit = kept;
        let most = chunk.unwrap_or(DeviceGrowth::MOST_CHUNK);
        let most = rounded(most, reservation.granularity());
        let mut start = kept.min(usable);
        while start < kept {
            let end = start.saturating_add(most).min(kept);
            if let Err(error) = reservation.map(start..end) {
                shared.usable.finish(End::Failed(error.clone()));
                return Err(error.into());
            }
            shared.usable.raise(end);
            start = end;
        }
        shared.usable.finish(End::Complete);
        Ok(kept)
    }
}
