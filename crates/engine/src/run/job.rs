//! One transfer, carried by several workers at a time, a part each.
//!
//! Workers that share a queue go at its first transfer together and at the next when nothing of the first is left to
//! take: what was asked for first, and is needed first, has all the bandwidth there is.

use super::lane::Failed;
use super::sync::{AtomicBool, Mutex, Ordering};
use crate::Version;
use crate::plan::{Coding, Place, Stored, TransferFailure, TransferId};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bytes of a part: what storage likes to be asked for at once. Of little ones under shuttle, for many workers to meet at.
const PART: u64 = if cfg!(shuttle) { 4096 } else { 16 << 20 };

/// A way between two tiers, in one direction.
#[derive(Debug, Default)]
pub(crate) struct Way {
    /// When the last transfer arrived.
    arrived: Mutex<Option<Instant>>,
}

impl Way {
    /// A transfer that was begun then arrives now. Returns for how long the way was its own.
    fn arrive(&self, begun: Instant) -> Duration {
        let now = Instant::now();
        let before = self.arrived.lock().replace(now);
        now.saturating_duration_since(before.map_or(begun, |before| before.max(begun)))
    }
}

/// One transfer.
#[derive(Debug)]
pub(crate) struct Job {
    pub(super) id: TransferId,
    pub(super) version: Version,
    pub(super) from: Place,
    pub(super) to: Place,
    pub(super) coding: Coding,
    pub(super) cancelled: Arc<AtomicBool>,
    way: Arc<Way>,
    /// Bytes of a part.
    part: u64,
    progress: Mutex<Progress>,
}

#[derive(Debug, Default)]
struct Progress {
    begun: Option<Instant>,
    /// Where the next part begins.
    next: u64,
    /// Parts being carried.
    running: usize,
    failed: Option<Failed>,
    /// The difference that was made.
    stored: Option<Stored>,
    is_reported: bool,
}

/// What a worker is to do next.
pub(super) enum Step {
    /// Carry these bytes of the copy.
    Carry(Range<u64>),
    /// Report how the transfer ended: it was the last one at it.
    Report(Result<(Duration, Option<Stored>), Failed>),
    /// Leave it to the others, who carry the last parts.
    Leave,
}

impl Job {
    /// A transfer in parts, or as a whole.
    pub(super) fn new(
        (id, version): (TransferId, Version),
        (from, to): (Place, Place),
        coding: Coding,
        way: Arc<Way>,
        in_parts: bool,
    ) -> Self {
        Self {
            id,
            version,
            from,
            to,
            coding,
            cancelled: Arc::default(),
            way,
            part: if in_parts { PART } else { from.size },
            progress: Mutex::default(),
        }
    }

    /// How many workers have something to do for it.
    pub(super) fn parts(&self) -> usize {
        let parts = self.from.size.div_ceil(self.part);
        usize::try_from(parts).unwrap_or(usize::MAX)
    }

    pub(super) fn step(&self) -> Step {
        let mut progress = self.progress.lock();
        let begun = *progress.begun.get_or_insert_with(Instant::now);
        let is_left = progress.next < self.from.size;
        if is_left && progress.failed.is_none() && self.cancelled.load(Ordering::Relaxed) {
            progress.failed = Some((TransferFailure::Cancelled, None));
        }
        if is_left && progress.failed.is_none() {
            let start = progress.next;
            progress.next = start.saturating_add(self.part).min(self.from.size);
            progress.running += 1;
            return Step::Carry(start..progress.next);
        }
        if progress.running > 0 || progress.is_reported {
            return Step::Leave;
        }
        progress.is_reported = true;
        Step::Report(match progress.failed.take() {
            Some(failed) => Err(failed),
            None => Ok((self.way.arrive(begun), progress.stored)),
        })
    }

    /// The difference was made.
    pub(super) fn encoded(&self, stored: Stored) {
        self.progress.lock().stored = Some(stored);
    }

    /// A part that was to be carried ended.
    pub(super) fn carried(&self, how: Result<(), Failed>) {
        let mut progress = self.progress.lock();
        progress.running -= 1;
        if let Err(failed) = how {
            progress.failed.get_or_insert(failed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::TierId;

    fn job(size: u64, in_parts: bool) -> Job {
        let place = |tier| Place {
            tier: TierId(tier),
            offset: 0,
            size,
            reserved: size,
        };
        Job::new(
            (TransferId(1), 1),
            (place(0), place(1)),
            Coding::Plain,
            Arc::default(),
            in_parts,
        )
    }

    #[test]
    fn parts_cover_the_copy_and_the_last_one_reports() {
        let job = job(2 * PART + 5, true);
        assert_eq!(job.parts(), 3);
        let mut taken = Vec::new();
        while let Step::Carry(part) = job.step() {
            taken.push(part);
        }
        assert_eq!(
            taken,
            [0..PART, PART..2 * PART, 2 * PART..2 * PART + 5],
            "and then there is nothing left to take"
        );
        job.carried(Ok(()));
        job.carried(Ok(()));
        assert!(matches!(job.step(), Step::Leave), "one is under way");
        job.carried(Ok(()));
        assert!(matches!(job.step(), Step::Report(Ok(_))));
        assert!(matches!(job.step(), Step::Leave), "it is reported once");
    }

    #[test]
    fn nothing_more_is_begun_after_a_failure_or_when_cancelled() {
        let broken = job(10 * PART, true);
        assert!(matches!(broken.step(), Step::Carry(_)));
        assert!(matches!(broken.step(), Step::Carry(_)));
        broken.carried(Err((TransferFailure::Source, None)));
        assert!(matches!(broken.step(), Step::Leave));
        broken.carried(Err((TransferFailure::Destination, None)));
        let first = TransferFailure::Source;
        assert!(matches!(broken.step(), Step::Report(Err((why, _))) if why == first));
        let cancelled = job(10 * PART, true);
        assert!(matches!(cancelled.step(), Step::Carry(_)));
        cancelled.cancelled.store(true, Ordering::Relaxed);
        assert!(matches!(cancelled.step(), Step::Leave));
        cancelled.carried(Ok(()));
        let why = TransferFailure::Cancelled;
        assert!(matches!(cancelled.step(), Step::Report(Err((seen, _))) if seen == why));
        // Once all is carried, it is too late.
        let whole = job(10 * PART, false);
        assert_eq!(whole.parts(), 1);
        assert!(matches!(whole.step(), Step::Carry(part) if part == (0..10 * PART)));
        whole.cancelled.store(true, Ordering::Relaxed);
        whole.carried(Ok(()));
        assert!(matches!(whole.step(), Step::Report(Ok(_))));
    }
}
