//! The application's memory, as it is handed to a checkpoint or a restore.

use std::ops::Range;
use tierflow_device::Memory;

/// Bytes to checkpoint. Several regions make one checkpoint, in their order.
#[derive(Debug, Clone)]
pub enum Region<'a> {
    /// A range of device or host memory known to [`tierflow_device`]; lent for the time of the call.
    Memory(&'a Memory, Range<usize>),
    /// Ordinary memory of this process.
    Bytes(&'a [u8]),
}

/// Bytes to restore to.
#[derive(Debug)]
pub enum RegionMut<'a> {
    /// A range of device or host memory known to [`tierflow_device`]; lent for the time of the call.
    Memory(&'a Memory, Range<usize>),
    /// Ordinary memory of this process.
    Bytes(&'a mut [u8]),
}

impl Region<'_> {
    /// Length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Memory(_, range) => range.len(),
            Self::Bytes(bytes) => bytes.len(),
        }
    }

    /// Whether there is nothing in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl RegionMut<'_> {
    /// Length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Memory(_, range) => range.len(),
            Self::Bytes(bytes) => bytes.len(),
        }
    }

    /// Whether there is nothing in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<'a> From<&'a Memory> for Region<'a> {
    fn from(memory: &'a Memory) -> Self {
        Self::Memory(memory, 0..memory.len())
    }
}

impl<'a> From<&'a Memory> for RegionMut<'a> {
    fn from(memory: &'a Memory) -> Self {
        Self::Memory(memory, 0..memory.len())
    }
}

impl<'a> From<&'a [u8]> for Region<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Self::Bytes(bytes)
    }
}

impl<'a> From<&'a mut [u8]> for RegionMut<'a> {
    fn from(bytes: &'a mut [u8]) -> Self {
        Self::Bytes(bytes)
    }
}
