//! The threads between the tiers: each tier has some that flush what leaves it and some that fetch what enters it.

use super::core::Shared;
use super::lane::Lane;
use crate::plan::{Coding, Place, TransferId};
use crate::{Error, Result, Version};
use crossbeam_channel::Receiver;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread::JoinHandle;
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

/// One transfer.
#[derive(Debug)]
pub(crate) struct Job {
    pub(super) id: TransferId,
    pub(super) version: Version,
    pub(super) from: Place,
    pub(super) to: Place,
    pub(super) coding: Coding,
    pub(super) cancelled: Arc<AtomicBool>,
}

/// The jobs of one direction and tier, and the lanes of the workers that share them.
pub(crate) struct Crew {
    pub(crate) direction: Direction,
    pub(crate) tier: usize,
    pub(crate) workers: Vec<Lane>,
    pub(crate) jobs: Receiver<Job>,
}

/// Starts the workers. They end when their queues' senders are gone.
pub(crate) fn start(shared: &Arc<Shared>, crews: Vec<Crew>) -> Result<Vec<JoinHandle<()>>> {
    let mut threads = Vec::new();
    for crew in crews {
        for mut lane in crew.workers {
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
                    carry(&shared, &mut lane, &job);
                }
            };
            threads.push(
                std::thread::Builder::new()
                    .name(name)
                    .spawn(run)
                    .map_err(Error::Thread)?,
            );
        }
    }
    Ok(threads)
}

fn carry(shared: &Shared, lane: &mut Lane, job: &Job) {
    let begun = Instant::now();
    let media = |place: &Place| shared.tiers.get(place.tier.0).map(|tier| &tier.media);
    let (Some(from), Some(to)) = (media(&job.from), media(&job.to)) else {
        return;
    };
    shared.pending.settle(&job.from, Access::Read);
    shared.pending.settle(&job.to, Access::Write);
    let (source, target) = ((from, &job.from), (to, &job.to));
    let outcome = match (&job.coding, &shared.stage) {
        (Coding::Encode { base }, Some(stage)) => stage
            .down(lane, source, target, *base, &job.cancelled)
            .map(Some),
        (Coding::Decode { bases }, Some(stage)) => {
            let from = (&job.from, bases.as_slice());
            stage.up(lane, &shared.tiers, from, target).map(|()| None)
        }
        _ => lane
            .carry(job.version, source, target, &job.cancelled)
            .map(|()| None),
    };
    let arrived = outcome.is_ok();
    shared.carried(job.id, outcome.map(|stored| (begun.elapsed(), stored)));
    if arrived {
        shared.housekeep(job.to.tier);
    }
}
