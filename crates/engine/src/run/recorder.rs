//! A time line of all transfers and calls, if the application asked for one.

use crate::clock::Clock;
use crate::plan::Eviction;
use hashbrown::HashMap;
use std::sync::{Arc, Weak};
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

thread_local! {
    /// The only strong reference, which ends with the thread.
    static ALIVE: Arc<()> = Arc::default();
}

/// The most threads that have lanes of their names. Further threads have lanes in common.
const MOST_NAMED: usize = 64;

#[derive(Debug)]
struct Rows {
    timeline: Timeline,
    callers: HashMap<ThreadId, CallingThread>,
}

/// A thread that called, and its lane.
#[derive(Debug)]
struct CallingThread {
    lane: TimelineLane,
    name: String,
    alive: Weak<()>,
    /// Time at which the thread's last call ended, in ns.
    until_ns: u64,
}

impl Recorder {
    /// Starts the clock, and a time line of `limit` entries; none if `limit` is 0.
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

    /// Records that a caller was busy from `begin_ns` to `end_ns`.
    pub(crate) fn called(&self, what: What, begin_ns: u64, end_ns: u64) {
        if let Some(kept) = &self.kept {
            let mut kept = kept.lock();
            let lane = kept.caller(&std::thread::current(), begin_ns, end_ns);
            kept.timeline.span(lane, what, begin_ns, end_ns);
        }
    }

    /// Returns the lane of a worker. `name` tells what it carries from where to where.
    pub(super) fn worker_lane(&self, name: &str) -> Option<TimelineLane> {
        let kept = self.kept.as_ref()?;
        Some(kept.lock().timeline.lane(name))
    }

    /// Records that a worker was busy from `begin_ns` until now.
    pub(super) fn worked(&self, lane: Option<TimelineLane>, what: What, begin_ns: u64) {
        if let (Some(kept), Some(lane)) = (&self.kept, lane) {
            let mut kept = kept.lock();
            let end_ns = self.clock.now_ns();
            kept.timeline.span(lane, what, begin_ns, end_ns);
        }
    }

    /// Records that copies were given up just now.
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

    /// Returns a copy of the time line so far.
    pub(crate) fn timeline(&self) -> Option<Timeline> {
        Some(self.kept.as_ref()?.lock().timeline.clone())
    }
}

impl Rows {
    /// Returns the lane of a calling thread: one that it has alone, or that of a thread of its name that ended before this call.
    /// Many threads with names of their own share lanes.
    fn caller(&mut self, thread: &Thread, begin_ns: u64, end_ns: u64) -> TimelineLane {
        let Self { timeline, callers } = self;
        if let Some(caller) = callers.get_mut(&thread.id()) {
            caller.until_ns = end_ns;
            return caller.lane;
        }
        let own_name = thread.name().unwrap_or("thread");
        let number = callers.len() + 1;
        let name = match number <= MOST_NAMED {
            true => own_name,
            false => "other threads",
        };
        let mut ended_of = |name: &str| {
            let has_ended = |_: &ThreadId, other: &mut CallingThread| {
                other.name == name && other.until_ns <= begin_ns && other.alive.strong_count() == 0
            };
            callers.extract_if(has_ended).next()
        };
        let ended = ended_of(own_name).or_else(|| ended_of(name));
        let (lane, name) = match ended {
            Some((_, ended)) => (ended.lane, ended.name),
            None => {
                let lane = timeline.lane(&format!("caller {number}: {name}"));
                (lane, name.to_owned())
            }
        };
        let caller = CallingThread {
            lane,
            name,
            alive: ALIVE.try_with(Arc::downgrade).unwrap_or_default(),
            until_ns: end_ns,
        };
        callers.insert(thread.id(), caller);
        lane
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    const WHAT: What = What {
        name: "checkpoint",
        version: None,
        bytes: 0,
        flow: None,
    };

    /// Returns the number of lanes of callers.
    fn lanes(recorder: &Recorder) -> usize {
        let mut text = Vec::new();
        recorder.timeline().unwrap().write(&mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        text.matches("\"caller ").count()
    }

    #[test]
    fn threads_that_end_do_not_add_lanes_without_end() {
        let recorder = Recorder::new(10);
        for at in 0..200 {
            let call = || recorder.called(WHAT, 10 * at, 10 * at + 5);
            let thread = std::thread::Builder::new().name(format!("request {at}"));
            std::thread::scope(|scope| thread.spawn_scoped(scope, call).unwrap().join()).unwrap();
        }
        assert_eq!(lanes(&recorder), MOST_NAMED + 1);
    }

    #[test]
    fn a_thread_takes_the_lane_of_one_that_ended_before_its_calls() {
        let recorder = Recorder::new(100);
        let lanes = |calls: &[(u64, u64)]| {
            for &(begin_ns, end_ns) in calls {
                let call = || recorder.called(WHAT, begin_ns, end_ns);
                std::thread::scope(|scope| scope.spawn(call).join()).unwrap();
            }
            lanes(&recorder)
        };
        assert_eq!(lanes(&[(0, 10), (10, 20), (25, 30)]), 1);
        // The first lane was still in use when this call began.
        assert_eq!(lanes(&[(29, 40)]), 2);
        assert_eq!(lanes(&[(30, 50), (45, 60)]), 2);
        // A thread that is there keeps its lane.
        recorder.called(WHAT, 60, 70);
        assert_eq!(lanes(&[(70, 80), (80, 90)]), 3);
        recorder.called(WHAT, 90, 91);
        assert_eq!(lanes(&[]), 3);
    }
}
