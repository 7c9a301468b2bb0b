//! Group commit: small versions that callers make at the same time are kept in one write and one synchronisation, and reported as one.

use super::commits::CommitReceiver;
use super::core::EngineCore;
use super::job::{Direction, Job, Task};
use super::medium::medium;
use super::placed_piece::PlacedPiece;
use crate::plan::TierId;
use crate::{Error, Result};
use std::sync::{Arc, Weak};
use tierflow_device::{Access, ReadLoan};
use tierflow_plan::timeline::TimelineLane;
use tierflow_sync::model::{Builder, Mutex, Ordering};
use tierflow_sync::rank;

/// Threads that commit to one directory. While one writes the jobs that have come by now, another reports the jobs that it wrote before and
/// wakes the callers that wait for them, and a third one is there for the next jobs.
const COMMITTERS: usize = 3;

/// A thread that commits to a tier.
#[derive(Clone)]
struct Committer {
    shared: Weak<EngineCore>,
    /// Number of committers that were there before this one.
    number: usize,
    receiver: CommitReceiver,
    tier: TierId,
    /// Held while versions are written. Jobs that come meanwhile are the next group.
    turn: Arc<Mutex<(), { rank::CALL }>>,
    row: Option<TimelineLane>,
}

/// Starts the first thread that commits to `tier`. Each thread starts the next when it is first woken. The threads end when the queue's
/// sender is gone.
pub(crate) fn start(shared: &Arc<EngineCore>, tier: usize, receiver: CommitReceiver) -> Result<()> {
    let first = Committer {
        shared: Arc::downgrade(shared),
        number: 0,
        receiver,
        tier: TierId(tier),
        turn: Arc::new(Mutex::new(())),
        row: None,
    };
    first.start(shared)
}

impl Committer {
    fn start(mut self, shared: &Arc<EngineCore>) -> Result<()> {
        let Self { number, tier, .. } = self;
        let below = shared.tiers.get(tier.0);
        let below = below.map_or("", |tier| tier.kind.name());
        let row = format!("host → {below}, commits {}", number + 1);
        self.row = shared.recorder.worker_lane(&row);
        let thread = Builder::new().name(format!("tierflow-commit{}", tier.0));
        let thread = thread.spawn(move || self.run());
        shared.keep_thread(thread.map_err(Error::Thread)?);
        Ok(())
    }

    fn start_next(&self, shared: &Arc<EngineCore>) {
        let next = Self {
            number: self.number + 1,
            ..self.clone()
        };
        if next.number < COMMITTERS
            && let Err(why) = next.start(shared)
        {
            // The committers that are there write all groups, one after the other.
            tracing::warn!("commits have fewer threads than they could use: {why}");
        }
    }

    fn run(&self) {
        let mut is_new = true;
        while self.receiver.wait() {
            let shared = self.shared.upgrade();
            let Some(shared) = shared.filter(|shared| !shared.is_stopping()) else {
                return;
            };
            if std::mem::take(&mut is_new) {
                self.start_next(&shared);
            }
            let turn = self.turn.lock();
            let jobs = self.receiver.take();
            if jobs.is_empty() {
                // The thread that had the turn before took them with its own.
                continue;
            }
            // A version whose bytes a kernel still writes is carried alone, so that no other waits for the kernel.
            let is_ready = |job: &Arc<Job>| {
                let mut from = job.transfer.from.iter();
                !job.cancelled.load(Ordering::Relaxed)
                    && from.all(|piece| shared.pending.is_settled(&piece.place, Access::Read))
            };
            let (jobs, mut left): (Vec<_>, Vec<_>) = jobs.into_iter().partition(is_ready);
            let begun = shared.now_ns();
            jobs.iter().for_each(|job| job.begin(begun));
            let committed = shared.count_copy(|| commit(&shared, &jobs));
            drop(turn);
            match committed {
                Ok(Ok(())) => self.report(&shared, &jobs, begun),
                // Each job is carried alone, so that each meets the failure for itself.
                Ok(Err(_)) | Err(_) => left.extend(jobs),
            }
            let queue = match left.as_slice() {
                [] => None,
                _ => shared.link_queue(Direction::Down, self.tier),
            };
            for job in left {
                // Without workers, the engine ends, and with it all jobs that are left.
                let _ = queue.as_ref().map(|queue| queue.send(Task::Transfer(job)));
            }
        }
    }

    fn report(&self, shared: &EngineCore, jobs: &[Arc<Job>], begun_ns: u64) {
        jobs.iter()
            .for_each(|job| shared.worked(self.row, "flush", job, begun_ns));
        shared.delivered(jobs.iter().map(|job| job.transfer.id));
        shared.have_housekept(self.tier);
    }
}

/// The error of a job that cannot be committed with others. No such job is put into the queue.
const UNFIT: Error = Error::Internal {
    what: "a version that cannot be committed with others",
};

/// Saves the versions of jobs that go to one directory, all at once.
fn commit(shared: &EngineCore, jobs: &[Arc<Job>]) -> Result<()> {
    let Some(first) = jobs.first() else {
        return Ok(());
    };
    let to = first.transfer.to.first();
    let durable = to.and_then(|to| medium(&shared.tiers, to).durable());
    let durable = durable.ok_or(UNFIT)?;
    let from = jobs.iter().map(|job| {
        let from = job.transfer.from.first().ok_or(UNFIT)?;
        Ok((job.transfer.version, PlacedPiece::on(&shared.tiers, from)))
    });
    let lend = |job: Result<(_, PlacedPiece<'_>)>| {
        let (version, lying) = job?;
        let lent = lying.medium.lend(lying.at(lying.all()))?;
        Ok((version, lent))
    };
    let lent: Vec<(_, ReadLoan)> = from.map(lend).collect::<Result<_>>()?;
    let versions = lent.iter();
    let versions = versions.map(|(version, lent)| Ok((*version, lent.bytes()?)));
    durable.save_many(&versions.collect::<Result<Vec<_>>>()?)?;
    for (version, _) in &lent {
        durable.end(*version, false);
    }
    Ok(())
}
