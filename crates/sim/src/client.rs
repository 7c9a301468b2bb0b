//! A GPU: its application, and its copies under way.

use crate::hardware::Hardware;
use crate::network::{Direction, FlowId};
use crate::outcome::ClientOutcome;
use crate::workload::{Op, Workload};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use tierflow_plan::{Piece, Plan, Ticket, TierId, Transfer, TransferId, Version};

/// The state of an application.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AppState {
    /// The next op begins now.
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
    /// Time at which the plan let the copies begin, in ns, and the slowest tier that they use.
    pub(crate) granted: Option<(u64, TierId)>,
    /// Copies that have not arrived.
    pub(crate) copies: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallKind {
    Checkpoint { version: Version, bytes: u64 },
    Restore(Version),
    Drop(Version),
    Wait,
}

impl CallKind {
    /// Returns the version that the call is about; 0 for none.
    pub(crate) fn version(self) -> Version {
        match self {
            Self::Checkpoint { version, .. } | Self::Restore(version) | Self::Drop(version) => {
                version
            }
            Self::Wait => 0,
        }
    }
}

/// The name of a copy of a GPU while it is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum CopyId {
    /// The part of a call's bytes that lies on one tier.
    Call(Ticket, TierId),
    Transfer(TransferId),
}

/// A copy under way.
#[derive(Debug)]
pub(crate) struct Flight {
    pub(crate) hops: RangeInclusive<usize>,
    pub(crate) direction: Direction,
    pub(crate) bytes: u64,
    pub(crate) asked: u64,
    /// The flow of its bytes; `None` while its latency lasts.
    pub(crate) flow: Option<FlowId>,
}

impl Flight {
    /// Makes the copies between the application and these pieces: one for each tier.
    pub(crate) fn of_caller(
        pieces: &[Piece],
        direction: Direction,
        asked: u64,
    ) -> BTreeMap<TierId, Self> {
        let mut flights = BTreeMap::new();
        for Piece { place, .. } in pieces {
            let flight = flights.entry(place.tier).or_insert_with(|| Self {
                hops: 0..=place.tier.0,
                direction,
                bytes: 0,
                asked,
                flow: None,
            });
            flight.bytes += place.size;
        }
        flights
    }

    /// Makes a copy between two tiers: all bytes come from the slowest tier that the transfer reads. `None` without pieces.
    pub(crate) fn between(transfer: &Transfer, asked: u64) -> Option<Self> {
        let from = transfer.from.iter().map(|piece| piece.place.tier).max()?;
        let to = transfer.to.first()?.place.tier;
        let (upper, lower) = (from.min(to), from.max(to));
        Some(Self {
            hops: upper.0 + 1..=lower.0,
            direction: if from < to {
                Direction::Down
            } else {
                Direction::Up
            },
            bytes: transfer.from.iter().map(|piece| piece.place.size).sum(),
            asked,
            flow: None,
        })
    }

    pub(crate) fn latency_ns(&self, hardware: &Hardware) -> u64 {
        let hops = &hardware.hops[self.hops.clone()];
        hops.iter().map(|hop| hop.latency_ns).sum()
    }
}

#[derive(Debug)]
pub(crate) struct Client<'a> {
    ops: std::slice::Iter<'a, Op>,
    /// All versions in the order of their restores.
    restores: Vec<Version>,
    /// Number of restores that have begun.
    restored: usize,
    pub(crate) state: AppState,
    pub(crate) flights: BTreeMap<CopyId, Flight>,
    pub(crate) outcome: ClientOutcome,
}

impl<'a> Client<'a> {
    pub(crate) fn new(workload: &'a Workload) -> Self {
        Self {
            ops: workload.ops.iter(),
            restores: workload.restores(),
            restored: 0,
            state: AppState::Ready,
            flights: BTreeMap::new(),
            outcome: ClientOutcome::default(),
        }
    }

    pub(crate) fn next_op(&mut self) -> Option<&'a Op> {
        self.ops.next()
    }

    /// Begins a call.
    pub(crate) fn call(&mut self, ticket: Ticket, kind: CallKind, now: u64) {
        self.state = AppState::Calling(Call {
            ticket,
            kind,
            began: now,
            granted: None,
            copies: 0,
        });
    }

    /// Counts a restore that begins. Records its prefetch distance: the following versions on the fastest tier, up to the first
    /// that is not there.
    pub(crate) fn measure_distance(&mut self, plan: &Plan) {
        self.restored += 1;
        let following = self.restores.iter().skip(self.restored);
        let near = following.take_while(|&&v| plan.fastest_tier(v) == Some(TierId::FASTEST));
        let distance = u32::try_from(near.count()).unwrap_or(u32::MAX);
        self.outcome.prefetch_distance.push(distance);
    }

    /// Lets the call's copies begin. `tier` is the slowest that they use.
    pub(crate) fn grant(&mut self, copies: usize, tier: TierId, now: u64) {
        if let AppState::Calling(call) = &mut self.state {
            call.granted = Some((now, tier));
            call.copies = copies;
        }
    }

    /// Counts one of the call's copies as arrived. Returns the kind of the call if it was the last.
    pub(crate) fn copied(&mut self) -> Option<CallKind> {
        let AppState::Calling(call) = &mut self.state else {
            return None;
        };
        call.copies = call.copies.saturating_sub(1);
        (call.copies == 0).then_some(call.kind)
    }

    /// Ends the call and counts its time.
    pub(crate) fn returned(&mut self, now: u64) {
        let AppState::Calling(call) = std::mem::replace(&mut self.state, AppState::Ready) else {
            return;
        };
        let stalls = &mut self.outcome.stalls;
        let (granted, tier) = call.granted.unwrap_or((now, TierId::FASTEST));
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
                if tier > TierId::FASTEST {
                    stalls.restore_from_below_ns += copied;
                }
            }
            CallKind::Wait => stalls.flush_ns += waited,
            CallKind::Drop(_) => {}
        }
    }

    pub(crate) fn leave_barrier(&mut self, now: u64) {
        if let AppState::AtBarrier { since } = self.state {
            self.outcome.stalls.barrier_ns += now - since;
            self.state = AppState::Ready;
        }
    }
}
