//! Memory that is aligned for direct I/O.

use crate::file::BLOCK;
use memmap2::{Advice, MmapMut};
use std::ops::{Deref, DerefMut};
use tierflow_sync::{Condvar, Mutex};

/// The size of a huge page on most machines, in bytes. Only buffers of at least this size ask for huge pages.
const HUGE_PAGE: usize = 2 << 20;

/// Bytes that start at a multiple of [`BLOCK`].
///
/// Large buffers lie in huge pages if the system has them. A request of direct I/O then consists of a few long runs of memory
/// instead of thousands of pages, each of which the kernel looks up and pins.
#[derive(Debug, Default)]
pub(crate) struct Aligned(Memory);

#[derive(Debug)]
enum Memory {
    Small(Vec<u8>),
    Large(MmapMut),
}

impl Default for Memory {
    fn default() -> Self {
        Self::Small(Vec::new())
    }
}

impl Memory {
    fn new(length: usize) -> Self {
        let mapped = (length >= HUGE_PAGE)
            .then(|| MmapMut::map_anon(length.checked_add(HUGE_PAGE)?).ok())
            .flatten();
        match mapped {
            Some(mapped) => {
                // A kernel without huge pages refuses the advice and uses small pages.
                let _ = mapped.advise(Advice::HugePage);
                Self::Large(mapped)
            }
            None => Self::Small(vec![0; length + BLOCK]),
        }
    }

    /// Returns all bytes from the first aligned one on.
    fn bytes(&mut self) -> &mut [u8] {
        let (bytes, alignment) = match self {
            Self::Small(bytes) => (bytes.as_mut_slice(), BLOCK),
            Self::Large(bytes) => (&mut bytes[..], HUGE_PAGE),
        };
        let start = bytes.as_ptr().align_offset(alignment).min(bytes.len());
        &mut bytes[start..]
    }
}

impl Aligned {
    /// Returns the first `length` bytes. The contents are unspecified.
    pub(crate) fn get_mut(&mut self, length: usize) -> &mut [u8] {
        if self.0.bytes().len() < length {
            self.0 = Memory::new(length);
        }
        &mut self.0.bytes()[..length]
    }
}

/// The buffers for all large pieces that are written at the same time. There are as many as one piece has threads, so the memory
/// beside the caller's does not grow with the number of pieces.
///
/// A thread holds a buffer for one part of a piece, from the copy of the part to the end of its write. No thread holds one while
/// the disk synchronises. The memory stays for the next piece.
#[derive(Debug)]
pub(super) struct WriteBuffers {
    most: usize,
    idle: Mutex<IdleBuffers>,
    given_back: Condvar,
}

/// The buffers that no thread holds.
#[derive(Debug)]
struct IdleBuffers {
    /// Buffers that may still be made.
    unmade: usize,
    made: Vec<Aligned>,
}

impl WriteBuffers {
    /// Makes a set of at most `most` buffers, each of which is allocated at its first use.
    pub(super) fn new(most: usize) -> Self {
        let idle = IdleBuffers {
            unmade: most,
            made: Vec::new(),
        };
        Self {
            most,
            idle: Mutex::new(idle),
            given_back: Condvar::new(),
        }
    }

    /// Returns the number of threads that write a piece.
    pub(super) fn most(&self) -> usize {
        self.most
    }

    /// Waits for a buffer. Dropping the buffer gives it back.
    pub(super) fn take(&self) -> WriteBuffer<'_> {
        let mut idle = self.idle.lock();
        let none = |idle: &mut IdleBuffers| idle.unmade == 0 && idle.made.is_empty();
        self.given_back.wait_while(&mut idle, none);
        let memory = idle.made.pop().unwrap_or_else(|| {
            idle.unmade -= 1;
            Aligned::default()
        });
        WriteBuffer { of: self, memory }
    }
}

/// A buffer of the [`WriteBuffers`].
#[derive(Debug)]
pub(super) struct WriteBuffer<'b> {
    of: &'b WriteBuffers,
    memory: Aligned,
}

impl Deref for WriteBuffer<'_> {
    type Target = Aligned;

    fn deref(&self) -> &Aligned {
        &self.memory
    }
}

impl DerefMut for WriteBuffer<'_> {
    fn deref_mut(&mut self) -> &mut Aligned {
        &mut self.memory
    }
}

impl Drop for WriteBuffer<'_> {
    fn drop(&mut self) {
        let memory = std::mem::take(&mut self.memory);
        self.of.idle.lock().made.push(memory);
        self.of.given_back.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_every_size_is_aligned_and_as_long_as_was_asked_for() {
        let mut memory = Aligned::default();
        for length in [
            0,
            1,
            BLOCK,
            HUGE_PAGE - 1,
            HUGE_PAGE,
            2 * HUGE_PAGE + 1,
            BLOCK,
        ] {
            let bytes = memory.get_mut(length);
            assert_eq!(bytes.len(), length);
            assert!(length == 0 || bytes.as_ptr().addr().is_multiple_of(BLOCK));
            bytes.fill(7);
        }
        assert_eq!(
            memory.get_mut(2 * HUGE_PAGE + 1)[BLOCK - 1],
            7,
            "it is kept"
        );
    }
}
