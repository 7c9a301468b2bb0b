//! Less memory, and more again.

use std::sync::atomic::Ordering;

use tierflow_device::HostReservation;

use super::HostArena;
use super::pieces::QUIET_TIMEOUT;
use crate::error::{Error, Result};
use crate::workers::Workers;

impl HostArena {
    /// Keeps to the first `bytes` from now on, and gives the pages of all others back to the system, unpinned; or grows
    /// to so many again, in the background, as at first. All of the arena if it has fewer. Returns the bytes that it
    /// keeps: where a piece was pinned across the limit, some more.
    ///
    /// Memory that is given back can still be lent, as ordinary memory of zeros that the system provides on first use: the
    /// caller must not lend it. It takes as long as the system takes to free the pages
    /// (10 to 20 GB/s), and a piece that is being touched or pinned; copies under a [`Gate`](crate::Gate) go first.
    ///
    /// # Errors
    ///
    /// [`Error::Fixed`] for all strategies but [`HostGrowth::Pieces`](crate::HostGrowth::Pieces); [`Error::Device`] if something beyond is lent
    /// (it keeps its memory then), or the system refuses; [`Error::Thread`], and then what is kept stays as it is.
    pub fn resize(&self, bytes: usize) -> Result<usize> {
        let growing = &self.growing;
        let fixed = Error::Fixed {
            strategy: self.growth.name(),
        };
        let (Some(piece), Some(reservation)) = (self.growth.piece(), growing.backing.reserved())
        else {
            return Err(fixed);
        };
        let mut workers = self.workers.lock();
        // Stops and joins the threads: no level rises from here on.
        *workers = Workers::default();
        let capacity = growing.capacity();
        let granularity = HostReservation::GRANULARITY;
        // As pieces are rounded where they are pinned, so that none of them is cut through.
        let piece = piece
            .checked_next_multiple_of(granularity)
            .unwrap_or(piece / granularity * granularity);
        let asked = bytes.min(capacity).next_multiple_of(granularity);
        let kept = reservation.pinned_end(asked.min(capacity)).min(capacity);
        let before = growing.limit();
        let mut limit = before.max(kept);
        let mut given = Ok(());
        if kept < before {
            // All of it or nothing, as far as can be known.
            given = reservation.memory().lend_mut(kept..before).map(drop);
        }
        while given.is_ok() && kept < limit {
            // Unpinning makes every copy of the process wait, as pinning does: a piece at a time, and copies first.
            growing.gate.wait_empty(QUIET_TIMEOUT);
            let start = ((limit - 1) / piece * piece).max(kept);
            given = reservation.discard(start..limit);
            limit = if given.is_ok() { start } else { limit };
        }
        growing.limit.store(limit, Ordering::Relaxed);
        let needed = growing.needed.level().min(limit);
        growing.needed.reopen(needed);
        growing.touched.reopen(limit);
        growing.pinned.reopen(limit);
        growing.sample();
        super::strategy_of(self.growth)?.grow(growing, &mut workers)?;
        given?;
        Ok(limit)
    }
}
