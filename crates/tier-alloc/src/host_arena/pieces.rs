//! Growth in pieces: some threads touch pieces, and one thread pins touched ones, with pauses.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tierflow_device::{HostReservation, Pinned};
use tierflow_sync::{Mutex, rank};

use super::backing::{Backing, InitialBacking, Wanted};
use super::growing::Growing;
use super::growth::Pace;
use super::strategy::Strategy;
use crate::error::Result;
use crate::watermark::{End, Watermark};
use crate::workers::{Stop, Workers};

/// Longest time that pinning waits for an interval without copies. If the application copies without pause, pinning one
/// 32 MiB piece in this time is 6 GB/s, and copies lose a fifth of their rate at most.
pub(super) const QUIET_TIMEOUT: Duration = Duration::from_millis(5);

/// Fewest bytes pinned in one interval without copies.
const MIN_PINNED: usize = 4 * HostReservation::GRANULARITY;

/// Sleep of an idle thread before it checks whether the arena is gone.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// See [`HostGrowth::Pieces`](super::HostGrowth::Pieces).
#[derive(Debug)]
pub(super) struct Pieces {
    piece: usize,
    pause: Duration,
    touchers: usize,
    /// The next piece that no touching thread has taken.
    next: AtomicUsize,
    done: Mutex<Done, { rank::PIECES }>,
}

/// Touched pieces: threads finish in any order.
#[derive(Debug, Default)]
struct Done {
    touched: Vec<bool>,
    /// Number of pieces, from the first on, that are all touched.
    prefix: usize,
}

impl Pieces {
    /// Makes the strategy. Neither the piece nor the number of touchers is 0.
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
    fn obtain(&self, wanted: &Wanted<'_>) -> Result<InitialBacking> {
        let (reservation, why_not_node) = wanted.reserve()?;
        Ok(InitialBacking {
            why_not_node,
            ..InitialBacking::usable(Backing::Reserved(reservation))
        })
    }

    fn grow(mut self: Box<Self>, growing: &Arc<Growing>, workers: &mut Workers) -> Result<()> {
        let is_pinned = !matches!(growing.pace, Pace::Doubling { .. });
        if !is_pinned {
            growing.pinned.finish(End::Stopped);
            // Only pinning becomes faster in larger pieces.
            self.piece = self.piece.min(HostReservation::GRANULARITY);
        }
        let end = growing.limit();
        let pieces = end.div_ceil(self.piece);
        // A resized arena continues behind its touched pieces.
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
        if !is_pinned {
            return Ok(());
        }
        let stop = workers.stop();
        workers.spawn("tierflow-pin", move || shared.pin_all(&stop))
    }
}

/// State that the threads share.
struct Work {
    settings: Pieces,
    growing: Arc<Growing>,
    pieces: usize,
    /// Offset at which growth ends, in bytes.
    end: usize,
}

impl Work {
    fn range(&self, piece: usize) -> Range<usize> {
        let start = piece * self.settings.piece;
        start..start.saturating_add(self.settings.piece).min(self.end)
    }

    /// The loop of a touching thread: takes the next free piece until none is left.
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
            // Relaxed: the count guards no data, and each call only has to return another number.
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
                // From now on, the other threads find no piece to take.
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

    /// The loop of the pinning thread: pins touched pieces, in order, with a pause between two.
    fn pin_all(&self, stop: &Stop) {
        let growing = &*self.growing;
        let _raising = growing.pinned.raising();
        let Some(reservation) = growing.backing.reserved() else {
            return;
        };
        let mut estimate = PinTimeEstimate::default();
        let mut start = growing.pinned.level();
        while start < self.end {
            let piece = self.range(start / self.settings.piece).end;
            let wanted = |pace: Pace, needed| pace.pin_to(needed) > start;
            if !self.wait_needed(stop, wanted) {
                return;
            }
            if growing.touched.wait(piece).is_err() || stop.is_set() {
                return;
            }
            let end = self.wait_quiet(start..piece, &estimate);
            let begun = Instant::now();
            let Some(pinned) = growing.pin(stop, reservation, start..end) else {
                return;
            };
            match pinned {
                Ok(Pinned::Yes) => {
                    estimate.note(end - start, begun.elapsed());
                    growing.pinned.raise(end);
                    growing.sample();
                }
                // A reason against pinning one piece holds for the next, too.
                Ok(Pinned::No(why)) => return growing.set_unpinned(why),
                Err(error) => return growing.pinned.finish(End::Failed(error)),
            }
            start = end;
            if start < self.end {
                stop.sleep(self.settings.pause);
            }
        }
        growing.pinned.finish(End::Complete);
    }

    /// Waits until `allowed` returns true for the pace and the end that copies have reached. Returns false if the thread has
    /// to stop.
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
                .wait_until(needed.saturating_add(1), Instant::now() + POLL_INTERVAL);
        }
    }

    /// Waits until pinning delays no copy, or for [`QUIET_TIMEOUT`]. Returns the offset up to which to pin now: the end
    /// of the piece, or the part that can be pinned before the application's next expected copy.
    ///
    /// While the application copies at unpredictable times, the part is the smallest that can be pinned, so that no copy
    /// waits for long. If copies have come beyond the start of the piece, they wait for pinned memory, and the part is not
    /// cut for that reason: the application is blocked, or soon will be, for far longer than pinning a piece takes.
    fn wait_quiet(&self, piece: Range<usize>, estimate: &PinTimeEstimate) -> usize {
        let growing = &*self.growing;
        let whole = estimate.time(piece.len());
        let least = estimate.time(MIN_PINNED.min(piece.len()));
        let quiet = growing.gate.wait_quiet(least, whole, QUIET_TIMEOUT);
        let behind = growing.needed.level() > piece.start;
        let bytes = if growing.gate.is_unforeseen() && !behind {
            HostReservation::GRANULARITY
        } else if quiet < whole {
            estimate.bytes(quiet).max(MIN_PINNED)
        } else {
            piece.len()
        };
        piece.start.saturating_add(bytes).min(piece.end)
    }
}

/// An estimate of the time that pinning takes: a decaying maximum over the last pieces.
#[derive(Debug, Default)]
struct PinTimeEstimate {
    /// Time in ns to pin a [`UNIT`](Self::UNIT), the smallest part that can be pinned at once.
    unit: f64,
}

impl PinTimeEstimate {
    const UNIT: usize = HostReservation::GRANULARITY;

    fn note(&mut self, bytes: usize, took: Duration) {
        // In short calls, the cost of the call itself would dominate.
        if bytes >= MIN_PINNED {
            let units = bytes.div_ceil(Self::UNIT) as f64;
            self.unit = (took.as_nanos() as f64 / units).max(self.unit * 0.9);
        }
    }

    fn time(&self, bytes: usize) -> Duration {
        Duration::from_nanos((bytes.div_ceil(Self::UNIT) as f64 * self.unit) as u64)
    }

    /// Returns the bytes of the whole units that can be pinned in `time`.
    fn bytes(&self, time: Duration) -> usize {
        (time.as_nanos() as f64 / self.unit.max(1.0)) as usize * Self::UNIT
    }
}

/// Ends the level if its thread panics: the piece that the thread took will not be touched, so no thread may wait for it.
struct EndOnPanic<'level>(&'level Watermark);

impl Drop for EndOnPanic<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.finish(End::Stopped);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn pinning_is_expected_to_take_as_long_as_it_did() {
        let mut estimate = PinTimeEstimate::default();
        assert_eq!(
            estimate.time(usize::MAX / 2),
            Duration::ZERO,
            "nothing is known"
        );
        estimate.note(8 * PinTimeEstimate::UNIT, Duration::from_micros(800));
        assert_eq!(
            estimate.time(3 * PinTimeEstimate::UNIT),
            Duration::from_micros(300)
        );
        assert_eq!(
            estimate.bytes(Duration::from_micros(350)),
            3 * PinTimeEstimate::UNIT
        );
        // A faster piece counts less at first, a slower one at once.
        estimate.note(8 * PinTimeEstimate::UNIT, Duration::from_micros(80));
        assert_eq!(
            estimate.time(PinTimeEstimate::UNIT),
            Duration::from_micros(90)
        );
        estimate.note(8 * PinTimeEstimate::UNIT, Duration::from_micros(1600));
        assert_eq!(
            estimate.time(PinTimeEstimate::UNIT),
            Duration::from_micros(200)
        );
        // Short calls are ignored, as each has a fixed cost.
        estimate.note(PinTimeEstimate::UNIT, Duration::from_secs(1));
        assert_eq!(
            estimate.time(PinTimeEstimate::UNIT),
            Duration::from_micros(200)
        );
    }
}
