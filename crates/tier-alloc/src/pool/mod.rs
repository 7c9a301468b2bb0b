//! A budget of host memory that several engines share, as threads of a process or as processes of a machine.
//!
//! Members share capacity, never bytes: each member has an arena of its own, and a lease that says how much of it it
//! may use. So a member that dies, or fails, takes nothing with it but its own.
//!
//! A member that wants it has an equal part of the pool. What one leaves unused, others may borrow, and give back as soon
//! as a member that has less than its fair share wants it (max-min fairness, in slabs). No two members ever hold the same
//! slab: one is taken only when it was given back, or its holder is dead.
//!
//! | file | its question |
//! |---|---|
//! | `share` | how much may each member have? |
//! | `local` | how do threads of a process see each other's accounts? |
//! | `node` | how do processes of a machine? |

mod local;
mod node;
mod share;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tierflow_device::{HostReservation, OwnerProcess};

use crate::error::{Error, Result};

use share::Account;

/// How often a member that lacks or returns slabs looks: one that was killed sends no notification.
const SLOW_POLL: Duration = Duration::from_millis(500);

/// How often a member looks that cannot be notified.
const FAST_POLL: Duration = Duration::from_millis(5);

/// A callback that wakes its member. It may be called from any thread, with a lock held: it neither blocks nor asks the pool anything.
pub type Wake = Arc<dyn Fn() + Send + Sync>;

/// How a pool is to be made.
#[derive(Clone, Copy, Debug)]
pub struct PoolOptions {
    bytes: u64,
    slab: u64,
}

impl PoolOptions {
    /// Bytes that are handed out and given back at once, if nothing else is said.
    pub const SLAB: u64 = 64 << 20;

    /// A pool of so many bytes, rounded down to whole slabs.
    #[must_use]
    pub fn new(bytes: u64) -> Self {
        Self {
            bytes,
            slab: Self::SLAB,
        }
    }

    /// Other slabs than of [`PoolOptions::SLAB`] bytes; rounded up to
    /// [`HostReservation::GRANULARITY`](tierflow_device::HostReservation::GRANULARITY), as memory is given back in such
    /// pieces.
    #[must_use]
    pub fn slab(mut self, bytes: u64) -> Self {
        self.slab = bytes;
        self
    }
}

/// A budget of host memory that several engines share. Clones are the same pool.
///
/// ```
/// use tierflow_tier_alloc::{HostPool, PoolOptions};
///
/// let pool = HostPool::in_process(PoolOptions::new(8 << 30))?;
/// let mut one = pool.join(8 << 30)?;
/// let mut other = pool.join(8 << 30)?;
/// // It may borrow what the other one does not want …
/// assert_eq!(one.ask(8 << 30)?.held, 8 << 30);
/// // … and gives back what is wanted, once that is out of use.
/// other.ask(3 << 30)?;
/// let terms = one.ask(8 << 30)?;
/// assert_eq!(terms.keep, 5 << 30);
/// one.give_back(terms.keep)?;
/// assert_eq!(other.ask(3 << 30)?.held, 3 << 30);
/// # Ok::<(), tierflow_tier_alloc::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct HostPool {
    registry: Arc<Registry>,
    total: u64,
    slab: u64,
}

/// The place of the members' accounts, for each other to see.
#[derive(Debug)]
enum Registry {
    Local(local::ProcessRegistry),
    Node(node::NodeRegistry),
}

/// The bytes that a member may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// Bytes that the member has, and may use until it gives them back.
    pub held: u64,
    /// Bytes that the member goes on having. If they are fewer, the member is to empty the rest, and to [give it back](Lease::give_back).
    pub keep: u64,
}

/// The bytes that one member has and wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolMember {
    /// Bytes that the member has a use for.
    pub wanted: u64,
    /// Bytes that the member has.
    pub held: u64,
    /// Bytes that the member goes on having.
    pub keep: u64,
}

impl HostPool {
    /// A pool for the threads of this process: all clones of this one.
    ///
    /// # Errors
    ///
    /// [`Error::Zero`] for slabs of 0 bytes.
    pub fn in_process(options: PoolOptions) -> Result<Self> {
        Self::on(options, |total, _| {
            Ok(Registry::Local(local::ProcessRegistry::new(total)))
        })
    }

    /// The pool of all processes of this user on this machine that name the same directory, which is made if it is not
    /// there, accessible to this user alone; `None` for one in the user's runtime directory. It must be on this machine's own
    /// file system. All name the same size. A process that is killed leaves nothing behind but its slabs, free.
    ///
    /// # Errors
    ///
    /// [`Error::Pool`] if the directory cannot be used; [`Error::Zero`] for slabs of 0 bytes.
    pub fn of_node(directory: Option<&Path>, options: PoolOptions) -> Result<Self> {
        let directory = directory.map_or_else(|| crate::directory::of_user("pool"), PathBuf::from);
        Self::on(options, |total, slab| {
            let registry = node::NodeRegistry::open(directory, total, slab);
            Ok(Registry::Node(
                registry.map_err(|reason| Error::Pool { reason })?,
            ))
        })
    }

    fn on(options: PoolOptions, make: impl FnOnce(u64, u64) -> Result<Registry>) -> Result<Self> {
        let PoolOptions { bytes, slab } = options;
        if slab == 0 {
            let setting = "the slab";
            return Err(Error::Zero { setting });
        }
        let slab = slab
            .checked_next_multiple_of(HostReservation::GRANULARITY as u64)
            .unwrap_or(slab);
        let total = bytes / slab;
        Ok(Self {
            registry: Arc::new(make(total, slab)?),
            total,
            slab,
        })
    }

    /// Bytes that there are to share.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.total * self.slab
    }

    /// A member that uses `most` bytes at most. It has nothing until it [asks](Lease::ask).
    ///
    /// # Errors
    ///
    /// [`Error::Pool`] if members with another idea of the pool's size are there, or the directory went away.
    pub fn join(&self, most: u64) -> Result<Lease> {
        let account = Account {
            most: most.div_ceil(self.slab),
            ..Account::default()
        };
        let (number, file, watch) = match self.registry.as_ref() {
            Registry::Local(registry) => (registry.join(account), None, None),
            Registry::Node(registry) => {
                let (number, file) = registry
                    .join(account)
                    .map_err(|reason| Error::Pool { reason })?;
                (number, Some(file), registry.watch())
            }
        };
        Ok(Lease {
            pool: self.clone(),
            account,
            number,
            file,
            watch,
            seen: 0,
            owner: OwnerProcess::default(),
        })
    }

    /// The members, in the order in which they joined.
    ///
    /// # Errors
    ///
    /// [`Error::Pool`] if the directory went away.
    pub fn members(&self) -> Result<Vec<PoolMember>> {
        let accounts = match self.registry.as_ref() {
            Registry::Local(registry) => registry.accounts(),
            Registry::Node(registry) => registry
                .accounts()
                .map_err(|reason| Error::Pool { reason })?,
        };
        let bytes = accounts.into_iter().map(|account| PoolMember {
            wanted: account.wanted.saturating_mul(self.slab),
            held: account.held.saturating_mul(self.slab),
            keep: account.keep.saturating_mul(self.slab),
        });
        Ok(bytes.collect())
    }
}

/// A member's part of a [`HostPool`]. Dropping it leaves the pool: what it had must be out of use by then. In a fork of the
/// process that joined, dropping it does nothing.
#[derive(Debug)]
pub struct Lease {
    pool: HostPool,
    account: Account,
    number: u64,
    /// In a node's registry, the file whose lock says that it lives.
    file: Option<node::Member>,
    /// There, too, the inotify watch that tells of changes.
    watch: Option<OwnedFd>,
    /// The registry's epoch when it last looked.
    seen: u64,
    owner: OwnerProcess,
}

impl Lease {
    /// The member has a use for `wanted` bytes: says what it may use now. Ask again when that changes, or
    /// [others](Self::has_changed) change.
    ///
    /// # Errors
    ///
    /// [`Error::Pool`] if the pool's directory cannot be used; the terms stay as they were.
    pub fn ask(&mut self, wanted: u64) -> Result<Terms> {
        self.account.wanted = wanted.div_ceil(self.pool.slab);
        self.settle()
    }

    /// All beyond the first `kept` bytes is out of use, and given back.
    ///
    /// # Errors
    ///
    /// [`Error::Pool`] if the pool's directory cannot be used; it is given back next time.
    pub fn give_back(&mut self, kept: u64) -> Result<Terms> {
        self.account.held = self.account.held.min(kept.div_ceil(self.pool.slab));
        self.account.keep = self.account.keep.min(self.account.held);
        self.settle()
    }

    /// Returns the bytes that the member may use, as far as it knows.
    #[must_use]
    pub fn terms(&self) -> Terms {
        Terms {
            held: self.account.held * self.pool.slab,
            keep: self.account.keep * self.pool.slab,
        }
    }

    /// Bytes handed out at once.
    #[must_use]
    pub fn slab(&self) -> u64 {
        self.pool.slab
    }

    /// Returns true if another member's account changed since this one last looked. Costs a system call at most; a member that was
    /// killed is noticed only when another one [asks](Self::ask) or [gives back](Self::give_back).
    #[must_use]
    pub fn has_changed(&self) -> bool {
        self.drain_notifications();
        let now = match self.pool.registry.as_ref() {
            Registry::Local(registry) => registry.epoch(),
            Registry::Node(registry) => registry.epoch(),
        };
        now != self.seen
    }

    /// Has `wake` called whenever another member within this process changes something. For members of other processes,
    /// see [`changes`](Self::changes).
    pub fn wake_by(&mut self, wake: Wake) {
        if let Registry::Local(registry) = self.pool.registry.as_ref() {
            registry.wake_by(self.number, wake);
        }
    }

    /// A descriptor that `poll` finds readable once a member changed something, until this one [looks](Self::has_changed): of
    /// a pool that processes share, if the system has one left to give.
    #[must_use]
    pub fn changes(&self) -> Option<BorrowedFd<'_>> {
        self.watch.as_ref().map(AsFd::as_fd)
    }

    /// The longest that its owner should go without looking whether anything [has changed](Self::has_changed); `None` if it is
    /// notified of all that concerns it.
    #[must_use]
    pub fn patience(&self) -> Option<Duration> {
        let is_notified = self.file.is_none() || self.watch.is_some();
        let lacks = self.account.held < self.account.wanted.min(self.account.most);
        let is_leaving = self.account.keep < self.account.held;
        match (is_notified, lacks || is_leaving) {
            (false, _) => Some(FAST_POLL),
            (true, true) => Some(SLOW_POLL),
            (true, false) => None,
        }
    }

    /// Reads the pending notifications: changes from now on notify anew.
    fn drain_notifications(&self) {
        let mut events = [0; 4096];
        while let Some(Ok(1..)) = self
            .watch
            .as_ref()
            .map(|watch| rustix::io::read(watch, &mut events))
        {}
    }

    fn settle(&mut self) -> Result<Terms> {
        self.drain_notifications();
        let (registry, me) = (self.pool.registry.as_ref(), self.number);
        let (account, epoch) = match (registry, &self.file) {
            (Registry::Node(registry), Some(file)) => registry
                .settle(self.account, me, file)
                .map_err(|reason| Error::Pool { reason })?,
            (Registry::Local(registry), _) => registry.settle(self.account, me),
            (Registry::Node(_), None) => return Ok(self.terms()),
        };
        self.account = account;
        self.seen = epoch;
        Ok(self.terms())
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if !self.owner.is_current() {
            return;
        }
        match self.pool.registry.as_ref() {
            Registry::Local(registry) => registry.leave(self.number),
            Registry::Node(registry) => registry.leave(self.number, self.file.take()),
        }
    }
}
