//! The front door.

use crate::caught::Panicked;
use crate::closing::ProgressPatience;
use crate::deadline::Deadline;
use crate::kind::Kind;
use crate::lasting::{Damage, ProtectionState};
use crate::plan::{Event, Refusal, Ticket, TierId};
use crate::region::{self, Region, RegionMut};
use crate::run::sync::{JoinHandle, Mutex, sleep};
use crate::run::{Answer, Grant, Pieces, Pool, Shared, SourceRegions, TargetRegions, start_pool};
use crate::{EngineBuilder, Error, Result, Version};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tierflow_device::{Access, Device, Stream};
use tierflow_tier_alloc::Lease;

/// A checkpoint cache over a device arena, a host arena and scratch storage.
///
/// Every method may be called from any thread. A call blocks only as long as its own bytes are copied, and for room
/// where there is none; what moves between the tiers moves in the background. Dropping the engine ends its transfers
/// and its history: a warning ([`tracing`]) names the versions that storage outliving the engine does not have.
///
/// # What a call sees
/// Bytes are copied when the call is made. Work given to a CUDA stream before must be over by then:
/// [`Engine::checkpoint_on`] and [`Engine::restore_on`] order the copy after the work of a stream of the caller's.
///
/// # After a fork
/// The engine stays with the process that built it, whose threads carry its transfers. In a child process, calls that can
/// fail are [`Error::OtherProcess`], hints are lost, and dropping the engine or a slot does nothing: the parent's files,
/// versions and memory are not touched, and the child's copy of the memory goes when it ends. What only tells about the
/// engine is not to be called there: it may wait for a thread that the child does not have.
#[derive(Debug)]
pub struct Engine {
    /// There until the engine is dropped.
    pub(crate) shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    keeper: Option<JoinHandle<Lease>>,
    /// How long to wait for the workers in the end.
    pub(crate) patience: Duration,
    /// The process that built it.
    process: u32,
    /// What could not be used when the engine was built.
    pub(crate) damage: Vec<Damage>,
    /// What other ranks keep of the versions on this node.
    pub(crate) nodes: ProtectionState,
    pub(crate) policy_panic: Panicked,
    /// Numbers that a group of another size used, where versions outlive the engine.
    pub(crate) taken: BTreeSet<Version>,
    /// Versions that an error or a warning named as lost with the engine.
    pub(crate) named_lost: Mutex<Vec<Version>>,
    /// The part of a pool that was the engine's. Last: it is another's when this is dropped, and the memory is gone by
    /// then.
    lease: Option<Lease>,
}

impl Engine {
    /// An engine for the memory of `device`, to be given its tiers.
    #[must_use]
    pub fn builder(device: &Device) -> EngineBuilder {
        EngineBuilder::new(device)
    }

    pub(crate) fn assemble(
        shared: Arc<Shared>,
        workers: Vec<JoinHandle<()>>,
        patience: Duration,
    ) -> Self {
        Self {
            shared,
            workers,
            patience,
            process: std::process::id(),
            keeper: None,
            damage: Vec::new(),
            nodes: ProtectionState::default(),
            policy_panic: Panicked::default(),
            taken: BTreeSet::new(),
            named_lost: Mutex::default(),
            lease: None,
        }
    }

    /// That this is the process that built the engine. Before any lock of it is taken: in a fork, a thread that is not
    /// there may hold it.
    pub(crate) fn at_home(&self) -> Result<()> {
        if self.process == std::process::id() {
            return Ok(());
        }
        Err(Error::OtherProcess {
            owner: self.process,
        })
    }

    /// Keeps the host cache within its share of a pool from now on.
    pub(crate) fn keep_within(&mut self, pool: Pool) -> Result<()> {
        self.keeper = Some(start_pool(&self.shared, pool)?);
        Ok(())
    }

    /// Tells which versions will be restored, in this order, after those hinted before.
    ///
    /// Hints may come at any time, in parts, and name versions not written yet. They are advice: wrong, missing and late
    /// ones cost time, never correctness.
    pub fn hint(&self, versions: impl IntoIterator<Item = Version>) {
        if self.at_home().is_ok() {
            let versions: Vec<_> = versions.into_iter().collect();
            self.shared.hint(&versions);
        }
    }

    /// Lets prefetching begin. The first restore begins it, too: call this to begin earlier.
    pub fn prefetch_start(&self) {
        if self.at_home().is_err() {
            return;
        }
        self.shared.tell(Event::PrefetchStart);
    }

    /// Takes in the bytes of `regions`, one after the other, as `version`. A rank of a group may have none. Returns as
    /// soon as they are copied to the fastest tier that can hold them; the regions may be changed at once.
    ///
    /// # Errors
    /// [`Error::Region`], [`Error::NamedRegion`], [`Error::Empty`], [`Error::VersionUsed`], [`Error::TooLarge`]: mend the call.
    /// [`Error::NoRoom`]: restore or discard versions, then call again. [`Error::Device`], [`Error::Memory`], [`Error::Storage`]: the copy failed. In
    /// each case the version was not taken in and its number is still free.
    pub fn checkpoint(&self, version: Version, regions: &[Region<'_>]) -> Result<()> {
        self.write(version, regions, None, Deadline::default())
    }

    /// [`Engine::checkpoint`], ordered after the work given to `stream` so far.
    ///
    /// # Errors
    /// As [`Engine::checkpoint`].
    pub fn checkpoint_on(
        &self,
        stream: &Stream,
        version: Version,
        regions: &[Region<'_>],
    ) -> Result<()> {
        self.write(version, regions, Some(stream), Deadline::default())
    }

    pub(crate) fn write(
        &self,
        version: Version,
        regions: &[Region<'_>],
        stream: Option<&Stream>,
        deadline: Deadline,
    ) -> Result<()> {
        let begun = Instant::now();
        let size = region::total(regions)?;
        let layout = region::layout(version, regions)?;
        if let (Some(stage), Some(layout)) = (&self.shared.stage, &layout) {
            stage.check(version, layout)?;
        }
        let _span = tracing::debug_span!("checkpoint", version, size).entered();
        self.is_free(version)?;
        let is_empty = size == 0 && self.shared.empties.are_allowed();
        let size = size.max(u64::from(is_empty));
        let (ticket, grant) = self.ask((version, size), deadline, |ticket| Event::Checkpoint {
            ticket,
            version,
            size,
        })?;
        let Some(grant) = grant else { return Ok(()) };
        self.shared.empties.note(version, is_empty);
        self.shared.note_layout(version, layout);
        let granted = self.moment();
        for piece in &grant.pieces {
            self.shared.pending.settle(&piece.place, Access::Write);
        }
        let copied = match deadline
            .at()
            .filter(|_| self.shared.reaches_storage(&grant))
        {
            Some(at) => self.write_until(at, ticket, version, (&grant, regions), stream),
            None => {
                let copied = self.shared.with_context(|context| {
                    let pieces = grant.pieces.as_slice();
                    let to = Pieces { version, pieces };
                    self.shared
                        .copy_in(context, &SourceRegions::new(regions), to, stream)
                });
                self.shared.end_write(version, &grant.pieces, true);
                let ok = copied.is_ok();
                self.shared.tell(Event::Written { ticket, ok });
                copied.map(Some)
            }
        };
        let copied = copied.and_then(|copied| copied.ok_or_else(|| deadline.passed()));
        self.copied("checkpoint", version, size, granted);
        copied?;
        self.shared.checkpoints.add(size, begun.elapsed());
        self.shared.have_housekept_after(&grant.pieces);
        Ok(())
    }

    /// Brings `version` back into `regions`, one after the other, and counts it as consumed.
    ///
    /// # Errors
    /// [`Error::Region`], [`Error::Unknown`], [`Error::Discarded`], [`Error::SizeMismatch`]: mend the call.
    /// [`Error::Device`], [`Error::Storage`]: the copy failed; the regions are unspecified, and the version is still held and unconsumed.
    pub fn restore(&self, version: Version, regions: &mut [RegionMut<'_>]) -> Result<()> {
        self.read(version, regions, None, Deadline::default())
    }

    /// [`Engine::restore`], ordered after the work given to `stream` so far.
    ///
    /// # Errors
    /// As [`Engine::restore`].
    pub fn restore_on(
        &self,
        stream: &Stream,
        version: Version,
        regions: &mut [RegionMut<'_>],
    ) -> Result<()> {
        self.read(version, regions, Some(stream), Deadline::default())
    }

    pub(crate) fn read(
        &self,
        version: Version,
        regions: &mut [RegionMut<'_>],
        stream: Option<&Stream>,
        deadline: Deadline,
    ) -> Result<()> {
        let given = region::total_mut(&*regions)?;
        let expected = self.restore_size(version)?;
        if given != expected {
            return Err(Error::SizeMismatch {
                version,
                expected,
                given,
            });
        }
        self.read_into(
            (version, expected),
            TargetRegions::whole(regions),
            stream,
            deadline,
        )
    }

    /// Reads a version of `size` bytes, or parts of it, which leave it as it is.
    pub(crate) fn read_into(
        &self,
        (version, size): (Version, u64),
        mut sink: TargetRegions<'_, '_>,
        stream: Option<&Stream>,
        deadline: Deadline,
    ) -> Result<()> {
        let begun = Instant::now();
        let _span = tracing::debug_span!("restore", version, size).entered();
        let read = || self.read_once((version, size), &mut sink, stream, deadline);
        let is_read = self.shared.read_sound(version, read)?;
        if is_read {
            self.shared.restores.add(sink.len(), begun.elapsed());
        }
        Ok(())
    }

    /// The same, from the copies that the plan chooses. False for a version without bytes.
    fn read_once(
        &self,
        (version, size): (Version, u64),
        sink: &mut TargetRegions<'_, '_>,
        stream: Option<&Stream>,
        deadline: Deadline,
    ) -> Result<bool> {
        let (ticket, grant) = self.ask_at_home((version, size), deadline, |ticket| {
            Event::Restore { ticket, version }
        })?;
        let Some(grant) = grant else {
            return Ok(false);
        };
        let granted = self.moment();
        for piece in &grant.pieces {
            self.shared.pending.settle(&piece.place, Access::Read);
        }
        let copied = match deadline
            .at()
            .filter(|_| self.shared.reaches_storage(&grant))
        {
            Some(at) => self.read_until(at, ticket, (version, size), (grant, sink), stream),
            None => {
                let copied = self.copy_out(version, &grant, sink, stream);
                let ok = copied.is_ok() && sink.is_whole();
                self.shared.tell(Event::Read { ticket, ok });
                copied.map(Some)
            }
        };
        let copied = copied.and_then(|copied| copied.ok_or_else(|| deadline.passed()));
        self.copied("restore", version, sink.len(), granted);
        copied.map(|()| true)
    }

    /// Reads a version from where it lies, whatever it lies there as.
    pub(crate) fn copy_out(
        &self,
        version: Version,
        grant: &Grant,
        sink: &mut TargetRegions<'_, '_>,
        stream: Option<&Stream>,
    ) -> Result<()> {
        let to = (sink, stream);
        self.shared
            .with_context(|context| self.shared.copy_out(context, version, grant, to))
    }

    /// Bytes of `version`: what its regions must add up to.
    ///
    /// # Errors
    /// [`Error::Unknown`] or [`Error::Discarded`]; [`Error::Storage`] with the damage that makes a version of an earlier
    /// run unreadable.
    pub fn restore_size(&self, version: Version) -> Result<u64> {
        self.at_home()?;
        let size = {
            let core = self.shared.lock();
            let plan = core.plan();
            plan.size_of(version).ok_or_else(|| plan.absence(version))
        };
        match size {
            Ok(_) if self.shared.empties.has(version) => Ok(0),
            Ok(size) => Ok(size),
            Err(Refusal::Discarded) => Err(Error::Discarded { version }),
            Err(_) => Err(match self.damage_of(version) {
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
        self.ask((version, 0), Deadline::default(), drop)?;
        Ok(())
    }

    /// Waits until every version taken in before lies on the lowest tier: where that outlives the engine, they are there to stay.
    ///
    /// # Errors
    /// [`Error::Stalled`] if some cannot get there.
    pub fn wait(&self) -> Result<()> {
        self.wait_until(Deadline::default())
    }

    /// [`Engine::wait`], for so long at most.
    ///
    /// # Errors
    /// As [`Engine::wait`]; [`Error::TimedOut`] when the time is over. The versions are still on their way.
    pub fn wait_for(&self, patience: Duration) -> Result<()> {
        self.wait_until(Deadline::after(patience))
    }

    pub(crate) fn wait_until(&self, deadline: Deadline) -> Result<()> {
        let version = None;
        self.at_home()?;
        // What is taken in later is not waited for.
        let taken_in = self.to_protect(version);
        self.ask_at_home((0, 0), deadline, |ticket| Event::Wait { ticket, version })?;
        self.wait_protected(&taken_in, deadline)
    }

    /// Asks the plan: the place to copy to or from, or nothing to copy.
    pub(crate) fn ask(
        &self,
        (version, size): (Version, u64),
        deadline: Deadline,
        event: impl FnOnce(Ticket) -> Event,
    ) -> Result<(Ticket, Option<Grant>)> {
        self.at_home()?;
        self.ask_at_home((version, size), deadline, event)
    }

    /// [`ask`](Self::ask), by a call that has looked already whether this is the engine's process: each look is a system call.
    pub(crate) fn ask_at_home(
        &self,
        (version, size): (Version, u64),
        deadline: Deadline,
        event: impl FnOnce(Ticket) -> Event,
    ) -> Result<(Ticket, Option<Grant>)> {
        let (ticket, answer) = self.shared.ask(deadline, event);
        match answer.ok_or_else(|| deadline.passed())? {
            Answer::Copy(grant) => Ok((ticket, Some(grant))),
            Answer::Done(Ok(())) => Ok((ticket, None)),
            Answer::Done(Err(refusal)) => Err(self.refused(version, size, refusal)),
        }
    }

    /// That no group of another size used this number.
    pub(crate) fn is_free(&self, version: Version) -> Result<()> {
        match self.taken.contains(&version) {
            true => Err(Error::VersionUsed { version }),
            false => Ok(()),
        }
    }

    pub(crate) fn refused(&self, version: Version, size: u64, refusal: Refusal) -> Error {
        let cause = || self.shared.lock().last_failure();
        match refusal {
            Refusal::Empty => Error::Empty { version },
            Refusal::VersionUsed => Error::VersionUsed { version },
            Refusal::Unknown => Error::Unknown { version },
            Refusal::Discarded => Error::Discarded { version },
            Refusal::TooLarge { largest } => Error::TooLarge {
                version,
                size,
                largest,
            },
            Refusal::NoRoom => Error::NoRoom {
                version,
                cause: cause(),
            },
            Refusal::Stalled { versions } => Error::Stalled {
                versions,
                cause: cause(),
            },
        }
    }

    /// Leaves the device cache its first `bytes` bytes and gives the other memory back to the device, for another phase of
    /// the application, say; or takes it again, up to what the engine was built with. With 0 the cache is out of use and
    /// everybody goes past it.
    ///
    /// A smaller cache is emptied first: copies that lie on a lower tier are given up, the others flushed, and slots that
    /// are lent are waited for. Chunks are given back whole, so some bytes more may stay mapped.
    ///
    /// # Errors
    /// [`Error::TimedOut`] if that takes longer than `patience`: nothing new goes there meanwhile; call again to wait on,
    /// or with what it had to have it all back. [`Error::NotResizable`]; [`Error::Memory`] if its memory cannot be given
    /// back in parts, or is not to be had again.
    pub fn resize_device_cache(&self, bytes: usize, patience: Duration) -> Result<()> {
        self.resize(Kind::Device, bytes, patience)
    }

    /// [`Engine::resize_device_cache`], of the host cache. One that is part of a pool is as large as the pool lets it be.
    ///
    /// # Errors
    /// As [`Engine::resize_device_cache`].
    pub fn resize_host_cache(&self, bytes: usize, patience: Duration) -> Result<()> {
        self.resize(Kind::Host, bytes, patience)
    }

    fn resize(&self, kind: Kind, bytes: usize, patience: Duration) -> Result<()> {
        self.at_home()?;
        let cache = kind.name();
        let not = |why| Error::NotResizable { cache, why };
        if kind == Kind::Host && self.keeper.is_some() {
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
            let threads = (std::mem::take(&mut self.workers), self.keeper.take());
            std::mem::forget((Arc::clone(&self.shared), threads, self.lease.take()));
            return;
        }
        self.shared.stop();
        let mut patience = ProgressPatience::new(self, self.patience);
        let mut hangs = false;
        let detached = self.shared.take_threads();
        let workers = std::mem::take(&mut self.workers);
        for worker in workers.into_iter().chain(detached) {
            let mut nap = Duration::from_micros(20);
            while !worker.is_finished() && !patience.is_over(self) {
                sleep(nap);
                nap = (nap * 2).min(Duration::from_millis(5));
            }
            if worker.is_finished() {
                // A worker that panicked has nothing left to give back.
                let _ = worker.join();
            } else {
                hangs = true;
            }
        }
        self.lease = self.keeper.take().and_then(|keeper| keeper.join().ok());
        self.warn_of_lost();
        if hangs {
            // A worker that was left to itself uses the memory still: it must never be another's.
            std::mem::forget(self.lease.take());
        } else {
            self.shared.clear_up();
        }
    }
}
