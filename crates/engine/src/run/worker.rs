//! The threads that copy between tiers. Each tier has some that flush to it from above, and some that fetch from it.

use super::context::{Pieces, TierContext, TransferError};
use super::core::EngineCore;
use super::durable_tier::StoredForm;
use super::job::{Direction, Job, Task};
use super::placed_piece::PlacedPiece;
use super::small_transfers::{self, with_followers};
use super::stage::StageInput;
use crate::plan::{Coding, Transfer, TransferFailure};
use crate::{Error, Result};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tierflow_device::Access;
use tierflow_plan::timeline::{TimelineLane, What};
use tierflow_sync::model::{Builder, Mutex, Ordering, Receiver, sleep};

/// Most ended transfers that one report to the plan names, as other calls wait meanwhile.
const REPORTED: usize = 16;

/// Time after which a worker that could not start the next one tries again.
const RETRY: Duration = Duration::from_secs(1);

/// The workers of one link, which leads into a tier from above or out of it upwards. The first worker starts with the engine, and each one
/// starts the next before its first task. So an idle worker is ready as long as not all have begun, and an unused link has one thread.
pub(crate) struct LinkWorkers {
    pub(crate) direction: Direction,
    pub(crate) tier: usize,
    /// Most workers of the link.
    pub(crate) depth: usize,
    /// The contexts of workers that have not been started.
    pub(crate) waiting: Mutex<Vec<TierContext>>,
    pub(crate) tasks: Receiver<Task>,
}

/// Starts the first worker of each link. Workers end when the senders of their queues are gone.
pub(crate) fn start(shared: &Arc<EngineCore>, workers: Vec<LinkWorkers>) -> Result<()> {
    let mut workers = workers.into_iter().map(Arc::new);
    workers.try_for_each(|workers| workers.start_next(shared))
}

impl LinkWorkers {
    /// Starts one more worker, unless all have been started.
    fn start_next(self: &Arc<Self>, shared: &Arc<EngineCore>) -> Result<()> {
        if self.waiting.lock().is_empty() {
            return Ok(());
        }
        let name = match self.direction {
            Direction::Down => format!("tierflow-down{}", self.tier),
            Direction::Up => format!("tierflow-up{}", self.tier),
        };
        let (workers, theirs) = (Arc::clone(self), Arc::downgrade(shared));
        let thread = Builder::new()
            .name(name)
            .spawn(move || workers.run(&theirs));
        shared.keep_thread(thread.map_err(Error::Thread)?);
        Ok(())
    }

    /// Starts the next worker before a first task. For a flush, tries until that worker exists: the flush may wait for another one that has
    /// no worker yet.
    fn make_ready(self: &Arc<Self>, shared: &Arc<EngineCore>) {
        while let Err(why) = self.start_next(shared) {
            tracing::warn!("transfers have fewer threads than they could use: {why}");
            if self.direction == Direction::Up || shared.is_stopping() {
                return;
            }
            sleep(RETRY);
        }
    }

    /// Does tasks as they come.
    fn run(self: &Arc<Self>, shared: &Weak<EngineCore>) {
        let (number, mut context) = {
            let mut waiting = self.waiting.lock();
            let number = self.depth - waiting.len();
            let Some(context) = waiting.pop() else {
                return;
            };
            (number, context)
        };
        let mut row = None;
        let mut is_new = true;
        for task in &self.tasks {
            let Some(shared) = shared.upgrade().filter(|s| !s.is_stopping()) else {
                return;
            };
            // Handing events to the plan takes no time, so it needs no further worker.
            if is_new && !matches!(task, Task::Plan) {
                is_new = false;
                self.make_ready(&shared);
                let name = row_name(&shared, self.direction, self.tier, number);
                row = shared.recorder.worker_lane(&name);
            }
            let mut next = Some(task);
            while let Some(task) = next.take() {
                match task {
                    Task::Transfer(job) => {
                        let (taken, other) = with_followers(&shared, job, &self.tasks, self.depth);
                        carry_all(&shared, &mut context, &taken, self.direction, row);
                        next = other;
                    }
                    Task::Help(helper) => {
                        helper.run(|serve| shared.count_copy(serve)?);
                    }
                    Task::Plan => drop(shared.serve()),
                }
            }
        }
    }
}

/// Returns the name of a worker's row in a time line.
fn row_name(shared: &EngineCore, direction: Direction, tier: usize, number: usize) -> String {
    let name = |tier: usize| shared.tiers.get(tier).map_or("", |tier| tier.kind.name());
    let number = number + 1;
    match direction {
        Direction::Down => format!("above → {}, worker {number}", name(tier)),
        Direction::Up => format!("{} → above, worker {number}", name(tier)),
    }
}

impl EngineCore {
    /// Records that a worker, whose row this is, was busy with a job from `begun_ns` until now.
    pub(super) fn worked(
        &self,
        row: Option<TimelineLane>,
        name: &'static str,
        job: &Job,
        begun_ns: u64,
    ) {
        let what = What {
            name,
            version: Some(job.transfer.version),
            bytes: job.bytes(),
            flow: Some(job.transfer.id.0),
        };
        self.recorder.worked(row, what, begun_ns);
    }
}

/// Carries transfers, small ones together, and reports how they ended.
fn carry_all(
    shared: &EngineCore,
    context: &mut TierContext,
    jobs: &[Arc<Job>],
    direction: Direction,
    row: Option<TimelineLane>,
) {
    let begun = shared.now_ns();
    jobs.iter().for_each(|job| job.begin(begun));
    let is_down = direction == Direction::Down;
    let carried = shared.count_copy(|| small_transfers::carry(shared, context, jobs, is_down));
    // After a panic, each transfer is carried alone, so that each meets the panic for itself.
    let all = |_| (Vec::new(), jobs.iter().map(|job| &**job).collect());
    let (done, left) = carried.unwrap_or_else(all);
    let name = if is_down { "flush" } else { "prefetch" };
    done.iter()
        .for_each(|job| shared.worked(row, name, job, begun));
    for reported in done.chunks(REPORTED) {
        shared.delivered(reported.iter().map(|job| job.transfer.id));
    }
    let below = done.first().and_then(|job| job.transfer.to.first());
    if let Some(below) = below.filter(|_| is_down) {
        shared.have_housekept(below.place.tier);
    }
    for job in left {
        carry(shared, context, job, row);
    }
}

/// Carries a transfer, and reports how it ended.
fn carry(shared: &EngineCore, context: &mut TierContext, job: &Job, row: Option<TimelineLane>) {
    let Job {
        transfer,
        turn,
        cancelled,
        ..
    } = job;
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
    let (above, below) = (source.place.tier, target.place.tier);
    let name = if above < below { "flush" } else { "prefetch" };
    let bytes = job.bytes();
    let span = tracing::debug_span!(
        "transfer",
        name,
        version,
        bytes,
        from = above.0,
        to = below.0
    );
    let _span = span.entered();
    let begun = shared.now_ns();
    job.begin(begun);
    for piece in from {
        shared.pending.settle(&piece.place, Access::Read);
    }
    for piece in to {
        shared.pending.settle(&piece.place, Access::Write);
    }
    let lying = |piece| PlacedPiece::on(&shared.tiers, piece);
    context.stop_by(Some(Arc::clone(cancelled)));
    let outcome = shared.count_copy(|| {
        if cancelled.load(Ordering::Relaxed) && !matches!(coding, Coding::Encode { .. }) {
            Err(TransferError::CANCELLED)
        } else {
            match (coding, &shared.stage) {
                (Coding::Encode { base }, Some(stage)) => {
                    let stage_input = StageInput {
                        version: *version,
                        base: *base,
                        turn: *turn,
                        layout: &|| shared.layouts.get(*version),
                        error: shared.layouts.error(*version),
                        below: &|| shared.slowest_below(target.place.tier),
                        encoded: &|stored| shared.encoded(*id, *version, target.place.tier, stored),
                    };
                    let (from, to) = (lying(source), lying(target));
                    stage.down(context, &shared.tiers, &stage_input, from, to)
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
                        Coding::Stored { size, base } => StoredForm::Difference { size, base },
                        _ => StoredForm::Whole,
                    };
                    let pieces = Pieces {
                        version: *version,
                        pieces: from,
                    };
                    let carried = context.carry(&shared.tiers, form, pieces, to);
                    carried.map(|()| None)
                }
            }
        }
    });
    let mut outcome = outcome.unwrap_or_else(|panic| {
        Err(TransferError {
            end: TransferFailure::Source,
            error: Some(panic),
        })
    });
    let arrived = outcome.is_ok();
    let name = if arrived { name } else { "given up" };
    shared.worked(row, name, job, begun);
    let has_damage = !context.damaged.is_empty();
    shared.tell_damage(context);
    let mut failed = false;
    if above < below
        && let Some(durable) = lying(target).medium.durable()
    {
        let is_sent_again = match &mut outcome {
            Err(error)
                if error.end == TransferFailure::Source
                    && shared.lock().plan().is_sound(*version) =>
            {
                // The closed tier takes no later version before the next attempt. A damaged copy has the plan try another one at once.
                if durable.is_in_order() && !has_damage {
                    error.end = TransferFailure::Destination;
                }
                true
            }
            _ => false,
        };
        failed = matches!(&outcome, Err(failed) if failed.end == TransferFailure::Destination);
        durable.end(*version, failed || is_sent_again);
    }
    shared.carried(*id, outcome, has_damage);
    if failed {
        // The tier may have less room than the plan knows.
        shared.limit_to_room();
    }
    if arrived {
        shared.have_housekept(below);
    }
}
