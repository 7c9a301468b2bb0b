//! The threads behind a host arena: touchers, and one that pins.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tierflow_device::{HostReservation, Pinned, WhyUnpinned};

use super::report::{HostReport, Sample};
use crate::gate::Gate;
use crate::watermark::{End, Watermark};
use crate::workers::Stop;

/// How long pinning waits for the gate to be empty. Where the application copies without pause, one
/// 16 MiB piece in this time is 3 GB/s, and copies lose a tenth at most.
const PATIENCE: Duration = Duration::from_millis(5);

#[derive(Debug)]
pub(super) struct Growing {
    pub(super) reservation: HostReservation,
    pub(super) gate: Gate,
    pub(super) touched: Watermark,
    pub(super) pinned: Watermark,
    piece: usize,
    pause: Duration,
    start: Instant,
    /// The next piece that no toucher has taken.
    next: AtomicUsize,
    log: Mutex<Log>,
}

#[derive(Debug, Default)]
struct Log {
    /// Which pieces have been touched: touchers finish in any order.
    touched: Vec<bool>,
    /// How many of the first ones all have.
    prefix: usize,
    timeline: Vec<Sample>,
    why_unpinned: Option<WhyUnpinned>,
}

impl Growing {
    pub(super) fn new(
        reservation: HostReservation,
        piece: usize,
        pause: Duration,
        start: Instant,
    ) -> Self {
        let pieces = reservation.memory().len().div_ceil(piece);
        Self {
            reservation,
            gate: Gate::default(),
            touched: Watermark::default(),
            pinned: Watermark::default(),
            piece,
            pause,
            start,
            next: AtomicUsize::new(0),
            log: Mutex::new(Log {
                touched: vec![false; pieces],
                ..Log::default()
            }),
        }
    }

    pub(super) fn pieces(&self) -> usize {
        self.capacity().div_ceil(self.piece)
    }

    fn capacity(&self) -> usize {
        self.reservation.memory().len()
    }

    fn range(&self, piece: usize) -> Range<usize> {
        let start = piece * self.piece;
        start..start.saturating_add(self.piece).min(self.capacity())
    }

    /// One toucher: takes the next piece that nobody has taken, until there is none.
    pub(super) fn touch(&self, stop: &Stop) {
        let _guard = EndOnPanic(&self.touched);
        loop {
            if stop.is_set() {
                return self.touched.finish(End::Stopped);
            }
            // Relaxed: the count guards no data, it only has to differ for each.
            let piece = self.next.fetch_add(1, Ordering::Relaxed);
            if piece >= self.pieces() {
                return;
            }
            if let Err(error) = self.reservation.touch(self.range(piece)) {
                // The others find nothing left to take.
                self.next.store(self.pieces(), Ordering::Relaxed);
                return self.touched.finish(End::Failed(error));
            }
            self.note_touched(piece);
        }
    }

    fn note_touched(&self, piece: usize) {
        let mut log = self.log.lock();
        log.touched[piece] = true;
        let before = log.prefix;
        while log.touched.get(log.prefix) == Some(&true) {
            log.prefix += 1;
        }
        if log.prefix == before {
            return;
        }
        let level = self.range(log.prefix - 1).end;
        self.touched.raise(level);
        self.sample(&mut log);
        if log.prefix == self.pieces() {
            self.touched.finish(End::Complete);
        }
    }

    /// The one that pins: touched pieces, in order, with a pause after each.
    pub(super) fn pin_all(&self, stop: &Stop) {
        let _raising = self.pinned.raising();
        for piece in 0..self.pieces() {
            let range = self.range(piece);
            if self.touched.wait(range.end).is_err() {
                return;
            }
            // After this it is our turn, whether or not somebody copies.
            self.gate.wait_empty(PATIENCE);
            if stop.is_set() {
                return;
            }
            let end = range.end;
            match self.reservation.pin(range) {
                Ok(Pinned::Yes) => {
                    self.pinned.raise(end);
                    self.sample(&mut self.log.lock());
                }
                Ok(Pinned::No(why)) => {
                    // What stands in the way of one stands in the way of the next.
                    self.log.lock().why_unpinned = Some(why);
                    return;
                }
                Err(error) => return self.pinned.finish(End::Failed(error)),
            }
            thread::sleep(self.pause);
        }
        self.pinned.finish(End::Complete);
    }

    fn sample(&self, log: &mut Log) {
        log.timeline.push(Sample {
            at: self.start.elapsed(),
            touched: self.touched.level(),
            pinned: self.pinned.level(),
        });
    }

    pub(super) fn report(&self, asked: usize) -> HostReport {
        let (touching, pinning) = (self.touched.end(), self.pinned.end());
        let failure = |end: &Option<End>| match end {
            Some(End::Failed(error)) => Some(error.clone()),
            _ => None,
        };
        let huge_pages = self.reservation.huge_page_bytes().ok();
        let log = self.log.lock();
        HostReport {
            asked,
            capacity: self.capacity(),
            touched: self.touched.level(),
            pinned: self.pinned.level(),
            huge_pages,
            why_unpinned: log.why_unpinned.clone(),
            failed: failure(&touching).or_else(|| failure(&pinning)),
            finished: touching.is_some() && pinning.is_some(),
            timeline: log.timeline.clone(),
        }
    }
}

/// A toucher that dies leaves a piece that nobody touches, and nobody is to wait for it.
struct EndOnPanic<'level>(&'level Watermark);

impl Drop for EndOnPanic<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.finish(End::Stopped);
        }
    }
}
