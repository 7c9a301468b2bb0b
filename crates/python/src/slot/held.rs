//! A slot and the engine that it is of.

use std::sync::Arc;

use tierflow_engine::{ConsumeSlot, ProduceSlot, Result, Version};

use crate::core::Core;
use crate::patience::Patience;

/// A slot that holds its engine.
pub(crate) struct Held<S> {
    pub(super) slot: S,
    pub(super) core: Arc<Core>,
}

impl Held<ProduceSlot<'static>> {
    /// See [`tierflow_engine::Engine::produce`].
    pub(crate) fn produce(
        core: &Arc<Core>,
        patience: &Patience,
        (version, bytes): (Version, usize),
    ) -> Result<Self> {
        let slot = patience.of(&core.engine).produce(version, bytes)?;
        Ok(Self {
            slot: slot.owned(Arc::clone(core))?,
            core: Arc::clone(core),
        })
    }
}

impl Held<ConsumeSlot<'static>> {
    /// See [`tierflow_engine::Engine::consume`].
    pub(crate) fn consume(core: &Arc<Core>, patience: &Patience, version: Version) -> Result<Self> {
        let slot = patience.of(&core.engine).consume(version)?;
        Ok(Self {
            slot: slot.owned(Arc::clone(core))?,
            core: Arc::clone(core),
        })
    }
}
