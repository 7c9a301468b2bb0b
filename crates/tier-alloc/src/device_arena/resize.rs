//! Shrinking an arena, and growing it again.

use super::{DeviceArena, DeviceBacking, DeviceGrowth, rounded};
use crate::error::{Error, Result};
use crate::watermark::End;

impl DeviceArena {
    /// Changes the arena to its first `bytes`, at most its capacity. Gives memory beyond them back to the device, or maps
    /// the missing memory before it returns. Returns the bytes that the arena has now: more than `bytes` if a chunk was
    /// mapped across the limit, as the whole chunk stays.
    ///
    /// # Errors
    ///
    /// [`Error::Fixed`] for [`DeviceGrowth::DirectAlloc`]; [`Error::Device`] if bytes beyond the limit are lent (the arena
    /// keeps its memory then), or the device has no more memory.
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
