//! The requests to storage of one copy. The caller and the workers of a link serve them.

use crate::buffered::Part;
use crate::copy::Result as CopyResult;
use crate::media::whole_blocks;
use crate::{Error, FailedEnd, Result, ScratchPlace, TransferError};
use std::sync::Arc;
use tierflow_store::Storage;
use tierflow_sync::model::{AtomicUsize, Ordering, Receiver, Sender, unbounded};

/// Requests at the same time: enough for the full bandwidth of a disk.
pub(crate) const REQUESTS: usize = 4;

/// A function that asks workers to run a helper: so many workers, or all if there are fewer.
pub type Workers<'w> = &'w dyn Fn(&Helper, usize);

/// The requests of one copy to storage, for idle workers. The queue closes when the copy ends.
#[derive(Debug, Clone)]
pub struct Helper {
    storage: Arc<dyn Storage>,
    is_read: bool,
    /// Place of the copy: the version's byte `start` lies at `offset` on the storage.
    start: u64,
    offset: u64,
    queue: Receiver<Part>,
    done: Sender<Answer>,
    helpers: Arc<AtomicUsize>,
}

/// A part whose request was served, with the result.
#[derive(Debug)]
struct Answer {
    part: Part,
    served: Result<()>,
}

/// A part that a worker serves. If the service panics, the drop returns the part with an error.
struct Serving<'h> {
    part: Option<Part>,
    done: &'h Sender<Answer>,
}

impl Drop for Serving<'_> {
    fn drop(&mut self) {
        if let Some(part) = self.part.take() {
            let served = Err(Error::Caller("a worker panicked".into()));
            // The copy waits for this answer.
            let _ = self.done.send(Answer { part, served });
        }
    }
}

impl Helper {
    /// Serves requests until the copy has no more. `each` runs the service of one request and returns its result. A panic that
    /// `each` lets through fails the copy.
    pub fn run(&self, each: impl Fn(&dyn Fn() -> Result<()>) -> Result<()>) {
        self.helpers.fetch_add(1, Ordering::Relaxed);
        for part in &self.queue {
            let done = &self.done;
            let mut serving = Serving {
                part: Some(part),
                done,
            };
            let served = each(&|| {
                serving
                    .part
                    .as_ref()
                    .map_or(Ok(()), |part| self.serve(part))
            });
            let Some(part) = serving.part.take() else {
                return;
            };
            if done.send(Answer { part, served }).is_err() {
                return;
            }
        }
    }

    fn serve(&self, part: &Part) -> Result<()> {
        let block = self.storage.alignment() as u64;
        let offset = part.at - self.start + self.offset;
        match self.is_read {
            true => {
                let bytes = whole_blocks(block, part.before + part.length);
                let mut into = part.buffer.lend_mut(0..bytes)?;
                let offset = offset - part.before;
                Ok(self.storage.read_at(offset, into.bytes_mut()?)?)
            }
            false => {
                let end = part.before + whole_blocks(block, part.length);
                let from = part.buffer.lend(part.before..end)?;
                Ok(self.storage.write_at(offset, from.bytes()?)?)
            }
        }
    }
}

/// The copy's side of a [`Helper`]. Dropping it waits until no worker uses a buffer.
#[derive(Debug)]
pub(crate) struct Requests {
    helper: Helper,
    queue: Sender<Part>,
    done: Receiver<Answer>,
    /// Number of requests in the queue or in the hands of workers.
    open: usize,
}

impl Requests {
    /// Asks as many workers to help as there are `buffers`, at most [`REQUESTS`]. The version's byte `start` lies at `place`. A
    /// copy with one buffer asks no worker, as it ends before a worker comes.
    pub(crate) fn new(
        is_read: bool,
        start: u64,
        place: ScratchPlace<'_>,
        workers: Workers<'_>,
        buffers: usize,
    ) -> Self {
        let (send, queue) = unbounded();
        let (answer, done) = unbounded();
        let helper = Helper {
            storage: Arc::clone(place.medium.storage()),
            is_read,
            start,
            offset: place.offset,
            queue,
            done: answer,
            helpers: Arc::default(),
        };
        if buffers > 1 {
            workers(&helper, buffers.min(REQUESTS));
        }
        Self {
            helper,
            queue: send,
            done,
            open: 0,
        }
    }

    /// Returns true if the requests are reads.
    pub(crate) fn is_read(&self) -> bool {
        self.helper.is_read
    }

    /// Returns true if a request is in the queue or in the hands of a worker.
    pub(crate) fn are_open(&self) -> bool {
        self.open > 0
    }

    /// Sends a request for the part.
    pub(crate) fn send(&mut self, part: Part) -> CopyResult<()> {
        let sent = self.queue.send(part);
        sent.map_err(|_| self.failed(lost()))?;
        self.open += 1;
        Ok(())
    }

    /// Returns a part that was served; `None` once no request is left. While fewer workers help than a disk can use, the caller
    /// serves requests that no worker took; without workers, all of them.
    pub(crate) fn collect(&mut self) -> CopyResult<Option<Part>> {
        if self.open == 0 {
            return Ok(None);
        }
        let Answer { part, served } = self.next_answer()?;
        served.map_err(|error| self.failed(error))?;
        Ok(Some(part))
    }

    fn next_answer(&mut self) -> CopyResult<Answer> {
        if let Ok(answer) = self.done.try_recv() {
            self.open -= 1;
            return Ok(answer);
        }
        if self.helper.helpers.load(Ordering::Relaxed) < REQUESTS
            && let Ok(part) = self.helper.queue.try_recv()
        {
            // The request is not in the queue any more, even if the service panics.
            self.open -= 1;
            let served = self.helper.serve(&part);
            return Ok(Answer { part, served });
        }
        let answer = self.done.recv().map_err(|_| self.failed(lost()))?;
        self.open -= 1;
        Ok(answer)
    }

    /// Returns the error of the end that is the storage.
    fn failed(&self, error: Error) -> TransferError {
        let end = match self.helper.is_read {
            true => FailedEnd::Source,
            false => FailedEnd::Target,
        };
        TransferError::of(end, error)
    }
}

/// Returns the error for a channel without another end. The case cannot occur, as the helper of the requests holds that end.
fn lost() -> Error {
    Error::Caller("a request whose answer is lost".into())
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
