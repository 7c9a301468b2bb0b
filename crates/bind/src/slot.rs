//! Slots that hold their engines, and how they end.

use std::sync::Arc;

use tierflow_device::Stream;
use tierflow_engine::{ConsumeSlot, ProduceSlot, Version};

use crate::engine_handle::EngineHandle;
use crate::failure::{Failure, Outcome, Status};
use crate::until::Until;

/// How a slot ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotEnd {
    /// A slot to write is the version; one to read counts the version as consumed.
    Keep,
    /// No version comes of a slot to write; one to read leaves the version unconsumed.
    Cancel,
}

/// After which work of the GPU a slot ends. The host has none.
#[derive(Clone, Copy, Debug)]
pub enum OrderAfter<'a> {
    /// The work given to this stream so far.
    Stream(&'a Stream),
    /// All work given to the device so far.
    AllWork,
}

/// A slot as the engine has it.
#[derive(Debug)]
enum EngineSlot {
    Produced(ProduceSlot<'static>),
    Consumed(ConsumeSlot<'static>),
}

/// A slot that holds its engine. Dropped, it is cancelled behind all work of the device.
#[derive(Debug)]
pub struct Slot {
    /// There until it ends.
    lent: Option<EngineSlot>,
    engine: Arc<EngineHandle>,
}

impl Slot {
    /// Room for a version: see [`tierflow_engine::Call::produce`].
    ///
    /// # Errors
    /// As there.
    pub fn produce(
        engine: &Arc<EngineHandle>,
        version: Version,
        bytes: usize,
        until: Until<'_>,
    ) -> tierflow_engine::Result<Self> {
        let slot = until.of(&engine.engine).produce(version, bytes)?;
        Ok(Self {
            lent: Some(EngineSlot::Produced(slot.owned(Arc::clone(engine))?)),
            engine: Arc::clone(engine),
        })
    }

    /// The cached copy of a version: see [`tierflow_engine::Call::consume`].
    ///
    /// # Errors
    /// As there.
    pub fn consume(
        engine: &Arc<EngineHandle>,
        version: Version,
        until: Until<'_>,
    ) -> tierflow_engine::Result<Self> {
        let slot = until.of(&engine.engine).consume(version)?;
        Ok(Self {
            lent: Some(EngineSlot::Consumed(slot.owned(Arc::clone(engine))?)),
            engine: Arc::clone(engine),
        })
    }

    /// Returns true until the slot has ended.
    #[must_use]
    pub fn is_there(&self) -> bool {
        self.lent.is_some()
    }

    /// The engine that lent it.
    #[must_use]
    pub fn engine(&self) -> &Arc<EngineHandle> {
        &self.engine
    }

    /// The slot, if it is one to write.
    #[must_use]
    pub fn produced(&self) -> Option<&ProduceSlot<'static>> {
        match &self.lent {
            Some(EngineSlot::Produced(slot)) => Some(slot),
            _ => None,
        }
    }

    /// The slot, if it is one to read.
    #[must_use]
    pub fn consumed(&self) -> Option<&ConsumeSlot<'static>> {
        match &self.lent {
            Some(EngineSlot::Consumed(slot)) => Some(slot),
            _ => None,
        }
    }

    /// Where its bytes lie.
    #[must_use]
    pub fn address(&self) -> u64 {
        let consumed = self.consumed().map(|slot| slot.address());
        let produced = self.produced().map(|slot| slot.address());
        consumed.or(produced).unwrap_or(0)
    }

    /// Returns true if the processor reaches its bytes.
    #[must_use]
    pub fn host_accessible(&self) -> bool {
        let consumed = self.consumed().map(|slot| slot.host_accessible());
        let produced = self.produced().map(|slot| slot.host_accessible());
        consumed.or(produced).unwrap_or(true)
    }

    /// Ends the slot. In an engine on a GPU its bytes count as written, or read, and are used again, after the work that `after`
    /// names, wherever they lie: kernels reach host memory, too. It does not wait for that work.
    ///
    /// # Errors
    /// Errors of the device: the slot is as it was, unless the device is lost. `Closed` if it ended before.
    pub fn end(&mut self, how: SlotEnd, after: OrderAfter<'_>) -> Outcome {
        let engine = Arc::clone(&self.engine);
        let all_work;
        let behind = match after {
            _ if !engine.is_cuda() => None,
            OrderAfter::Stream(stream) => Some(stream),
            OrderAfter::AllWork => {
                all_work = engine.streams.behind_all_work()?;
                Some(&*all_work)
            }
        };
        let ended = || Failure::new(Status::Closed, "the slot was given back before");
        match (self.lent.take().ok_or_else(ended)?, how, behind) {
            (EngineSlot::Produced(slot), SlotEnd::Keep, None) => slot.commit(),
            (EngineSlot::Produced(slot), SlotEnd::Keep, Some(stream)) => {
                slot.commit_after(stream)?
            }
            (EngineSlot::Produced(slot), SlotEnd::Cancel, None) => drop(slot),
            (EngineSlot::Produced(slot), SlotEnd::Cancel, Some(stream)) => {
                slot.give_up_after(stream)?
            }
            (EngineSlot::Consumed(slot), SlotEnd::Keep, None) => drop(slot),
            (EngineSlot::Consumed(slot), SlotEnd::Keep, Some(stream)) => {
                slot.finish_after(stream)?
            }
            (EngineSlot::Consumed(slot), SlotEnd::Cancel, None) => slot.give_back(),
            (EngineSlot::Consumed(slot), SlotEnd::Cancel, Some(stream)) => {
                slot.give_back_after(stream)?;
            }
        }
        Ok(())
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if self.lent.is_none() {
            return;
        }
        if self.engine.other_process().is_some() {
            // Nothing here is this process's; a thread that it does not have may hold the locks.
            std::mem::forget((self.lent.take(), Arc::clone(&self.engine)));
            return;
        }
        // With an error the device is lost, and with it the bytes.
        let _done_or_lost = self.end(SlotEnd::Cancel, OrderAfter::AllWork);
        if let Some(EngineSlot::Consumed(slot)) = self.lent.take() {
            slot.give_back();
        }
    }
}
