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
    /// In the order of the version's bytes.
    pub(crate) pieces: Vec<Piece>,
    /// If the bytes there are a difference: where those are that it builds upon, nearest first.
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

/// Where an answer will appear, and what the caller waits for if that is not at once.
#[derive(Debug)]
pub(super) struct PendingAnswer {
    pub(super) ticket: Ticket,
    pub(super) answer: ReplyReceiver<Reply>,
    pub(super) why: Option<WaitInfo>,
    /// When the caller began to wait, on the plan's clock.
    pub(super) since_ns: u64,
}

/// The answer to a call.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) answer: Answer,
    /// The plan had it at once.
    pub(super) at_once: bool,
    /// When the plan heard of the call, on its clock.
    pub(super) heard_ns: u64,
    /// When the plan answered.
    pub(super) answered_ns: u64,
    /// The number of the transfer that ended the wait.
    pub(super) ended_by: Option<u64>,
    /// Replies that this caller sends on.
    pub(super) others: WakeList,
}

/// Replies to send once the plan's lock is open. Dropping the list sends them. Of very many, the first waiters wake the others:
/// one thread takes as long to wake 64 as a disk takes to write their versions.
#[derive(Debug, Default)]
pub(super) struct WakeList(Vec<(ReplySender<Reply>, Reply)>);

/// Waiters that one thread wakes.
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
        while let Some((caller, mut told)) = asleep.pop() {
            let left = asleep.len().saturating_sub(share - 1);
            told.others.0 = asleep.split_off(left);
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
    pub(super) why: Option<WaitInfo>,
    /// The turn of the lock in which it went to sleep.
    pub(super) since: u64,
    /// When the plan heard of it, on its clock.
    pub(super) heard_ns: u64,
}

/// Where transfers go.
#[derive(Debug, Default)]
pub(crate) struct LinkQueues {
    /// To the workers of their way: into a tier from above, or out of it upwards.
    pub(crate) queues: HashMap<(Direction, usize), Sender<Task>>,
    /// Small versions into a tier where they are kept together: to who commits them.
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
    /// How often the lock was taken.
    pub(super) turn: u64,
    /// Transfers that workers have.
    pub(super) carried: HashMap<TransferId, Arc<Job>>,
    /// The transfer whose end the plan hears of now.
    pub(super) ended: Option<Arc<Job>>,
    /// The waits that ended.
    pub(super) waits: WaitTable,
    pub(super) links: LinkQueues,
    /// Who keeps tiers as large as others let them be.
    pub(super) notices: Vec<NoticeSender>,
    /// The last failure of a transfer: why a tier takes no more.
    pub(super) last_failure: Option<Arc<Error>>,
    /// The time of the last warning of a failed transfer.
    pub(super) warned: Option<Instant>,
    /// Who waits for a tier to be emptied.
    pub(super) resizing: Option<Waiting>,
    /// The call whose caller has the lock, and its answer.
    pub(super) own: Option<(Ticket, Option<Answer>)>,
    /// Transfers that encode, so far.
    pub(super) encodings: u64,
    /// Callers that are answered, to be woken when the lock is open again.
    pub(super) woken: WakeList,
}

impl PlanState {
    pub(super) fn new(world: World, links: LinkQueues) -> Self {
        let calls = CallTable {
            sleeping: HashMap::new(),
            carried: HashMap::new(),
            ended: None,
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

    /// Returns the waits of callers so far, by what ended them.
    pub(crate) fn waits(&self) -> Vec<Waits> {
        self.calls.waits.read()
    }

    pub(crate) fn last_failure(&self) -> Option<Arc<Error>> {
        self.calls.last_failure.clone()
    }
}
