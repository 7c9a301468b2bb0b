//! A record that is made anew from its start to its end, copied into a repository as it comes.

use super::payload_start;
use crate::rebuilding::Sink;
use crate::{Error, Result};
use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, Scope, ScopedJoinHandle};
use tierflow_store::container::{Head, Source};
use tierflow_store::{Piece, Repository, Vault};

/// Bytes that wait to be copied at most, while who copies has any.
const MOST: usize = 32 << 20;

/// What came and was not copied yet.
#[derive(Debug, Default)]
struct State {
    /// In their order, without gaps.
    chunks: VecDeque<Chunk>,
    /// Where the next one starts.
    end: u64,
    waiting: usize,
    /// Readers that wait for what is still to come.
    hungry: usize,
    /// The bytes of the head, and where the payload starts, once that is known: each of its bytes is read once, those before more
    /// often.
    payload: Option<(u64, u64)>,
    /// Whether the record is what it should be, once that is known.
    verdict: Option<bool>,
    /// Nobody copies any more.
    is_over: bool,
}

#[derive(Debug)]
struct Chunk {
    start: u64,
    bytes: Arc<Vec<u8>>,
    /// Bytes that are still to be read.
    left: u64,
}

impl State {
    /// Counts bytes as read, and lets go what is.
    fn count(&mut self, at: u64, bytes: u64) {
        let index = self.chunks.partition_point(|chunk| chunk.start <= at);
        if let Some(chunk) = index.checked_sub(1).and_then(|at| self.chunks.get_mut(at)) {
            chunk.left = chunk.left.saturating_sub(bytes);
        }
        while self.chunks.front().is_some_and(|chunk| chunk.left == 0) {
            let gone = self.chunks.pop_front().map_or(0, |chunk| chunk.bytes.len());
            self.waiting = self.waiting.saturating_sub(gone);
        }
    }
}

/// A record on its way.
#[derive(Debug)]
struct Coming {
    bytes: u64,
    state: Mutex<State>,
    changed: Condvar,
}

impl Coming {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'s>(&self, state: MutexGuard<'s, State>) -> MutexGuard<'s, State> {
        self.changed
            .wait(state)
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the next bytes, once there is room for them.
    fn push(&self, bytes: Vec<u8>) {
        let mut state = self.state();
        while state.waiting >= MOST && state.hungry == 0 && !state.is_over {
            state = self.wait(state);
        }
        let (start, length) = (state.end, bytes.len() as u64);
        state.end += length;
        if !state.is_over && length > 0 {
            state.waiting += bytes.len();
            state.chunks.push_back(Chunk {
                start,
                bytes: Arc::new(bytes),
                left: length,
            });
            self.changed.notify_all();
        }
    }

    /// The head was read.
    fn begin(&self, head: &Head) {
        let (mut state, payload) = (self.state(), payload_start(head));
        state.payload = Some((u64::from(head.length), payload));
        let heads: Vec<(u64, u64)> = state
            .chunks
            .iter()
            .filter(|chunk| chunk.start < payload)
            .map(|chunk| (chunk.start, chunk.left.min(payload - chunk.start)))
            .collect();
        heads
            .into_iter()
            .for_each(|(at, bytes)| state.count(at, bytes));
        self.changed.notify_all();
    }

    fn decide(&self, verdict: bool) {
        self.state().verdict.get_or_insert(verdict);
        self.changed.notify_all();
    }

    /// Waits for the word that the record is what it should be.
    fn verdict(&self) -> tierflow_store::Result<()> {
        let mut state = self.state();
        loop {
            match state.verdict {
                Some(true) => return Ok(()),
                Some(false) => return Err(tierflow_store::Error::Cancelled),
                None => state = self.wait(state),
            }
        }
    }

    /// Nobody reads any more.
    fn end(&self) {
        let mut state = self.state();
        state.is_over = true;
        state.chunks.clear();
        self.changed.notify_all();
    }
}

/// The record as who copies it reads it.
#[derive(Debug)]
struct Record(Arc<Coming>);

impl Source for Record {
    type Error = tierflow_store::Error;

    fn size(&self) -> tierflow_store::Result<u64> {
        Ok(self.0.bytes)
    }

    fn read(&self, offset: u64, mut into: &mut [u8]) -> tierflow_store::Result<()> {
        let mut state = self.0.state();
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
                if at < state.end || state.verdict == Some(false) {
                    // It was read before, or will never come.
                    return Err(tierflow_store::Error::Cancelled);
                }
                state.hungry += 1;
                self.0.changed.notify_all();
                state = self.0.wait(state);
                state.hungry -= 1;
                continue;
            };
            drop(state);
            let there = chunk.get(skip..).unwrap_or_default();
            let (now, later) = into.split_at_mut(there.len().min(into.len()));
            now.copy_from_slice(there.get(..now.len()).unwrap_or_default());
            let (begun, length) = (at, now.len() as u64);
            at += length;
            into = later;
            state = self.0.state();
            if payload.is_some() {
                state.count(begun, length);
                self.0.changed.notify_all();
            }
        }
        Ok(())
    }
}

/// A copier, from the outside.
pub(super) struct Copier<'s> {
    coming: Arc<Coming>,
    thread: Option<ScopedJoinHandle<'s, tierflow_store::Result<()>>>,
}

impl<'s> Copier<'s> {
    /// Copies a record of so many bytes, called `name` in errors, as it comes.
    pub(super) fn start<'env>(
        scope: &'s Scope<'s, 'env>,
        repository: &'env Repository,
        name: PathBuf,
        bytes: u64,
    ) -> Result<Self> {
        let coming = Arc::new(Coming {
            bytes,
            state: Mutex::default(),
            changed: Condvar::new(),
        });
        let theirs = Arc::clone(&coming);
        let copy = move || {
            let copied = Piece::elsewhere(Record(Arc::clone(&theirs)), name, 1, None);
            let copied = copied.and_then(|piece| {
                theirs.begin(piece.head());
                Vault::copy_when(repository, &piece, &|| theirs.verdict())
            });
            theirs.end();
            copied
        };
        let builder = Builder::new().name("tierflow-copy".to_owned());
        let thread = builder.spawn_scoped(scope, copy);
        let thread = Some(thread.map_err(Error::io("a thread"))?);
        Ok(Self { coming, thread })
    }

    fn end(&mut self, verdict: bool) -> Result<()> {
        self.coming.decide(verdict);
        match self.thread.take().map(ScopedJoinHandle::join) {
            Some(Ok(copied)) => Ok(copied?),
            Some(Err(_panic)) => Err(Error::io("a thread")(std::io::Error::other("it panicked"))),
            None => Ok(()),
        }
    }
}

impl Sink for Copier<'_> {
    fn take(&mut self, bytes: Vec<u8>) -> Result<()> {
        self.coming.push(bytes);
        Ok(())
    }

    fn keep(mut self: Box<Self>) -> Result<()> {
        self.end(true)
    }
}

impl Drop for Copier<'_> {
    fn drop(&mut self) {
        // What was copied so far is given up.
        let _cancelled = self.end(false);
    }
}
