//! An engine and what its calls share.

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::Arc;

use parking_lot::Mutex;
use tierflow_device::{Device, Stream};
use tierflow_engine::Engine;

use crate::failure::{Failure, Outcome};
use crate::group::Group;
use crate::options::Options;

/// Streams of the application's beyond this many are forgotten and adopted anew.
const MOST_ADOPTED: usize = 64;

pub(crate) struct Core {
    pub(crate) engine: Engine,
    pub(crate) device: Device,
    own: Mutex<Vec<Stream>>,
    adopted: Mutex<HashMap<u64, Arc<Stream>>>,
    /// The last field: the engine is dropped before the group.
    pub(crate) group: Option<Arc<Group>>,
}

/// A stream for the time of a call.
pub(crate) enum Ordered<'core> {
    Own(Option<Stream>, &'core Core),
    Adopted(Arc<Stream>),
}

impl AsRef<Engine> for Core {
    fn as_ref(&self) -> &Engine {
        &self.engine
    }
}

impl Core {
    pub(crate) fn open(options: &Options, group: Option<Arc<Group>>) -> Outcome<Self> {
        let run = match &group {
            Some(group) => group.agree_on_run(options.group_patience())?,
            None => 0,
        };
        let (device, engine) = options.build(group.as_ref().map(|group| (group, run)))?;
        Ok(Self {
            engine,
            device,
            own: Mutex::default(),
            adopted: Mutex::default(),
            group,
        })
    }

    /// Makes redundancy with the other ranks in this call, if it is made in calls alone: also after `done` failed, as the other
    /// ranks wait for it.
    pub(crate) fn protect_after(&self, done: Outcome) -> Outcome {
        let protected = match self.engine.is_driven() {
            true => self.engine.protect().map_err(Failure::from),
            false => Ok(()),
        };
        done.and(protected)
    }

    pub(crate) fn is_cuda(&self) -> bool {
        self.device.as_cuda().is_some()
    }

    /// A stream behind the work given to the one of this handle; without one, behind all work given to the device. `None`
    /// where there is no such work.
    ///
    /// # Safety
    /// `handle` is null, or a stream of the device that is not destroyed before the call ends.
    pub(crate) unsafe fn behind(&self, handle: u64) -> Outcome<Option<Ordered<'_>>> {
        if !self.is_cuda() {
            return match handle {
                0 => Ok(None),
                _ => Err(Failure::argument(
                    "a stream is for an engine on a GPU, and this one keeps plain memory: pass NULL",
                )),
            };
        }
        if handle == 0 {
            let free = self.own.lock().pop();
            let own = free.map_or_else(|| self.device.stream(), Ok)?;
            own.wait_for_all_work()?;
            return Ok(Some(Ordered::Own(Some(own), self)));
        }
        // Asked first, as anything else would spoil a graph that is being captured.
        // SAFETY: the caller's promise.
        if unsafe { self.device.is_captured(handle) }? {
            return Err(Failure::argument(
                "a CUDA graph is being captured on the stream, and a copy must run: call before or after the capture",
            ));
        }
        let known = self.adopted.lock().get(&handle).cloned();
        if let Some(known) = known {
            return Ok(Some(Ordered::Adopted(known)));
        }
        // SAFETY: the caller's promise. What is kept of it is only used when the handle is named again.
        let stream = unsafe { self.device.adopt_stream(handle) }?;
        let stream = Arc::new(stream);
        let mut all = self.adopted.lock();
        if all.len() >= MOST_ADOPTED {
            all.clear();
        }
        all.insert(handle, Arc::clone(&stream));
        Ok(Some(Ordered::Adopted(stream)))
    }
}

impl Deref for Ordered<'_> {
    type Target = Stream;

    fn deref(&self) -> &Stream {
        match self {
            Self::Own(Some(stream), _) => stream,
            Self::Own(None, _) => unreachable!("only dropping takes it"),
            Self::Adopted(stream) => stream,
        }
    }
}

impl Drop for Ordered<'_> {
    fn drop(&mut self) {
        if let Self::Own(stream, core) = self
            && let Some(stream) = stream.take()
        {
            core.own.lock().push(stream);
        }
    }
}
