//! Other ranks' pieces, where all ranks' lie.

#[cfg(feature = "stage")]
use crate::region::UNNAMED;
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
        read_regions(&self.piece_of(version, rank)?, regions)
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

/// Brings regions of a piece into host memory, wherever it lies, decoded if it is compressed.
///
/// # Errors
/// [`Error::Storage`] if it has no such region of that length, or cannot be read; [`Error::Undecodable`] if it is a difference.
pub fn read_regions(piece: &Piece, regions: &mut [(&str, &mut [u8])]) -> Result<()> {
    match piece.regions() {
        [encoded] if encoded.element == Element::Encoded => decode(piece, encoded, regions),
        _ => Ok(piece.restore(regions)?),
    }
}

/// Brings regions of a compressed piece back.
#[cfg(feature = "stage")]
fn decode(piece: &Piece, encoded: &RegionInfo, regions: &mut [(&str, &mut [u8])]) -> Result<()> {
    let containers = piece.read(&encoded.name)?;
    if !tierflow_codec::Header::is_one(&containers) {
        return Err(of_others());
    }
    let mut whole = vec![0; tierflow_codec::decoded_len(&containers)? as usize];
    tierflow_codec::decode_all(&containers, &mut whole)?;
    for (name, into) in regions {
        let named = piece.layout().iter().find(|info| info.name == *name);
        let range = named.map(|info| info.offset as usize..(info.offset + info.length) as usize);
        // Without names, it is one region.
        let is_all = piece.layout().is_empty() && *name == UNNAMED;
        let bytes = match is_all {
            true => Some(whole.as_slice()),
            false => range.and_then(|range| whole.get(range)),
        };
        let Some(bytes) = bytes.filter(|bytes| bytes.len() == into.len()) else {
            let version = piece.version();
            let why = format!(
                "version {version} has no region {name} of {} bytes",
                into.len()
            );
            return Err(tierflow_store::Error::Argument(why).into());
        };
        into.copy_from_slice(bytes);
    }
    Ok(())
}

#[cfg(not(feature = "stage"))]
fn decode(_: &Piece, _: &RegionInfo, _: &mut [(&str, &mut [u8])]) -> Result<()> {
    Err(of_others())
}

fn of_others() -> Error {
    Error::Undecodable {
        why: "other ranks' differences are put together by their own engines, and compressed versions by those with `compress`",
    }
}
