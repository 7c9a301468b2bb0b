//! Reports for the application: where callers wait, and, if it asked for one, a time line of all transfers and calls.

use crate::Version;
use crate::metrics::CallCounter;
use crate::plan::{Event, Eviction};
use hashbrown::HashMap;
use std::thread::{Thread, ThreadId};
use std::time::{Duration, Instant};
use tierflow_plan::timeline::{Timeline, TimelineLane, What};
use tierflow_sync::model::Mutex;

/// Why a call sleeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WaitReason {
    /// A checkpoint, until there is room.
    Room,
    /// A restore, until a copy under way has come up.
    Arrival,
    /// A wait, until everything lies on the lowest tier.
    Flushes,
}

/// A call that may sleep.
#[derive(Debug, Clone, Copy)]
pub(super) struct WaitInfo {
    pub(super) reason: WaitReason,
    /// `None` for all versions.
    version: Option<Version>,
    /// Bytes of the version; 0 if the caller does not know them.
    bytes: u64,
}

impl WaitReason {
    /// Returns the wait of the call behind this event; `None` for a call that never sleeps.
    pub(super) fn of(event: &Event) -> Option<WaitInfo> {
        let (reason, version, bytes) = match *event {
            Event::Checkpoint { version, size, .. } | Event::Produce { version, size, .. } => {
                (Self::Room, Some(version), size)
            }
            Event::Restore { version, .. } | Event::Consume { version, .. } => {
                (Self::Arrival, Some(version), 0)
            }
            Event::Wait { version, .. } => (Self::Flushes, version, 0),
            _ => return None,
        };
        Some(WaitInfo {
            reason,
            version,
            bytes,
        })
    }

    fn name(self) -> &'static str {
        match self {
            Self::Room => "wait for room",
            Self::Arrival => "wait for arrival",
            Self::Flushes => "wait for flushes",
        }
    }
}

/// Counts stalls, and keeps the time line.
#[derive(Debug, Default)]
pub(crate) struct Recorder {
    pub(crate) room: CallCounter,
    pub(crate) arrival: CallCounter,
    pub(crate) flushes: CallCounter,
    timeline: Option<Recording>,
}

/// A time line, and when it began.
#[derive(Debug)]
struct Recording {
    origin: Instant,
    kept: Mutex<Rows>,
}

#[derive(Debug)]
struct Rows {
    timeline: Timeline,
    callers: HashMap<ThreadId, TimelineLane>,
}

impl Recorder {
    /// With a time line of `limit` entries; with none for 0.
    pub(crate) fn new(limit: usize) -> Self {
        let timeline = (limit > 0).then(|| Recording {
            origin: Instant::now(),
            kept: Mutex::new(Rows {
                timeline: Timeline::new(limit),
                callers: HashMap::new(),
            }),
        });
        Self {
            timeline,
            ..Self::default()
        }
    }

    pub(crate) fn is_recording(&self) -> bool {
        self.timeline.is_some()
    }

    /// A call slept from `begun` until now.
    pub(super) fn slept(&self, why: Option<WaitInfo>, begun: Instant) {
        let Some(wait) = why else {
            return;
        };
        let counter = match wait.reason {
            WaitReason::Room => &self.room,
            WaitReason::Arrival => &self.arrival,
            WaitReason::Flushes => &self.flushes,
        };
        counter.add(wait.bytes, begun.elapsed());
        self.called(wait.reason.name(), wait.version, wait.bytes, begun);
    }

    /// A caller was busy from `begun` until now.
    pub(crate) fn called(
        &self,
        name: &'static str,
        version: Option<Version>,
        bytes: u64,
        begun: Instant,
    ) {
        let Some(recording) = &self.timeline else {
            return;
        };
        let mut kept = recording.kept.lock();
        let lane = kept.caller(&std::thread::current());
        let what = What {
            name,
            version,
            bytes,
        };
        recording.span(&mut kept, lane, what, begun);
    }

    /// The lane of a worker, by what it carries from where to where.
    pub(super) fn worker_lane(&self, name: &str) -> Option<TimelineLane> {
        let recording = self.timeline.as_ref()?;
        Some(recording.kept.lock().timeline.lane(name))
    }

    /// A worker was busy from `begun` until now.
    pub(super) fn worked(&self, lane: Option<TimelineLane>, what: What, begun: Instant) {
        if let (Some(recording), Some(lane)) = (&self.timeline, lane) {
            recording.span(&mut recording.kept.lock(), lane, what, begun);
        }
    }

    /// Copies were given up just now.
    pub(super) fn evicted(
        &self,
        evictions: &[Eviction],
        tier_name: impl Fn(usize) -> &'static str,
    ) {
        let Some(recording) = &self.timeline else {
            return;
        };
        let at = recording.since(Instant::now());
        let mut kept = recording.kept.lock();
        for eviction in evictions {
            let lane = format!("evictions from {}", tier_name(eviction.tier.0));
            let lane = kept.timeline.lane(&lane);
            let what = What {
                name: eviction.cause.name(),
                version: Some(eviction.version),
                bytes: eviction.bytes,
            };
            kept.timeline.moment(lane, what, at);
        }
    }

    /// A copy of the time line so far.
    pub(crate) fn timeline(&self) -> Option<Timeline> {
        let recording = self.timeline.as_ref()?;
        Some(recording.kept.lock().timeline.clone())
    }
}

impl Recording {
    fn since(&self, moment: Instant) -> u64 {
        let since: Duration = moment.saturating_duration_since(self.origin);
        u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
    }

    fn span(&self, kept: &mut Rows, lane: TimelineLane, what: What, begun: Instant) {
        let (begin, end) = (self.since(begun), self.since(Instant::now()));
        kept.timeline.span(lane, what, begin, end);
    }
}

impl Rows {
    /// Each thread that calls has a lane of its own.
    fn caller(&mut self, thread: &Thread) -> TimelineLane {
        if let Some(&lane) = self.callers.get(&thread.id()) {
            return lane;
        }
        let number = self.callers.len() + 1;
        let name = thread.name().unwrap_or("thread");
        let lane = self.timeline.lane(&format!("caller {number}: {name}"));
        self.callers.insert(thread.id(), lane);
        lane
    }
}
