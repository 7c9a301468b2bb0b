//! Small versions that are read where they lie.

use super::read_regions;
use crate::region::UNNAMED;
use crate::{Engine, Error, Result, Version};

impl Engine {
    /// The bytes of a version, one region after the other, read where they lie. Unlike [`Engine::restore`] it is no use of the
    /// version: nothing moves between the tiers, and prefetching does not begin. For many small versions of an earlier run.
    ///
    /// # Errors
    /// [`Error::Unknown`] if it lies on no tier that outlives the engine; [`Error::Undecodable`] for differences;
    /// [`Error::Storage`] if it cannot be read there. [`Engine::restore`] may know another way.
    pub fn peek(&self, version: Version) -> Result<Vec<u8>> {
        self.at_home()?;
        let tier = self.shared.lock().plan().fastest_tier(version);
        let tier = tier.and_then(|tier| self.shared.tiers.get(tier.0));
        let kept = tier.and_then(|tier| tier.medium.kept());
        let kept = kept.ok_or(Error::Unknown { version })?;
        let piece = kept.vault().piece(version)?;
        if piece.info().decoded.is_some() && piece.layout().is_empty() {
            let length = piece.info().decoded.unwrap_or_default();
            let mut bytes = vec![0; usize::try_from(length).unwrap_or(usize::MAX)];
            read_regions(&piece, &mut [(UNNAMED, bytes.as_mut_slice())])?;
            return Ok(bytes);
        }
        let mut bytes = Vec::new();
        for region in piece.layout() {
            let mut own = vec![0; usize::try_from(region.length).unwrap_or(usize::MAX)];
            read_regions(&piece, &mut [(&region.name, own.as_mut_slice())])?;
            bytes.append(&mut own);
        }
        Ok(bytes)
    }
}
