//! The front door.

use crate::close::EndPatience;
use crate::deadline::Deadline;
use crate::history::{Damage, ProtectionState};
use crate::kind::Kind;
use crate::plan::{Event, Refusal, TierId};
use crate::policy_guard::PolicyPanic;
use crate::run::{EngineCore, Grant, PlanGuard, Pool, TargetRegions, start_pool};
use crate::{AfterRestore, EngineBuilder, Error, Result, Version};
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;
use tierflow_device::{Device, OwnerProcess, Stream};
use tierflow_sync::model::{JoinHandle, Mutex, sleep};
use tierflow_tier_alloc::Lease;

/// A checkpoint cache over a device arena, a host arena and scratch storage.
///
/// Every method may be called from any thread. A call blocks only as long as its own bytes are copied, and for room
/// where there is none; what moves between the tiers moves in the background. Dropping the engine ends its transfers
/// and its history: a warning ([`tracing`]) names the versions that storage outliving the engine does not have.
///
/// # What a call sees
/// Bytes are copied when the call is made. Work given to a CUDA stream before must be over by then:
/// [`Call::on`](crate::Call::on) orders the copy after the work of a stream of the caller's.
///
/// # After a fork
/// The engine stays with the process that built it, whose threads carry its transfers. In a child process, calls that can
/// fail are [`Error::OtherProcess`], hints are lost, and dropping the engine or a slot does nothing: the parent's files,
/// versions and memory are not touched, and the child's copy of the memory goes when it ends. What only tells about the
/// engine is not to be called there: it may wait for a thread that the child does not have.
#[derive(Debug)]
pub struct Engine {
    /// There until the engine is dropped.
    pub(crate) shared: Arc<EngineCore>,
    capacity_thread: Option<JoinHandle<Lease>>,
    /// How long to wait for the threads in the end.
    pub(crate) patience: Duration,
    /// The process that built it.
    process: OwnerProcess,
    /// Versions and places that could not be used when the engine was built.
    pub(crate) damage: Vec<Damage>,
    pub(crate) after_restore: AfterRestore,
    /// Parts of this node's versions that other ranks keep.
    pub(crate) nodes: ProtectionState,
    pub(crate) policy_panic: PolicyPanic,
    /// Numbers that a group of another size used, where versions outlive the engine.
    pub(crate) taken: BTreeSet<Version>,
    /// Versions that an error or a warning named, as they were not durable at the end of the engine.
    pub(crate) named_at_end: Mutex<BTreeSet<Version>>,
    /// The part of a pool that was the engine's. Last: it is another's when this is dropped, and the memory is gone by
    /// then.
    lease: Option<Lease>,
}

/// A cache that [`Engine::resize`] changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cache {
    /// The cache in device memory.
    Device,
    /// The cache in host memory.
    Host,
}

impl Engine {
    /// An engine for the memory of `device`, to be given its tiers.
    #[must_use]
    pub fn builder(device: &Device) -> EngineBuilder {
        EngineBuilder::new(device)
    }

    pub(crate) fn assemble(shared: Arc<EngineCore>, patience: Duration) -> Self {
        Self {
            shared,
            patience,
            process: OwnerProcess::current(),
            capacity_thread: None,
            damage: Vec::new(),
            after_restore: AfterRestore::default(),
            nodes: ProtectionState::default(),
            policy_panic: PolicyPanic::default(),
            taken: BTreeSet::new(),
            named_at_end: Mutex::default(),
            lease: None,
        }
    }

    /// Checks that this is the process that built the engine, before any lock of it is taken: in a fork, a thread that is not
    /// there may hold it.
    pub(crate) fn at_home(&self) -> Result<()> {
        if self.process.is_current() {
            return Ok(());
        }
        Err(Error::OtherProcess {
            owner: self.process.id(),
        })
    }

    /// Keeps the host cache within its share of a pool from now on.
    pub(crate) fn keep_within(&mut self, pool: Pool) -> Result<()> {
        self.capacity_thread = Some(start_pool(&self.shared, pool)?);
        Ok(())
    }

    /// Reserves `count` consecutive numbers for new versions: above those that versions of this engine have or had, that hints
    /// name, and that other calls of this method returned. So several users of one engine choose numbers that never meet.
    ///
    /// # Errors
    ///
    /// [`Error::NoNumbers`] if so many numbers are not left below [`Version::MAX`].
    pub fn reserve(&self, count: u64) -> Result<Range<Version>> {
        self.at_home()?;
        let reserved = self.shared.reserve(count);
        reserved.ok_or(Error::NoNumbers { count })
    }

    /// Returns what becomes of versions once they are restored.
    #[must_use]
    pub fn after_restore(&self) -> AfterRestore {
        self.after_restore
    }

    /// Reads a version from where it lies, whatever it lies there as.
    pub(crate) fn copy_out(
        &self,
        version: Version,
        grant: &Grant,
        sink: &mut TargetRegions<'_, '_>,
        stream: Option<&Stream>,
    ) -> Result<()> {
        self.shared
            .with_context(|context| self.shared.copy_out(context, version, grant, sink, stream))
    }

    /// Bytes of `version`: what its regions must add up to.
    ///
    /// # Errors
    /// [`Error::Unknown`] or [`Error::Discarded`]; [`Error::Storage`] with the damage that makes a version of an earlier
    /// run unreadable.
    pub fn restore_size(&self, version: Version) -> Result<u64> {
        self.restore_size_until(Deadline::default(), version)
    }

    /// Returns the [size](Self::restore_size) of a version, or fails at the deadline.
    pub(crate) fn restore_size_until(
        &self,
        deadline: Deadline<'_>,
        version: Version,
    ) -> Result<u64> {
        Ok(self.locked_size(deadline, version)?.0)
    }

    /// As [`restore_size_until`](Self::restore_size_until), with the plan's lock, by which the version stays.
    pub(crate) fn locked_size(
        &self,
        deadline: Deadline<'_>,
        version: Version,
    ) -> Result<(u64, PlanGuard<'_>)> {
        self.at_home()?;
        let core = self.shared.lock();
        let plan = core.plan();
        let absence = match plan.size_of(version) {
            Some(_) if self.shared.empties.has(version) => return Ok((0, core)),
            Some(size) => return Ok((size, core)),
            None => plan.absence(version),
        };
        drop(core);
        match absence {
            Refusal::Discarded => Err(Error::Discarded { version }),
            _ => Err(match self.damage_of(version, deadline)? {
                Some(damage) => Error::Storage(damage),
                None => Error::Unknown { version },
            }),
        }
    }

    /// Gives `version` up, restored or not: its copies go, and its pending flushes with them.
    ///
    /// # Errors
    /// [`Error::Unknown`] or [`Error::Discarded`].
    pub fn discard(&self, version: Version) -> Result<()> {
        let drop = |ticket| Event::Drop { ticket, version };
        self.ask(self.shared.now_ns(), version, 0, Deadline::default(), drop)?;
        Ok(())
    }

    /// Checks that no group of another size used this number.
    pub(crate) fn is_free(&self, version: Version) -> Result<()> {
        match self.taken.contains(&version) {
            true => Err(Error::VersionUsed { version }),
            false => Ok(()),
        }
    }

    /// Leaves a cache its first `bytes` bytes and gives the other memory back, for another phase of the application, say;
    /// or takes it again, up to the size that the engine was built with. With 0 the cache is out of use, and all copies go
    /// past it. A host cache that is part of a pool is as large as the pool lets it be.
    ///
    /// A smaller cache is emptied first: copies that lie on a lower tier are given up, the others flushed, and slots that
    /// are lent are waited for. Chunks are given back whole, so some bytes more may stay mapped.
    ///
    /// ```
    /// # fn main() -> tierflow_engine::Result<()> {
    /// # use tierflow_engine::{Cache, Engine};
    /// # use std::time::Duration;
    /// # let device = tierflow_device::open(tierflow_device::Choice::Host)?;
    /// # let engine = Engine::builder(&device).host_cache(8 << 20).scratch(std::env::temp_dir()).build()?;
    /// engine.resize(Cache::Host, 0, Duration::from_secs(10))?;
    /// // The application uses the memory; later the cache takes it again.
    /// engine.resize(Cache::Host, 8 << 20, Duration::from_secs(10))?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::TimedOut`] if that takes longer than `patience`: nothing new goes there meanwhile; call again to wait on,
    /// or with what it had to have it all back. [`Error::NotResizable`], also if its memory cannot be given back in
    /// parts; [`Error::Device`] or [`Error::Memory`] if it is not to be had again.
    pub fn resize(&self, cache: Cache, bytes: usize, patience: Duration) -> Result<u64> {
        let kind = match cache {
            Cache::Device => Kind::Device,
            Cache::Host => Kind::Host,
        };
        let cache = kind.name();
        self.at_home()?;
        let not = |why| Error::NotResizable { cache, why };
        if kind == Kind::Host && self.capacity_thread.is_some() {
            return Err(not("it is part of a pool, which decides how large it is"));
        }
        let mut tiers = self.shared.tiers.iter();
        let tier = tiers.position(|tier| tier.kind == kind);
        let tier = tier.ok_or_else(|| not("the engine was built without it"))?;
        self.shared.resize(TierId(tier), bytes as u64, patience)
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        if self.at_home().is_err() {
            // Nothing here is this process's: neither threads to wait for nor files and shares to give back.
            let (capacity_thread, lease) = (self.capacity_thread.take(), self.lease.take());
            std::mem::forget((Arc::clone(&self.shared), capacity_thread, lease));
            return;
        }
        self.shared.stop();
        let mut patience = EndPatience::new(self);
        let mut hangs = false;
        let mut threads = self.shared.take_threads();
        // A thread may start another one until it ends.
        while let Some(thread) = threads.pop() {
            let mut nap = Duration::from_micros(20);
            while !thread.is_finished() && !patience.is_over(self) {
                sleep(nap);
                nap = (nap * 2).min(Duration::from_millis(5));
            }
            if thread.is_finished() {
                // A thread that panicked has nothing left to give back.
                let _ = thread.join();
            } else {
                hangs = true;
            }
            threads.extend(self.shared.take_threads());
        }
        self.lease = self
            .capacity_thread
            .take()
            .and_then(|thread| thread.join().ok());
        self.warn_of_lost(None);
        if hangs {
            // A thread that was left to itself uses the memory still: it must never be another's.
            std::mem::forget(self.lease.take());
        } else {
            self.shared.clear_up();
        }
    }
}
