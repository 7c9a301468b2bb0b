//! The time for which calls block the application: totals by call, and parts by cause.

use crate::clock::Clock;
use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The reason for which a call blocked the application.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Cause {
    /// A checkpoint, or a slot to produce one, waited for free memory.
    Room,
    /// A restore, or a slot to consume a version, waited for the version on its way up.
    Arrival,
    /// A call waited until versions were on the lowest tier.
    Flushes,
    /// A call waited until other ranks protected versions.
    Protection,
    /// Another thread held the plan's lock.
    Lock,
    /// The answer was ready, but the thread was not awake yet.
    WakeUp,
    /// The application's work on a stream still used the memory of a slot that was given back.
    Stream,
    /// The memory of a cache was not mapped yet.
    Growth,
    /// The call copied between memories. Touching pages for the first time is part of that.
    Copy,
    /// The call copied to or from storage, past the caches.
    Storage,
    /// The engine did its own work: checks, and the plan's decision.
    Plan,
}

impl Cause {
    /// All causes.
    pub const ALL: [Self; 11] = [
        Self::Room,
        Self::Arrival,
        Self::Flushes,
        Self::Protection,
        Self::Lock,
        Self::WakeUp,
        Self::Stream,
        Self::Growth,
        Self::Copy,
        Self::Storage,
        Self::Plan,
    ];

    /// Returns true if the thread only waited; false if it worked for the call.
    #[must_use]
    pub fn is_wait(self) -> bool {
        !matches!(self, Self::Copy | Self::Storage | Self::Plan)
    }

    /// Returns a short name, for a span in a time line and for a label in OpenMetrics text.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Room => "wait for room",
            Self::Arrival => "wait for arrival",
            Self::Flushes => "wait for flushes",
            Self::Protection => "wait for protection",
            Self::Lock => "wait for lock",
            Self::WakeUp => "wake-up",
            Self::Stream => "wait for stream",
            Self::Growth => "wait for memory",
            Self::Copy => "copy",
            Self::Storage => "copy with storage",
            Self::Plan => "plan",
        }
    }
}

/// Times of one cause. Percentiles are at most an eighth too large.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Times {
    /// Calls that the cause blocked.
    pub count: u64,
    /// Sum of the times.
    pub total: Duration,
    /// Median: half of the times are not longer.
    pub p50: Duration,
    /// 99% of the times are not longer.
    pub p99: Duration,
    /// 99.9% of the times are not longer.
    pub p999: Duration,
    /// The longest time.
    pub worst: Duration,
}

/// Totals of one kind of blocking call.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Calls {
    /// Calls that succeeded.
    pub count: u64,
    /// Calls that failed.
    pub failed: u64,
    /// Bytes that successful calls copied.
    pub bytes: u64,
    /// Time for which the calls blocked the application, failed calls included.
    pub blocked: Duration,
}

impl Calls {
    /// Returns the bytes per second that the application saw; 0 before the first call.
    #[must_use]
    pub fn throughput(&self) -> f64 {
        let seconds = self.blocked.as_secs_f64();
        if seconds > 0.0 {
            self.bytes as f64 / seconds
        } else {
            0.0
        }
    }
}

/// Buckets per power of two.
const STEPS: usize = 8;

/// Buckets of a histogram: up to 2⁴⁴ ns, almost five hours. The last bucket counts longer times, too.
const BUCKETS: usize = STEPS * 42;

/// A histogram of durations. The width of a bucket is an eighth of the power of two below it. Threads add to the histogram without
/// a lock.
#[derive(Debug)]
pub(crate) struct Histogram {
    buckets: [AtomicU64; BUCKETS],
    total_ns: AtomicU64,
    worst_ns: AtomicU64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            buckets: std::array::from_fn(|_| AtomicU64::new(0)),
            total_ns: AtomicU64::new(0),
            worst_ns: AtomicU64::new(0),
        }
    }
}

impl Histogram {
    fn add(&self, ns: u64) {
        self.buckets[bucket(ns)].fetch_add(1, Ordering::Relaxed);
        self.total_ns.fetch_add(ns, Ordering::Relaxed);
        // Usually an earlier time was longer, and nothing is written.
        if ns > self.worst_ns.load(Ordering::Relaxed) {
            self.worst_ns.fetch_max(ns, Ordering::Relaxed);
        }
    }

    pub(crate) fn read(&self) -> Times {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let counts: Vec<u64> = self.buckets.iter().map(read).collect();
        let (count, worst) = (counts.iter().sum(), read(&self.worst_ns));
        let quantile = |per_mille: u64| {
            let wanted = (u128::from(count) * u128::from(per_mille)).div_ceil(1000);
            let mut seen = 0;
            let reached = counts.iter().position(|count| {
                seen += u128::from(*count);
                seen >= wanted
            });
            Duration::from_nanos(reached.map_or(0, longest).min(worst))
        };
        Times {
            count,
            total: Duration::from_nanos(read(&self.total_ns)),
            p50: quantile(500),
            p99: quantile(990),
            p999: quantile(999),
            worst: Duration::from_nanos(worst),
        }
    }
}

/// Returns the bucket of a duration.
fn bucket(ns: u64) -> usize {
    if ns < STEPS as u64 {
        return ns as usize;
    }
    let shift = ns.ilog2() - STEPS.ilog2();
    let step = (ns >> shift) as usize - STEPS;
    ((shift as usize + 1) * STEPS + step).min(BUCKETS - 1)
}

/// Returns the longest duration of a bucket, in ns.
fn longest(bucket: usize) -> u64 {
    let (power, step) = (bucket / STEPS, bucket % STEPS);
    match power.checked_sub(1) {
        None => step as u64,
        Some(shift) => (((STEPS + step + 1) as u64) << shift) - 1,
    }
}

/// A kind of blocking call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallKind {
    Checkpoint,
    Restore,
    Produce,
    Consume,
    Wait,
}

#[derive(Debug, Default)]
struct CallCounter {
    count: AtomicU64,
    failed: AtomicU64,
    bytes: AtomicU64,
    blocked_ns: AtomicU64,
}

/// The blocked time of all calls since the engine was built.
#[derive(Debug, Default)]
pub(crate) struct BlockedTime {
    clock: Clock,
    calls: [CallCounter; 5],
    causes: [Histogram; Cause::ALL.len()],
}

impl BlockedTime {
    pub(crate) fn new(clock: Clock) -> Self {
        Self {
            clock,
            ..Self::default()
        }
    }

    /// Starts the clock of a blocking call.
    pub(crate) fn begin(&self, kind: CallKind) -> CallClock<'_> {
        CallClock {
            of: self,
            kind,
            since_ns: self.clock.now_ns(),
            named: 0,
            outcome: CallOutcome::Failed,
            outer: take_spent().map(Box::new),
        }
    }

    pub(crate) fn calls(&self, kind: CallKind) -> Calls {
        let counter = &self.calls[kind as usize];
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Calls {
            count: read(&counter.count),
            failed: read(&counter.failed),
            bytes: read(&counter.bytes),
            blocked: Duration::from_nanos(read(&counter.blocked_ns)),
        }
    }

    pub(crate) fn times(&self) -> [Times; Cause::ALL.len()] {
        self.causes.each_ref().map(Histogram::read)
    }
}

/// The time of the thread's present call, by cause.
#[derive(Debug, Clone, Copy)]
struct Spent {
    ns: [u64; Cause::ALL.len()],
    /// The sum of `ns`.
    total_ns: u64,
    /// Bits of the causes that have time.
    causes: u16,
}

impl Spent {
    const NONE: Self = Self {
        ns: [0; Cause::ALL.len()],
        total_ns: 0,
        causes: 0,
    };

    /// Returns the causes that have time, by their index in [`Cause::ALL`], with their nanoseconds.
    fn named(&self) -> impl Iterator<Item = (usize, u64)> {
        let mut left = self.causes;
        std::iter::from_fn(move || {
            let cause = left.trailing_zeros() as usize;
            left &= left.checked_sub(1)?;
            Some((cause, self.ns[cause]))
        })
    }
}

thread_local! {
    /// The time of this thread's present call, by cause. A wait deep within the call adds its time here. Workers add their waits,
    /// too, but nobody reads those.
    static SPENT: RefCell<Spent> = const { RefCell::new(Spent::NONE) };
}

/// Adds `ns` of the thread's present call to `cause`.
pub(crate) fn spend(cause: Cause, ns: u64) {
    if ns == 0 {
        return;
    }
    SPENT.with_borrow_mut(|spent| {
        spent.ns[cause as usize] += ns;
        spent.total_ns += ns;
        spent.causes |= 1 << cause as usize;
    });
}

/// Takes what the thread has spent, and returns it if there was anything.
fn take_spent() -> Option<Spent> {
    let is_any = SPENT.with_borrow(|spent| spent.causes != 0);
    is_any.then(|| SPENT.replace(Spent::NONE))
}

/// Runs `wait`, and adds its time to `cause`.
pub(crate) fn spend_on<T>(cause: Cause, wait: impl FnOnce() -> T) -> T {
    let clock = Clock::default();
    let begun_ns = clock.now_ns();
    let waited = wait();
    spend(cause, clock.now_ns().saturating_sub(begun_ns));
    waited
}

pub(crate) fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[derive(Debug, Clone, Copy)]
enum CallOutcome {
    Failed,
    /// Another call completes this one: the loan of a slot, and its return.
    Lent,
    /// The call copied this many bytes.
    Done(u64),
}

/// The clock of a blocking call. Dropping it counts the call: as failed, unless [`done`](Self::done) or [`lent`](Self::lent) was
/// called.
#[derive(Debug)]
pub(crate) struct CallClock<'a> {
    of: &'a BlockedTime,
    kind: CallKind,
    /// Start of the part that has no cause yet, in ns.
    since_ns: u64,
    /// Time that has a cause, in ns. At the end, all of the call's time.
    named: u64,
    outcome: CallOutcome,
    /// The time of the call within which this call is made, by an interrupt for example.
    outer: Option<Box<Spent>>,
}

impl CallClock<'_> {
    /// Adds the time since the last part to `cause`, except for waits that were added to other causes. Returns the whole time since
    /// the last part, in ns.
    pub(crate) fn part(&mut self, cause: Cause) -> u64 {
        let now_ns = self.of.clock.now_ns();
        let spent = SPENT.with_borrow(|spent| spent.total_ns);
        let part = now_ns.saturating_sub(self.since_ns);
        let rest = part.saturating_sub(spent - self.named.min(spent));
        spend(cause, rest);
        (self.since_ns, self.named) = (now_ns, spent + rest);
        part
    }

    /// Returns the last reading of the clock, in ns: the start of the part that has no cause yet.
    pub(crate) fn last_ns(&self) -> u64 {
        self.since_ns
    }

    /// Counts the call as successful, with the bytes that it copied.
    pub(crate) fn done(mut self, bytes: u64) {
        self.outcome = CallOutcome::Done(bytes);
    }

    /// Ends the loan of a slot without counting a call: the slot's return counts the call.
    pub(crate) fn lent(mut self) {
        self.outcome = CallOutcome::Lent;
    }
}

impl Drop for CallClock<'_> {
    fn drop(&mut self) {
        self.part(Cause::Plan);
        let add = |count: &AtomicU64, more| count.fetch_add(more, Ordering::Relaxed);
        let counter = &self.of.calls[self.kind as usize];
        add(&counter.blocked_ns, self.named);
        match self.outcome {
            CallOutcome::Failed => drop(add(&counter.failed, 1)),
            CallOutcome::Lent => {}
            CallOutcome::Done(bytes) => {
                add(&counter.count, 1);
                add(&counter.bytes, bytes);
            }
        }
        if let Some(spent) = take_spent() {
            for (cause, ns) in spent.named() {
                self.of.causes[cause].add(ns);
            }
        }
        if let Some(outer) = self.outer.take() {
            SPENT.set(*outer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn percentiles_are_those_of_the_sorted_times(times in prop::collection::vec(0..1_u64 << 43, 1..200)) {
            let histogram = Histogram::default();
            times.iter().for_each(|&ns| histogram.add(ns));
            let mut sorted = times.clone();
            sorted.sort_unstable();
            let read = histogram.read();
            prop_assert_eq!(read.count, times.len() as u64);
            prop_assert_eq!(read.total, Duration::from_nanos(times.iter().sum()));
            prop_assert_eq!(Some(read.worst), sorted.last().map(|&ns| Duration::from_nanos(ns)));
            for (found, per_mille) in [(read.p50, 500), (read.p99, 990), (read.p999, 999)] {
                let exact = sorted[(sorted.len() * per_mille).div_ceil(1000) - 1];
                let found = nanoseconds(found);
                prop_assert!(exact <= found && found <= exact + exact / 8, "{} for {}", found, exact);
            }
        }

        #[test]
        fn each_duration_is_at_most_the_longest_of_its_bucket(ns: u64) {
            let at = bucket(ns);
            prop_assert!(ns <= longest(at) || at == BUCKETS - 1);
            prop_assert!(at == 0 || longest(at - 1) < ns);
        }
    }

    #[test]
    fn a_call_within_a_call_keeps_its_time_apart() {
        let (outer, inner) = (BlockedTime::default(), BlockedTime::default());
        let mut clock = outer.begin(CallKind::Wait);
        spend(Cause::Flushes, 1000);
        let mut within = inner.begin(CallKind::Restore);
        spend(Cause::Arrival, 10);
        within.part(Cause::Copy);
        within.done(7);
        clock.part(Cause::Plan);
        clock.done(0);
        let times = |of: &BlockedTime, cause: Cause| of.times()[cause as usize];
        assert_eq!(
            times(&outer, Cause::Flushes).total,
            Duration::from_micros(1)
        );
        assert_eq!(times(&outer, Cause::Arrival).count, 0);
        assert_eq!(
            times(&inner, Cause::Arrival).total,
            Duration::from_nanos(10)
        );
        assert_eq!(times(&inner, Cause::Flushes).count, 0);
        assert_eq!(inner.calls(CallKind::Restore).bytes, 7);
        assert_eq!(
            (
                outer.calls(CallKind::Wait).count,
                outer.calls(CallKind::Wait).failed
            ),
            (1, 0)
        );
    }
}
