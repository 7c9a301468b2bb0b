//! Restores of regions by name.

use crate::deadline::Deadline;
use crate::region::{self, UNNAMED};
use crate::run::TargetRegions;
use crate::{Engine, Error, RegionMut, Result, Version, Within};
use hashbrown::HashMap;
use tierflow_device::Stream;
use tierflow_store::container::{Element, RegionInfo};

impl Engine {
    /// Returns the regions of `version`, in their order, with their offsets in the checkpoint. A version without names
    /// is one region of bytes, `checkpoint`.
    ///
    /// # Errors
    /// As [`Engine::restore_size`].
    pub fn regions(&self, version: Version) -> Result<Vec<RegionInfo>> {
        let size = self.restore_size(version)?;
        let layouts = &self.shared.layouts;
        if let Some(layout) = layouts.get(version) {
            return Ok(layout.to_vec());
        }
        let kept = self
            .shared
            .tiers
            .iter()
            .filter_map(|tier| tier.medium.kept());
        let mut kept = kept.filter(|_| layouts.may_be_adopted(version));
        let found = kept.find_map(|kept| kept.layout(version));
        let is_all = |layout: &Vec<RegionInfo>| {
            layout.iter().map(|region| region.length).sum::<u64>() == size
        };
        Ok(found.filter(is_all).unwrap_or_else(|| {
            vec![RegionInfo {
                name: UNNAMED.to_owned(),
                offset: 0,
                length: size,
                element: Element::Bytes,
                shape: Vec::new(),
            }]
        }))
    }

    /// Restores these regions of `version`, in any order. The version stays held and unconsumed. From a disk, only the
    /// blocks of these regions are read; a version stored as a difference is read as a whole.
    ///
    /// # Errors
    /// [`Error::NamedRegion`] for a name that the version does not have, and memory of another length than the region;
    /// otherwise as [`Engine::restore`].
    pub fn restore_regions(
        &self,
        version: Version,
        regions: &mut [(&str, RegionMut<'_>)],
    ) -> Result<()> {
        self.read_named(version, regions, None, Deadline::default())
    }

    /// As [`Engine::restore_regions`], ordered after the work given to `stream` so far.
    ///
    /// # Errors
    /// As [`Engine::restore_regions`].
    pub fn restore_regions_on(
        &self,
        stream: &Stream,
        version: Version,
        regions: &mut [(&str, RegionMut<'_>)],
    ) -> Result<()> {
        self.read_named(version, regions, Some(stream), Deadline::default())
    }

    fn read_named(
        &self,
        version: Version,
        regions: &mut [(&str, RegionMut<'_>)],
        stream: Option<&Stream>,
        deadline: Deadline,
    ) -> Result<()> {
        let layout = self.regions(version)?;
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
        region::total_mut(regions.iter().map(|(_, region)| region))?;
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
        let (starts, mut regions): (Vec<u64>, Vec<_>) = targets.into_iter().unzip();
        if regions.is_empty() {
            return Ok(());
        }
        let size = layout.iter().map(|info| info.length).sum();
        let sink = TargetRegions::parts(&mut regions, &starts);
        self.read_into((version, size), sink, stream, deadline)
    }
}

impl Within<'_> {
    /// As [`Engine::restore_regions`], with a deadline.
    ///
    /// # Errors
    /// As [`Engine::restore_regions`]; [`Error::TimedOut`]: the regions are unchanged.
    pub fn restore_regions(
        &self,
        version: Version,
        regions: &mut [(&str, RegionMut<'_>)],
    ) -> Result<()> {
        let deadline = self.deadline();
        self.engine.read_named(version, regions, None, deadline)
    }

    /// As [`Engine::restore_regions_on`], with a deadline.
    ///
    /// # Errors
    /// As [`Within::restore_regions`].
    pub fn restore_regions_on(
        &self,
        stream: &Stream,
        version: Version,
        regions: &mut [(&str, RegionMut<'_>)],
    ) -> Result<()> {
        let deadline = self.deadline();
        let engine = self.engine;
        engine.read_named(version, regions, Some(stream), deadline)
    }
}
