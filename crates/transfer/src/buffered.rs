//! Copies through two pinned buffers: one is filled while the other is emptied.

use crate::buffers::{BUFFER_BYTES, Buffer};
use crate::copy::{Copying, Result};
use crate::media::whole_blocks;
use crate::under_way::settle;
use crate::{CopyContext, Source, StreamChoice, Target, TransferError};
use std::ops::Range;
use tierflow_device::Transfer;

/// Buffers of a copy.
const BUFFERS: u64 = 2;

/// Bytes of a version that go through a buffer at once.
struct Part {
    at: u64,
    length: u64,
    /// Bytes before them that are read with them.
    before: u64,
}

impl Part {
    /// Returns the first of these bytes, as many as a buffer holds.
    fn first(from: &dyn Source, to: &dyn Target, bytes: &Range<u64>) -> Self {
        let before = from.before(bytes.start);
        let room = BUFFER_BYTES - whole_blocks(to.block(), before);
        Self {
            at: bytes.start,
            length: room.min(bytes.end - bytes.start),
            before,
        }
    }

    /// Starts filling a buffer.
    fn fill(
        &self,
        from: &dyn Source,
        buffer: &Buffer,
        stream: &mut StreamChoice<'_>,
    ) -> Result<Option<Transfer>> {
        let bytes = whole_blocks(from.block(), self.before + self.length);
        // A buffer is none of the source's.
        let into = buffer.lend_mut(0..bytes).map_err(TransferError::target)?;
        from.begin_read(self.at - self.before, into, stream)
            .map_err(TransferError::source)
    }

    /// Starts emptying the buffer.
    fn empty(
        &self,
        to: &mut dyn Target,
        buffer: &Buffer,
        stream: &mut StreamChoice<'_>,
    ) -> Result<Option<Transfer>> {
        let end = self.before + whole_blocks(to.block(), self.length);
        let filled = buffer
            .lend(self.before..end)
            .map_err(TransferError::target)?;
        to.begin_write(self.at, filled, stream)
            .map_err(TransferError::target)
    }
}

impl CopyContext {
    /// Copies the first of these bytes through pinned buffers: all of them if one end is on the device, else as many as a buffer holds.
    /// Returns the number of bytes. Nothing uses the buffers when this returns.
    pub(crate) fn copy_buffered(
        &mut self,
        copying: &mut Copying<'_>,
        bytes: Range<u64>,
    ) -> Result<u64> {
        let Copying { from, to, callers } = copying;
        let from_device = from.kind().is_on_device();
        let mut part = Part::first(*from, *to, &bytes);
        let end = match from_device || to.kind().is_on_device() {
            true => bytes.end,
            false => part.at + part.length,
        };
        let length = end - part.at;
        let blocks = from.block().max(to.block());
        let size = part.before + whole_blocks(blocks, length);
        let buffers = self.buffers().at_most(BUFFERS, size);
        let buffers = buffers.map_err(TransferError::target)?;
        let stop = self.stop();
        let mut stream = self.streams(*callers);
        let mut emptied: Vec<Option<Transfer>> = buffers.iter().map(|_| None).collect();
        let mut filled = part.fill(*from, &buffers[0], &mut stream)?;
        let mut turn = 0;
        loop {
            let next = (turn + 1) % buffers.len();
            settle(filled.take()).map_err(TransferError::source)?;
            let rest = part.at + part.length..end;
            let following = (!rest.is_empty()).then(|| Part::first(*from, *to, &rest));
            let fill_next = |following: &Part, emptied: &mut [Option<Transfer>], stream: &mut _| {
                settle(emptied[next].take()).map_err(TransferError::target)?;
                following.fill(*from, &buffers[next], stream)
            };
            if let Some(following) = following.as_ref().filter(|_| from_device) {
                // While the device fills the next buffer, this one is written.
                filled = fill_next(following, &mut emptied, &mut stream)?;
            }
            emptied[turn] = part.empty(*to, &buffers[turn], &mut stream)?;
            let Some(following) = following else { break };
            stop.look()?;
            if !from_device {
                // While the device empties this buffer, the next one is read.
                filled = fill_next(&following, &mut emptied, &mut stream)?;
            }
            (part, turn) = (following, next);
        }
        for transfer in emptied {
            settle(transfer).map_err(TransferError::target)?;
        }
        Ok(length)
    }
}
