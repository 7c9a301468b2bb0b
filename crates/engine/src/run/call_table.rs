//! The plan behind its lock, the calls that sleep, and the transfers under way.

use super::capacity::{NoticeSender, Waiting};
use super::commits::CommitSender;
use super::job::{Direction, Job, Task};
use super::waits::{WaitInfo, WaitTable};
use crate::metrics::Waits;
use crate::plan::{Piece, Place, Plan, Refusal, Ticket, TransferId, World};
use crate::{Error, Version};
use hashbrown::HashMap;
use std::sync::Arc;
use std::time::Instant;
use tierflow_sync::model::{ReplyReceiver, ReplySender, Sender};

/// Places to copy to or from.
#[derive(Debug)]
pub(crate) struct Grant {
    /// Pieces in the order of the version's bytes.
    pub(crate) pieces: Vec<Piece>,
    /// The versions that the bytes build upon, and their places, nearest first. `None` if nothing is to be decoded.
    pub(crate) bases: Option<Vec<(Version, Place)>>,
}

/// The plan's answer to one call.
#[derive(Debug)]
pub(crate) enum Answer {
    /// Copy the regions to, or from, these places, then report.
    Copy(Grant),
    /// The call is done, or refused.
    Done(Result<(), Refusal>),
}

/// The end that receives an answer, and the reason to wait if the answer does not come at once.
#[derive(Debug)]
pub(super) struct PendingAnswer {
    pub(super) ticket: Ticket,
    pub(super) answer: ReplyReceiver<Reply>,
    pub(super) why: Option<WaitInfo>,
    /// Time at which the caller began to wait, in ns on the plan's clock.
    pub(super) since_ns: u64,
}

/// The answer to a call.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) answer: Answer,
    /// True if the plan answered in the lock turn in which it heard of the call.
    pub(super) at_once: bool,
    /// As [`Waiter::may_wake`].
    pub(super) may_wake: bool,
    /// Time at which the plan heard of the call, in ns on its clock.
    pub(super) heard_ns: u64,
    /// Time at which the plan answered, in ns on its clock.
    pub(super) answered_ns: u64,
    /// The number of the transfer that ended the wait.
    pub(super) ended_by: Option<u64>,
    /// Replies that this caller sends to other callers.
    pub(super) others: WakeList,
}

/// Replies to send once the plan's lock is free. Dropping the list sends them. Beyond [`WOKEN`] replies to sleeping calls, callers that
/// [may](Waiter::may_wake) wake the others: one thread takes as long to wake 64 as a disk takes to write their versions.
#[derive(Debug, Default)]
pub(super) struct WakeList(Vec<(ReplySender<Reply>, Reply)>);

/// Sleeping waiters that one thread wakes at most.
const WOKEN: usize = 8;

impl WakeList {
    pub(super) fn push(&mut self, caller: ReplySender<Reply>, told: Reply) {
        self.0.push((caller, told));
    }

    fn wake(&mut self) {
        let woken = std::mem::take(&mut self.0).into_iter();
        let (awake, mut asleep): (Vec<_>, Vec<_>) = woken.partition(|(_, told)| told.at_once);
        for (caller, told) in awake {
            caller.send(told);
        }
        let share = asleep.len().div_ceil(WOKEN);
        asleep.sort_unstable_by_key(|(_, told)| told.may_wake);
        while let Some((caller, mut told)) = asleep.pop() {
            if told.may_wake {
                let others = asleep.len().min(share - 1);
                told.others.0 = asleep.drain(..others).collect();
            }
            caller.send(told);
        }
    }
}

impl Drop for WakeList {
    fn drop(&mut self) {
        if !self.0.is_empty() {
            self.wake();
        }
    }
}

/// A sleeping call.
#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) answering: ReplySender<Reply>,
    /// True if the caller does nothing but sleep until the answer comes, so that it can wake others then. False if the application may
    /// keep it from that: in an interrupt, or before it waits for a suspension.
    pub(super) may_wake: bool,
    pub(super) why: Option<WaitInfo>,
    /// Lock turn in which the plan heard of the call; 0 if the caller asked under its own lock.
    pub(super) since: u64,
    /// Time at which the plan heard of the call, in ns on its clock.
    pub(super) heard_ns: u64,
}

/// The queues into which transfers are put.
#[derive(Debug, Default)]
pub(crate) struct LinkQueues {
    /// Queues of the workers, by direction and tier: down into the tier from above, or up out of it.
    pub(crate) queues: HashMap<(Direction, usize), Sender<Task>>,
    /// Queues of the committers, by tier. Small versions that the tier keeps together go there.
    pub(crate) commits: HashMap<usize, CommitSender>,
}

/// The state that the plan's lock protects.
#[derive(Debug)]
pub(crate) struct PlanState {
    pub(super) world: World,
    pub(super) calls: CallTable,
}

/// The calls that sleep, and the transfers under way.
#[derive(Debug)]
pub(super) struct CallTable {
    /// Callers that wait for their answers.
    pub(super) sleeping: HashMap<Ticket, Waiter>,
    /// Number of times that the lock was taken.
    pub(super) turn: u64,
    /// Transfers that workers have and have not reported.
    pub(super) carried: HashMap<TransferId, Arc<Job>>,
    /// The transfers whose ends the plan is told now.
    pub(super) ended: Vec<Arc<Job>>,
    /// The waits that ended.
    pub(super) waits: WaitTable,
    pub(super) links: LinkQueues,
    /// Senders of notices to the threads that keep tiers as large as others let them be.
    pub(super) notices: Vec<NoticeSender>,
    /// The last failure of a transfer: why a tier takes no more.
    pub(super) last_failure: Option<Arc<Error>>,
    /// The time of the last warning of a failed transfer.
    pub(super) warned: Option<Instant>,
    /// The resize that waits until a tier is empty beyond its limit.
    pub(super) resizing: Option<Waiting>,
    /// The call whose caller has the lock, and its answer.
    pub(super) own: Option<(Ticket, Option<Answer>)>,
    /// Number of transfers that encode, so far.
    pub(super) encodings: u64,
    /// Replies that are sent when the lock is free again.
    pub(super) woken: WakeList,
}

impl PlanState {
    pub(super) fn new(world: World, links: LinkQueues) -> Self {
        let calls = CallTable {
            sleeping: HashMap::new(),
            carried: HashMap::new(),
            ended: Vec::new(),
            waits: WaitTable::default(),
            links,
            notices: Vec::new(),
            last_failure: None,
            warned: None,
            resizing: None,
            own: None,
            encodings: 0,
            woken: WakeList::default(),
            turn: 0,
        };
        Self { world, calls }
    }

    pub(crate) fn plan(&self) -> &Plan {
        self.world.plan()
    }

    /// Takes note of the transfers whose ends the plan is told next.
    pub(super) fn end(&mut self, ids: &[TransferId]) {
        let CallTable { carried, ended, .. } = &mut self.calls;
        ended.extend(ids.iter().filter_map(|id| carried.remove(id)));
    }

    /// Returns the waits of callers so far, by what ended them.
    pub(crate) fn waits(&self) -> Vec<Waits> {
        self.calls.waits.read()
    }

    pub(crate) fn last_failure(&self) -> Option<Arc<Error>> {
        self.calls.last_failure.clone()
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;
    use tierflow_sync::model::answer;

    /// Callers that may wake others receive their replies; those that may not never do. Yet the replies to all are there.
    #[test]
    fn no_call_waits_for_one_that_the_application_holds_up() {
        for (count, held_up) in [(9, 1), (64, 3), (64, 8), (1000, 500)] {
            let mut list = WakeList::default();
            let mut receivers = Vec::new();
            for number in 0..count {
                let (sender, receiver) = answer();
                let may_wake = number % held_up != 0;
                let reply = Reply {
                    answer: Answer::Done(Ok(())),
                    at_once: false,
                    may_wake,
                    heard_ns: 0,
                    answered_ns: 0,
                    ended_by: None,
                    others: WakeList::default(),
                };
                list.push(sender, reply);
                receivers.push((may_wake, receiver));
            }
            drop(list);
            for _ in 0..count {
                let is_there = |(may_wake, receiver): &(bool, ReplyReceiver<Reply>)| {
                    *may_wake && receiver.is_there()
                };
                let awake = receivers.extract_if(.., |one| is_there(one));
                let replies: Vec<_> = awake.map(|(_, receiver)| receiver.recv(None)).collect();
                drop(replies);
            }
            let all_are_there = receivers.iter().all(|(_, receiver)| receiver.is_there());
            assert!(all_are_there, "{held_up} of {count}");
        }
    }
}
