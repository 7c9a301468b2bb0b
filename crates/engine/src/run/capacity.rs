//! Tiers whose size others decide: the host cache in a pool, memory that peers lend.
//!
//! Whoever wants bytes back has them in four steps: the plan is given a lower limit, it says when nothing lies beyond that any
//! more, the work that the application's streams still do there ends, and the memory goes back. A thread for each such tier sees
//! to it; it sleeps until something happens.

#[cfg(feature = "peers")]
mod peers;
mod pool;

#[cfg(feature = "peers")]
pub(crate) use peers::start as start_peers;
pub(crate) use pool::{Pool, start as start_pool};

use super::core::Shared;
use super::sync::{Builder, JoinHandle};
use crate::plan::{Event, Place, TierId};
use crate::{Error, Result};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use tierflow_device::Access;

/// How soon memory is offered again that could not be given back, and how often a tier says that it fills.
const AGAIN: Duration = Duration::from_millis(5);

/// Who decides how much of a tier is used.
trait Lender: Send + 'static {
    /// Sleeps until it may have something to say, the bell rings, or the time is over.
    fn wait(&mut self, bell: &Bell, limit: Option<Duration>);

    /// The bytes that may be used from now on, if there is something new to say.
    fn terms(&mut self, shared: &Shared, notices: &Notices) -> Result<Option<u64>>;

    /// Makes memory of so many bytes usable.
    fn grow(&mut self, shared: &Shared, bytes: u64) -> Result<()>;

    /// Takes back all beyond the first `kept` bytes, which nobody uses. Returns the bytes that may be used from now on.
    ///
    /// # Errors
    /// It is to be offered again.
    fn take_back(&mut self, shared: &Shared, kept: u64) -> Result<u64>;
}

/// Wakes the thread of a tier.
#[derive(Debug)]
struct Bell(OwnedFd);

impl Bell {
    fn new() -> Result<Self> {
        let made = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC);
        Ok(Self(made.map_err(|errno| Error::Thread(errno.into()))?))
    }

    fn ring(&self) {
        // One that cannot be rung any louder rings.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    /// Sleeps until it rings, one of the others can be read from, or the time is over.
    fn wait(&self, others: &[BorrowedFd<'_>], limit: Option<Duration>) {
        if cfg!(shuttle) {
            // There, any wait is over sooner or later.
            return super::sync::sleep(Duration::ZERO);
        }
        let all = std::iter::once(self.0.as_fd()).chain(others.iter().copied());
        let readable = |fd| PollFd::from_borrowed_fd(fd, PollFlags::IN);
        let limit = limit.and_then(|limit| Timespec::try_from(limit).ok());
        // A signal ends it, too: whoever waits looks, and waits again.
        let _ = poll(&mut all.map(readable).collect::<Vec<_>>(), limit.as_ref());
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }
}

/// What the plan says of a tier to the thread that keeps its size.
#[derive(Debug)]
struct Notices {
    tier: TierId,
    bell: Bell,
    /// The limit beyond which nothing lies any more, as the plan said last.
    released: AtomicU64,
    /// The tier has a use for more.
    fills: AtomicBool,
    /// Something happened since the lender was last told what the tier has a use for.
    stirred: AtomicBool,
}

/// No limit.
const NONE: u64 = u64::MAX;

/// The plan's end of the notices.
#[derive(Debug)]
pub(super) struct Link {
    notices: Arc<Notices>,
    /// With fewer free bytes, the tier fills: 0 where the lender does not ask.
    scarce: u64,
    told: Option<Instant>,
}

impl Link {
    pub(super) fn tier(&self) -> TierId {
        self.notices.tier
    }

    /// After an event: there are so many free bytes.
    pub(super) fn look(&mut self, free: u64) {
        if self.scarce == 0 {
            return;
        }
        let notices = &self.notices;
        let has_stirred = notices.stirred.swap(true, Ordering::Relaxed);
        let lately = self.told.is_some_and(|told| told.elapsed() < AGAIN);
        if free < self.scarce && !lately {
            self.told = Some(Instant::now());
            notices.fills.store(true, Ordering::Release);
            notices.bell.ring();
        } else if !has_stirred {
            notices.bell.ring();
        }
    }

    /// Nothing lies beyond the first `bytes` of a tier any more.
    pub(super) fn released(&self, tier: TierId, bytes: u64) {
        if tier == self.notices.tier {
            self.notices.released.store(bytes, Ordering::Release);
            self.notices.bell.ring();
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // The engine ends, and so does the thread.
        self.notices.bell.ring();
    }
}

/// What lies beyond the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Beyond {
    /// No memory.
    Nothing,
    /// What the plan is emptying.
    Leaving,
    /// Empty memory, which is to be given back.
    Empty,
}

struct Keeper<L> {
    shared: Weak<Shared>,
    notices: Arc<Notices>,
    /// Bytes of the tier.
    capacity: u64,
    /// What the plan was told last.
    limit: u64,
    beyond: Beyond,
    lender: L,
}

/// Starts the thread that keeps a tier of `limit` usable bytes within what its lender says. It ends when the engine's core lets go
/// of its [`Link`], with what `end` makes of the lender: the tier's memory is still there then.
fn start<L: Lender, R: Send + 'static>(
    shared: &Arc<Shared>,
    (tier, limit, scarce): (TierId, u64, u64),
    make: impl FnOnce(Arc<dyn Fn() + Send + Sync>) -> L,
    end: impl FnOnce(L) -> R + Send + 'static,
) -> Result<JoinHandle<R>> {
    let notices = Arc::new(Notices {
        tier,
        bell: Bell::new()?,
        released: AtomicU64::new(NONE),
        fills: AtomicBool::new(false),
        stirred: AtomicBool::new(false),
    });
    let theirs = Arc::clone(&notices);
    let lender = make(Arc::new(move || theirs.bell.ring()));
    shared.tell(Event::Limit { tier, bytes: limit });
    let mut core = shared.core.lock();
    let capacity = core.plan().statistics().tiers[tier.0].capacity;
    core.desk.links.push(Link {
        notices: Arc::clone(&notices),
        scarce,
        told: None,
    });
    drop(core);
    let mut keeper = Keeper {
        shared: Arc::downgrade(shared),
        notices,
        capacity,
        limit: limit.min(capacity),
        beyond: Beyond::Nothing,
        lender,
    };
    let run = move || {
        keeper.run();
        end(keeper.lender)
    };
    let thread = Builder::new().name(String::from("tierflow-size"));
    thread.spawn(run).map_err(Error::Thread)
}

impl<L: Lender> Keeper<L> {
    fn run(&mut self) {
        loop {
            let shared = self.shared.upgrade();
            let Some(shared) = shared.filter(|shared| !shared.is_stopping()) else {
                return;
            };
            // An earlier limit's answer is none to the latest.
            let released = self.notices.released.load(Ordering::Acquire);
            if self.beyond == Beyond::Leaving && released == self.limit {
                self.beyond = Beyond::Empty;
            }
            if let Err(error) = self.look(&shared) {
                // What it has, it goes on having.
                shared.core.lock().desk.last_failure = Some(Arc::new(error));
            }
            drop(shared);
            let again = (self.beyond == Beyond::Empty).then_some(AGAIN);
            self.lender.wait(&self.notices.bell, again);
        }
    }

    fn look(&mut self, shared: &Shared) -> Result<()> {
        match self.lender.terms(shared, &self.notices)? {
            // More may be wanted than what is empty.
            Some(bytes) if self.beyond != Beyond::Empty || bytes < self.limit => {
                self.go_by(shared, bytes)
            }
            _ if self.beyond == Beyond::Empty => {
                let bytes = self.give_back(shared)?;
                self.go_by(shared, bytes)
            }
            _ => Ok(()),
        }
    }

    /// The tier may use so many bytes.
    fn go_by(&mut self, shared: &Shared, bytes: u64) -> Result<()> {
        let bytes = bytes.min(self.capacity);
        if bytes > self.limit {
            // Memory first: the plan hands it out at once.
            self.lender.grow(shared, bytes)?;
        }
        if bytes != self.limit {
            self.beyond = match bytes < self.limit {
                true => Beyond::Leaving,
                false => Beyond::Nothing,
            };
            self.limit = bytes;
            self.notices.released.store(NONE, Ordering::Release);
            let tier = self.notices.tier;
            shared.tell(Event::Limit { tier, bytes });
        }
        Ok(())
    }

    /// Nothing lies beyond the limit any more: gives the memory back.
    fn give_back(&mut self, shared: &Shared) -> Result<u64> {
        let rest = self.capacity - self.limit;
        let rest = Place {
            tier: self.notices.tier,
            offset: self.limit,
            size: rest,
            reserved: rest,
        };
        shared.pending.settle(&rest, Access::Write);
        let terms = self.lender.take_back(shared, self.limit)?;
        self.beyond = Beyond::Nothing;
        Ok(terms)
    }
}
