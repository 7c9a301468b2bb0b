//! A device tier that is used only as far as it is mapped.

use super::core::EngineCore;
use super::medium::Medium;
use crate::plan::{Event, TierId};
use crate::{Error, Result};
use std::sync::Arc;
use tierflow_sync::model::Builder;
use tierflow_tier_alloc::DeviceArena;

/// Sets a tier's limit to the mapped bytes of its arena, and starts the thread that raises the limit as the arena grows.
pub(crate) fn start(shared: &Arc<EngineCore>, tier: usize) -> Result<()> {
    let Some(arena) = arena(shared, tier) else {
        return Ok(());
    };
    let mut open = arena.usable();
    tell(shared, tier, open);
    let theirs = Arc::clone(shared);
    let raise = move || {
        let Some(arena) = self::arena(&theirs, tier) else {
            return;
        };
        // An arena that ran out of memory grows no more.
        while open < arena.capacity()
            && !theirs.is_stopping()
            && arena.wait_usable(open + 1).is_ok()
        {
            open = arena.usable();
            let resized = theirs.resized.lock();
            if resized.tiers.contains(&tier) {
                // A resize decides the tier's size from now on.
                return;
            }
            tell(&theirs, tier, open);
            drop(resized);
        }
    };
    let thread = Builder::new().name("tierflow-open".into());
    shared.keep_thread(thread.spawn(raise).map_err(Error::Thread)?);
    Ok(())
}

fn arena(shared: &EngineCore, tier: usize) -> Option<&DeviceArena> {
    match shared.tiers.get(tier).map(|tier| &tier.medium) {
        Some(Medium::Device(arena)) => Some(arena),
        _ => None,
    }
}

fn tell(shared: &EngineCore, tier: usize, bytes: usize) {
    shared.tell(Event::Limit {
        tier: TierId(tier),
        bytes: bytes as u64,
    });
}
