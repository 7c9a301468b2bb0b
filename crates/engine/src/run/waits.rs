//! Waits of callers for the plan's answers, by the transfers that ended them.

use super::job::Job;
use super::medium::TierState;
use crate::Version;
use crate::blocked::Cause;
use crate::metrics::Waits;
use crate::plan::Event;
use std::sync::Arc;
use std::time::Duration;
use tierflow_sync::model::Ordering;

/// The wait of a call that may sleep.
#[derive(Debug, Clone, Copy)]
pub(super) struct WaitInfo {
    pub(super) cause: Cause,
    /// The version for which the call waits; `None` for all versions.
    pub(super) version: Option<Version>,
    /// Bytes of the version; 0 if the caller does not know them.
    pub(super) bytes: u64,
}

impl WaitInfo {
    /// Returns the wait of the call behind this event, for a version of so many bytes; `None` for a call that never sleeps.
    pub(super) fn of(event: &Event, bytes: u64) -> Option<Self> {
        let (cause, version) = match *event {
            Event::Checkpoint { version, .. } | Event::Produce { version, .. } => {
                (Cause::Room, Some(version))
            }
            Event::Restore { version, .. } | Event::Consume { version, .. } => {
                (Cause::Arrival, Some(version))
            }
            Event::Wait { version, .. } => (Cause::Flushes, version),
            _ => return None,
        };
        Some(Self {
            cause,
            version,
            bytes,
        })
    }
}

/// A wait that is over, with its times on the plan's clock.
#[derive(Debug, Clone, Copy)]
pub(super) struct EndedWait<'a> {
    pub(super) info: WaitInfo,
    pub(super) since_ns: u64,
    pub(super) until_ns: u64,
    /// The transfer that ended the wait.
    pub(super) by: Option<&'a Job>,
}

/// The waits that ended, by their cause and the hop that ended them.
#[derive(Debug)]
pub(super) struct WaitTable(Vec<Waits>);

impl Default for WaitTable {
    fn default() -> Self {
        // So many rows are three causes, over the hops of five tiers: waits allocate nothing.
        Self(Vec::with_capacity(3 * (5 * 2 + 1)))
    }
}

impl WaitTable {
    pub(super) fn read(&self) -> Vec<Waits> {
        self.0.clone()
    }

    pub(super) fn add(&mut self, wait: EndedWait<'_>, tiers: &[TierState]) {
        let EndedWait {
            info,
            since_ns,
            until_ns,
            by,
        } = wait;
        let [from, to] = by.and_then(|job| hop(job, tiers)).unwrap_or_default();
        let ns = Duration::from_nanos;
        let at = |moment: u64| moment.clamp(since_ns, until_ns);
        let (asked, begun) = match by {
            Some(job) => (job.asked_ns, job.begun_ns.load(Ordering::Relaxed)),
            None => (until_ns, until_ns),
        };
        let begun = begun.max(asked);
        let time = ns(until_ns - since_ns);
        let is_it = |row: &Waits| (row.cause, row.from, row.to) == (info.cause, from, to);
        let known = self.0.iter().position(is_it);
        let known = known.unwrap_or_else(|| {
            self.0.push(Waits {
                cause: info.cause,
                from,
                to,
                count: 0,
                ahead: 0,
                total: Duration::ZERO,
                before: Duration::ZERO,
                queued: Duration::ZERO,
                moving: Duration::ZERO,
                longest: Duration::ZERO,
                waiting: None,
                transferred: None,
            });
            self.0.len() - 1
        });
        let row = &mut self.0[known];
        row.count += 1;
        row.total += time;
        if by.is_some() {
            row.ahead += u64::from(asked < since_ns);
            row.before += ns(at(asked) - since_ns);
            row.queued += ns(at(begun) - at(asked));
            row.moving += ns(until_ns - at(begun));
        }
        if time >= row.longest {
            row.longest = time;
            row.waiting = info.version;
            row.transferred = by.map(|job| job.transfer.version);
        }
    }
}

/// Returns the transfer that ended a wait for a version, of those whose ends the plan was told together: that of the version, or the last
/// one, as room is made by all of them.
pub(super) fn ended_by(version: Option<Version>, ended: &[Arc<Job>]) -> Option<&Job> {
    let of_version = |job: &&Arc<Job>| Some(job.transfer.version) == version;
    let by = ended.iter().find(of_version).or(ended.last());
    by.map(|job| &**job)
}

/// Returns the tiers of a transfer: the slowest one that it reads, and the one that it writes.
fn hop(job: &Job, tiers: &[TierState]) -> Option<[&'static str; 2]> {
    let from = job.transfer.from.iter().map(|piece| piece.place.tier.0);
    let to = job.transfer.to.first().map(|piece| piece.place.tier.0);
    let name = |tier: usize| tiers.get(tier).map(|tier| tier.kind.name());
    Some([name(from.max()?)?, name(to?)?])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Coding, Transfer, TransferId};

    #[test]
    fn a_wait_for_a_version_was_ended_by_the_transfer_of_that_version() {
        let job = |version| {
            let transfer = Transfer {
                id: TransferId(version),
                version,
                from: Vec::new(),
                to: Vec::new(),
                coding: Coding::Plain,
            };
            Arc::new(Job::new(transfer, 0, 0))
        };
        let ended = [3, 4, 5].map(job);
        let by = |version| ended_by(version, &ended).map(|job| job.transfer.version);
        assert_eq!([by(Some(3)), by(Some(4))], [Some(3), Some(4)]);
        assert_eq!([by(Some(9)), by(None)], [Some(5), Some(5)]);
        assert!(ended_by(Some(3), &[]).is_none());
    }
}
