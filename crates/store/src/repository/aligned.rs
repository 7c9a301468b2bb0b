//! Memory that direct I/O takes.

use crate::file::BLOCK;

/// Bytes that start at a multiple of [`BLOCK`].
#[derive(Debug, Default)]
pub(crate) struct Aligned(Vec<u8>);

impl Aligned {
    /// The first `length` bytes. What they hold is unspecified.
    pub(crate) fn get_mut(&mut self, length: usize) -> &mut [u8] {
        if self.0.len() < length + BLOCK {
            self.0 = vec![0; length + BLOCK];
        }
        let start = self.0.as_ptr().align_offset(BLOCK);
        &mut self.0[start..start + length]
    }
}
