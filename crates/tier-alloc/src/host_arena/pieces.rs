//! Pieces: some threads touch, and one pins what was touched, with pauses.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tierflow_device::{HostReservation, Pinned};

use super::growing::{Growing, Turns};
use super::growth::Pace;
use super::strategy::{Backing, Obtained, Strategy, Wanted};
use crate::error::Result;
use crate::watermark::{End, Watermark};
use crate::workers::{Stop, Workers};

/// How long pinning waits for a quiet moment. Where the application copies without pause, one
/// 16 MiB piece in this time is 3 GB/s, and copies lose a tenth at most.
const PATIENCE: Duration = Duration::from_millis(5);

/// How long a thread that has nothing to do sleeps before it looks whether the arena is gone.
const LOOK: Duration = Duration::from_millis(10);

/// See [`HostGrowth::Pieces`](super::HostGrowth::Pieces).
#[derive(Debug)]
pub(super) struct Pieces {
    piece: usize,
    pause: Duration,
    touchers: usize,
    /// The next piece that no toucher has taken.
    next: AtomicUsize,
    done: Mutex<Done>,
}

/// Which pieces have been touched: touchers finish in any order.
#[derive(Debug, Default)]
struct Done {
    touched: Vec<bool>,
    /// How many of the first ones all have.
    prefix: usize,
}

impl Pieces {
    /// Neither the piece nor the number of touchers is 0.
    pub(super) fn new(piece: usize, pause: Duration, touchers: usize) -> Self {
        let granularity = HostReservation::GRANULARITY;
        Self {
            piece: piece
                .checked_next_multiple_of(granularity)
                .unwrap_or(piece / granularity * granularity),
            pause,
            touchers,
            next: AtomicUsize::new(0),
            done: Mutex::default(),
        }
    }
}

impl Strategy for Pieces {
    fn obtain(&self, wanted: &Wanted<'_>) -> Result<Obtained> {
        let (reservation, why_not_node) = wanted.reserve()?;
        Ok(Obtained {
            why_not_node,
            ..Obtained::usable(Backing::Reserved(reservation))
        })
    }

    fn grow(self: Box<Self>, growing: &Arc<Growing>, workers: &mut Workers) -> Result<()> {
        let end = growing.limit();
        let pieces = end.div_ceil(self.piece);
        // An arena that was resized goes on where it is.
        let done = growing.touched.level() / self.piece;
        {
            let mut these = self.done.lock();
            these.touched.resize(pieces, false);
            these.touched[..done].fill(true);
            these.prefix = done;
        }
        self.next.store(done, Ordering::Relaxed);
        if done == pieces {
            growing.touched.finish(End::Complete);
        }
        let touchers = self.touchers.min(pieces - done);
        let shared = Arc::new(Work {
            pieces,
            settings: *self,
            growing: Arc::clone(growing),
            end,
        });
        for _ in 0..touchers {
            let (theirs, stop) = (Arc::clone(&shared), workers.stop());
            workers.spawn("tierflow-touch", move || theirs.touch(&stop))?;
        }
        let stop = workers.stop();
        workers.spawn("tierflow-pin", move || shared.pin_all(&stop))
    }
}

/// What the threads share.
struct Work {
    settings: Pieces,
    growing: Arc<Growing>,
    pieces: usize,
    /// How far to grow, in bytes.
    end: usize,
}

impl Work {
    fn range(&self, piece: usize) -> Range<usize> {
        let start = piece * self.settings.piece;
        start..start.saturating_add(self.settings.piece).min(self.end)
    }

    /// One toucher: takes the next piece that nobody has taken, until there is none.
    fn touch(&self, stop: &Stop) {
        let (touched, next) = (&self.growing.touched, &self.settings.next);
        let _guard = EndOnPanic(touched);
        let Some(reservation) = self.growing.backing.reserved() else {
            return touched.finish(End::Stopped);
        };
        loop {
            if stop.is_set() {
                return touched.finish(End::Stopped);
            }
            // Relaxed: the count guards no data, it only has to differ for each.
            let piece = next.fetch_add(1, Ordering::Relaxed);
            if piece >= self.pieces {
                return;
            }
            if !self.wait_needed(stop, |pace, needed| {
                pace.touch_to(needed) > self.range(piece).start
            }) {
                return touched.finish(End::Stopped);
            }
            if let Err(error) = reservation.touch(self.range(piece)) {
                // The others find nothing left to take.
                next.store(self.pieces, Ordering::Relaxed);
                return touched.finish(End::Failed(error));
            }
            self.note_touched(piece);
        }
    }

    fn note_touched(&self, piece: usize) {
        let mut done = self.settings.done.lock();
        done.touched[piece] = true;
        let before = done.prefix;
        while done.touched.get(done.prefix) == Some(&true) {
            done.prefix += 1;
        }
        if done.prefix == before {
            return;
        }
        self.growing.touched.raise(self.range(done.prefix - 1).end);
        self.growing.sample();
        if done.prefix == self.pieces {
            self.growing.touched.finish(End::Complete);
        }
    }

    /// The one that pins: touched pieces, in order, with a pause after each.
    fn pin_all(&self, stop: &Stop) {
        let growing = &*self.growing;
        let _raising = growing.pinned.raising();
        let Some(reservation) = growing.backing.reserved() else {
            return;
        };
        let mut turns = Turns::default();
        let mut usual = Duration::ZERO;
        let mut start = growing.pinned.level();
        while start < self.end {
            let range = start..self.end_of_next(start);
            let wanted = |pace: Pace, needed| pace.pin_to(needed) > range.start;
            if !wanted(growing.pace, growing.needed.level()) {
                turns.end();
                if !self.wait_needed(stop, wanted) {
                    return;
                }
            }
            if growing.touched.level() < range.end {
                // Others may pin while there is nothing to pin here.
                turns.end();
                if growing.touched.wait(range.end).is_err() {
                    return;
                }
            }
            if !turns.take(growing, stop) {
                return;
            }
            // After this it is our turn, whether or not somebody copies.
            growing.gate.wait_quiet(usual, PATIENCE);
            let end = range.end;
            let begun = Instant::now();
            match reservation.pin(range) {
                Ok(Pinned::Yes) => {
                    // The slowest of the last few, or nearly.
                    usual = begun.elapsed().max(usual / 10 * 9);
                    growing.pinned.raise(end);
                    growing.sample();
                }
                // What stands in the way of one stands in the way of the next.
                Ok(Pinned::No(why)) => return growing.set_unpinned(why),
                Err(error) => return growing.pinned.finish(End::Failed(error)),
            }
            start = end;
            thread::sleep(self.settings.pause);
        }
        growing.pinned.finish(End::Complete);
    }

    /// Waits until copies have come so far that the pace allows more. False if it is time to stop.
    fn wait_needed(&self, stop: &Stop, allowed: impl Fn(Pace, usize) -> bool) -> bool {
        let growing = &*self.growing;
        loop {
            if stop.is_set() {
                return false;
            }
            let needed = growing.needed.level();
            if allowed(growing.pace, needed) {
                return true;
            }
            growing
                .needed
                .wait_until(needed.saturating_add(1), Instant::now() + LOOK);
        }
    }

    /// A whole piece; a small one while the application copies at moments that cannot be foreseen,
    /// so that none of its copies waits for long.
    fn end_of_next(&self, start: usize) -> usize {
        let step = if self.growing.gate.is_unforeseen() {
            HostReservation::GRANULARITY
        } else {
            self.settings.piece
        };
        // No farther than the piece that was touched as one.
        let piece = self.range(start / self.settings.piece).end;
        start.saturating_add(step).min(piece)
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
