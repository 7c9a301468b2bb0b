//! The application's memory, as it is handed to a checkpoint or a restore.

use crate::{Error, Result};
use std::ops::Range;
use tierflow_device::Memory;

/// Bytes to checkpoint. Several regions make one checkpoint, in their order.
#[derive(Debug, Clone)]
pub enum Region<'a> {
    /// A range of device or host memory known to [`tierflow_device`], in which it lies; lent for the time of the call.
    Memory(&'a Memory, Range<usize>),
    /// Ordinary memory of this process.
    Bytes(&'a [u8]),
}

/// Bytes to restore to.
#[derive(Debug)]
pub enum RegionMut<'a> {
    /// A range of device or host memory known to [`tierflow_device`], in which it lies; lent for the time of the call.
    Memory(&'a Memory, Range<usize>),
    /// Ordinary memory of this process.
    Bytes(&'a mut [u8]),
}

/// That the range lies in the memory: an empty one too, for one that runs backwards is a mistake of the caller's and no
/// wish for nothing.
fn lies_in(memory: &Memory, range: &Range<usize>, index: usize) -> Result<()> {
    if range.start <= range.end && range.end <= memory.len() {
        return Ok(());
    }
    Err(Error::Region {
        index,
        range: range.clone(),
        memory: memory.len(),
    })
}

/// Bytes of all regions, every one of which lies in its memory.
///
/// # Errors
/// [`Error::Region`] for the first that does not.
pub(crate) fn total(regions: &[Region<'_>]) -> Result<u64> {
    let mut total = 0_u64;
    for (index, region) in regions.iter().enumerate() {
        if let Region::Memory(memory, range) = region {
            lies_in(memory, range, index)?;
        }
        total = total.saturating_add(region.len() as u64);
    }
    Ok(total)
}

/// [`total`], of regions to restore to.
pub(crate) fn total_mut(regions: &[RegionMut<'_>]) -> Result<u64> {
    let mut total = 0_u64;
    for (index, region) in regions.iter().enumerate() {
        if let RegionMut::Memory(memory, range) = region {
            lies_in(memory, range, index)?;
        }
        total = total.saturating_add(region.len() as u64);
    }
    Ok(total)
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
