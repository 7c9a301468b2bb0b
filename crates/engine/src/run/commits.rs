//! Small versions on their way from host memory into a directory that outlives the engine, many at a time: they share one write and
//! one synchronisation there.

use super::core::Shared;
use super::ends::Lying;
use super::job::Job;
use super::kept::Kept;
use super::medium::{Medium, medium};
use super::sync::Ordering;
use super::together::SMALL;
use crate::plan::Coding;
use crate::{Result, Version};
use tierflow_device::{Access, ReadLoan};

/// A small version that is to be kept, and where its bytes are.
struct Small<'j> {
    version: Version,
    memory: Lying<'j>,
    kept: &'j Kept,
}

/// What a job keeps, if that is one small piece of host memory as it is, for a directory that takes many at once.
fn small<'j>(shared: &'j Shared, job: &'j Job) -> Option<Small<'j>> {
    let transfer = &job.transfer;
    let ([from], [to]) = (transfer.from.as_slice(), transfer.to.as_slice()) else {
        return None;
    };
    if !matches!(transfer.coding, Coding::Plain) || from.place.size > SMALL {
        return None;
    }
    let memory = Lying::on(&shared.tiers, from);
    let kept = medium(&shared.tiers, to).kept()?;
    let is_host = matches!(memory.medium, Medium::Host(_));
    (is_host && kept.takes_many()).then_some(Small {
        version: transfer.version,
        memory,
        kept,
    })
}

/// Whether a job may be kept together with others.
pub(super) fn is_small(shared: &Shared, job: &Job) -> bool {
    small(shared, job).is_some()
}

/// Keeps those of the jobs that are small. Returns them, and those that are left to be carried one by one: also after a failure,
/// which each is to meet for itself.
pub(super) fn keep<'j>(shared: &'j Shared, jobs: Vec<&'j Job>) -> (Vec<&'j Job>, Vec<&'j Job>) {
    let is_wanted = |job: &Job| !job.cancelled.load(Ordering::Relaxed);
    let (together, mut left): (Vec<&Job>, Vec<&Job>) = jobs
        .into_iter()
        .partition(|job| is_wanted(job) && is_small(shared, job));
    if together.len() > 1 && keep_all(shared, &together).is_ok() {
        return (together, left);
    }
    left.extend(together);
    (Vec::new(), left)
}

/// Keeps jobs of one way, which all go to the same directory.
fn keep_all(shared: &Shared, jobs: &[&Job]) -> Result<()> {
    let smalls: Vec<Small<'_>> = jobs.iter().filter_map(|job| small(shared, job)).collect();
    let Some(Small { kept, .. }) = smalls.first() else {
        return Ok(());
    };
    let lend = |small: &Small<'_>| {
        let Lying { medium, piece } = small.memory;
        shared.pending.settle(&piece.place, Access::Read);
        medium.lend(small.memory.at(small.memory.all()))
    };
    let lent: Vec<ReadLoan> = smalls.iter().map(lend).collect::<Result<_>>()?;
    let versions = smalls.iter().zip(&lent);
    let versions = versions.map(|(small, lent)| Ok((small.version, lent.bytes()?)));
    kept.save_many(&versions.collect::<Result<Vec<_>>>()?)?;
    for small in &smalls {
        kept.end(small.version, false);
    }
    Ok(())
}
