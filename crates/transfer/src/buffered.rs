//! Copies through pinned buffers: some are filled while others are emptied.

use crate::buffers::{BUFFER_BYTES, Buffer};
use crate::context::{Stop, StreamChoice};
use crate::copy::{Copying, Result};
use crate::end::call;
use crate::media::whole_blocks;
use crate::requests::{REQUESTS, Requests};
use crate::under_way::settle;
use crate::{CopyContext, FailedEnd, Source, Target, TransferError};
use std::collections::VecDeque;
use std::ops::Range;
use tierflow_device::Transfer;

/// Number of buffers of a copy.
const BUFFERS: u64 = 2;

/// Number of buffers of a copy with helping workers: one for each request, and some to fill or empty meanwhile.
const SHARED_BUFFERS: u64 = REQUESTS as u64 + 2;

/// A part of a version in a buffer.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) at: u64,
    pub(crate) length: u64,
    /// Bytes before the part that are read with it.
    pub(crate) before: u64,
    pub(crate) buffer: Buffer,
}

/// A copy through buffers. Dropping it waits until nothing uses the buffers.
struct Buffered<'c> {
    from: &'c dyn Source,
    to: &'c mut dyn Target,
    stream: StreamChoice<'c>,
    stop: Stop,
    /// The bytes that belong to no part yet.
    rest: Range<u64>,
    /// The buffers without a part, oldest first, each with the transfer that still empties it.
    free: VecDeque<(Buffer, Option<Transfer>)>,
    /// The parts that are filled, in their order, each with the transfer that still fills it.
    filling: VecDeque<(Part, Option<Transfer>)>,
    requests: Option<Requests>,
}

/// Returns the length of the part that fits into a buffer behind `before` bytes.
fn room(to: &dyn Target, before: u64) -> u64 {
    BUFFER_BYTES - whole_blocks(to.block(), before)
}

impl Buffered<'_> {
    /// Starts filling the free buffers. Stops after the first buffer if the source fills it before it returns.
    fn fill(&mut self) -> Result<()> {
        while !self.rest.is_empty()
            && let Some((buffer, emptied)) = self.next_free()
        {
            settle(emptied).map_err(TransferError::target)?;
            self.stop.look()?;
            let at = self.rest.start;
            let before = self.from.before(at);
            let length = room(self.to, before).min(self.rest.end - at);
            self.rest.start += length;
            let part = Part {
                at,
                length,
                before,
                buffer,
            };
            if let Some(requests) = self.requests.as_mut().filter(|requests| requests.is_read()) {
                requests.send(part)?;
                continue;
            }
            let bytes = whole_blocks(self.from.block(), before + length);
            // No error here is the source's, as it does not own the buffer.
            let into = part.buffer.lend_mut(0..bytes);
            let into = into.map_err(TransferError::target)?;
            let stream = &mut self.stream;
            let begun = || self.from.begin_read(at - before, into, stream);
            let begun = call(FailedEnd::Source, begun)?;
            let is_full = begun.is_none();
            self.filling.push_back((part, begun));
            // The next buffer is filled while this one is emptied.
            if is_full {
                break;
            }
        }
        Ok(())
    }

    /// Takes the buffer that was emptied first. Leaves a buffer that a device still empties while workers read into others.
    fn next_free(&mut self) -> Option<(Buffer, Option<Transfer>)> {
        let (_, emptied) = self.free.front()?;
        let is_emptied = emptied.as_ref().is_none_or(Transfer::is_done);
        let reads = self.requests.as_ref().filter(|requests| requests.is_read());
        let waits = !is_emptied && reads.is_some_and(Requests::are_open);
        (!waits).then(|| self.free.pop_front())?
    }

    /// Returns the next full part; `None` once all parts are emptied or being written.
    fn next_full(&mut self) -> Result<Option<Part>> {
        loop {
            self.fill()?;
            if let Some((part, filled)) = self.filling.pop_front() {
                settle(filled).map_err(TransferError::source)?;
                return Ok(Some(part));
            }
            let Some(requests) = &mut self.requests else {
                return Ok(None);
            };
            match requests.collect()? {
                Some(read) if requests.is_read() => return Ok(Some(read)),
                Some(written) => self.free.push_back((written.buffer, None)),
                None => return Ok(None),
            }
        }
    }

    /// Starts emptying a part.
    fn empty(&mut self, part: Part) -> Result<()> {
        if let Some(requests) = self
            .requests
            .as_mut()
            .filter(|requests| !requests.is_read())
        {
            return requests.send(part);
        }
        let end = part.before + whole_blocks(self.to.block(), part.length);
        let filled = part.buffer.lend(part.before..end);
        let filled = filled.map_err(TransferError::target)?;
        let begun = || self.to.begin_write(part.at, filled, &mut self.stream);
        let begun = call(FailedEnd::Target, begun)?;
        self.free.push_back((part.buffer, begun));
        Ok(())
    }

    fn run(&mut self) -> Result<()> {
        while let Some(part) = self.next_full()? {
            self.empty(part)?;
        }
        for (_, emptied) in self.free.drain(..) {
            settle(emptied).map_err(TransferError::target)?;
        }
        Ok(())
    }
}

impl CopyContext {
    /// Copies the first of these bytes through pinned buffers, and returns their number: all bytes if one end is on the device or
    /// workers help, else as many as a buffer holds. Nothing uses the buffers when this returns.
    pub(crate) fn copy_buffered(
        &mut self,
        copying: &mut Copying<'_>,
        bytes: Range<u64>,
    ) -> Result<u64> {
        let Copying {
            from,
            to,
            callers,
            workers,
        } = copying;
        let before = from.before(bytes.start);
        let on_device = from.kind().is_on_device() || to.kind().is_on_device();
        let end = match on_device || workers.is_some() {
            true => bytes.end,
            false => bytes.end.min(bytes.start + room(*to, before)),
        };
        let length = end - bytes.start;
        let size = before + whole_blocks(from.block().max(to.block()), length);
        let most = workers.map_or(BUFFERS, |_| SHARED_BUFFERS);
        let buffers = self.buffers().at_most(most, size);
        let buffers = buffers.map_err(TransferError::target)?;
        let start = bytes.start;
        let requests = workers.and_then(|workers| {
            let (source, target) = (from.scratch(start), to.scratch(start));
            let (is_read, at) = (source.is_some(), source.or(target)?);
            Some(Requests::new(is_read, start, at, workers, buffers.len()))
        });
        let stop = self.stop();
        let mut copy = Buffered {
            from: *from,
            to: *to,
            stream: self.streams(*callers),
            stop,
            rest: bytes.start..end,
            free: buffers.into_iter().map(|buffer| (buffer, None)).collect(),
            filling: VecDeque::new(),
            requests,
        };
        copy.run()?;
        Ok(length)
    }
}
