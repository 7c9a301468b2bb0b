//! The requests to storage of one copy, which the workers of a link serve beside the caller.

use crate::buffered::Part;
use crate::media::whole_blocks;
use crate::{Result, TransferError};
use std::sync::Arc;
use tierflow_store::Storage;
use tierflow_sync::model::{AtomicUsize, Ordering, Receiver, Sender, unbounded};

/// Requests at a time: as many as it takes to have a disk's bandwidth.
pub(crate) const REQUESTS: usize = 4;

/// Asks workers to run a helper: as many workers as the number says, if there are as many.
pub type Workers<'w> = &'w dyn Fn(&Helper, usize);

/// A part in its buffer, and where it lies on the storage.
#[derive(Debug)]
struct StorageRequest {
    part: Part,
    offset: u64,
}

/// The requests of one copy to storage, for workers that have time. There are none any more once the copy has ended.
#[derive(Debug, Clone)]
pub struct Helper {
    storage: Arc<dyn Storage>,
    is_read: bool,
    queue: Receiver<StorageRequest>,
    done: Sender<(Part, Result<()>)>,
    helpers: Arc<AtomicUsize>,
}

impl Helper {
    /// Serves requests until the copy has no more. `each` runs the service of a request, and returns what it returned: a panic that
    /// `each` does not catch leaves the copy waiting.
    pub fn run(&self, each: impl Fn(&dyn Fn() -> Result<()>) -> Result<()>) {
        self.helpers.fetch_add(1, Ordering::Relaxed);
        for StorageRequest { part, offset } in &self.queue {
            let served = each(&|| self.serve(&part, offset));
            if self.done.send((part, served)).is_err() {
                return;
            }
        }
    }

    fn serve(&self, part: &Part, offset: u64) -> Result<()> {
        let block = self.storage.alignment() as u64;
        match self.is_read {
            true => {
                let bytes = whole_blocks(block, part.before + part.length);
                let mut into = part.buffer.lend_mut(0..bytes)?;
                Ok(self
                    .storage
                    .read_at(offset - part.before, into.bytes_mut()?)?)
            }
            false => {
                let end = part.before + whole_blocks(block, part.length);
                let from = part.buffer.lend(part.before..end)?;
                Ok(self.storage.write_at(offset, from.bytes()?)?)
            }
        }
    }
}

/// The caller's side of a [`Helper`]. Dropping it waits until no worker uses a buffer.
#[derive(Debug)]
pub(crate) struct Requests {
    helper: Helper,
    queue: Sender<StorageRequest>,
    done: Receiver<(Part, Result<()>)>,
    /// Requests that were sent and not collected.
    open: usize,
}

impl Requests {
    /// Asks at most as many workers to help with reads or writes as there are `buffers`. One buffer is served before a worker comes.
    pub(crate) fn new(
        storage: &Arc<dyn Storage>,
        is_read: bool,
        workers: Workers<'_>,
        buffers: usize,
    ) -> Self {
        let (queue, requests) = unbounded();
        let (send, done) = unbounded();
        let helper = Helper {
            storage: Arc::clone(storage),
            is_read,
            queue: requests,
            done: send,
            helpers: Arc::default(),
        };
        if buffers > 1 {
            workers(&helper, buffers.min(REQUESTS));
        }
        Self {
            helper,
            queue,
            done,
            open: 0,
        }
    }

    /// Returns true if the requests read.
    pub(crate) fn is_read(&self) -> bool {
        self.helper.is_read
    }

    /// Sends a request for the part, which lies at `offset`.
    pub(crate) fn send(&mut self, part: Part, offset: u64) {
        // There is a receiver: the helper of these requests.
        if self.queue.send(StorageRequest { part, offset }).is_ok() {
            self.open += 1;
        }
    }

    /// Returns a part that was served, and `None` once there is no request left. The caller serves those that no worker took, while
    /// fewer workers help than a disk can use: without workers, all.
    pub(crate) fn collect(&mut self) -> std::result::Result<Option<Part>, TransferError> {
        if self.open == 0 {
            return Ok(None);
        }
        let answer = match self.done.try_recv() {
            Ok(answer) => Some(answer),
            Err(_) => self.serve_one(),
        };
        // The helper of these requests keeps the channel open.
        let Some((part, served)) = answer.or_else(|| self.done.recv().ok()) else {
            return Ok(None);
        };
        self.open -= 1;
        match (served, self.helper.is_read) {
            (Ok(()), _) => Ok(Some(part)),
            (Err(error), true) => Err(TransferError::source(error)),
            (Err(error), false) => Err(TransferError::target(error)),
        }
    }

    fn serve_one(&self) -> Option<(Part, Result<()>)> {
        if self.helper.helpers.load(Ordering::Relaxed) >= REQUESTS {
            return None;
        }
        let StorageRequest { part, offset } = self.helper.queue.try_recv().ok()?;
        let served = self.helper.serve(&part, offset);
        Some((part, served))
    }
}

impl Drop for Requests {
    fn drop(&mut self) {
        while self.open > 0 {
            let is_back = self.helper.queue.try_recv().is_ok() || self.done.recv().is_ok();
            if !is_back {
                return;
            }
            self.open -= 1;
        }
    }
}
