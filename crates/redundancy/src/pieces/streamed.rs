//! A bounded buffer between a thread that rebuilds a record from its start to its end, and a thread that copies the record into a
//! repository meanwhile.

use super::payload_start;
use crate::rebuilding::Sink;
use crate::{Error, Result};
use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::{Builder, Scope, ScopedJoinHandle};
use tierflow_store::container::{Head, Source};
use tierflow_store::{Piece, Repository, Vault};
use tierflow_sync::{Condvar, Mutex};

/// Capacity of the buffer in bytes. The rebuilding thread waits while the buffer has as many, unless the copying thread waits for later
/// bytes.
const CAPACITY: usize = 32 << 20;

#[derive(Debug, Default)]
struct BufferState {
    /// Chunks of the record with bytes that were not read yet, in their order, without gaps.
    chunks: VecDeque<Chunk>,
    /// The offset in the record behind the last chunk.
    end: u64,
    /// Bytes of all chunks.
    buffered: usize,
    /// Number of reads that wait for bytes behind `end`.
    waiting_reads: usize,
    /// Bytes of the head, and the offset of the payload; `None` until the head was read. Bytes of the payload are read once, bytes
    /// before it several times.
    payload: Option<(u64, u64)>,
    /// True if the record has the checksum that was protected; `None` until that is known.
    is_right: Option<bool>,
    /// True if the copying thread reads no more.
    is_closed: bool,
}

#[derive(Debug)]
struct Chunk {
    start: u64,
    bytes: Arc<Vec<u8>>,
    /// Number of bytes that were not read yet.
    unread: u64,
}

impl BufferState {
    /// Counts bytes of one chunk as read, and frees the first chunks that are read completely.
    fn count_read(&mut self, at: u64, bytes: u64) {
        let index = self.chunks.partition_point(|chunk| chunk.start <= at);
        if let Some(chunk) = index.checked_sub(1).and_then(|at| self.chunks.get_mut(at)) {
            chunk.unread = chunk.unread.saturating_sub(bytes);
        }
        while self.chunks.front().is_some_and(|chunk| chunk.unread == 0) {
            let freed = self.chunks.pop_front().map_or(0, |chunk| chunk.bytes.len());
            self.buffered = self.buffered.saturating_sub(freed);
        }
    }
}

#[derive(Debug)]
struct Buffer {
    /// Bytes of the whole record.
    length: u64,
    state: Mutex<BufferState>,
    changed: Condvar,
}

impl Buffer {
    /// Appends the next bytes of the record, once there is room for them.
    fn push(&self, bytes: Vec<u8>) {
        let mut state = self.state.lock();
        while state.buffered >= CAPACITY && state.waiting_reads == 0 && !state.is_closed {
            self.changed.wait(&mut state);
        }
        let (start, length) = (state.end, bytes.len() as u64);
        state.end += length;
        if !state.is_closed && length > 0 {
            state.buffered += bytes.len();
            state.chunks.push_back(Chunk {
                start,
                bytes: Arc::new(bytes),
                unread: length,
            });
            self.changed.notify_all();
        }
    }

    /// Notes that the head was read, and counts all bytes before the payload as read.
    fn drop_head(&self, head: &Head) {
        let (mut state, payload) = (self.state.lock(), payload_start(head));
        state.payload = Some((u64::from(head.length), payload));
        let heads: Vec<(u64, u64)> = state
            .chunks
            .iter()
            .filter(|chunk| chunk.start < payload)
            .map(|chunk| (chunk.start, chunk.unread.min(payload - chunk.start)))
            .collect();
        heads
            .into_iter()
            .for_each(|(at, bytes)| state.count_read(at, bytes));
        self.changed.notify_all();
    }

    /// Sets whether the record has the right checksum. Only the first call counts.
    fn decide(&self, is_right: bool) {
        self.state.lock().is_right.get_or_insert(is_right);
        self.changed.notify_all();
    }

    /// Waits until it is known whether the record has the right checksum. Returns an error if it has not.
    fn wait_for_decision(&self) -> tierflow_store::Result<()> {
        let mut state = self.state.lock();
        loop {
            match state.is_right {
                Some(true) => return Ok(()),
                Some(false) => return Err(tierflow_store::Error::Cancelled),
                None => self.changed.wait(&mut state),
            }
        }
    }

    /// Notes that nothing is read any more, and discards all chunks, later ones too.
    fn close(&self) {
        let mut state = self.state.lock();
        state.is_closed = true;
        state.chunks.clear();
        self.changed.notify_all();
    }
}

/// The record for the copying thread, without the zeros between head and payload.
#[derive(Debug)]
struct BufferSource(Arc<Buffer>);

impl Source for BufferSource {
    type Error = tierflow_store::Error;

    fn size(&self) -> tierflow_store::Result<u64> {
        Ok(self.0.length)
    }

    fn read(&self, offset: u64, mut into: &mut [u8]) -> tierflow_store::Result<()> {
        let mut state = self.0.state.lock();
        let payload = state.payload.filter(|(head, _)| offset >= *head);
        let mut at = payload.map_or(offset, |(head, start)| offset - head + start);
        while !into.is_empty() {
            let index = state.chunks.partition_point(|chunk| chunk.start <= at);
            let chunk = index.checked_sub(1).and_then(|at| state.chunks.get(at));
            let within = chunk.and_then(|chunk| {
                let skip = usize::try_from(at - chunk.start).ok()?;
                (skip < chunk.bytes.len()).then(|| (Arc::clone(&chunk.bytes), skip))
            });
            let Some((chunk, skip)) = within else {
                if at < state.end || state.is_right == Some(false) {
                    // The bytes were read and freed, or will not come.
                    return Err(tierflow_store::Error::Cancelled);
                }
                state.waiting_reads += 1;
                self.0.changed.notify_all();
                self.0.changed.wait(&mut state);
                state.waiting_reads -= 1;
                continue;
            };
            drop(state);
            let there = chunk.get(skip..).unwrap_or_default();
            let (now, later) = into.split_at_mut(there.len().min(into.len()));
            now.copy_from_slice(there.get(..now.len()).unwrap_or_default());
            let (begun, length) = (at, now.len() as u64);
            at += length;
            into = later;
            state = self.0.state.lock();
            if payload.is_some() {
                state.count_read(begun, length);
                self.0.changed.notify_all();
            }
        }
        Ok(())
    }
}

/// A [`Sink`] with a thread that copies its bytes into a repository.
pub(crate) struct RepositorySink<'s> {
    buffer: Arc<Buffer>,
    thread: Option<ScopedJoinHandle<'s, tierflow_store::Result<()>>>,
}

impl<'s> RepositorySink<'s> {
    /// Starts the thread, for a record of `length` bytes. Errors call the record `name`.
    pub(crate) fn start<'env>(
        scope: &'s Scope<'s, 'env>,
        repository: &'env Repository,
        name: PathBuf,
        length: u64,
    ) -> Result<Self> {
        let buffer = Arc::new(Buffer {
            length,
            state: Mutex::default(),
            changed: Condvar::new(),
        });
        let theirs = Arc::clone(&buffer);
        let copy = move || {
            let copied = Piece::elsewhere(BufferSource(Arc::clone(&theirs)), name, 1, None);
            let copied = copied.and_then(|piece| {
                theirs.drop_head(piece.head());
                Vault::copy(repository, &piece, &|| theirs.wait_for_decision())
            });
            theirs.close();
            copied
        };
        let builder = Builder::new().name("tierflow-copy".to_owned());
        let thread = builder.spawn_scoped(scope, copy);
        let thread = Some(thread.map_err(Error::io("a thread"))?);
        Ok(Self { buffer, thread })
    }

    fn end(&mut self, is_right: bool) -> Result<()> {
        self.buffer.decide(is_right);
        match self.thread.take().map(ScopedJoinHandle::join) {
            Some(Ok(copied)) => Ok(copied?),
            Some(Err(_panic)) => Err(Error::io("a thread")(std::io::Error::other("it panicked"))),
            None => Ok(()),
        }
    }
}

impl Sink for RepositorySink<'_> {
    fn write(&mut self, bytes: Vec<u8>) -> Result<()> {
        self.buffer.push(bytes);
        Ok(())
    }

    fn commit(mut self: Box<Self>) -> Result<()> {
        self.end(true)
    }
}

impl Drop for RepositorySink<'_> {
    fn drop(&mut self) {
        // Unless the sink was committed, this ends the copy with an error.
        let _cancelled = self.end(false);
    }
}
