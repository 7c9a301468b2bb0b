//! Small versions on their way from host memory into a directory that outlives the engine, until they are committed together.

use super::job::{Job, SMALL};
use super::medium::{Medium, TierState, medium};
use super::placed_piece::PlacedPiece;
use crate::plan::{Coding, Transfer};
use std::sync::Arc;
use tierflow_sync::model::{Mutex, Receiver, Sender, unbounded};
use tierflow_sync::rank;

/// Bytes of small versions that are begun beyond the workers of a way into a directory: what one group commit writes at most.
pub(crate) const COMMITTED: u64 = 8 << 20;

/// Returns true if a transfer moves one small piece of host memory as it is, into a directory that takes many at once.
pub(super) fn may_be_committed(tiers: &[TierState], transfer: &Transfer) -> bool {
    let ([from], [to]) = (transfer.from.as_slice(), transfer.to.as_slice()) else {
        return false;
    };
    let memory = PlacedPiece::on(tiers, from);
    matches!(transfer.coding, Coding::Plain)
        && from.place.size <= SMALL
        && matches!(memory.medium, Medium::Host(_))
        && medium(tiers, to)
            .durable()
            .is_some_and(|durable| durable.takes_many())
}

/// The jobs that wait to be committed.
#[derive(Debug)]
pub(crate) struct Commits {
    jobs: Arc<Mutex<Vec<Arc<Job>>, { rank::QUEUE }>>,
    bell: Sender<()>,
}

/// The other end.
#[derive(Debug, Clone)]
pub(crate) struct Gathering {
    jobs: Arc<Mutex<Vec<Arc<Job>>, { rank::QUEUE }>>,
    bell: Receiver<()>,
}

/// A queue for small versions: its two ends.
pub(crate) fn gathering() -> (Commits, Gathering) {
    let (sender, bell) = unbounded();
    let jobs = Arc::<Mutex<Vec<_>, { rank::QUEUE }>>::default();
    let commits = Commits {
        jobs: Arc::clone(&jobs),
        bell: sender,
    };
    (commits, Gathering { jobs, bell })
}

impl Commits {
    /// The first job since all were taken wakes one of those who commit; the others wait with it.
    pub(super) fn put(&self, job: Arc<Job>) {
        let mut jobs = self.jobs.lock();
        jobs.push(job);
        if jobs.len() == 1 {
            // Without a receiver the committers have gone.
            let _ = self.bell.send(());
        }
    }
}

impl Gathering {
    /// Sleeps until there is something to commit. False if nothing more will be.
    pub(super) fn wait(&self) -> bool {
        self.bell.recv().is_ok()
    }

    pub(super) fn take(&self) -> Vec<Arc<Job>> {
        std::mem::take(&mut self.jobs.lock())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::TransferId;

    fn job() -> Arc<Job> {
        let transfer = Transfer {
            id: TransferId(0),
            version: 0,
            from: Vec::new(),
            to: Vec::new(),
            coding: Coding::Plain,
        };
        Arc::new(Job::new(transfer, 0, 0))
    }

    #[test]
    fn who_commits_is_woken_once_for_all_that_waits() {
        let (commits, gathering) = gathering();
        for _ in 0..3 {
            commits.put(job());
        }
        assert_eq!(gathering.bell.len(), 1);
        assert!(gathering.wait());
        assert_eq!(gathering.take().len(), 3);
        commits.put(job());
        drop(commits);
        assert!(gathering.wait(), "what was put is still there");
        assert_eq!(gathering.take().len(), 1);
        assert!(!gathering.wait(), "the engine goes");
    }
}
