//! Other ranks' pieces, where all ranks' lie.

use crate::{Engine, Error, Result, Version};
use tierflow_store::Piece;
use tierflow_store::container::{Element, RegionInfo};

impl Engine {
    /// The regions of a rank's piece of `version`, which lies in the external directory of the engine's group. For groups of another
    /// size, [`tierflow_store::Repository::piece_of`] reads their directories.
    ///
    /// # Errors
    /// As [`Engine::restore_rank`].
    pub fn regions_of_rank(&self, version: Version, rank: u32) -> Result<Vec<RegionInfo>> {
        Ok(self.piece_of(version, rank)?.layout().to_vec())
    }

    /// Brings regions of another rank's piece of `version` into host memory, from the external directory of the group: it has them
    /// once the version is durable on all ranks. Of the disk, the blocks that they lie in are read. The version stays as it is.
    ///
    /// # Errors
    /// [`Error::NothingLasts`] without an external directory; [`Error::Storage`] if the version is not there, or has no such rank
    /// or region of that length; what it cannot be read for.
    pub fn restore_rank(
        &self,
        version: Version,
        rank: u32,
        regions: &mut [(&str, &mut [u8])],
    ) -> Result<()> {
        let piece = self.piece_of(version, rank)?;
        if piece
            .regions()
            .iter()
            .any(|info| info.element == Element::Encoded)
        {
            let why = "other ranks' differences are put together by their own engines";
            return Err(Error::NoDifferences { why });
        }
        Ok(piece.restore(regions)?)
    }

    fn piece_of(&self, version: Version, rank: u32) -> Result<Piece> {
        self.at_home()?;
        let none = Error::NothingLasts {
            what: "another rank's piece",
        };
        let directory = self.nodes.directory.as_ref().ok_or(none)?;
        Ok(directory.piece_of(version, rank)?)
    }
}
