//! Slots without a lifetime: they hold the engine that they are of.

use std::mem::ManuallyDrop;
use std::sync::Arc;

use tierflow_engine::{ConsumeSlot, ProduceSlot, Result, Version};

use crate::core::Core;
use crate::patience::Patience;

/// A slot and its engine, which is dropped after it.
pub(crate) struct Held<S> {
    slot: ManuallyDrop<S>,
    core: ManuallyDrop<Arc<Core>>,
}

impl Held<ProduceSlot<'static>> {
    /// See [`tierflow_engine::Engine::produce`].
    pub(crate) fn produce(
        core: &Arc<Core>,
        patience: &Patience,
        (version, bytes): (Version, usize),
    ) -> Result<Self> {
        let slot = patience.of(&core.engine).produce(version, bytes)?;
        // SAFETY: only the lifetime differs. The slot borrows the engine within `core`, which stays where it is and is
        // there until the slot is gone: `Held` drops or hands out the slot first, and hands it out only together with
        // a borrow of `core`.
        let slot = unsafe { std::mem::transmute::<ProduceSlot<'_>, ProduceSlot<'static>>(slot) };
        Ok(Self::of(slot, Arc::clone(core)))
    }
}

impl Held<ConsumeSlot<'static>> {
    /// See [`tierflow_engine::Engine::consume`].
    pub(crate) fn consume(core: &Arc<Core>, patience: &Patience, version: Version) -> Result<Self> {
        let slot = patience.of(&core.engine).consume(version)?;
        // SAFETY: as in `produce`.
        let slot = unsafe { std::mem::transmute::<ConsumeSlot<'_>, ConsumeSlot<'static>>(slot) };
        Ok(Self::of(slot, Arc::clone(core)))
    }
}

impl<S> Held<S> {
    fn of(slot: S, core: Arc<Core>) -> Self {
        Self {
            slot: ManuallyDrop::new(slot),
            core: ManuallyDrop::new(core),
        }
    }

    pub(crate) fn slot(&self) -> &S {
        &self.slot
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    /// Ends the loan by `end`, which must not keep the slot.
    pub(crate) fn end<T>(self, end: impl FnOnce(S, &Core) -> T) -> T {
        let mut held = ManuallyDrop::new(self);
        // SAFETY: taken once, as `held` is dropped no more.
        let slot = unsafe { ManuallyDrop::take(&mut held.slot) };
        // SAFETY: as above.
        let core = unsafe { ManuallyDrop::take(&mut held.core) };
        let ended = end(slot, &core);
        crate::core::let_go(core);
        ended
    }
}

impl<S> Drop for Held<S> {
    fn drop(&mut self) {
        // SAFETY: dropped once; what it borrows is still there.
        unsafe { ManuallyDrop::drop(&mut self.slot) };
        // SAFETY: taken once.
        let core = unsafe { ManuallyDrop::take(&mut self.core) };
        crate::core::let_go(core);
    }
}
