//! A cache made smaller, or larger again, while it is in use.

use super::capacity::Waiting;
use super::core::EngineCore;
use super::medium::Medium;
use crate::deadline::Deadline;
use crate::plan::{Event, Place, TierId};
use crate::{Error, Result};
use tierflow_device::Access;
use tierflow_sync::model::{Receiver, unbounded};
use tierflow_tier_alloc::Error as ArenaError;

impl EngineCore {
    /// Leaves a tier its first `bytes`, and gives the memory of the others back once nothing lies there, or makes more memory usable again.
    /// Returns the bytes that the tier may use now. Waits until `deadline` at most.
    pub(crate) fn resize(&self, tier: TierId, bytes: u64, deadline: Deadline<'_>) -> Result<u64> {
        let mut resized = loop {
            let resized = match deadline.next_look() {
                Some(look) => self.resized.try_lock_until(look),
                None => Some(self.resized.lock()),
            };
            match resized {
                Some(resized) => break resized,
                None if deadline.goes_on() => {}
                None => return Err(deadline.passed()),
            }
        };
        let is_first = resized.tiers.insert(tier.0);
        let (capacity, before) = {
            let tiers = self.lock().plan().statistics().tiers;
            tiers
                .get(tier.0)
                .map_or((0, 0), |tier| (tier.capacity, tier.limit))
        };
        let bytes = bytes.min(capacity);
        let mut memory = resized.owed.get(&tier.0).copied().unwrap_or(before);
        // A cache that evicts while it grows stops growing.
        let is_growing = is_first && memory < capacity;
        if bytes > memory || is_growing {
            // The plan hands the memory out at once, so it must be there.
            memory = memory.max(bytes);
            self.resize_memory(tier, memory)?;
        }
        let (sender, released) = unbounded();
        let limit = {
            let mut core = self.lock();
            core.calls.resizing = Some(Waiting {
                tier,
                released: sender,
            });
            self.handle(&mut core, Event::Limit { tier, bytes });
            // The plan rounds the limit.
            core.plan().statistics().tiers[tier.0].limit
        };
        let is_empty = limit >= memory || is_released(&released, limit, deadline);
        self.lock().calls.resizing = None;
        if !is_empty {
            resized.owed.insert(tier.0, memory);
            return Err(deadline.passed());
        }
        resized.owed.remove(&tier.0);
        if limit >= memory {
            return Ok(limit);
        }
        self.pending.settle(
            &Place {
                tier,
                offset: limit,
                size: capacity - limit,
                reserved: capacity - limit,
            },
            Access::Write,
        );
        let resized = self.resize_memory(tier, limit).inspect_err(|_| {
            // The tier keeps its memory, so it may as well be used.
            let bytes = memory;
            self.tell(Event::Limit { tier, bytes });
        });
        resized.map(|()| limit)
    }

    fn resize_memory(&self, tier: TierId, bytes: u64) -> Result<()> {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        let Some(tier) = self.tiers.get(tier.0) else {
            return Ok(());
        };
        let resized = match &tier.medium {
            Medium::Device(arena) => arena.resize(bytes),
            Medium::Host(arena) => arena.resize(bytes),
            _ => return Ok(()),
        };
        match resized {
            Err(ArenaError::Fixed { .. }) => Err(Error::NotResizable {
                cache: tier.kind.name(),
                why: "its memory comes from one call, by its growth, and is given back as a whole",
            }),
            resized => Ok(resized.map(drop)?),
        }
    }
}

/// Waits until the plan has told that nothing lies beyond this very limit. Returns false at the deadline.
fn is_released(released: &Receiver<u64>, limit: u64, deadline: Deadline<'_>) -> bool {
    loop {
        let told = match deadline.next_look() {
            Some(look) => released.recv_deadline(look).ok(),
            None => released.recv().ok(),
        };
        if told == Some(limit) || (told.is_none() && !deadline.goes_on()) {
            return told.is_some();
        }
    }
}
