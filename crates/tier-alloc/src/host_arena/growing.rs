//! The state that an arena and its threads share.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use tierflow_device::{Error, HostReservation, Pinned, WhyUnpinned};
use tierflow_sync::{Mutex, rank};

use super::backing::{Backing, InitialBacking};
#[cfg(feature = "baselines")]
use super::baselines::Concurrency;
use super::growth::{HostGrowth, HostOptions, Pace};
use super::report::{HostReport, NodeObtained, Sample};
use super::turns::PinTurns;
use crate::gate::Gate;
use crate::watermark::{End, Watermark};
use crate::workers::Stop;

#[derive(Debug)]
pub(super) struct Growing {
    pub(super) backing: Backing,
    pub(super) usable: Watermark,
    pub(super) touched: Watermark,
    pub(super) pinned: Watermark,
    /// Bytes, from the first one on, to which the arena grows.
    pub(super) limit: AtomicUsize,
    /// The largest end of copies and loans so far. The level never ends.
    pub(super) needed: Watermark,
    pub(super) pace: Pace,
    pin_turns: Option<PinTurns>,
    pub(super) gate: Gate,
    #[cfg(feature = "baselines")]
    pub(super) concurrency: Concurrency,
    node: Option<u32>,
    start: Instant,
    log: Mutex<Log, { rank::ARENA_LEAF }>,
}

#[derive(Debug, Default)]
struct Log {
    timeline: Vec<Sample>,
    why_unpinned: Option<WhyUnpinned>,
    why_not_node: Option<Error>,
}

impl Growing {
    /// Notes that the bytes up to `end` are wanted. An end beyond the capacity changes nothing, as no such bytes can be lent.
    pub(super) fn need(&self, end: usize) {
        if self.needed.level() < end && end <= self.capacity() {
            self.needed.raise(end);
        }
    }

    pub(super) fn new(
        initial: InitialBacking,
        node: Option<u32>,
        options: &HostOptions,
        start: Instant,
    ) -> Self {
        Self {
            limit: AtomicUsize::new(initial.backing.memory().len()),
            backing: initial.backing,
            usable: initial.usable,
            touched: initial.touched,
            pinned: initial.pinned,
            needed: Watermark::default(),
            pace: options.pace,
            pin_turns: options.pin_turns.clone(),
            gate: Gate::default(),
            #[cfg(feature = "baselines")]
            concurrency: Concurrency::default(),
            node,
            start,
            log: Mutex::new(Log {
                why_unpinned: initial.why_unpinned,
                why_not_node: initial.why_not_node,
                ..Log::default()
            }),
        }
    }

    /// Pins bytes, in this process's turn if processes pin in turn. Returns `None` if the thread is to end before the turn
    /// comes.
    pub(super) fn pin(
        &self,
        stop: &Stop,
        reservation: &HostReservation,
        range: Range<usize>,
    ) -> Option<tierflow_device::Result<Pinned>> {
        let pin = || reservation.pin(range);
        match &self.pin_turns {
            Some(turns) => turns.take_unless(stop, pin),
            None => Some(pin()),
        }
    }

    pub(super) fn capacity(&self) -> usize {
        self.backing.memory().len()
    }

    /// Limits the growth to `bytes` at first, rounded up to the granularity. `None` sets no limit.
    pub(super) fn begin_with(&self, bytes: Option<usize>) {
        if let Some(bytes) = bytes {
            let granularity = HostReservation::GRANULARITY;
            let bytes = bytes.min(self.capacity()).next_multiple_of(granularity);
            self.limit
                .store(bytes.min(self.capacity()), Ordering::Relaxed);
        }
    }

    /// Returns the bytes, from the first one on, to which the arena grows: all, or those that the last resize left.
    pub(super) fn limit(&self) -> usize {
        self.limit.load(Ordering::Relaxed)
    }

    pub(super) fn levels(&self) -> [&Watermark; 3] {
        [&self.usable, &self.touched, &self.pinned]
    }

    /// Adds the present levels to the time line.
    pub(super) fn sample(&self) {
        let mut log = self.log.lock();
        log.timeline.push(Sample {
            at: self.start.elapsed(),
            touched: self.touched.level(),
            pinned: self.pinned.level(),
        });
    }

    pub(super) fn set_unpinned(&self, why: WhyUnpinned) {
        self.log.lock().why_unpinned = Some(why);
    }

    pub(super) fn report(&self, growth: HostGrowth, asked: usize) -> HostReport {
        let ends = self.levels().map(Watermark::end);
        let failed = ends.iter().find_map(|end| match end {
            Some(End::Failed(error)) => Some(error.clone()),
            _ => None,
        });
        let reserved = self.backing.reserved();
        let touched = self.touched.level();
        let node = reserved
            .filter(|_| touched > 0)
            .and_then(|reservation| reservation.node_of(0).ok());
        let huge_pages = reserved.and_then(|reservation| reservation.huge_page_bytes().ok());
        #[cfg(feature = "baselines")]
        let touching = self.concurrency.touching();
        let log = self.log.lock();
        HostReport {
            strategy: growth.name(),
            asked,
            capacity: self.capacity(),
            usable: self.usable.level(),
            touched,
            pinned: self.pinned.level(),
            huge_pages,
            node: NodeObtained {
                asked: self.node,
                obtained: node,
                why_not: log.why_not_node.clone(),
            },
            #[cfg(feature = "baselines")]
            touching,
            why_unpinned: log.why_unpinned.clone(),
            failed,
            finished: ends.iter().all(Option::is_some),
            timeline: log.timeline.clone(),
        }
    }
}
