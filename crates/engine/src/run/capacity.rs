//! Tiers whose size others decide: the host cache in a pool, memory that peers lend.
//!
//! A caller or an owner that wants bytes back has them in four steps: the plan is given a lower limit, it says when nothing lies beyond that any
//! more, the work that the application's streams still do there ends, and the memory goes back. A thread for each such tier sees
//! to it; it sleeps until something happens.

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
    /// Returns the memory as an end of copies has it.
    fn medium(&self) -> &MemoryMedium;

    /// Returns the end of the peer's part in which the byte at `offset` lies.
    fn part_end(&self, offset: u64) -> u64;

    /// Returns true if this device reaches the memory.
    fn is_of(&self, device: &Device) -> bool;

    /// Starts the thread that keeps the tier within the bytes that the peers lend.
    fn start(&self, shared: &Arc<EngineCore>, tier: TierId) -> Result<JoinHandle<()>>;
}

/// Starts the thread that looks after the peers' memory, if there is a tier of it.
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
    /// Sleeps until it may have something to say, another thread signals the event, or the time is over.
    fn wait(&mut self, event: &EventFd, limit: Option<Duration>);

    /// The bytes that may be used from now on, if there is something new to say.
    fn terms(&mut self, shared: &EngineCore, notices: &Notices) -> Result<Option<u64>>;

    /// Makes memory of so many bytes usable.
    fn grow(&mut self, shared: &EngineCore, bytes: u64) -> Result<()>;

    /// Takes back all beyond the first `durable_tier` bytes, which are not in use. Returns the bytes that may be used from now on.
    ///
    /// # Errors
    /// The memory could not be given back, so the caller makes it usable again.
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
    /// Bytes of the tier.
    capacity: u64,
    /// The limit that the plan was told last.
    limit: u64,
    beyond: ExcessState,
    owner: O,
}

/// Starts the thread that keeps a tier of `limit` usable bytes within what its owner says. It ends when the engine's core lets go
/// of its [`NoticeSender`], with what `end` makes of the owner: the tier's memory is still there then.
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
            // An earlier limit's answer is none to the latest.
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
            // More may be wanted than what is empty.
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

    /// The tier may use so many bytes.
    fn go_by(&mut self, shared: &EngineCore, bytes: u64) -> Result<()> {
        let bytes = bytes.min(self.capacity);
        if bytes > self.limit {
            // Memory first: the plan hands it out at once.
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

    /// Nothing lies beyond the limit any more: gives the memory back.
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
