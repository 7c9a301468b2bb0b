//! Small transfers between host memory and storage, several at a time: a disk takes about as long for a page as for a hundred, so
//! those that lie side by side on it are one request.

use super::context::TierContext;
use super::core::EngineCore;
use super::job::{Job, SMALL, Task};
use super::medium::Medium;
use super::placed_piece::PlacedPiece;
use crate::plan::{Coding, Place};
use crate::{Error, Result};
use std::sync::Arc;
use tierflow_device::Access;
use tierflow_store::Storage;
use tierflow_sync::model::{Ordering, Receiver};
use tierflow_transfer::{BUFFER_BYTES, whole_blocks};

/// Bytes of small transfers that may be under way over a link to or from storage beyond those that its workers copy.
pub(crate) const AHEAD: u64 = 1 << 20;

/// Small transfers that one worker takes at a time.
const MOST: usize = 64;

/// A small transfer, with the places of its bytes in memory and on storage.
struct SmallPart<'j> {
    job: &'j Job,
    memory: PlacedPiece<'j>,
    stored: &'j Place,
}

/// Takes the jobs that wait behind `first`, as long as all jobs before are small; only the last need not be small. Takes no more than one
/// share of so many `workers`: transfers that do not lie side by side are to keep all of them busy. A task that is no transfer ends the
/// row, and is returned as the next one.
pub(super) fn with_followers(
    shared: &EngineCore,
    first: Arc<Job>,
    tasks: &Receiver<Task>,
    workers: usize,
) -> (Vec<Arc<Job>>, Option<Task>) {
    let most = MOST.min(1 + tasks.len().div_ceil(workers));
    let mut taken = vec![first];
    let is_small = |job: &Job| small(shared, job).is_some();
    while taken.len() < most && taken.last().is_some_and(|job| is_small(job)) {
        match tasks.try_recv() {
            Ok(Task::Transfer(job)) => taken.push(job),
            Ok(other) => return (taken, Some(other)),
            Err(_) => break,
        }
    }
    (taken, None)
}

/// Returns the piece that a job moves, if it is one small piece that goes as it is between host memory and storage. The processor copies
/// it, so a job that touches device memory has no such piece.
fn small<'j>(shared: &'j EngineCore, job: &'j Job) -> Option<SmallPart<'j>> {
    let transfer = &job.transfer;
    let ([from], [to]) = (transfer.from.as_slice(), transfer.to.as_slice()) else {
        return None;
    };
    let is_as_it_is = matches!(transfer.coding, Coding::Plain | Coding::Stored { .. });
    if !is_as_it_is || from.place.size > SMALL {
        return None;
    }
    let (source, target) = (
        PlacedPiece::on(&shared.tiers, from),
        PlacedPiece::on(&shared.tiers, to),
    );
    let (memory, stored) = match (source.medium, target.medium) {
        (Medium::Host(_), Medium::Storage(..)) => (source, &to.place),
        (Medium::Storage(..), Medium::Host(_)) => (target, &from.place),
        _ => return None,
    };
    Some(SmallPart {
        job,
        memory,
        stored,
    })
}

/// Carries the jobs that lie side by side on storage. Returns these jobs, and those that are left to be carried one by one. After a
/// failure, the jobs of that request are left, too, so that each meets the failure for itself.
pub(super) fn carry<'j>(
    shared: &'j EngineCore,
    context: &mut TierContext,
    jobs: &'j [Arc<Job>],
    is_down: bool,
) -> (Vec<&'j Job>, Vec<&'j Job>) {
    let (mut done, mut left) = (Vec::new(), Vec::new());
    if let [job] = jobs {
        return (done, vec![job]);
    }
    let mut all: Vec<SmallPart<'_>> = Vec::with_capacity(jobs.len());
    for job in jobs {
        match small(shared, job).filter(|_| !job.cancelled.load(Ordering::Relaxed)) {
            Some(small) => all.push(small),
            None => left.push(&**job),
        }
    }
    all.sort_unstable_by_key(|small| small.stored.offset);
    let mut rest = all.as_slice();
    while let Some(first) = rest.first() {
        let end = |small: &SmallPart<'_>| small.stored.offset + small.stored.reserved;
        let begin = first.stored.offset;
        let follows = |pair: &[SmallPart<'_>]| {
            end(&pair[0]) == pair[1].stored.offset && end(&pair[1]) - begin <= BUFFER_BYTES
        };
        let length = 1 + rest.windows(2).take_while(|pair| follows(pair)).count();
        let (run, behind) = rest.split_at(length);
        rest = behind;
        let is_done = length > 1 && carry_run(shared, context, run, is_down).is_ok();
        let carried = run.iter().map(|small| small.job);
        match is_done {
            true => done.extend(carried),
            false => left.extend(carried),
        }
    }
    (done, left)
}

/// Carries transfers that lie side by side on storage, in one request.
fn carry_run(
    shared: &EngineCore,
    context: &mut TierContext,
    run: &[SmallPart<'_>],
    is_down: bool,
) -> Result<()> {
    let (Some(first), Some(last)) = (run.first(), run.last()) else {
        return Ok(());
    };
    let storage = storage(shared, first.stored)?;
    let begin = first.stored.offset;
    let length =
        last.stored.offset - begin + whole_blocks(storage.alignment() as u64, last.stored.size);
    let staging = context.buffers().buffer(length)?;
    let _under_way: Vec<_> = run
        .iter()
        .map(|small| small.memory.medium.bytes().fetched_from())
        .collect();
    let within = |small: &SmallPart<'_>| {
        let from = (small.stored.offset - begin) as usize;
        from..from + small.memory.piece.place.size as usize
    };
    if is_down {
        let mut staged = staging.lend_mut(0..length)?;
        for small in run {
            let PlacedPiece { medium, piece } = small.memory;
            shared.pending.settle(&piece.place, Access::Read);
            let lent = medium.lend(small.memory.at(small.memory.all()))?;
            staged.bytes_mut()?[within(small)].copy_from_slice(lent.bytes()?);
        }
        drop(staged);
        let parts: Vec<usize> = run
            .iter()
            .map(|small| usize::try_from(small.stored.reserved).unwrap_or(usize::MAX))
            .collect();
        return Ok(storage.write_parts(begin, staging.lend(0..length)?.bytes()?, &parts)?);
    }
    let mut staged = staging.lend_mut(0..length)?;
    storage.read_at(begin, staged.bytes_mut()?)?;
    for small in run {
        let PlacedPiece { medium, piece } = small.memory;
        shared.pending.settle(&piece.place, Access::Write);
        let mut lent = medium.lend_mut(small.memory.at(small.memory.all()))?;
        let from = &staged.bytes_mut()?[within(small)];
        lent.bytes_mut()?.copy_from_slice(from);
    }
    Ok(())
}

fn storage<'s>(shared: &'s EngineCore, place: &Place) -> Result<&'s dyn Storage> {
    let tier = shared.tiers.get(place.tier.0);
    let storage = tier.and_then(|tier| tier.medium.storage());
    storage.map(AsRef::as_ref).ok_or(Error::Internal {
        what: "a place on storage that is not on storage",
    })
}
