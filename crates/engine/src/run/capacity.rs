//! Tiers whose size others decide: the host cache in a pool, memory that peers lend.
//!
//! Bytes go back to a caller or an owner that wants them in four steps: the plan gets a lower limit; it tells when nothing lies beyond that
//! any more; the work that the application's streams still do there ends; and the memory is given back. Each such tier has a thread for
//! these steps, which sleeps until something happens.

mod notices;
#[cfg(feature = "peers")]
mod peers;
mod pool;

pub(crate) use pool::{Pool, start as start_pool};

pub(super) use notices::{NoticeSender, Waiting};

use super::core::EngineCore;
use super::medium::Medium;
use crate::plan::{Event, Place, TierId};
use crate::{Error, Result};
use notices::{AGAIN, EventFd, NONE, Notices};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tierflow_device::{Access, Device};
use tierflow_sync::model::{Builder, JoinHandle};
use tierflow_transfer::MemoryMedium;

/// Memory of other devices that this one reaches.
pub(crate) trait PeerMemory: std::fmt::Debug + Send + Sync {
    /// Returns the memory as the medium of a copy.
    fn medium(&self) -> &MemoryMedium;

    /// Returns the end of the peer's part in which the byte at `offset` lies.
    fn part_end(&self, offset: u64) -> u64;

    /// Returns true if this device reaches the memory.
    fn is_of(&self, device: &Device) -> bool;

    /// Starts the thread that keeps the tier within the bytes that the peers lend.
    fn start(&self, shared: &Arc<EngineCore>, tier: TierId) -> Result<JoinHandle<()>>;
}

/// Starts the thread that keeps the peers' tier within the bytes that they lend, if there is such a tier.
pub(crate) fn start_peers(shared: &Arc<EngineCore>) -> Result<()> {
    let mut tiers = shared.tiers.iter().enumerate();
    let found = tiers.find_map(|(tier, level)| match &level.medium {
        Medium::Peers(memory) => Some((TierId(tier), Arc::clone(memory))),
        _ => None,
    });
    if let Some((tier, memory)) = found {
        shared.keep_thread(memory.start(shared, tier)?);
    }
    Ok(())
}

/// The owner of a tier's memory, who decides how much of it is used.
trait CapacityOwner: Send + 'static {
    /// Sleeps until the owner may have new terms, another thread signals `event`, or `limit` is over.
    fn wait(&mut self, event: &EventFd, limit: Option<Duration>);

    /// Returns the bytes that may be used from now on, or `None` if the owner has nothing new to say.
    fn terms(&mut self, shared: &EngineCore, notices: &Notices) -> Result<Option<u64>>;

    /// Makes the first `bytes` of the memory usable.
    fn grow(&mut self, shared: &EngineCore, bytes: u64) -> Result<()>;

    /// Takes back all memory beyond the first `durable` bytes, which is not in use. Returns the bytes that may be used from now on.
    ///
    /// # Errors
    /// The error of the memory or of its owner if the memory could not be given back. The caller tries again.
    fn take_back(&mut self, shared: &EngineCore, durable: u64) -> Result<u64>;
}

/// The state of the memory beyond the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ExcessState {
    /// No memory.
    Nothing,
    /// Memory that the plan is emptying.
    Leaving,
    /// Empty memory, which is to be given back.
    Empty,
}

/// The thread that keeps a tier within the bytes that its owner lets it use.
struct CapacityThread<O> {
    shared: Weak<EngineCore>,
    notices: Arc<Notices>,
    /// Bytes of the tier at its full size.
    capacity: u64,
    /// The limit that the plan was told last.
    limit: u64,
    beyond: ExcessState,
    owner: O,
}

/// Starts the thread that keeps a tier of `limit` usable bytes within the terms of its owner. The thread ends when the engine's core drops
/// the [`NoticeSender`], and returns `end(owner)`; the tier's memory still exists then.
fn start<O: CapacityOwner, R: Send + 'static>(
    shared: &Arc<EngineCore>,
    tier: TierId,
    limit: u64,
    scarce: u64,
    make: impl FnOnce(Arc<dyn Fn() + Send + Sync>) -> O,
    end: impl FnOnce(O) -> R + Send + 'static,
) -> Result<JoinHandle<R>> {
    let notices = Arc::new(Notices {
        tier,
        event: EventFd::new()?,
        released: AtomicU64::new(NONE),
        fills: AtomicBool::new(false),
        stirred: AtomicBool::new(false),
    });
    let theirs = Arc::clone(&notices);
    let owner = make(Arc::new(move || theirs.event.signal()));
    shared.tell(Event::Limit { tier, bytes: limit });
    let mut core = shared.lock();
    let capacity = core.plan().statistics().tiers[tier.0].capacity;
    core.calls.notices.push(NoticeSender {
        notices: Arc::clone(&notices),
        scarce,
        told: None,
    });
    drop(core);
    let mut capacity_thread = CapacityThread {
        shared: Arc::downgrade(shared),
        notices,
        capacity,
        limit: limit.min(capacity),
        beyond: ExcessState::Nothing,
        owner,
    };
    let run = move || {
        capacity_thread.run();
        end(capacity_thread.owner)
    };
    let thread = Builder::new().name(String::from("tierflow-size"));
    thread.spawn(run).map_err(Error::Thread)
}

impl<O: CapacityOwner> CapacityThread<O> {
    fn run(&mut self) {
        loop {
            let shared = self.shared.upgrade();
            let Some(shared) = shared.filter(|shared| !shared.is_stopping()) else {
                return;
            };
            // An answer to an earlier limit is no answer to the latest.
            let released = self.notices.released.load(Ordering::Acquire);
            if self.beyond == ExcessState::Leaving && released == self.limit {
                self.beyond = ExcessState::Empty;
            }
            if let Err(error) = self.look(&shared) {
                // The tier keeps the memory that it has.
                shared.lock().calls.last_failure = Some(Arc::new(error));
            }
            drop(shared);
            let again = (self.beyond == ExcessState::Empty).then_some(AGAIN);
            self.owner.wait(&self.notices.event, again);
        }
    }

    fn look(&mut self, shared: &EngineCore) -> Result<()> {
        match self.owner.terms(shared, &self.notices)? {
            // The owner may want more than what is empty.
            Some(bytes) if self.beyond != ExcessState::Empty || bytes < self.limit => {
                self.go_by(shared, bytes)
            }
            _ if self.beyond == ExcessState::Empty => {
                let bytes = self.give_back(shared)?;
                self.go_by(shared, bytes)
            }
            _ => Ok(()),
        }
    }

    /// Limits the tier to `bytes`. If that is more than before, makes the memory usable first.
    fn go_by(&mut self, shared: &EngineCore, bytes: u64) -> Result<()> {
        let bytes = bytes.min(self.capacity);
        if bytes > self.limit {
            // The plan hands the memory out at once, so it must be there.
            self.owner.grow(shared, bytes)?;
        }
        if bytes != self.limit {
            self.beyond = match bytes < self.limit {
                true => ExcessState::Leaving,
                false => ExcessState::Nothing,
            };
            self.limit = bytes;
            self.notices.released.store(NONE, Ordering::Release);
            let tier = self.notices.tier;
            shared.tell(Event::Limit { tier, bytes });
        }
        Ok(())
    }

    /// Gives the memory beyond the limit back, where nothing lies any more. Waits until the application's streams are done with it. Returns
    /// the bytes that may be used from now on.
    fn give_back(&mut self, shared: &EngineCore) -> Result<u64> {
        let rest = self.capacity - self.limit;
        let rest = Place {
            tier: self.notices.tier,
            offset: self.limit,
            size: rest,
            reserved: rest,
        };
        shared.pending.settle(&rest, Access::Write);
        let terms = self.owner.take_back(shared, self.limit)?;
        self.beyond = ExcessState::Nothing;
        Ok(terms)
    }
}
