//! Memory that direct I/O takes.

use crate::file::BLOCK;
use memmap2::{Advice, MmapMut};

/// The size of a huge page on most machines, and how many bytes are worth asking for huge pages.
const HUGE_PAGE: usize = 2 << 20;

/// Bytes that start at a multiple of [`BLOCK`].
///
/// Large ones lie in huge pages where the system has them: a request of direct I/O then consists of a few long runs of memory
/// instead of thousands of pages, each of which the kernel looks up and holds.
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
                // A kernel without huge pages refuses; then the pages are small, and nothing else changes.
                let _ = mapped.advise(Advice::HugePage);
                Self::Large(mapped)
            }
            None => Self::Small(vec![0; length + BLOCK]),
        }
    }

    /// All bytes from the first that is aligned.
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
    /// The first `length` bytes. What they hold is unspecified.
    pub(crate) fn get_mut(&mut self, length: usize) -> &mut [u8] {
        if self.0.bytes().len() < length {
            self.0 = Memory::new(length);
        }
        &mut self.0.bytes()[..length]
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
