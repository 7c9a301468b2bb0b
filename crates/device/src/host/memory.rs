//! Device memory made of main memory. A count lets it run out as a device's memory does.

use std::sync::atomic::Ordering::Relaxed;

use rustix::process::{Resource, getrlimit};

use super::Host;
use crate::error::out_of_memory;
use crate::error::{Error, Result};
use crate::pages::{self, AtFork};
use crate::pinned::{Pinned, WhyUnpinned};

impl Host {
    pub(super) fn free(&self) -> u64 {
        self.info
            .total_bytes
            .saturating_sub(self.used.load(Relaxed))
    }

    /// Counts `len` more bytes as used. Returns [`Error::OutOfMemory`] if fewer are left.
    pub(super) fn take(&self, len: usize, what: &'static str) -> Result<()> {
        let total = self.info.total_bytes;
        // Relaxed: the count guards no other data.
        self.used
            .fetch_update(Relaxed, Relaxed, |used| {
                used.checked_add(len as u64).filter(|&used| used <= total)
            })
            .map(drop)
            .map_err(|used| out_of_memory(what, len, total.saturating_sub(used)))
    }

    pub(super) fn alloc_pages(&self, len: usize) -> Result<u64> {
        self.take(len, "device memory")?;
        pages::reserve_usable(len, AtFork::Copied).inspect_err(|_| {
            self.used.fetch_sub(len as u64, Relaxed);
        })
    }

    /// # Safety
    /// `address` and `len` are of one `alloc_pages`, and the pages are not used any more.
    pub(super) unsafe fn free_pages(&self, address: u64, len: usize) {
        // SAFETY: the caller's promise.
        unsafe { pages::release(address, len) };
        self.used.fetch_sub(len as u64, Relaxed);
    }

    /// # Safety
    /// As for `Backend::map`.
    pub(super) unsafe fn map_pages(&self, address: u64, len: usize) -> Result<()> {
        self.take(len, "a chunk of device memory")?;
        // SAFETY: the caller's promise.
        unsafe { pages::commit(address, len) }.inspect_err(|_| {
            self.used.fetch_sub(len as u64, Relaxed);
        })
    }

    /// # Safety
    /// As for `Backend::unmap`.
    pub(super) unsafe fn unmap_pages(&self, address: u64, len: usize) {
        // SAFETY: the caller's promise.
        unsafe { pages::decommit(address, len) };
        self.used.fetch_sub(len as u64, Relaxed);
    }

    /// Locks pages within the soft limit of locked memory, even if the process may exceed that limit: a cache must not
    /// lock all memory of a laptop.
    ///
    /// # Safety
    /// As for `Backend::pin`.
    pub(super) unsafe fn lock_pages(&self, address: u64, len: usize) -> Pinned {
        let limit = getrlimit(Resource::Memlock).current.unwrap_or(u64::MAX);
        let within = self.locked.fetch_update(Relaxed, Relaxed, |locked| {
            locked
                .checked_add(len as u64)
                .filter(|&locked| locked <= limit)
        });
        if let Err(used) = within {
            return Pinned::No(WhyUnpinned::LockLimit { limit, used });
        }
        // SAFETY: the caller's promise.
        match unsafe { pages::lock(address, len) } {
            Ok(()) => Pinned::Yes,
            Err(errno) => {
                let used = self.locked.fetch_sub(len as u64, Relaxed) - len as u64;
                Pinned::No(match errno {
                    // Other code of this process has locked memory too.
                    rustix::io::Errno::NOMEM | rustix::io::Errno::PERM => {
                        WhyUnpinned::LockLimit { limit, used }
                    }
                    errno => {
                        let refused = Error::system("locking memory (mlock)", errno);
                        WhyUnpinned::Refused(Box::new(refused))
                    }
                })
            }
        }
    }

    /// # Safety
    /// As for `Backend::unpin`.
    pub(super) unsafe fn unlock_pages(&self, address: u64, len: usize) {
        // SAFETY: the caller's promise.
        unsafe { pages::unlock(address, len) };
        self.locked.fetch_sub(len as u64, Relaxed);
    }
}
