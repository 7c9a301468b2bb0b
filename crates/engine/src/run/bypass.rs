//! Copies between a caller and storage, past all caches. The caller waits until all bytes have moved, so the workers of the link help it
//! with parts of the copy meanwhile.

use super::context::TierContext;
use super::job::{BufferedPart, CallParts, Direction, Task};
use super::placed_piece::PlacedPiece;
use super::regions::cuts;
use crate::plan::TierId;
use crate::{Error, Result};
use std::sync::Arc;
use tierflow_device::{ReadLoan, Stream, WriteLoan};
use tierflow_sync::model::{Ordering, Sender, unbounded};
use tierflow_transfer::{BUFFER_BYTES, Buffer, StreamChoice};

/// Requests at a time: as many as it takes to have a disk's bandwidth.
const REQUESTS: usize = 4;

/// Buffers of a call: one for each request to the disk, and some that are being copied meanwhile.
const BUFFERS: u64 = REQUESTS as u64 + 2;

/// Returns the queue of the workers of a link, if there are any.
pub(crate) type LinkLookup<'a> = &'a dyn Fn(Direction, TierId) -> Option<Sender<Task>>;

/// A copy of a caller's.
pub(super) struct Bypass<'b> {
    /// The piece on storage.
    pub(super) piece: PlacedPiece<'b>,
    pub(super) direction: Direction,
    pub(super) links: LinkLookup<'b>,
    /// The caller's stream.
    pub(super) stream: Option<&'b Stream>,
}

/// Copies a piece of storage through buffers. `prepare` fills a buffer that is to be written, and `finish` empties one that was read. Both
/// have the offset in the version.
pub(super) fn bypass(
    context: &mut TierContext,
    copy: Bypass<'_>,
    mut prepare: impl FnMut(u64, WriteLoan, &mut StreamChoice<'_>) -> tierflow_transfer::Result<()>,
    mut finish: impl FnMut(u64, ReadLoan, &mut StreamChoice<'_>) -> tierflow_transfer::Result<()>,
) -> Result<()> {
    let Bypass {
        piece: placed,
        direction,
        links,
        stream,
    } = copy;
    let place = &placed.piece.place;
    let storage = placed.medium.storage().ok_or(Error::Internal {
        what: "parts on a tier that is not storage",
    })?;
    let buffers = context.buffers().at_most(BUFFERS, place.size)?;
    let stop = context.stop();
    let mut streams = context.streams(stream);
    let (send, parts) = unbounded();
    let (done, answers) = unbounded();
    let call_parts = CallParts {
        storage: Arc::clone(storage),
        direction,
        start: placed.piece.start,
        offset: place.offset,
        parts,
        done,
        helpers: Arc::default(),
    };
    // A single part has moved before a worker comes to help.
    if buffers.len() > 1
        && let Some(workers) = links(direction, place.tier)
    {
        for _ in 0..buffers.len().min(REQUESTS) {
            // Without workers the caller copies all parts alone.
            let _ = workers.send(Task::Help(call_parts.clone()));
        }
    }
    let mut ranges = cuts(place.size, BUFFER_BYTES);
    let mut begin = |buffer: Buffer, streams: &mut StreamChoice<'_>| {
        let Some((from, length)) = ranges.next() else {
            return Ok(0);
        };
        if stop.is_set() {
            return Err(Error::Storage(tierflow_store::Error::Cancelled));
        }
        let at = placed.piece.start + from;
        prepare(at, buffer.lend_mut(0..length)?, streams)?;
        // There is a receiver: this call's own.
        let _ = send.send(BufferedPart { at, length, buffer });
        Ok::<usize, Error>(1)
    };
    let (mut under_way, mut outcome) = (0, Ok(()));
    for buffer in buffers {
        match begin(buffer, &mut streams) {
            Ok(begun) => under_way += begun,
            Err(error) => {
                outcome = Err(error);
                break;
            }
        }
    }
    // Whatever happens, the buffers are not in use any more when this returns.
    while under_way > 0 {
        let answer = match answers.try_recv() {
            Ok(answer) => Some(answer),
            Err(_) => mine(&call_parts, outcome.is_err()),
        };
        let (part, served) = match answer {
            Some(answer) => answer,
            // The call's own sender lives as long as it waits.
            None => answers.recv().map_err(|_| Error::Internal {
                what: "a part whose answer is lost",
            })?,
        };
        under_way -= 1;
        if outcome.is_ok() {
            let BufferedPart { at, length, buffer } = part;
            outcome = served
                .and_then(|()| Ok(finish(at, buffer.lend(0..length)?, &mut streams)?))
                .and_then(|()| begin(buffer, &mut streams))
                .map(|begun| under_way += begun);
        }
    }
    outcome
}

/// Copies a part that no worker took yet, while fewer workers help than a disk can use. Once the call is over, only takes the part back.
fn mine(call_parts: &CallParts, is_over: bool) -> Option<(BufferedPart, Result<()>)> {
    if !is_over && call_parts.helpers.load(Ordering::Relaxed) >= REQUESTS {
        return None;
    }
    let part = call_parts.parts.try_recv().ok()?;
    let served = if is_over {
        Ok(())
    } else {
        call_parts.serve(&part)
    };
    Some((part, served))
}
