//! News from the plan about a tier's size, and the threads that wait for them.

use crate::plan::TierId;
use crate::{Error, Result};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tierflow_sync::model::{Sender, sleep};

/// How soon memory is offered again that could not be given back, and how often a tier says that it fills.
pub(super) const AGAIN: Duration = Duration::from_millis(5);

/// The event that wakes the thread of a tier, which may wait for other files beside it.
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

    /// Sleeps until it is signalled, one of the others can be read from, or the time is over.
    pub(super) fn wait(&self, others: &[BorrowedFd<'_>], limit: Option<Duration>) {
        if cfg!(shuttle) {
            // There, any wait is over sooner or later.
            return sleep(Duration::ZERO);
        }
        let all = std::iter::once(self.0.as_fd()).chain(others.iter().copied());
        let readable = |fd| PollFd::from_borrowed_fd(fd, PollFlags::IN);
        let limit = limit.and_then(|limit| Timespec::try_from(limit).ok());
        // A signal ends it, too: the caller looks, and waits again.
        let _ = poll(&mut all.map(readable).collect::<Vec<_>>(), limit.as_ref());
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }
}

/// News from the plan to the thread that keeps a tier's size.
#[derive(Debug)]
pub(super) struct Notices {
    pub(super) tier: TierId,
    pub(super) event: EventFd,
    /// The limit beyond which nothing lies any more, as the plan said last.
    pub(super) released: AtomicU64,
    /// The tier has a use for more.
    pub(super) fills: AtomicBool,
    /// Something happened since the owner was last told what the tier has a use for.
    pub(super) stirred: AtomicBool,
}

/// No limit.
pub(super) const NONE: u64 = u64::MAX;

/// The plan's end of the notices.
#[derive(Debug)]
pub(in crate::run) struct NoticeSender {
    pub(super) notices: Arc<Notices>,
    /// With fewer free bytes, the tier fills: 0 where the owner does not ask.
    pub(super) scarce: u64,
    pub(super) told: Option<Instant>,
}

impl NoticeSender {
    pub(in crate::run) fn tier(&self) -> TierId {
        self.notices.tier
    }

    /// After an event: there are so many free bytes.
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

    /// Nothing lies beyond the first `bytes` of a tier any more.
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

/// Who waits for a tier to be emptied.
#[derive(Debug)]
pub(in crate::run) struct Waiting {
    pub(in crate::run) tier: TierId,
    pub(in crate::run) released: Sender<u64>,
}

impl Waiting {
    /// Nothing lies beyond the first `bytes` of a tier any more.
    pub(in crate::run) fn released(&self, tier: TierId, bytes: u64) {
        if tier == self.tier {
            // The one that waits may have given up.
            let _ = self.released.send(bytes);
        }
    }
}
