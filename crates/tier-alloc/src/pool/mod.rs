//! A budget of host memory that several engines share, as threads of a process or as processes of a machine.
//!
//! Members share capacity, never bytes: each member has its own arena, and a lease that says how many bytes of the arena
//! it may use. So a member that dies or fails takes no other member's memory with it.
//!
//! Each member may have an equal part of the pool. Other members may borrow the slabs that a member does not want, and
//! give them back as soon as a member that has less than its fair share wants them (max-min fairness, in slabs). No two
//! members ever hold the same slab: a slab is taken only if it was given back, or its holder is dead.
//!
//! | file | content |
//! |---|---|
//! | `share` | how many slabs each member may have |
//! | `local` | the accounts of the threads of a process |
//! | `node` | the accounts of the processes of a machine |

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

/// Time between two queries of a member that lacks or returns slabs, as a killed member sends no notification.
const SLOW_POLL: Duration = Duration::from_millis(500);

/// Time between two queries of a member that cannot be notified.
const FAST_POLL: Duration = Duration::from_millis(5);

/// A callback that wakes its member. Any thread may call it, with a lock held, so the callback neither blocks nor calls the pool.
pub type Wake = Arc<dyn Fn() + Send + Sync>;

/// Options of a pool.
#[derive(Clone, Copy, Debug)]
pub struct PoolOptions {
    bytes: u64,
    slab: u64,
}

impl PoolOptions {
    /// Bytes of a slab, unless [`slab`](Self::slab) sets others. Slabs are handed out and given back as a whole.
    pub const SLAB: u64 = 64 << 20;

    /// Returns options for a pool of `bytes` bytes, rounded down to whole slabs.
    #[must_use]
    pub fn new(bytes: u64) -> Self {
        Self {
            bytes,
            slab: Self::SLAB,
        }
    }

    /// Returns these options with slabs of `bytes` bytes, rounded up to a multiple of
    /// [`HostReservation::GRANULARITY`](tierflow_device::HostReservation::GRANULARITY), as memory is given back in such
    /// multiples.
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
/// // `one` may borrow the slabs that `other` does not want …
/// assert_eq!(one.ask(8 << 30)?.held, 8 << 30);
/// // … and gives slabs back that `other` wants, once they are out of use.
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

/// The place of the members' accounts, which each member reads.
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
    /// Bytes that the member may go on having. If they are fewer than `held`, the member empties the rest and
    /// [gives it back](Lease::give_back).
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
    /// Makes a pool for the threads of this process. All its clones are the same pool.
    ///
    /// # Errors
    ///
    /// [`Error::Zero`] for slabs of 0 bytes.
    pub fn in_process(options: PoolOptions) -> Result<Self> {
        Self::on(options, |total, _| {
            Ok(Registry::Local(local::ProcessRegistry::new(total)))
        })
    }

    /// Opens the pool of all processes of this user on this machine that name the same directory; `None` names one in the user's
    /// runtime directory. A missing directory is made, accessible to this user alone. The directory must be on a local file
    /// system, and all processes must name the same size. The slabs of a killed process are free.
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

    /// Returns the bytes that the members share.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.total * self.slab
    }

    /// Adds a member that uses at most `most` bytes. The member has no bytes until it [asks](Lease::ask).
    ///
    /// # Errors
    ///
    /// [`Error::Pool`] if living members named another size of the pool, or the directory cannot be used.
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

    /// Returns the members, in the order in which they joined.
    ///
    /// # Errors
    ///
    /// [`Error::Pool`] if the directory cannot be used.
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

/// A member's part of a [`HostPool`]. Dropping the lease leaves the pool: the member's bytes must be out of use by then. In a
/// child of the process that joined, dropping the lease does nothing.
#[derive(Debug)]
pub struct Lease {
    pool: HostPool,
    account: Account,
    number: u64,
    /// The member's file, whose lock shows that the member lives; `None` in a registry of one process.
    file: Option<node::Member>,
    /// The inotify watch that notifies of changes; `None` in a registry of one process, or if the system gave none.
    watch: Option<OwnedFd>,
    /// The registry's epoch when this member last settled.
    seen: u64,
    owner: OwnerProcess,
}

impl Lease {
    /// Says that the member has a use for `wanted` bytes, and returns the bytes that it may use now. Ask again when the member
    /// wants another number, or [others changed](Self::has_changed).
    ///
    /// # Errors
    ///
    /// [`Error::Pool`] if the pool's directory cannot be used; the terms stay as they were.
    pub fn ask(&mut self, wanted: u64) -> Result<Terms> {
        self.account.wanted = wanted.div_ceil(self.pool.slab);
        self.settle()
    }

    /// Gives back all bytes beyond the first `kept`, which must be out of use. Returns the bytes that the member may use now.
    ///
    /// # Errors
    ///
    /// [`Error::Pool`] if the pool's directory cannot be used; then the next call gives the bytes back.
    pub fn give_back(&mut self, kept: u64) -> Result<Terms> {
        self.account.held = self.account.held.min(kept.div_ceil(self.pool.slab));
        self.account.keep = self.account.keep.min(self.account.held);
        self.settle()
    }

    /// Returns the bytes that the member may use, as of its last call.
    #[must_use]
    pub fn terms(&self) -> Terms {
        Terms {
            held: self.account.held * self.pool.slab,
            keep: self.account.keep * self.pool.slab,
        }
    }

    /// Returns the bytes of a slab.
    #[must_use]
    pub fn slab(&self) -> u64 {
        self.pool.slab
    }

    /// Returns true if an account changed since this member last [asked](Self::ask) or [gave back](Self::give_back). A killed member is
    /// noticed only when another member asks or gives back.
    #[must_use]
    pub fn has_changed(&self) -> bool {
        self.drain_notifications();
        let now = match self.pool.registry.as_ref() {
            Registry::Local(registry) => registry.epoch(),
            Registry::Node(registry) => registry.epoch(),
        };
        now != self.seen
    }

    /// Registers `wake`, which is called whenever another member within this process changes its account. For members of other
    /// processes, see [`changes`](Self::changes).
    pub fn wake_by(&mut self, wake: Wake) {
        if let Registry::Local(registry) = self.pool.registry.as_ref() {
            registry.wake_by(self.number, wake);
        }
    }

    /// Returns a descriptor that `poll` finds readable from a change of an account until the next call of
    /// [`has_changed`](Self::has_changed). `None` for a pool within a process, or if the system gave no descriptor.
    #[must_use]
    pub fn changes(&self) -> Option<BorrowedFd<'_>> {
        self.watch.as_ref().map(AsFd::as_fd)
    }

    /// Returns the longest time that the owner should wait between two calls of [`has_changed`](Self::has_changed). `None` if the
    /// owner is notified of every change that concerns it.
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

    /// Reads the pending notifications, so that later changes notify anew.
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
