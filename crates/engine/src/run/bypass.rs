//! How a caller reads from storage what is in no cache, and writes there what goes past all of them: it stands still until
//! all of it has moved, so the workers of that way help it with its requests while it copies.

use super::ends::{Lying, Streams};
use super::job::{Direction, Help, Request, Task};
use super::lane::Stop;
use super::regions::cuts;
use super::staging::{STAGED, Staging};
use super::sync::{Ordering, Sender, unbounded};
use crate::plan::TierId;
use crate::{Error, Result};
use std::sync::Arc;
use tierflow_device::{ReadLoan, WriteLoan};

/// Requests at a time: what it takes to have a disk's bandwidth.
const REQUESTS: usize = 4;

/// Buffers of a call: one for each request, and some that are being copied meanwhile.
pub(super) const BUFFERS: u64 = REQUESTS as u64 + 2;

/// Where the workers of a way take their tasks from, if there are any.
pub(crate) type Crews<'a> = &'a dyn Fn(Direction, TierId) -> Option<Sender<Task>>;

/// Moves a piece of storage through buffers. `prepare` puts what is to be written into a buffer, and `finish` takes
/// what was read out of it; both are told where in the version it belongs.
pub(super) fn bypass(
    (buffers, mut streams, stop): (Vec<Staging>, Streams<'_>, &Stop),
    lying: Lying<'_>,
    (direction, crews): (Direction, Crews<'_>),
    (mut prepare, mut finish): (
        impl FnMut(u64, WriteLoan, &mut Streams<'_>) -> Result<()>,
        impl FnMut(u64, ReadLoan, &mut Streams<'_>) -> Result<()>,
    ),
) -> Result<()> {
    let place = &lying.piece.place;
    let storage = lying.medium.storage().ok_or(Error::Internal {
        what: "requests of a tier that is not storage",
    })?;
    let (send, requests) = unbounded();
    let (done, answers) = unbounded();
    let help = Help {
        storage: Arc::clone(storage),
        direction,
        start: lying.piece.start,
        offset: place.offset,
        requests,
        done,
        helpers: Arc::default(),
    };
    // A single part has moved before a worker comes to help.
    if buffers.len() > 1
        && let Some(crew) = crews(direction, place.tier)
    {
        for _ in 0..buffers.len().min(REQUESTS) {
            // Should they all have gone, the caller does it alone.
            let _ = crew.send(Task::Help(help.clone()));
        }
    }
    let mut parts = cuts(place.size, STAGED);
    let mut begin = |buffer: Staging, streams: &mut Streams<'_>| {
        let Some((from, length)) = parts.next() else {
            return Ok(0);
        };
        if stop.is_set() {
            return Err(Error::Storage(tierflow_store::Error::Cancelled));
        }
        let at = lying.piece.start + from;
        prepare(at, buffer.lend_mut(0..length)?, streams)?;
        // There is a receiver: this call's own.
        let _ = send.send(Request { at, length, buffer });
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
            Err(_) => mine(&help, outcome.is_err()),
        };
        let (request, served) = match answer {
            Some(answer) => answer,
            // The call's own sender lives as long as it waits.
            None => answers.recv().map_err(|_| Error::Internal {
                what: "a request whose answer is lost",
            })?,
        };
        under_way -= 1;
        if outcome.is_ok() {
            let Request { at, length, buffer } = request;
            outcome = served
                .and_then(|()| finish(at, buffer.lend(0..length)?, &mut streams))
                .and_then(|()| begin(buffer, &mut streams))
                .map(|begun| under_way += begun);
        }
    }
    outcome
}

/// What the caller does itself while fewer help than a disk can use: a request that no worker took yet, or only takes it back.
fn mine(help: &Help, is_over: bool) -> Option<(Request, Result<()>)> {
    if !is_over && help.helpers.load(Ordering::Relaxed) >= REQUESTS {
        return None;
    }
    let request = help.requests.try_recv().ok()?;
    let served = if is_over {
        Ok(())
    } else {
        help.serve(&request)
    };
    Some((request, served))
}
