/// Bytes at an address that storage takes.
#[derive(Debug)]
pub struct Buffer {
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl Buffer {
    /// Zeros.
    #[must_use]
    pub fn new(len: usize, alignment: usize) -> Self {
        let bytes = vec![0; len + alignment];
        let start = bytes.as_ptr().align_offset(alignment);
        // The standard library may say that it does not know; storage says so then.
        let start = start.min(alignment);
        Self { bytes, start, len }
    }

    /// The bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[self.start..self.start + self.len]
    }

    /// The bytes, to be written.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.len]
    }
}
