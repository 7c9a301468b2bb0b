/// Bytes at an aligned address.
#[derive(Debug)]
pub(crate) struct AlignedBuffer {
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl AlignedBuffer {
    pub(crate) fn new(len: usize, alignment: usize) -> Self {
        let bytes = vec![0; len + alignment];
        let start = bytes.as_ptr().align_offset(alignment);
        // The standard library may be unable to compute the offset. Then the storage reports that the buffer is not aligned.
        let start = start.min(alignment);
        Self { bytes, start, len }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[self.start..self.start + self.len]
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.len]
    }
}

/// Returns true if address and length of these bytes are aligned.
pub(crate) fn is_aligned(bytes: &[u8], alignment: usize) -> bool {
    let is_placed = bytes.is_empty() || bytes.as_ptr().align_offset(alignment) == 0;
    is_placed && bytes.len().is_multiple_of(alignment)
}
