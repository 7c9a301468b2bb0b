//! Small versions on their way from host memory into a directory that outlives the engine, until they are committed together.

use super::job::{Job, SMALL};
use super::medium::{Medium, TierState, medium};
use super::placed_piece::PlacedPiece;
use crate::plan::{Coding, Transfer};
use std::sync::Arc;
use tierflow_sync::model::{Mutex, Receiver, Sender, unbounded};
use tierflow_sync::rank;

/// Bytes of small versions that may be under way into a directory beyond those that its workers copy: as many as one group commit writes at
/// most.
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

/// The end of the queue into which jobs are put.
#[derive(Debug)]
pub(crate) struct CommitSender {
    jobs: Arc<Mutex<Vec<Arc<Job>>, { rank::QUEUE }>>,
    wake: Sender<()>,
}

/// The end of the queue from which threads take the jobs that they commit.
#[derive(Debug, Clone)]
pub(crate) struct CommitReceiver {
    jobs: Arc<Mutex<Vec<Arc<Job>>, { rank::QUEUE }>>,
    wake: Receiver<()>,
}

/// Returns the two ends of a queue for small versions.
pub(crate) fn commit_queue() -> (CommitSender, CommitReceiver) {
    let (waker, wake) = unbounded();
    let jobs = Arc::<Mutex<Vec<_>, { rank::QUEUE }>>::default();
    let sender = CommitSender {
        jobs: Arc::clone(&jobs),
        wake: waker,
    };
    (sender, CommitReceiver { jobs, wake })
}

impl CommitSender {
    /// Queues a job. The first job since all were taken wakes one committer; the others wait with it.
    pub(super) fn put(&self, job: Arc<Job>) {
        let mut jobs = self.jobs.lock();
        jobs.push(job);
        if jobs.len() == 1 {
            // Without a receiver the committers have gone.
            let _ = self.wake.send(());
        }
    }
}

impl CommitReceiver {
    /// Sleeps until there may be jobs to commit. Returns false if no more will come.
    pub(super) fn wait(&self) -> bool {
        self.wake.recv().is_ok()
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
        let (sender, receiver) = commit_queue();
        for _ in 0..3 {
            sender.put(job());
        }
        assert_eq!(receiver.wake.len(), 1);
        assert!(receiver.wait());
        assert_eq!(receiver.take().len(), 3);
        sender.put(job());
        drop(sender);
        assert!(receiver.wait(), "what was put is still there");
        assert_eq!(receiver.take().len(), 1);
        assert!(!receiver.wait(), "the engine goes");
    }
}
