//! One GPU: its application, its plan, and what is under way for it.

use crate::hardware::Hardware;
use crate::network::{Direction, FlowId};
use crate::outcome::ClientOutcome;
use crate::workload::{Op, Workload};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use tierflow_engine::Version;
use tierflow_engine::plan::{Place, Plan, Ticket, TierId, TransferId};

/// What the application is in the middle of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Doing {
    /// Nothing: its next op begins now.
    Ready,
    Computing,
    Calling(Call),
    AtBarrier {
        since: u64,
    },
    Done,
}

/// A call that the plan has not answered, or whose copy is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) ticket: Ticket,
    pub(crate) kind: CallKind,
    pub(crate) began: u64,
    /// When the plan let the copy begin, and where.
    pub(crate) granted: Option<(u64, TierId)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallKind {
    Checkpoint { version: Version, bytes: u64 },
    Restore(Version),
    Drop(Version),
    Wait,
}

impl CallKind {
    /// The version that it is about; 0 for none.
    pub(crate) fn version(self) -> Version {
        match self {
            Self::Checkpoint { version, .. } | Self::Restore(version) | Self::Drop(version) => {
                version
            }
            Self::Wait => 0,
        }
    }
}

/// What a copy is for. One of each is under way at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Job {
    Write(Ticket),
    Read(Ticket),
    Transfer(TransferId),
}

/// A copy under way.
#[derive(Debug)]
pub(crate) struct Flight {
    pub(crate) hops: RangeInclusive<usize>,
    pub(crate) direction: Direction,
    pub(crate) bytes: u64,
    pub(crate) asked: u64,
    /// `None` while its latency lasts.
    pub(crate) flow: Option<FlowId>,
}

impl Flight {
    /// A copy between the application and a tier.
    pub(crate) fn of_caller(place: &Place, direction: Direction, asked: u64) -> Self {
        Self {
            hops: 0..=place.tier.0,
            direction,
            bytes: place.size,
            asked,
            flow: None,
        }
    }

    /// A copy between two tiers.
    pub(crate) fn between(from: &Place, to: &Place, asked: u64) -> Self {
        let (upper, lower) = (from.tier.min(to.tier), from.tier.max(to.tier));
        Self {
            hops: upper.0 + 1..=lower.0,
            direction: if from.tier < to.tier {
                Direction::Down
            } else {
                Direction::Up
            },
            bytes: from.size,
            asked,
            flow: None,
        }
    }

    pub(crate) fn latency_ns(&self, hardware: &Hardware) -> u64 {
        let hops = &hardware.hops[self.hops.clone()];
        hops.iter().map(|hop| hop.latency_ns).sum()
    }
}

#[derive(Debug)]
pub(crate) struct Client<'a> {
    pub(crate) plan: Plan,
    ops: std::slice::Iter<'a, Op>,
    /// All versions in the order of their restores, and how many of them have begun.
    restores: Vec<Version>,
    restored: usize,
    tickets: u64,
    pub(crate) doing: Doing,
    pub(crate) flights: BTreeMap<Job, Flight>,
    /// When the last transfer arrived, by its upper hop and whether it went down.
    arrived: BTreeMap<(usize, bool), u64>,
    pub(crate) outcome: ClientOutcome,
}

impl<'a> Client<'a> {
    /// A transfer arrives now. Returns for how many ns the way was its own.
    pub(crate) fn arrive(&mut self, flight: &Flight, now: u64) -> u64 {
        let way = (*flight.hops.start(), flight.direction == Direction::Down);
        let before = self.arrived.insert(way, now).unwrap_or(0);
        now - flight.asked.max(before)
    }

    pub(crate) fn new(plan: Plan, workload: &'a Workload) -> Self {
        Self {
            plan,
            ops: workload.ops.iter(),
            restores: workload.restores(),
            restored: 0,
            tickets: 0,
            doing: Doing::Ready,
            flights: BTreeMap::new(),
            arrived: BTreeMap::new(),
            outcome: ClientOutcome::default(),
        }
    }

    pub(crate) fn next_op(&mut self) -> Option<&'a Op> {
        self.ops.next()
    }

    /// Begins a call.
    pub(crate) fn call(&mut self, kind: CallKind, now: u64) -> Ticket {
        let ticket = Ticket(self.tickets);
        self.tickets += 1;
        self.doing = Doing::Calling(Call {
            ticket,
            kind,
            began: now,
            granted: None,
        });
        ticket
    }

    /// Counts the versions that come after the restore that begins, and are on the fastest tier without a break.
    pub(crate) fn measure_distance(&mut self) {
        self.restored += 1;
        let following = self.restores.iter().skip(self.restored);
        let near = following.take_while(|&&v| self.plan.fastest_copy(v) == Some(TierId(0)));
        let distance = u32::try_from(near.count()).unwrap_or(u32::MAX);
        self.outcome.prefetch_distance.push(distance);
    }

    /// The plan lets the call's copy begin.
    pub(crate) fn grant(&mut self, tier: TierId, now: u64) {
        if let Doing::Calling(call) = &mut self.doing {
            call.granted = Some((now, tier));
        }
    }

    /// The call returns to the application.
    pub(crate) fn returned(&mut self, now: u64) {
        let Doing::Calling(call) = std::mem::replace(&mut self.doing, Doing::Ready) else {
            return;
        };
        let stalls = &mut self.outcome.stalls;
        let (granted, tier) = call.granted.unwrap_or((now, TierId(0)));
        let (waited, copied) = (granted - call.began, now - granted);
        match call.kind {
            CallKind::Checkpoint { bytes, .. } => {
                stalls.room_ns += waited;
                stalls.room_waits += u64::from(waited > 0);
                stalls.checkpoint_copy_ns += copied;
                self.outcome.checkpointed += bytes;
            }
            CallKind::Restore(_) => {
                stalls.arrival_ns += waited;
                stalls.arrival_waits += u64::from(waited > 0);
                stalls.restore_copy_ns += copied;
                if tier > TierId(0) {
                    stalls.restore_from_below_ns += copied;
                }
            }
            CallKind::Wait => stalls.flush_ns += waited,
            CallKind::Drop(_) => {}
        }
    }

    pub(crate) fn leave_barrier(&mut self, now: u64) {
        if let Doing::AtBarrier { since } = self.doing {
            self.outcome.stalls.barrier_ns += now - since;
            self.doing = Doing::Ready;
        }
    }
}
