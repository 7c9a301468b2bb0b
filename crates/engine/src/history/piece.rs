//! Pieces of versions, read from the tier that has them.

use crate::plan::TierId;
use crate::region::UNNAMED;
use crate::run::DurableTier;
use crate::{Engine, Error, Result, Version};
use tierflow_store::Piece;
use tierflow_store::container::{Element, RegionInfo};

impl Engine {
    /// Returns the stored piece of `version`, for [`read_regions`] and [`read_piece`]. Reading a piece is not a use of the version:
    /// nothing moves between the tiers, and prefetching does not start.
    ///
    /// Without a `rank`, the result is this rank's piece, on the fastest tier that outlives the engine. With a `rank`, it is that
    /// rank's piece in the external directory of the group. The directory has the piece once the version is durable on all ranks.
    /// For groups of another size, [`tierflow_store::Repository::piece_of`] reads their directories.
    ///
    /// # Errors
    /// [`Error::Unknown`] if no tier that outlives the engine has the version. With a rank, [`Error::NothingLasts`] without an
    /// external directory, and [`Error::Storage`] if the directory does not have the version, or the version has no such rank.
    /// [`Error::Storage`] if the piece cannot be read.
    pub fn piece(&self, version: Version, rank: Option<u32>) -> Result<Piece> {
        self.at_home()?;
        if let Some(rank) = rank {
            let none = Error::NothingLasts {
                what: "another rank's piece",
            };
            let directory = self.nodes.directory.as_ref().ok_or(none)?;
            return Ok(directory.piece_of(version, rank)?);
        }
        let mut unread = Error::Unknown { version };
        for durable in self.durable_tiers_of(version) {
            match durable.vault().piece(version) {
                Ok(piece) => return Ok(piece),
                Err(error) => unread = error.into(),
            }
        }
        Err(unread)
    }

    /// Returns the tiers that outlive the engine and that have, or will soon have, bytes of the version, the fastest first.
    fn durable_tiers_of(&self, version: Version) -> Vec<&DurableTier> {
        let core = self.shared.lock();
        let tiers = self.shared.tiers.iter().enumerate();
        let has_bytes = |tier: usize| !core.plan().pieces(version, TierId(tier)).is_empty();
        let durable = tiers.filter_map(|(tier, state)| Some((tier, state.medium.durable()?)));
        let of_version = durable.filter(|(tier, _)| has_bytes(*tier));
        of_version.map(|(_, durable)| durable).collect()
    }
}

/// Returns the bytes of a piece, one region after the other, decoded if it is compressed.
///
/// # Errors
/// As [`read_regions`].
pub fn read_piece(piece: &Piece) -> Result<Vec<u8>> {
    let buffer = |length: u64| vec![0; usize::try_from(length).unwrap_or(usize::MAX)];
    if let Some(length) = piece.info().decoded.filter(|_| piece.layout().is_empty()) {
        let mut bytes = buffer(length);
        read_regions(piece, &mut [(UNNAMED, bytes.as_mut_slice())])?;
        return Ok(bytes);
    }
    let mut bytes = Vec::new();
    for region in piece.layout() {
        let mut own = buffer(region.length);
        read_regions(piece, &mut [(&region.name, own.as_mut_slice())])?;
        bytes.append(&mut own);
    }
    Ok(bytes)
}

/// Reads regions of a piece into host memory, on whichever tier it is, and decodes them if the piece is compressed.
///
/// # Errors
/// [`Error::Storage`] if the piece has no such region of that length, or cannot be read; [`Error::Undecodable`] if it is a
/// difference.
pub fn read_regions(piece: &Piece, regions: &mut [(&str, &mut [u8])]) -> Result<()> {
    match piece.regions() {
        [encoded] if encoded.element == Element::Encoded => decode(piece, encoded, regions),
        _ => Ok(piece.restore(regions)?),
    }
}

/// Decodes the stored bytes of a checkpoint. Returns `None` if they have another form.
type Decode = fn(&[u8]) -> Option<Result<Vec<u8>>>;

/// The decoders of this build; empty without the feature `stage`.
const DECODERS: &[Decode] = &[
    #[cfg(feature = "stage")]
    crate::run::encode::decompressed,
];

/// Reads regions of a compressed piece.
fn decode(piece: &Piece, encoded: &RegionInfo, regions: &mut [(&str, &mut [u8])]) -> Result<()> {
    let containers = piece.read(&encoded.name)?;
    let whole = DECODERS.iter().find_map(|decode| decode(&containers));
    let whole = whole.ok_or(Error::Undecodable {
        why: "other ranks' differences are put together by their own engines, and compressed versions by those with `compress`",
    })??;
    for (name, into) in regions {
        let named = piece.layout().iter().find(|info| info.name == *name);
        let range = named.map(|info| info.offset as usize..(info.offset + info.length) as usize);
        // A piece without named regions is one region.
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
