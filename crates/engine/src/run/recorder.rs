//! A time line of all transfers and calls, if the application asked for one.

use crate::clock::Clock;
use crate::plan::Eviction;
use hashbrown::HashMap;
use std::thread::{Thread, ThreadId};
use tierflow_plan::timeline::{Timeline, TimelineLane, What};
use tierflow_sync::model::Mutex;

/// The engine's clock, and the time line.
#[derive(Debug)]
pub(crate) struct Recorder {
    /// The clock of the plan and of the time line.
    pub(crate) clock: Clock,
    kept: Option<Mutex<Rows>>,
}

#[derive(Debug)]
struct Rows {
    timeline: Timeline,
    callers: HashMap<ThreadId, TimelineLane>,
}

impl Recorder {
    /// With a time line of `limit` entries; with none for 0.
    pub(crate) fn new(limit: usize) -> Self {
        let rows = || {
            Mutex::new(Rows {
                timeline: Timeline::new(limit),
                callers: HashMap::new(),
            })
        };
        Self {
            clock: Clock::start(),
            kept: (limit > 0).then(rows),
        }
    }

    pub(crate) fn is_recording(&self) -> bool {
        self.kept.is_some()
    }

    /// A caller was busy from `begin_ns` to `end_ns`.
    pub(crate) fn called(&self, what: What, begin_ns: u64, end_ns: u64) {
        if let Some(kept) = &self.kept {
            let mut kept = kept.lock();
            let lane = kept.caller(&std::thread::current());
            kept.timeline.span(lane, what, begin_ns, end_ns);
        }
    }

    /// The lane of a worker, by what it carries from where to where.
    pub(super) fn worker_lane(&self, name: &str) -> Option<TimelineLane> {
        let kept = self.kept.as_ref()?;
        Some(kept.lock().timeline.lane(name))
    }

    /// A worker was busy from `begin_ns` until now.
    pub(super) fn worked(&self, lane: Option<TimelineLane>, what: What, begin_ns: u64) {
        if let (Some(kept), Some(lane)) = (&self.kept, lane) {
            let mut kept = kept.lock();
            let end_ns = self.clock.now_ns();
            kept.timeline.span(lane, what, begin_ns, end_ns);
        }
    }

    /// Copies were given up just now.
    pub(super) fn evicted(
        &self,
        evictions: &[Eviction],
        tier_name: impl Fn(usize) -> &'static str,
    ) {
        let Some(kept) = &self.kept else {
            return;
        };
        let at = self.clock.now_ns();
        let mut kept = kept.lock();
        for eviction in evictions {
            let lane = format!("evictions from {}", tier_name(eviction.tier.0));
            let lane = kept.timeline.lane(&lane);
            let what = What {
                name: eviction.cause.name(),
                version: Some(eviction.version),
                bytes: eviction.bytes,
                flow: None,
            };
            kept.timeline.moment(lane, what, at);
        }
    }

    /// A copy of the time line so far.
    pub(crate) fn timeline(&self) -> Option<Timeline> {
        Some(self.kept.as_ref()?.lock().timeline.clone())
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
