//! The threads between the tiers: each tier has some that flush what leaves it and some that fetch what enters it.

use super::context::{PiecesUnderWay, TierContext, TransferError};
use super::core::Shared;
use super::ends::PlacedPiece;
use super::job::{Direction, Job, Task};
use super::kept::Form;
use super::stage::Descent;
use super::sync::{Builder, JoinHandle, Ordering, Receiver};
use super::together::{self, with_followers};
use crate::kind::BEGUN;
use crate::plan::{Coding, Stored, Transfer, TransferFailure};
use crate::{Error, Result};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;
use tierflow_device::Access;
use tierflow_plan::timeline::{TimelineLane, What};
use tierflow_transfer::PART_BYTES;

/// Ends of transfers that the plan hears of at a time, while other calls wait.
const REPORTED: usize = 16;

/// The jobs of one way, and the contexts of the workers that share them.
pub(crate) struct Crew {
    pub(crate) direction: Direction,
    pub(crate) tier: usize,
    pub(crate) workers: Vec<TierContext>,
    pub(crate) tasks: Receiver<Task>,
}

/// Starts the workers. They end when their queues' senders are gone.
pub(crate) fn start(shared: &Arc<Shared>, crews: Vec<Crew>) -> Result<Vec<JoinHandle<()>>> {
    let mut threads = Vec::new();
    for crew in crews {
        let workers = crew.workers.len();
        for (number, mut context) in crew.workers.into_iter().enumerate() {
            let row = shared
                .recorder
                .worker_lane(&row(shared, crew.direction, crew.tier, number));
            let name = match crew.direction {
                Direction::Down => format!("tierflow-down{}", crew.tier),
                Direction::Up => format!("tierflow-up{}", crew.tier),
            };
            let tasks = crew.tasks.clone();
            let shared = Arc::downgrade(shared);
            let run = move || {
                for task in &tasks {
                    let Some(shared) = shared.upgrade().filter(|s| !s.is_stopping()) else {
                        return;
                    };
                    let mut worker = Worker {
                        shared: &shared,
                        context: &mut context,
                        direction: crew.direction,
                        row,
                        begun: VecDeque::new(),
                    };
                    let mut next = Some(task);
                    while next.is_some() || worker.end_oldest() {
                        next = match next {
                            Some(Task::Transfer(job)) => {
                                let (taken, other) = with_followers(&shared, job, &tasks, workers);
                                worker.carry_all(&taken);
                                other
                            }
                            Some(Task::Help(help)) => {
                                help.run();
                                None
                            }
                            None => None,
                        };
                        if next.is_none() && worker.begun.len() < BEGUN {
                            next = tasks.try_recv().ok();
                        }
                    }
                }
            };
            threads.push(
                Builder::new()
                    .name(name)
                    .spawn(run)
                    .map_err(Error::Thread)?,
            );
        }
    }
    Ok(threads)
}

/// Returns the name of a worker's row in a time line.
fn row(shared: &Shared, direction: Direction, tier: usize, number: usize) -> String {
    let name = |tier: usize| shared.tiers.get(tier).map_or("", |tier| tier.kind.name());
    let number = number + 1;
    match direction {
        Direction::Down => format!("above → {}, worker {number}", name(tier)),
        Direction::Up => format!("{} → above, worker {number}", name(tier)),
    }
}

/// A transfer whose last parts a device still copies.
struct Begun<'s> {
    job: Arc<Job>,
    pieces: PiecesUnderWay<'s>,
    /// The time at which it was begun, for a time line.
    at: Option<Instant>,
    _span: tracing::Span,
}

/// A thread that carries transfers of one link.
struct Worker<'s> {
    shared: &'s Shared,
    context: &'s mut TierContext,
    direction: Direction,
    row: Option<TimelineLane>,
    /// Transfers that a device completes, the oldest first.
    begun: VecDeque<Begun<'s>>,
}

impl Worker<'_> {
    /// Carries transfers, small ones together, and reports how they ended.
    fn carry_all(&mut self, jobs: &[Arc<Job>]) {
        let Self { shared, row, .. } = *self;
        let at = row.map(|_| Instant::now());
        let is_down = self.direction == Direction::Down;
        let (done, left) = together::carry(shared, self.context, jobs, is_down);
        for job in &done {
            self.record(job.name(), job, at);
        }
        for reported in done.chunks(REPORTED) {
            shared.delivered(reported.iter().map(|job| job.transfer.id));
        }
        let below = done.first().and_then(|job| job.transfer.to.first());
        if let Some(below) = below.filter(|_| is_down) {
            shared.have_housekept(below.place.tier);
        }
        for job in left {
            self.carry(job);
        }
    }

    /// Carries a transfer, or leaves its last parts to a device.
    fn carry(&mut self, job: &Arc<Job>) {
        let shared = self.shared;
        let Job {
            transfer,
            turn,
            cancelled,
        } = &**job;
        let Transfer {
            id,
            version,
            from,
            to,
            coding,
        } = transfer;
        let (Some(source), Some(target)) = (from.first(), to.first()) else {
            return;
        };
        let name = job.name();
        let span = tracing::debug_span!(
            "transfer",
            name,
            version,
            bytes = job.bytes(),
            from = source.place.tier.0,
            to = target.place.tier.0
        );
        let _entered = span.enter();
        let at = self.row.map(|_| Instant::now());
        let reads = from.iter().map(|piece| (&piece.place, Access::Read));
        let writes = to.iter().map(|piece| (&piece.place, Access::Write));
        let is_free = |(place, access)| shared.pending.is_settled(place, access);
        if job.bytes() > PART_BYTES || !reads.clone().chain(writes.clone()).all(is_free) {
            // This takes its time. The others are reported when they end.
            while self.end_oldest() {}
        }
        reads
            .chain(writes)
            .for_each(|(place, access)| shared.pending.settle(place, access));
        let lying = |piece| PlacedPiece::on(&shared.tiers, piece);
        let context = &mut *self.context;
        context.stop_by(Some(Arc::clone(cancelled)));
        let is_encoding = matches!(coding, Coding::Encode { .. });
        let outcome = if cancelled.load(Ordering::Relaxed) && !is_encoding {
            Err(TransferError::CANCELLED)
        } else {
            match (coding, &shared.stage) {
                (Coding::Encode { base }, Some(stage)) => {
                    let descent = Descent {
                        version: *version,
                        base: *base,
                        turn: *turn,
                        layout: &|| shared.layouts.get(*version),
                        below: &|| shared.slowest_below(target.place.tier),
                        encoded: &|stored| {
                            shared.encoded((*id, *version), target.place.tier, stored)
                        },
                    };
                    let ends = (lying(source), lying(target));
                    stage.down(context, &shared.tiers, &descent, ends)
                }
                (Coding::Decode { bases }, Some(stage)) => {
                    let chain = (*version, &source.place, bases.as_slice());
                    let up = stage.up(context, &shared.tiers, chain, lying(target));
                    let failed = up.as_ref().err().and_then(|failed| failed.error.as_ref());
                    failed.inspect(|error| context.note_stored(chain, error));
                    up.map(|()| None)
                }
                _ => {
                    let form = match *coding {
                        Coding::Stored { size, base } => Form::Difference { size, base },
                        _ => Form::Whole,
                    };
                    match context.begin_carry(&shared.tiers, form, job.source(), to) {
                        Ok(mut pieces) if pieces.is_done() => {
                            let ended = context.end_carry(&shared.tiers, job.source(), &mut pieces);
                            ended.map(|()| None)
                        }
                        Ok(pieces) => {
                            let (job, span) = (Arc::clone(job), span.clone());
                            let begun = Begun {
                                job,
                                pieces,
                                at,
                                _span: span,
                            };
                            return self.begun.push_back(begun);
                        }
                        Err(failed) => Err(failed),
                    }
                }
            }
        };
        self.report(job, outcome, at);
    }

    /// Waits for the transfer that was begun first, and reports how it ended. Returns false if there is none.
    fn end_oldest(&mut self) -> bool {
        let Some(mut begun) = self.begun.pop_front() else {
            return false;
        };
        let Begun { job, pieces, at, .. } = &mut begun;
        let ended = self
            .context
            .end_carry(&self.shared.tiers, job.source(), pieces);
        self.report(job, ended.map(|()| None), *at);
        true
    }

    /// Reports how a transfer ended.
    fn report(
        &mut self,
        job: &Job,
        outcome: std::result::Result<Option<Stored>, TransferError>,
        at: Option<Instant>,
    ) {
        let shared = self.shared;
        let arrived = outcome.is_ok();
        self.record(if arrived { job.name() } else { "given up" }, job, at);
        let below = job.transfer.to.first().filter(|_| self.direction == Direction::Down);
        if let Some(below) = below
            && let Some(kept) = PlacedPiece::on(&shared.tiers, below).medium.kept()
        {
            let failed =
                matches!(&outcome, Err(failed) if failed.end == TransferFailure::Destination);
            kept.end(job.transfer.version, failed);
        }
        shared.tell_damage(self.context);
        shared.carried(job.transfer.id, outcome);
        if let Some(below) = below.filter(|_| arrived) {
            shared.have_housekept(below.place.tier);
        }
    }

    /// Writes a transfer into the time line.
    fn record(&self, name: &'static str, job: &Job, at: Option<Instant>) {
        let what = What {
            name,
            version: Some(job.transfer.version),
            bytes: job.bytes(),
        };
        if let Some(at) = at {
            self.shared.recorder.worked(self.row, what, at);
        }
    }
}
