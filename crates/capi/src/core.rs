//! An engine and its group.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use tierflow_bind::{CallStream, Door, EngineHandle, Growth, Options, Until};

use crate::failure::{Failure, Outcome};
use crate::ffi::RawStream;
use crate::group::Group;
use crate::handles::Named;

/// Host memory that is pinned ahead of its use: the cache divided by the first number, at most the second number in bytes. Memory is touched
/// four times as far ahead, so a cache of up to 4 GiB is ready soon after the engine is.
const LEAD: (usize, usize) = (4, 1 << 30);

/// An open engine, and the group of ranks that it belongs to.
pub(crate) struct OpenEngine {
    handle: Arc<EngineHandle>,
    pub(crate) group: Option<Arc<Group>>,
}

impl Named for OpenEngine {
    const NAME: &'static str = "tf_engine";
}

impl Deref for OpenEngine {
    type Target = EngineHandle;

    fn deref(&self) -> &EngineHandle {
        &self.handle
    }
}

impl OpenEngine {
    pub(crate) fn open(door: Door, options: &Options, group: Option<Arc<Group>>) -> Outcome<Self> {
        let mut options = options.clone();
        if options.host_pool.is_none() {
            let (part, most) = LEAD;
            let lead = Growth::Ahead((options.host_cache / part).min(most));
            options.host_growth.get_or_insert(lead);
        }
        if let Some(group) = &group {
            options.ranks = group.ranks(options.group_patience())?;
            if options.redundancy.is_some() && options.exchange.is_none() {
                group.can_send()?;
            }
            options.beside = Some(Arc::clone(group) as _);
        }
        crate::ending::prepare();
        let handle = EngineHandle::open(options, door)?;
        Ok(Self { handle, group })
    }

    /// Returns the engine handle that slots share.
    pub(crate) fn handle(&self) -> &Arc<EngineHandle> {
        &self.handle
    }

    /// Returns the stream for a call that comes after the work given to `stream`, or after all work given to the device if `stream` is
    /// [`RawStream::NONE`]. `None` if the device has no such work.
    pub(crate) fn behind(&self, stream: RawStream) -> Outcome<Option<CallStream<'_>>> {
        // SAFETY: the contract of `RawStream`.
        Ok(unsafe { self.handle.behind(stream.handle()) }?.into_stream())
    }

    /// Fails if a slot is lent. Waits for slots that the library itself gave up while a CUDA graph was captured.
    pub(crate) fn lends_nothing(&self) -> Outcome {
        self.handle.wait_for_dropped_slots();
        match Arc::strong_count(&self.handle) {
            1 => Ok(()),
            _ => Err(Failure::argument(
                "the tf_engine is in use: give back what it lent before",
            )),
        }
    }

    /// Ends the engine, once its versions are durable, or `patience` is over. A failure names the lost versions.
    pub(crate) fn end(self, patience: Duration) -> Outcome {
        self.lends_nothing()?;
        let ended = self.handle.end(Until::patience(patience));
        // The engine calls the group until it is dropped.
        drop(self.handle);
        Ok(ended?)
    }
}
