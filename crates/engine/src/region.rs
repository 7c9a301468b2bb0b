//! The application's memory in a checkpoint or a restore.

use crate::{Error, Result, Version};
use hashbrown::HashMap;
use std::ops::Range;
use tierflow_device::Memory;
use tierflow_store::container::{Element, Head, RegionInfo};

/// Bytes to checkpoint. The regions of a checkpoint are stored one after the other.
///
/// ```
/// # use tierflow_engine::{Element, Engine, Region, RegionMut};
/// # let device = tierflow_device::open(tierflow_device::Choice::Host)?;
/// # let engine = Engine::builder(&device).host_cache(1 << 20).build()?;
/// let (grid, seed) = ([0_u8; 8 * 30 * 20], [7_u8; 16]);
/// let grid = Region::from(&grid[..]).array("grid", Element::F64, &[30, 20]);
/// engine.checkpoint(1, &[grid, Region::from(&seed[..]).named("seed")])?;
/// // A restore may take all regions, or named ones.
/// let mut back = [0; 16];
/// engine.call().restore_regions(1, &mut [("seed", RegionMut::from(&mut back[..]))])?;
/// assert_eq!(back, seed);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub enum Region<'a> {
    /// A range of a device or host memory of [`tierflow_device`], lent for the time of the call.
    Memory(&'a Memory, Range<usize>),
    /// Ordinary memory of this process.
    Bytes(&'a [u8]),
    /// Another region with its name and type: see [`Region::named`] and [`Region::array`].
    Named {
        /// The region.
        region: Box<Region<'a>>,
        /// The name.
        name: &'a str,
        /// The type of its values.
        element: Element,
        /// The extents, slowest first.
        shape: &'a [u64],
    },
}

/// Memory to restore to.
#[derive(Debug)]
pub enum RegionMut<'a> {
    /// A range of a device or host memory of [`tierflow_device`], lent for the time of the call.
    Memory(&'a Memory, Range<usize>),
    /// Ordinary memory of this process.
    Bytes(&'a mut [u8]),
}

/// Checks that the range is within the memory, even if it is empty: a reversed range is the caller's mistake.
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

/// Returns the number of bytes of all regions. Checks that each is within its memory.
///
/// # Errors
/// [`Error::Region`] for the first region that is not.
pub(crate) fn total(regions: &[Region<'_>]) -> Result<u64> {
    let mut total = 0_u64;
    for (index, region) in regions.iter().enumerate() {
        if let Region::Memory(memory, range) = region.plain() {
            lies_in(memory, range, index)?;
        }
        total = total.saturating_add(region.len() as u64);
    }
    Ok(total)
}

/// As [`total`], for regions to restore to.
pub(crate) fn total_mut<'r, 'a: 'r>(
    regions: impl IntoIterator<Item = &'r RegionMut<'a>>,
) -> Result<u64> {
    let mut total = 0_u64;
    for (index, region) in regions.into_iter().enumerate() {
        if let RegionMut::Memory(memory, range) = region {
            lies_in(memory, range, index)?;
        }
        total = total.saturating_add(region.len() as u64);
    }
    Ok(total)
}

/// Name of the only region of a checkpoint without named regions.
pub(crate) const UNNAMED: &str = "checkpoint";

/// Returns the layout of a checkpoint with a named region; `None` without one. An unnamed region is called by its index, such as
/// `region-0`.
///
/// # Errors
/// [`Error::NamedRegion`] if a name or shape is impossible, if two regions have the same name, or if there are more regions than
/// storage can keep of one version.
pub(crate) fn layout(version: Version, regions: &[Region<'_>]) -> Result<Option<Vec<RegionInfo>>> {
    if !regions
        .iter()
        .any(|region| matches!(region, Region::Named { .. }))
    {
        return Ok(None);
    }
    let mut offset = 0;
    let mut layout = Vec::with_capacity(regions.len());
    for (index, region) in regions.iter().enumerate() {
        let length = region.len() as u64;
        let (name, element, shape) = match region {
            Region::Named {
                name,
                element,
                shape,
                ..
            } => ((*name).to_owned(), *element, shape.to_vec()),
            _ => (format!("region-{index}"), Element::Bytes, Vec::new()),
        };
        let info = RegionInfo {
            name,
            offset,
            length,
            element,
            shape,
        };
        let refused = |why: &str| Error::NamedRegion {
            version,
            name: info.name.clone(),
            why: why.to_owned(),
        };
        info.check().map_err(|invalid| refused(invalid.what()))?;
        if element == Element::Encoded {
            return Err(refused("only the engine encodes: say what the bytes are"));
        }
        offset += length;
        layout.push(info);
    }
    if let (Err(invalid), Some(last)) = (Head::check_regions(&layout), layout.last()) {
        return Err(Error::NamedRegion {
            version,
            name: last.name.clone(),
            why: invalid.what().to_owned(),
        });
    }
    let mut names: Vec<&str> = layout.iter().map(|info| info.name.as_str()).collect();
    names.sort_unstable();
    match names.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(Error::NamedRegion {
            version,
            name: pair[0].to_owned(),
            why: "two regions have this name: give each its own".to_owned(),
        }),
        None => Ok(Some(layout)),
    }
}

/// Returns the regions that have bytes, with their offsets in the checkpoint, in the order of the offsets.
///
/// # Errors
/// [`Error::NamedRegion`] if `layout` does not have a name, or has it with another length, or if a name is given twice;
/// [`Error::Region`] if a region is not within its memory.
pub(crate) fn by_name<'r>(
    version: Version,
    layout: &[RegionInfo],
    regions: &'r mut [(&str, RegionMut<'_>)],
) -> Result<Vec<(u64, RegionMut<'r>)>> {
    let refused = |name: &str, why: String| Error::NamedRegion {
        version,
        name: name.to_owned(),
        why,
    };
    let mut names: Vec<&str> = regions.iter().map(|(name, _)| *name).collect();
    names.sort_unstable();
    if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(refused(pair[0], "it is asked for twice".to_owned()));
    }
    total_mut(regions.iter().map(|(_, region)| region))?;
    let known: HashMap<&str, &RegionInfo> = layout
        .iter()
        .map(|info| (info.name.as_str(), info))
        .collect();
    let mut targets = Vec::with_capacity(regions.len());
    for (name, region) in regions {
        let info = known.get(name).ok_or_else(|| {
            let names: Vec<_> = layout.iter().map(|info| info.name.as_str()).collect();
            refused(name, format!("there is none, but {}", names.join(", ")))
        })?;
        let (held, given) = (info.length, region.len() as u64);
        if held != given {
            let why = format!("it has {held} bytes, and the memory for it {given}");
            return Err(refused(name, why));
        }
        if given > 0 {
            targets.push((info.offset, region.reborrow()));
        }
    }
    targets.sort_by_key(|(offset, _)| *offset);
    Ok(targets)
}

impl<'a> Region<'a> {
    /// Gives the region a name of 1 to 1024 bytes, by which it can be restored alone and is found in files. The other regions of
    /// the checkpoint then stay separate regions, too.
    #[must_use]
    pub fn named(self, name: &'a str) -> Self {
        self.array(name, Element::Bytes, &[])
    }

    /// Gives the region a name and a type: an array of up to 8 extents, slowest first. Exports keep the type.
    #[must_use]
    pub fn array(self, name: &'a str, element: Element, shape: &'a [u64]) -> Self {
        let region = match self {
            Self::Named { region, .. } => region,
            plain => Box::new(plain),
        };
        Self::Named {
            region,
            name,
            element,
            shape,
        }
    }

    /// Returns the region without its names, of which the outermost counts.
    pub(crate) fn plain(&self) -> &Self {
        match self {
            Self::Named { region, .. } => region.plain(),
            plain => plain,
        }
    }

    /// Returns the length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Memory(_, range) => range.len(),
            Self::Bytes(bytes) => bytes.len(),
            Self::Named { region, .. } => region.len(),
        }
    }

    /// Returns true if the region has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl RegionMut<'_> {
    /// Borrows the same region again.
    pub(crate) fn reborrow(&mut self) -> RegionMut<'_> {
        match self {
            Self::Memory(memory, range) => RegionMut::Memory(memory, range.clone()),
            Self::Bytes(bytes) => RegionMut::Bytes(bytes),
        }
    }

    /// Returns the length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Memory(_, range) => range.len(),
            Self::Bytes(bytes) => bytes.len(),
        }
    }

    /// Returns true if the region has no bytes.
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
