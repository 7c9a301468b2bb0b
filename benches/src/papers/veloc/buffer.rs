/// Bytes at an address with the alignment that the storage needs.
#[derive(Debug)]
pub struct Buffer {
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl Buffer {
    /// Makes a buffer of zeros.
    #[must_use]
    pub fn new(len: usize, alignment: usize) -> Self {
        let bytes = vec![0; len + alignment];
        let start = bytes.as_ptr().align_offset(alignment);
        // `align_offset` may return `usize::MAX`. The storage then reports the wrong alignment.
        let start = start.min(alignment);
        Self { bytes, start, len }
    }

    /// Returns the bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[self.start..self.start + self.len]
    }

    /// Returns the bytes, to be written.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.len]
    }
}
