//! How a caller reads from storage what is in no cache: it stands still until all of it is there, so several threads fetch
//! pieces side by side while it copies those that have come.

use super::lane::{STAGING, Staging, padded};
use super::regions::{Sink, cuts};
use super::sync::{AtomicUsize, Ordering, Receiver, Sender, bounded, scope, spawn_scoped};
use crate::plan::Piece;
use crate::{Error, Result};
use tierflow_device::Stream;
use tierflow_store::Storage;

/// Requests at a time: what it takes to have a disk's bandwidth.
const READERS: usize = 4;

/// Staging buffers: one for each reader, and some that are full or being copied meanwhile.
pub(super) const BUFFERS: u64 = READERS as u64 + 2;

/// A piece of the version: its bytes and where they came to lie.
struct Arrived {
    start: u64,
    length: u64,
    buffer: Staging,
}

/// What every reader sees.
struct Reading<'a> {
    storage: &'a dyn Storage,
    piece: &'a Piece,
    /// The piece that nobody took yet.
    next: AtomicUsize,
}

impl Reading<'_> {
    /// Reads the next piece into `buffer`; `None` if there is none left.
    fn piece(&self, buffer: Staging) -> Option<Result<Arrived>> {
        let index = self.next.fetch_add(1, Ordering::Relaxed);
        let Piece { start, place } = self.piece;
        let (at, length) = cuts(place.size, STAGING).nth(index)?;
        let read = || {
            let mut staged = buffer.lend_mut(padded(self.storage, length))?;
            self.storage
                .read_at(place.offset + at, staged.bytes_mut()?)?;
            Ok::<_, Error>(())
        };
        Some(read().map(|()| Arrived {
            start: start + at,
            length,
            buffer,
        }))
    }

    /// Reads pieces into free buffers until there are no more of either, or nobody listens any more: after the first failure.
    fn run(&self, free: &Receiver<Staging>, full: &Sender<Result<Arrived>>) {
        for buffer in free {
            match self.piece(buffer).map(|arrived| full.send(arrived)) {
                Some(Ok(())) => {}
                Some(Err(_)) | None => return,
            }
        }
    }
}

impl Arrived {
    /// Copies the piece to where it belongs. Returns its buffer.
    fn copy(self, sink: &mut Sink<'_, '_>, stream: &Stream) -> Result<Staging> {
        let source = self.buffer.lend(self.length)?;
        sink.copy_from([(self.start, source)], stream)?;
        Ok(self.buffer)
    }
}

/// Reads `piece` into the application's regions, through `buffers`, of which there is at least one.
pub(super) fn gather(
    storage: &dyn Storage,
    piece: &Piece,
    sink: &mut Sink<'_, '_>,
    stream: &Stream,
    mut buffers: Vec<Staging>,
) -> Result<()> {
    let reading = Reading {
        storage,
        piece,
        next: AtomicUsize::new(0),
    };
    // A single piece is read sooner than a thread is there to read it.
    if buffers.len() < 2 {
        let arrived = buffers.pop().and_then(|buffer| reading.piece(buffer));
        return arrived.map_or(Ok(()), |arrived| arrived?.copy(sink, stream).map(drop));
    }
    // No more than a buffer each: every reader finds one free, now or when a full one was copied.
    let readers = buffers.len().min(READERS);
    let (give, free) = bounded(buffers.len());
    let (send, full) = bounded(buffers.len());
    for buffer in buffers {
        // There is room for all of them.
        let _ = give.send(buffer);
    }
    scope(|scope| {
        // They end with this closure, however it ends: that is what tells the readers.
        let (give, full) = (give, full);
        let mut begun = Ok(());
        for _ in 0..readers {
            let (reading, free, send) = (&reading, free.clone(), send.clone());
            begun = spawn_scoped(scope, "tierflow-gather", move || reading.run(&free, &send));
            if begun.is_err() {
                break;
            }
        }
        drop((free, send));
        let mut rest = piece.place.size;
        for arrived in &full {
            let arrived = arrived?;
            rest -= arrived.length;
            // Readers that have nothing left to read do not take it back.
            let _ = give.send(arrived.copy(sink, stream)?);
        }
        // Fewer threads than wanted are only slower; none at all read nothing.
        match begun {
            Err(error) if rest > 0 => Err(Error::Thread(error)),
            _ => Ok(()),
        }
    })
}
