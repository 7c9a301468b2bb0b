//! The plan behind its lock, and who waits for what.

use super::capacity::{Link, Waiting};
use super::commits::Commits;
use super::job::{Direction, Task};
use super::recorder::Stalled;
use super::sync::{Answering, AtomicBool, Awaiting, Sender};
use crate::plan::{Piece, Place, Plan, Refusal, Ticket, TransferId, World};
use crate::{Error, Version};
use hashbrown::HashMap;
use std::sync::Arc;

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
pub(super) struct Later {
    pub(super) ticket: Ticket,
    pub(super) answer: Awaiting<Told>,
    pub(super) why: Option<Stalled>,
}

/// What a caller hears.
#[derive(Debug)]
pub(super) struct Told {
    pub(super) answer: Answer,
    /// The plan had it at once.
    pub(super) at_once: bool,
    /// Others whom it is to wake.
    pub(super) others: Woken,
}

/// Callers and their answers, which they have when this is dropped. Of very many, some wake the others: it takes one thread as long to
/// wake 64 as a disk takes to write what they have.
#[derive(Debug, Default)]
pub(super) struct Woken(Vec<(Answering<Told>, Told)>);

/// So many are woken by one thread.
const WOKEN: usize = 8;

impl Woken {
    pub(super) fn push(&mut self, caller: Answering<Told>, answer: Answer, at_once: bool) {
        let others = Self::default();
        let told = Told {
            answer,
            at_once,
            others,
        };
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

impl Drop for Woken {
    fn drop(&mut self) {
        if !self.0.is_empty() {
            self.wake();
        }
    }
}

/// A caller that waits for its answer, since the lock was taken for the so-many-th time.
#[derive(Debug)]
pub(super) struct Caller {
    pub(super) answering: Answering<Told>,
    pub(super) since: u64,
}

/// Where transfers go.
#[derive(Debug, Default)]
pub(crate) struct Ways {
    /// To the workers of their way: into a tier from above, or out of it upwards.
    pub(crate) queues: HashMap<(Direction, usize), Sender<Task>>,
    /// Small versions into a tier where they are kept together: to who commits them.
    pub(crate) commits: HashMap<usize, Commits>,
}

/// What the lock protects.
#[derive(Debug)]
pub(crate) struct Core {
    pub(super) world: World,
    pub(super) desk: Desk,
}

/// Who waits for what.
#[derive(Debug)]
pub(super) struct Desk {
    /// Callers that wait for their answers.
    pub(super) sleeping: HashMap<Ticket, Caller>,
    /// How often the lock was taken.
    pub(super) turn: u64,
    /// Transfers that workers have, with the flag that stops them.
    pub(super) carried: HashMap<TransferId, Arc<AtomicBool>>,
    pub(super) ways: Ways,
    /// Who keeps tiers as large as others let them be.
    pub(super) links: Vec<Link>,
    /// The last failure of a transfer: why a tier takes no more.
    pub(super) last_failure: Option<Arc<Error>>,
    /// Who waits for a tier to be emptied.
    pub(super) resizing: Option<Waiting>,
    /// The call whose caller has the lock, and its answer.
    pub(super) own: Option<(Ticket, Option<Answer>)>,
    /// Transfers that encode, so far.
    pub(super) encodings: u64,
    /// Callers that are answered, to be woken when the lock is open again.
    pub(super) woken: Woken,
}

impl Core {
    pub(super) fn new(world: World, ways: Ways) -> Self {
        let desk = Desk {
            sleeping: HashMap::new(),
            carried: HashMap::new(),
            ways,
            links: Vec::new(),
            last_failure: None,
            resizing: None,
            own: None,
            encodings: 0,
            woken: Woken::default(),
            turn: 0,
        };
        Self { world, desk }
    }

    pub(crate) fn plan(&self) -> &Plan {
        self.world.plan()
    }

    pub(crate) fn last_failure(&self) -> Option<Arc<Error>> {
        self.desk.last_failure.clone()
    }
}
