//! Ranges of this process's address space, from the system.
//!
//! A range goes through the steps mmap, advise, touch and pin. The back end pins; this module does the other steps.

use std::ffi::c_void;
use std::os::fd::BorrowedFd;
use std::ptr;

use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, MprotectFlags, ProtFlags};

use crate::error::out_of_memory;
use crate::error::{Error, Result};

/// Bytes of a transparent huge page. Host reservations are aligned to it.
pub(crate) const HUGE_PAGE: usize = 2 << 20;

pub(crate) fn page_size() -> usize {
    rustix::param::page_size()
}

/// Returns the bytes of main memory available without swapping, and the machine's total.
pub(crate) fn main_memory() -> (u64, u64) {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let field = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim_start_matches(':')
            .split_whitespace()
            .next()?
            .parse::<u64>()
            .ok()
    };
    let kib = |name| field(name).unwrap_or(0) * 1024;
    (kib("MemAvailable"), kib("MemTotal"))
}

/// The content of a mapping in a child process after a fork.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AtFork {
    /// The child has its own copy, made page by page as either side writes.
    Copied,
    /// The child has no memory there. Ranges that the driver pins are of this kind: the system would copy pinned pages at
    /// the fork itself, which takes seconds. The child has no use for them, as the driver does not work there.
    Absent,
}

/// Reserves `len` usable bytes, aligned to huge pages and advised to use them. The bytes cost nothing until touched.
pub(crate) fn reserve_usable(len: usize, at_fork: AtFork) -> Result<u64> {
    reserve(len, ProtFlags::READ | ProtFlags::WRITE, at_fork)
}

/// Reserves `len` bytes of addresses without memory.
pub(crate) fn reserve_empty(len: usize) -> Result<u64> {
    reserve(len, ProtFlags::empty(), AtFork::Copied)
}

/// Refuses more bytes than main memory can provide now. The system would grant them, and kill a process once they are
/// touched.
pub(crate) fn within_available(len: usize, what: &'static str) -> Result<()> {
    let (available, _) = main_memory();
    if len as u64 > available {
        return Err(out_of_memory(what, len, available));
    }
    Ok(())
}

/// # Safety
/// The range is of a live mapping of this module.
pub(crate) unsafe fn advise_small(base: u64, len: usize) -> Result<()> {
    // SAFETY: the caller's promise; the advice changes no content.
    let advised = unsafe { rustix::mm::madvise(pointer(base), len, Advice::LinuxNoHugepage) };
    match advised {
        // A kernel without huge pages has small ones only.
        Ok(()) | Err(Errno::INVAL) => Ok(()),
        Err(errno) => Err(Error::system("asking for small pages (madvise)", errno)),
    }
}

fn advise(base: u64, len: usize, at_fork: AtFork) {
    let pointer = pointer(base);
    // SAFETY: the caller has just mapped the range, and the advice changes no content.
    let huge = unsafe { rustix::mm::madvise(pointer, len, Advice::LinuxHugepage) };
    // A kernel without huge pages refuses, and gives small pages.
    let _ = huge;
    if at_fork == AtFork::Copied {
        return;
    }
    // SAFETY: as above; the advice changes nothing in this process.
    let unshared = unsafe { rustix::mm::madvise(pointer, len, Advice::LinuxDontFork) };
    let _ = unshared;
}

fn reserve(len: usize, access: ProtFlags, at_fork: AtFork) -> Result<u64> {
    let slack = if len >= HUGE_PAGE { HUGE_PAGE } else { 0 };
    let padded = len
        .checked_add(slack)
        .ok_or_else(|| out_of_memory("addresses", len, 0))?;
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
    // SAFETY: no address is asked for, so the range is new and this caller's alone.
    let mapped = unsafe { rustix::mm::mmap_anonymous(ptr::null_mut(), padded, access, flags) };
    let start = match mapped {
        Ok(pointer) => pointer.expose_provenance(),
        Err(Errno::NOMEM) => return Err(out_of_memory("addresses", len, main_memory().0)),
        Err(errno) => return Err(Error::system("mapping memory (mmap)", errno)),
    };
    if slack == 0 {
        advise(start as u64, len, at_fork);
        return Ok(start as u64);
    }
    let aligned = start.next_multiple_of(HUGE_PAGE);
    let tail = aligned + len.next_multiple_of(page_size());
    for (from, to) in [(start, aligned), (tail, start + padded)] {
        if from < to {
            // SAFETY: a part of the mapping above that was not given out.
            unsafe { release(from as u64, to - from) };
        }
    }
    advise(aligned as u64, len, at_fork);
    Ok(aligned as u64)
}

/// Causes the write fault of the page at `address`, if a write would fault, and changes no content.
///
/// # Safety
/// The address is of a live mapping that may be written. Others may read and write the byte meanwhile, on any processor
/// or device.
#[cfg(target_arch = "x86_64")]
pub(crate) unsafe fn fault_in(address: u64) {
    // The instruction is assembly, as the compiler turns an atomic operation that changes nothing into a load.
    // SAFETY: the byte exists, by the caller's promise. The instruction stores the byte that it loads, in one atomic
    // step. So no reader sees a change and no writer loses a store: like a fault, the store cannot be observed.
    unsafe {
        std::arch::asm!("lock or byte ptr [{}], 0", in(reg) address, options(nostack));
    }
}

/// Does nothing: other processors rely on `populate`.
///
/// # Safety
/// No requirement: the function is unsafe so that its signature is that of the other one.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) unsafe fn fault_in(_address: u64) {}

/// Makes a part of `reserve_empty` usable. The part costs nothing until touched.
///
/// # Safety
/// The range is of one live `reserve_empty`, aligned to pages, and not used.
pub(crate) unsafe fn commit(base: u64, len: usize) -> Result<()> {
    let access = MprotectFlags::READ | MprotectFlags::WRITE;
    // SAFETY: the caller's promise; the range gains access and loses nothing.
    unsafe { rustix::mm::mprotect(pointer(base), len, access) }.map_err(|errno| match errno {
        Errno::NOMEM => out_of_memory("device memory", len, main_memory().0),
        errno => Error::system("making reserved memory usable (mprotect)", errno),
    })
}

/// Puts the start of a file behind a part of `reserve_empty`, shared with every process that maps it.
///
/// # Safety
/// The range is of one live `reserve_empty`, aligned to pages, and not used. The file has at least `len` bytes for as
/// long as it is mapped. Nobody makes a reference to the bytes, which others write.
pub(crate) unsafe fn map_file(base: u64, len: usize, file: BorrowedFd<'_>) -> Result<()> {
    let access = ProtFlags::READ | ProtFlags::WRITE;
    let flags = MapFlags::SHARED | MapFlags::FIXED;
    // SAFETY: the caller's promise: the range is of a mapping of this module, unused and empty, so it may be replaced.
    let mapped = unsafe { rustix::mm::mmap(pointer(base), len, access, flags, file, 0) };
    match mapped {
        Ok(_) => Ok(()),
        Err(Errno::NOMEM) => Err(out_of_memory("shared memory", len, main_memory().0)),
        Err(errno) => Err(Error::system("mapping shared memory (mmap)", errno)),
    }
}

/// Frees the memory behind a part of a reservation. The addresses stay reserved.
///
/// # Safety
/// The range was committed, and is not used.
pub(crate) unsafe fn decommit(base: u64, len: usize) {
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
    // SAFETY: the caller's promise: the range is of a mapping of this module and unused, so an empty mapping may replace
    // it.
    let mapped =
        unsafe { rustix::mm::mmap_anonymous(pointer(base), len, ProtFlags::empty(), flags) };
    debug_assert!(mapped.is_ok(), "replacing a mapping of our own");
}

/// Gives the pages of a range back to the system. The range stays usable and reads as zeros.
///
/// # Safety
/// The range is of a live private mapping of this module, aligned to pages, not locked, and not used.
pub(crate) unsafe fn discard(base: u64, len: usize) -> Result<()> {
    // SAFETY: the caller's promise: the content is not used any more; it becomes zeros.
    unsafe { rustix::mm::madvise(pointer(base), len, Advice::LinuxDontNeed) }
        .map_err(|errno| Error::system("giving memory back (madvise)", errno))
}

/// # Safety
/// The range is of a mapping of this module, and not used.
pub(crate) unsafe fn release(base: u64, len: usize) {
    // SAFETY: the caller's promise.
    let unmapped = unsafe { rustix::mm::munmap(pointer(base), len) };
    debug_assert!(unmapped.is_ok(), "unmapping a mapping of our own");
}

/// Makes the system provide pages for the range now. The content does not change, even while others read and write it.
/// Returns `Ok(false)` if the kernel is too old for the call (before Linux 5.14).
///
/// # Safety
/// The range is readable and writable memory of a live mapping of this module, aligned to pages.
pub(crate) unsafe fn populate(base: u64, len: usize) -> Result<bool> {
    loop {
        // SAFETY: the caller's promise; the kernel triggers write faults and writes nothing.
        match unsafe { rustix::mm::madvise(pointer(base), len, Advice::LinuxPopulateWrite) } {
            Ok(()) => return Ok(true),
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(Errno::INVAL) => return Ok(false),
            Err(Errno::NOMEM) => return Err(out_of_memory("host memory", len, main_memory().0)),
            Err(errno) => return Err(Error::system("touching memory (madvise)", errno)),
        }
    }
}

/// # Safety
/// The range is memory of a live mapping, aligned to pages.
pub(crate) unsafe fn lock(base: u64, len: usize) -> Result<(), Errno> {
    // SAFETY: the caller's promise; locking changes no content.
    unsafe { rustix::mm::mlock(pointer(base), len) }
}

/// # Safety
/// The range is memory of a live mapping, aligned to pages.
pub(crate) unsafe fn unlock(base: u64, len: usize) {
    // SAFETY: the caller's promise; unlocking changes no content.
    let unlocked = unsafe { rustix::mm::munlock(pointer(base), len) };
    debug_assert!(unlocked.is_ok(), "unlocking a mapping of our own");
}

/// Returns the bytes of the range that lie in huge pages, by the kernel's count. Costs milliseconds.
pub(crate) fn huge_bytes(base: u64, len: usize) -> Result<usize> {
    let text = std::fs::read_to_string("/proc/self/smaps").map_err(|error| Error::System {
        tried: "reading /proc/self/smaps",
        errno: error.raw_os_error().unwrap_or(0),
    })?;
    let (base, end) = (base as usize, base as usize + len);
    let mut inside = false;
    let mut total = 0;
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let Some(first) = words.next() else { continue };
        if let Some((from, to)) = address_range(first) {
            inside = from < end && to > base;
        } else if inside && first == "AnonHugePages:" {
            total += words
                .next()
                .and_then(|kib| kib.parse::<usize>().ok())
                .unwrap_or(0)
                * 1024;
        }
    }
    Ok(total.min(len))
}

/// Parses a range as smaps writes it: `7f0000000000-7f0000200000`.
fn address_range(word: &str) -> Option<(usize, usize)> {
    let (from, to) = word.split_once('-')?;
    Some((
        usize::from_str_radix(from, 16).ok()?,
        usize::from_str_radix(to, 16).ok()?,
    ))
}

pub(crate) fn pointer(address: u64) -> *mut c_void {
    ptr::with_exposed_provenance_mut(address as usize)
}
