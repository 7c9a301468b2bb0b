//! Shrinking an arena, and growing it again.

use std::sync::atomic::Ordering;

use tierflow_device::HostReservation;

use super::HostArena;
use super::pieces::QUIET_TIMEOUT;
use crate::error::{Error, Result};
use crate::workers::Workers;

impl HostArena {
    /// Changes the arena to its first `bytes`, at most its capacity. Unpins memory beyond them and gives its pages back to the
    /// system, or grows the missing memory in the background, as at first. Returns the bytes that the arena has now: more than
    /// `bytes` if a piece was pinned across the limit, as the whole piece stays.
    ///
    /// Memory that was given back can still be lent, as ordinary memory of zeros that the system provides on first use: the
    /// caller must not lend it. The call takes the time that the system needs to free the pages (10 to 20 GB/s), after that of a
    /// piece that is being touched or pinned. Copies under a [`Gate`](crate::Gate) go first.
    ///
    /// # Errors
    ///
    /// [`Error::Fixed`] for all strategies but [`HostGrowth::Pieces`](crate::HostGrowth::Pieces); [`Error::Device`] if bytes beyond the limit
    /// are lent (the arena keeps its memory then), or the system refuses; [`Error::Thread`] if the system refuses a thread, and then the
    /// arena keeps its levels and does not grow.
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
        // Rounded as in `Pieces::new`, so that no pinned piece is cut through.
        let piece = piece
            .checked_next_multiple_of(granularity)
            .unwrap_or(piece / granularity * granularity);
        let asked = bytes.min(capacity).next_multiple_of(granularity);
        let kept = reservation.pinned_end(asked.min(capacity)).min(capacity);
        let before = growing.limit();
        let mut limit = before.max(kept);
        let mut given = Ok(());
        if kept < before {
            // A loan of the whole range shows whether a byte of it is lent, before any piece is given back.
            given = reservation.memory().lend_mut(kept..before).map(drop);
        }
        while given.is_ok() && kept < limit {
            // Unpinning makes every copy of the process wait, as pinning does. So one piece is unpinned at a time, and copies
            // go first.
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
