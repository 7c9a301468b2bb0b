//! The process that made a value. A child process inherits its parent's values, but owns neither the parent's threads nor
//! its locks.

use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

use crate::pages::page_size;

/// The process that made a value. [`is_current`](Self::is_current) makes no system call where the system can wipe a page
/// at a fork (Linux 4.14), so that each call of a library can afford it.
///
/// ```
/// let owner = tierflow_device::OwnerProcess::current();
/// assert!(owner.is_current());
/// assert_eq!(owner.id(), std::process::id());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnerProcess(u32);

impl OwnerProcess {
    /// Returns this process.
    #[must_use]
    pub fn current() -> Self {
        let Some(noted) = noted() else {
            return Self(std::process::id());
        };
        // Threads that run this together write the same number.
        if noted.load(Ordering::Relaxed) == 0 {
            noted.store(std::process::id(), Ordering::Relaxed);
        }
        Self(noted.load(Ordering::Relaxed))
    }

    /// Returns true in the owner, and false in a fork of it.
    #[must_use]
    pub fn is_current(self) -> bool {
        Self::current() == self
    }

    /// Returns the owner's process id.
    #[must_use]
    pub const fn id(self) -> u32 {
        self.0
    }
}

/// The value of `PAGE` where the system cannot wipe a page.
static NO_PAGE: AtomicU32 = AtomicU32::new(0);

/// Returns the process id that the process noted for itself, or 0 if it has noted none: the system sets the page to 0 in
/// a child. `None` if the system cannot wipe a page. Takes no lock, as a thread that the child lacks could hold it.
fn noted() -> Option<&'static AtomicU32> {
    static PAGE: AtomicPtr<AtomicU32> = AtomicPtr::new(ptr::null_mut());
    let mut page = PAGE.load(Ordering::Acquire);
    if page.is_null() {
        let made = map_page().unwrap_or((&raw const NO_PAGE).cast_mut());
        page = match PAGE.compare_exchange(page, made, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => made,
            // Another thread came first. The page of this one stays unused.
            Err(first) => first,
        };
    }
    // SAFETY: `NO_PAGE`, or a page that is zeroed at first, aligned, written atomically alone, and never unmapped.
    let noted = unsafe { &*page };
    (!ptr::eq(noted, &NO_PAGE)).then_some(noted)
}

/// Maps a page that the system sets to 0 in a child.
fn map_page() -> Option<*mut AtomicU32> {
    let (len, access) = (page_size(), ProtFlags::READ | ProtFlags::WRITE);
    // SAFETY: a new mapping, at an address that the system chooses.
    let page = unsafe { mmap_anonymous(ptr::null_mut(), len, access, MapFlags::PRIVATE) }.ok()?;
    // SAFETY: the whole of the mapping from above, which nothing else uses.
    if unsafe { madvise(page, len, Advice::LinuxWipeOnFork) }.is_err() {
        // SAFETY: as above.
        let _ = unsafe { munmap(page, len) };
        return None;
    }
    Some(page.cast())
}

impl Default for OwnerProcess {
    fn default() -> Self {
        Self::current()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_owner_is_current_in_each_thread_of_its_process() {
        let owner = OwnerProcess::current();
        let found = std::thread::spawn(move || (owner.is_current(), owner.id()));
        assert_eq!(found.join().unwrap(), (true, std::process::id()));
        let foreign = OwnerProcess(owner.id() ^ 1);
        assert!(!foreign.is_current());
    }
}
