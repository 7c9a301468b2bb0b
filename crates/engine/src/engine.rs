//! The engine, its end, and calls about single versions.

use crate::close::EndPatience;
use crate::deadline::{Awaited, Deadline};
use crate::history::{Damage, ProtectionState};
use crate::kind::Kind;
use crate::plan::{Event, Refusal, TierId};
use crate::policy_guard::PolicyPanic;
use crate::run::{EngineCore, Grant, PlanGuard, Pool, TargetRegions, start_pool};
use crate::{AfterRestore, Call, EngineBuilder, Error, Result, Version};
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;
use tierflow_device::{Device, OwnerProcess, Stream};
use tierflow_sync::model::{JoinHandle, Mutex, sleep};
use tierflow_tier_alloc::Lease;

/// A checkpoint cache over a device arena, a host arena and scratch storage.
///
/// Every method may be called from any thread. A call blocks while its own bytes are copied, and while it waits for room. Transfers
/// between the tiers run in the background. Dropping the engine ends its transfers and its history. A warning ([`tracing`]) names
/// the versions that are on no storage that outlives the engine.
///
/// # The moment of a copy
/// A call copies the bytes that the memory has at that moment. Work that was given to a CUDA stream must be over by then:
/// [`Call::on`](crate::Call::on) orders the copy after the work of a stream.
///
/// # After a fork
/// The engine stays with the process that built it, as its threads carry its transfers. In a child process, calls that can fail
/// return [`Error::OtherProcess`], hints are lost, and dropping the engine or a slot does nothing. The parent's files, versions and
/// memory stay untouched, and the child's copy of the memory ends with the child. Do not call methods there that only report about
/// the engine: they may wait for a thread that the child does not have.
#[derive(Debug)]
pub struct Engine {
    /// The shared state, which is there until the engine is dropped.
    pub(crate) shared: Arc<EngineCore>,
    capacity_thread: Option<JoinHandle<Lease>>,
    /// Longest time to wait for the threads at the end, without progress.
    pub(crate) patience: Duration,
    /// The process that built the engine.
    process: OwnerProcess,
    /// Versions and places that could not be used when the engine was built.
    pub(crate) damage: Vec<Damage>,
    pub(crate) after_restore: AfterRestore,
    /// The protection of this node's versions by other ranks.
    pub(crate) nodes: ProtectionState,
    pub(crate) policy_panic: PolicyPanic,
    /// Numbers that a group of another size used on durable tiers.
    pub(crate) taken: BTreeSet<Version>,
    /// Versions that an error or a warning named at the end of the engine, as they were not durable.
    pub(crate) named_at_end: Mutex<BTreeSet<Version>>,
    /// The engine's part of a pool. Last field: dropping it gives the part to other engines, and the memory must be gone by then.
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
    /// Returns the builder of an engine for the memory of `device`.
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

    /// Checks that this process built the engine. Callers check before they take a lock of the engine: in a fork, a thread that
    /// does not exist there may hold it.
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

    /// Reserves `count` consecutive numbers for new versions. The numbers are above those of all versions of this engine, past ones
    /// included, of all hints, and of earlier calls of this method. So several users of one engine choose different numbers.
    ///
    /// # Errors
    ///
    /// [`Error::NoNumbers`] if fewer than `count` numbers are left below [`Version::MAX`].
    pub fn reserve(&self, count: u64) -> Result<Range<Version>> {
        self.at_home()?;
        let reserved = self.shared.reserve(count);
        reserved.ok_or(Error::NoNumbers { count })
    }

    /// Returns what happens to versions after a restore.
    #[must_use]
    pub fn after_restore(&self) -> AfterRestore {
        self.after_restore
    }

    /// Copies a version to `sink` from the places of `grant`, whatever its form there.
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

    /// Returns the bytes of `version`: the sum that the regions of a restore must have.
    ///
    /// # Errors
    /// [`Error::Unknown`] if the version was never checkpointed; [`Error::Discarded`] if it is gone; [`Error::Storage`] if damage
    /// makes a version of an earlier run unreadable.
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

    /// Checks that the engine holds a version. Looks for nothing on storage, which may hang.
    pub(crate) fn check_held(&self, version: Version) -> Result<()> {
        let now = Deadline::after(Duration::ZERO);
        self.restore_size_until(now, version).map(drop)
    }

    /// As [`restore_size_until`](Self::restore_size_until). Also returns the plan's lock, which keeps the version from changing.
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

    /// Discards `version`, restored or not: removes its copies and cancels its pending flushes.
    ///
    /// # Errors
    /// [`Error::Unknown`] if the version was never checkpointed; [`Error::Discarded`] if it is gone already.
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

    /// Shrinks a cache to its first `bytes` bytes and gives the other memory back, such as for another phase of the application. A
    /// later call with more bytes takes memory again, up to the size that the engine was built with. With 0 bytes the cache is out
    /// of use, and all copies bypass it. The pool sets the size of a host cache that is part of a pool.
    ///
    /// A smaller cache is emptied first: copies that are also on a lower tier are evicted, the others are flushed, and the call
    /// waits for lent slots. Memory is given back in whole chunks, so a few more bytes may stay mapped.
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
    /// [`Error::TimedOut`] if that takes longer than `patience`. No new copies go to the memory meanwhile. Call again to wait
    /// longer, or with the old size to use all memory again. [`Error::NotResizable`] if the cache does not exist, is part of a
    /// pool, or has memory that cannot be given back in parts. [`Error::Device`] or [`Error::Memory`] if memory cannot be allocated
    /// again.
    pub fn resize(&self, cache: Cache, bytes: usize, patience: Duration) -> Result<u64> {
        self.call().within(patience).resize(cache, bytes)
    }
}

impl Call<'_> {
    /// Changes the size of a cache as [`Engine::resize`] does.
    ///
    /// # Errors
    /// As [`Engine::resize`]; [`Error::Interrupted`] as for [`Error::TimedOut`].
    pub fn resize(self, cache: Cache, bytes: usize) -> Result<u64> {
        let kind = match cache {
            Cache::Device => Kind::Device,
            Cache::Host => Kind::Host,
        };
        let (engine, cache) = (self.engine, kind.name());
        engine.at_home()?;
        let not = |why| Error::NotResizable { cache, why };
        if kind == Kind::Host && engine.capacity_thread.is_some() {
            return Err(not("it is part of a pool, which decides how large it is"));
        }
        let mut tiers = engine.shared.tiers.iter();
        let tier = tiers.position(|tier| tier.kind == kind);
        let tier = tier.ok_or_else(|| not("the engine was built without it"))?;
        let deadline = self.deadline(Awaited::Resize(cache));
        engine.shared.resize(TierId(tier), bytes as u64, deadline)
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        if self.at_home().is_err() {
            // Threads, files and pool shares belong to the parent process: this process neither waits for them nor gives them back.
            let (capacity_thread, lease) = (self.capacity_thread.take(), self.lease.take());
            std::mem::forget((Arc::clone(&self.shared), capacity_thread, lease));
            return;
        }
        self.shared.stop();
        let mut patience = EndPatience::new(self);
        let mut hangs = false;
        let mut threads = self.shared.take_threads();
        // A thread may start another thread before it ends.
        while let Some(thread) = threads.pop() {
            let mut nap = Duration::from_micros(20);
            while !thread.is_finished() && !patience.is_over(self) {
                sleep(nap);
                nap = (nap * 2).min(Duration::from_millis(5));
            }
            if thread.is_finished() {
                // The result of a panicked thread has nothing to give back.
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
            // A thread that did not end still uses the memory, so no other engine may ever get the lease.
            std::mem::forget(self.lease.take());
        } else {
            self.shared.clear_up();
        }
    }
}
