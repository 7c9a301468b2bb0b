//! Slots that hold their engines, and how they end.

use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::time::Duration;
use std::{io, thread};

use parking_lot::{Condvar, Mutex};
use tierflow_device::{Error as DeviceError, Stream};
use tierflow_engine::{ConsumeSlot, ProduceSlot, Version};

use crate::engine_handle::EngineHandle;
use crate::failure::{Failure, Outcome, Status};
use crate::until::Until;

/// How a slot ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotEnd {
    /// A slot to write becomes the version. A slot to read counts the version as consumed.
    Keep,
    /// A slot to write becomes no version. A slot to read leaves the version unconsumed.
    Cancel,
}

/// The work of the GPU after which a slot ends. An engine on the host has no such work.
#[derive(Clone, Copy, Debug)]
pub enum OrderAfter<'a> {
    /// The work given to this stream so far.
    Stream(&'a Stream),
    /// All work given to the device so far.
    AllWork,
}

/// A slot of the engine.
#[derive(Debug)]
enum EngineSlot {
    Produced(ProduceSlot<'static>),
    Consumed(ConsumeSlot<'static>),
}

/// A slot that holds its engine. Dropping it ends the slot behind all work of the device: cancels it, or as
/// [`Slot::end_when_dropped`] chose. While the device can order nothing behind its work, as while a CUDA graph is captured, the room stays
/// lent.
#[derive(Debug)]
pub struct Slot {
    /// `Some` until the slot ends.
    lent: Option<EngineSlot>,
    engine: Arc<EngineHandle>,
    when_dropped: SlotEnd,
}

/// The time between the first two attempts to end a slot that was dropped. Each attempt waits twice as long as the one before, as it
/// makes the graphs invalid that are being captured at that moment.
const SHORTEST_RETRY: Duration = Duration::from_millis(1);
const LONGEST_RETRY: Duration = Duration::from_secs(1);

/// Values that were dropped and wait for their end, each in a thread.
#[derive(Debug, Default)]
pub(crate) struct Retries {
    waiting: Mutex<usize>,
    /// Tells that a value has ended, or that the end of all is waited for.
    changed: Condvar,
}

impl Retries {
    /// Drops `late` as soon as `end` returns true for it. If the system starts no thread, `late` is never dropped.
    ///
    /// # Errors
    /// The system starts no thread.
    fn add<T: Send + 'static>(
        self: &Arc<Self>,
        late: T,
        end: fn(&mut T) -> bool,
    ) -> io::Result<()> {
        let (mut late, retries) = (ManuallyDrop::new(late), Arc::clone(self));
        let run = move || {
            let mut pause = SHORTEST_RETRY;
            while !end(&mut late) {
                let _woken = retries.changed.wait_for(&mut retries.waiting.lock(), pause);
                pause = (2 * pause).min(LONGEST_RETRY);
            }
            drop(ManuallyDrop::into_inner(late));
            *retries.waiting.lock() -= 1;
            retries.changed.notify_all();
        };
        let mut waiting = self.waiting.lock();
        let thread = thread::Builder::new().name("tierflow-slot".to_owned());
        thread.spawn(run)?;
        *waiting += 1;
        Ok(())
    }

    /// Makes the next attempts now, and waits until all values have ended, for `patience` at most.
    pub(crate) fn wait(&self, patience: Duration) {
        let mut waiting = self.waiting.lock();
        self.changed.notify_all();
        let is_any = |waiting: &mut usize| *waiting > 0;
        let _over = self.changed.wait_while_for(&mut waiting, is_any, patience);
    }
}

impl Slot {
    /// Lends room for a version: see [`tierflow_engine::Call::produce`].
    ///
    /// # Errors
    /// As [`tierflow_engine::Call::produce`].
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
            when_dropped: SlotEnd::Cancel,
        })
    }

    /// Lends the cached copy of a version: see [`tierflow_engine::Call::consume`].
    ///
    /// # Errors
    /// As [`tierflow_engine::Call::consume`].
    pub fn consume(
        engine: &Arc<EngineHandle>,
        version: Version,
        until: Until<'_>,
    ) -> tierflow_engine::Result<Self> {
        let slot = until.of(&engine.engine).consume(version)?;
        Ok(Self {
            lent: Some(EngineSlot::Consumed(slot.owned(Arc::clone(engine))?)),
            engine: Arc::clone(engine),
            when_dropped: SlotEnd::Cancel,
        })
    }

    /// Returns true until the slot has ended.
    #[must_use]
    pub fn is_there(&self) -> bool {
        self.lent.is_some()
    }

    /// Returns the engine that lent the slot.
    #[must_use]
    pub fn engine(&self) -> &Arc<EngineHandle> {
        &self.engine
    }

    /// Returns the engine's slot if it is one to write.
    #[must_use]
    pub fn produced(&self) -> Option<&ProduceSlot<'static>> {
        match &self.lent {
            Some(EngineSlot::Produced(slot)) => Some(slot),
            _ => None,
        }
    }

    /// Returns the engine's slot if it is one to read.
    #[must_use]
    pub fn consumed(&self) -> Option<&ConsumeSlot<'static>> {
        match &self.lent {
            Some(EngineSlot::Consumed(slot)) => Some(slot),
            _ => None,
        }
    }

    /// Returns the address of the slot's bytes; 0 once the slot has ended.
    #[must_use]
    pub fn address(&self) -> u64 {
        let consumed = self.consumed().map(|slot| slot.address());
        let produced = self.produced().map(|slot| slot.address());
        consumed.or(produced).unwrap_or(0)
    }

    /// Returns true if the processor reaches the slot's bytes.
    #[must_use]
    pub fn host_accessible(&self) -> bool {
        let consumed = self.consumed().map(|slot| slot.host_accessible());
        let produced = self.produced().map(|slot| slot.host_accessible());
        consumed.or(produced).unwrap_or(true)
    }

    /// Ends the slot. In an engine on a GPU, the bytes count as written, or read, after the work that `after` names, and are used again only
    /// then. The same holds for bytes in host memory, as kernels reach them, too. Does not wait for that work.
    ///
    /// # Errors
    /// The errors of the device: the slot is as it was, unless the device is lost. `Closed` if the slot has ended before.
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
        self.end_behind(how, behind)
    }

    /// Chooses how the slot ends if it is dropped: [`SlotEnd::Cancel`] if nothing was chosen.
    pub fn end_when_dropped(&mut self, how: SlotEnd) {
        self.when_dropped = how;
    }

    /// Ends a slot that was dropped.
    ///
    /// # Errors
    /// The device can order nothing behind its work now: the slot is as it was.
    fn end_dropped(&mut self) -> Result<(), DeviceError> {
        let engine = Arc::clone(&self.engine);
        let behind = engine.is_cuda().then(|| engine.streams.behind_all_work());
        let _done_or_lost = match behind {
            None => self.end_behind(self.when_dropped, None),
            Some(Ok(stream)) => self.end_behind(self.when_dropped, Some(&stream)),
            // Nothing runs on the device any more.
            Some(Err(DeviceError::Lost { .. })) => self.end_behind(SlotEnd::Cancel, None),
            Some(Err(error)) => return Err(error),
        };
        Ok(())
    }

    /// Ends the slot after the work given to the stream so far, or at once.
    fn end_behind(&mut self, how: SlotEnd, behind: Option<&Stream>) -> Outcome {
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
            // The slot belongs to the parent process, and a thread that this process does not have may hold the locks.
            std::mem::forget((self.lent.take(), Arc::clone(&self.engine)));
            return;
        }
        let Err(error) = self.end_dropped() else {
            return;
        };
        tracing::warn!(
            "a dropped slot keeps its bytes until the device can order its end behind all work, which it cannot while a CUDA graph is \
             captured: end slots with a stream, or outside of captures: {error}"
        );
        let late = Self {
            lent: self.lent.take(),
            engine: Arc::clone(&self.engine),
            when_dropped: self.when_dropped,
        };
        // Without a thread, the bytes stay lent for good, as somebody may still use them.
        if let Err(error) = self
            .engine
            .late_slots
            .add(late, |late| late.end_dropped().is_ok())
        {
            tracing::error!("the bytes of a slot are lost to the cache: no thread: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn a_close_waits_for_the_end_of_a_dropped_slot() {
        let (retries, captured) = (Arc::<Retries>::default(), Arc::new(AtomicBool::new(true)));
        retries.wait(Duration::MAX);
        let late = Arc::clone(&captured);
        let added = retries.add(late, |captured| !captured.load(Ordering::Acquire));
        added.unwrap();
        retries.wait(Duration::ZERO);
        assert_eq!(Arc::strong_count(&captured), 2, "it is still captured");
        captured.store(false, Ordering::Release);
        retries.wait(Duration::MAX);
        assert_eq!(Arc::strong_count(&captured), 1);
    }
}
