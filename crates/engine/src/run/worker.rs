//! The threads between the tiers: each tier has some that flush what leaves it and some that fetch what enters it.

use super::core::Shared;
use super::job::{Job, Step, Way};
use super::kept::Form;
use super::lane::Lane;
use super::sync::{Builder, JoinHandle, Receiver, Sender};
use crate::plan::{Coding, Place};
use crate::timeline::{TimelineLane, What};
use crate::{Error, Result};
use std::sync::Arc;
use std::time::Instant;
use tierflow_device::Access;

/// Which way a worker carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Direction {
    /// Flushes, out of its tier.
    Down,
    /// Prefetches, into its tier.
    Up,
}

/// The way to the workers of one direction and tier.
#[derive(Debug)]
pub(crate) struct Queue {
    pub(crate) jobs: Sender<Arc<Job>>,
    /// How many there are.
    pub(crate) workers: usize,
    pub(crate) way: Arc<Way>,
}

impl Queue {
    /// Gives a transfer to as many workers as can carry a part of it.
    pub(super) fn carry(&self, job: &Arc<Job>) {
        for _ in 0..self.workers.min(job.parts()) {
            // The workers leave only when this sender is dropped.
            let _ = self.jobs.send(Arc::clone(job));
        }
    }
}

/// The jobs of one direction and tier, and the lanes of the workers that share them.
pub(crate) struct Crew {
    pub(crate) direction: Direction,
    pub(crate) tier: usize,
    pub(crate) workers: Vec<Lane>,
    pub(crate) jobs: Receiver<Arc<Job>>,
}

/// Starts the workers. They end when their queues' senders are gone.
pub(crate) fn start(shared: &Arc<Shared>, crews: Vec<Crew>) -> Result<Vec<JoinHandle<()>>> {
    let mut threads = Vec::new();
    for crew in crews {
        for (number, mut lane) in crew.workers.into_iter().enumerate() {
            let row = shared
                .recorder
                .worker_lane(&row(shared, crew.direction, crew.tier, number));
            let name = match crew.direction {
                Direction::Down => format!("tierflow-down{}", crew.tier),
                Direction::Up => format!("tierflow-up{}", crew.tier),
            };
            let jobs = crew.jobs.clone();
            let shared = Arc::downgrade(shared);
            let run = move || {
                for job in jobs {
                    let Some(shared) = shared.upgrade().filter(|s| !s.is_stopping()) else {
                        return;
                    };
                    carry(&shared, &mut lane, &job, row);
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

/// What a worker's row in a time line is called.
fn row(shared: &Shared, direction: Direction, tier: usize, number: usize) -> String {
    let name = |tier: usize| shared.tiers.get(tier).map_or("", |tier| tier.name);
    let number = number + 1;
    match direction {
        Direction::Down => format!("{} → below, worker {number}", name(tier)),
        Direction::Up => format!("below → {}, worker {number}", name(tier)),
    }
}

/// Carries parts of a transfer as long as there are any to take.
fn carry(shared: &Shared, lane: &mut Lane, job: &Job, row: Option<TimelineLane>) {
    let name = match job.from.tier < job.to.tier {
        true => "flush",
        false => "prefetch",
    };
    let _span = tracing::debug_span!(
        "transfer",
        name,
        version = job.version,
        bytes = job.from.size,
        from = job.from.tier.0,
        to = job.to.tier.0
    )
    .entered();
    let media = |place: &Place| shared.tiers.get(place.tier.0).map(|tier| &tier.media);
    let (Some(from), Some(to)) = (media(&job.from), media(&job.to)) else {
        return;
    };
    loop {
        match job.step() {
            Step::Carry(part) => {
                let begun = row.map(|_| Instant::now());
                let bytes = part.end - part.start;
                shared.pending.settle(&job.from, Access::Read);
                shared.pending.settle(&job.to, Access::Write);
                let (from, to) = ((from, &job.from), (to, &job.to));
                let form = match job.coding {
                    Coding::Stored { size, base } => Form::Difference { size, base },
                    _ => Form::Whole,
                };
                let outcome = match (&job.coding, &shared.stage) {
                    (Coding::Encode { base }, Some(stage)) => stage
                        .down(lane, from, to, (job.version, *base), &job.cancelled)
                        .map(|stored| job.encoded(stored)),
                    (Coding::Decode { bases }, Some(stage)) => {
                        let chain = (job.version, &job.from, bases.as_slice());
                        stage.up(lane, &shared.tiers, chain, to)
                    }
                    _ => lane.carry((job.version, form), from, to, part, &job.cancelled),
                };
                let what = What {
                    name: if outcome.is_ok() { name } else { "given up" },
                    version: Some(job.version),
                    bytes,
                };
                if let Some(begun) = begun {
                    shared.recorder.worked(row, what, begun);
                }
                job.carried(outcome);
            }
            Step::Report(outcome) => {
                let arrived = outcome.is_ok();
                shared.carried(job.id, outcome);
                if arrived {
                    shared.housekeep(job.to.tier);
                }
                return;
            }
            Step::Leave => return,
        }
    }
}
