//! The regions of a version.

use crate::deadline::Deadline;
use crate::region::UNNAMED;
use crate::{Engine, Result, Version};
use tierflow_store::container::{Element, RegionInfo};

impl Engine {
    /// Returns the regions of `version`, in their order, with their offsets in the checkpoint. A version without named regions is
    /// one region of bytes, called `checkpoint`.
    ///
    /// # Errors
    /// As [`Engine::restore_size`].
    pub fn regions(&self, version: Version) -> Result<Vec<RegionInfo>> {
        self.regions_until(Deadline::default(), version)
    }

    /// Returns the [regions](Self::regions) of a version, or fails at the deadline.
    pub(crate) fn regions_until(
        &self,
        deadline: Deadline<'_>,
        version: Version,
    ) -> Result<Vec<RegionInfo>> {
        let size = self.restore_size_until(deadline, version)?;
        let layouts = &self.shared.layouts;
        let found = match layouts.get(version) {
            Some(layout) => Some(layout.to_vec()),
            None if layouts.may_be_adopted(version) => {
                self.look_until(deadline, move |shared| {
                    let mut durable = shared.tiers.iter().filter_map(|tier| tier.medium.durable());
                    Ok(durable.find_map(|durable| durable.layout(version)))
                })?
            }
            None => None,
        };
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
}
