//! Notices from the plan about a tier's size, and the events that wake the threads that wait for such notices.

use crate::plan::TierId;
use crate::{Error, Result};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tierflow_sync::model::{Sender, sleep};

/// Time after which memory that could not be given back is offered again, and the least time between two notices that a tier fills.
pub(super) const AGAIN: Duration = Duration::from_millis(5);

/// An event that wakes the thread of a tier. The thread may wait for other files at the same time.
#[derive(Debug)]
pub(super) struct EventFd(OwnedFd);

impl EventFd {
    pub(super) fn new() -> Result<Self> {
        let made = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC);
        Ok(Self(made.map_err(|errno| Error::Thread(errno.into()))?))
    }

    pub(super) fn signal(&self) {
        // An event whose count cannot grow any more is signalled already.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    /// Sleeps until the event is signalled, one of `others` can be read from, or `limit` is over.
    pub(super) fn wait(&self, others: &[BorrowedFd<'_>], limit: Option<Duration>) {
        if cfg!(shuttle) {
            // A model has no files: there, any wait is over sooner or later.
            return sleep(Duration::ZERO);
        }
        let all = std::iter::once(self.0.as_fd()).chain(others.iter().copied());
        let readable = |fd| PollFd::from_borrowed_fd(fd, PollFlags::IN);
        let limit = limit.and_then(|limit| Timespec::try_from(limit).ok());
        // A signal to the process ends the wait, too: the caller looks, and waits again.
        let _ = poll(&mut all.map(readable).collect::<Vec<_>>(), limit.as_ref());
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }
}

/// Notices from the plan to the thread that keeps a tier's size.
#[derive(Debug)]
pub(super) struct Notices {
    pub(super) tier: TierId,
    pub(super) event: EventFd,
    /// The last limit beyond which nothing lies any more, as the plan told; [`NONE`] if it has not told yet.
    pub(super) released: AtomicU64,
    /// True if the tier fills, and has a use for more bytes.
    pub(super) fills: AtomicBool,
    /// True if something happened since the owner was last told the tier's demand.
    pub(super) stirred: AtomicBool,
}

/// The value of [`Notices::released`] that is no limit.
pub(super) const NONE: u64 = u64::MAX;

/// The plan's end of the notices.
#[derive(Debug)]
pub(in crate::run) struct NoticeSender {
    pub(super) notices: Arc<Notices>,
    /// Free bytes below which the tier fills; 0 if the owner does not ask for that.
    pub(super) scarce: u64,
    pub(super) told: Option<Instant>,
}

impl NoticeSender {
    pub(in crate::run) fn tier(&self) -> TierId {
        self.notices.tier
    }

    /// Wakes the thread after an event of the plan that left `free` bytes: if these are scarce, or if the event is the first since the
    /// owner was told.
    pub(in crate::run) fn look(&mut self, free: u64) {
        if self.scarce == 0 {
            return;
        }
        let notices = &self.notices;
        let has_stirred = notices.stirred.swap(true, Ordering::Relaxed);
        let lately = self.told.is_some_and(|told| told.elapsed() < AGAIN);
        if free < self.scarce && !lately {
            self.told = Some(Instant::now());
            notices.fills.store(true, Ordering::Release);
            notices.event.signal();
        } else if !has_stirred {
            notices.event.signal();
        }
    }

    /// Tells the thread that nothing lies beyond the first `bytes` of a tier any more.
    pub(in crate::run) fn released(&self, tier: TierId, bytes: u64) {
        if tier == self.notices.tier {
            self.notices.released.store(bytes, Ordering::Release);
            self.notices.event.signal();
        }
    }
}

impl Drop for NoticeSender {
    fn drop(&mut self) {
        // The engine ends, and so does the thread.
        self.notices.event.signal();
    }
}

/// A call that waits until a tier is emptied.
#[derive(Debug)]
pub(in crate::run) struct Waiting {
    pub(in crate::run) tier: TierId,
    pub(in crate::run) released: Sender<u64>,
}

impl Waiting {
    /// Tells the call that nothing lies beyond the first `bytes` of a tier any more.
    pub(in crate::run) fn released(&self, tier: TierId, bytes: u64) {
        if tier == self.tier {
            // The call may have given up.
            let _ = self.released.send(bytes);
        }
    }
}
