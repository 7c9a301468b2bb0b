//! Conclusions from the heads of pieces, for every place in which pieces lie.

use super::{PieceInfo, VersionInfo, decoded};
use crate::container::ManifestRow;

/// A piece, as described by its head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PieceEntry {
    /// The number, size and identity of the piece.
    pub(crate) info: PieceInfo,
    /// Length of the piece's record in bytes.
    pub(crate) record_length: u64,
}

/// The heads that lie in one place, and the versions that they form.
///
/// A version is whole under three conditions. The pieces of all its ranks are there, from one run. If it has more than one rank,
/// some rank has seen all of its pieces and wrote a manifest of exactly these. If it is a difference, its base is whole, and no
/// later run wrote another version under the base's number.
pub(crate) trait Heads {
    /// Returns a rank's piece of a version.
    fn listed(&self, version: u64, rank: u32) -> Option<PieceEntry>;

    /// Returns true if some rank's manifest lists exactly these pieces.
    fn has_manifest(&self, version: u64, rows: &[ManifestRow]) -> bool;

    /// Returns the versions of which rank 0's piece is there, in ascending order; only those below `before` if it is given.
    fn candidates(&self, before: Option<u64>) -> Box<dyn DoubleEndedIterator<Item = u64> + '_>;

    /// Returns the pieces of a version, in the order of the ranks, if each rank has one and all come from the same run.
    fn all_pieces(&self, version: u64) -> Option<Vec<PieceEntry>> {
        let first = self.listed(version, 0)?.info;
        let of = |info: &PieceInfo| (info.ranks, info.identity.run);
        let pieces = (0..first.ranks).map(|rank| self.listed(version, rank));
        let same = |piece: &PieceEntry| of(&piece.info) == of(&first);
        pieces.map(|piece| piece.filter(same)).collect()
    }

    /// Returns the rows of a version's manifest if all of its pieces are there.
    fn rows(&self, version: u64) -> Option<Vec<ManifestRow>> {
        let pieces = self.all_pieces(version)?;
        let row = |(rank, piece): (u64, &PieceEntry)| ManifestRow {
            rank,
            sequence: piece.info.identity.sequence,
            created: piece.info.identity.created,
            record_length: piece.record_length,
        };
        Some((0..).zip(&pieces).map(row).collect())
    }

    /// Returns a version if all of its pieces are there and, if there is more than one, some rank has seen them all. The base may
    /// be missing.
    fn has_all(&self, version: u64) -> Option<VersionInfo> {
        let pieces = self.all_pieces(version)?;
        if pieces.len() > 1 && !self.has_manifest(version, &self.rows(version)?) {
            return None;
        }
        let first = pieces.first()?.info;
        let infos = || pieces.iter().map(|piece| piece.info);
        Some(VersionInfo {
            version,
            ranks: first.ranks,
            bytes: infos().map(|info| info.bytes).sum(),
            decoded: decoded(infos().map(|info| (info.bytes, info.decoded))),
            created: first.identity.created,
            run: first.identity.run,
            base: infos().filter_map(|info| info.identity.base).max(),
        })
    }

    /// Returns true if a version and all versions below it in its chain of bases are there.
    fn is_whole(&self, version: u64) -> bool {
        let mut next = Some(version);
        while let Some(version) = next {
            let Some(info) = self.has_all(version) else {
                return false;
            };
            if info
                .base
                .is_some_and(|base| !may_build_on(self, &info, base))
            {
                return false;
            }
            // A base is older than the versions that build upon it, so the loop ends.
            next = info.base;
        }
        true
    }

    /// Returns the newest whole version below `before`.
    fn older(&self, before: Option<u64>) -> Option<u64> {
        let mut versions = self.candidates(before).rev();
        versions.find(|version| self.is_whole(*version))
    }

    /// Returns the whole versions, oldest first.
    fn whole(&self) -> Vec<VersionInfo> {
        let mut whole: Vec<VersionInfo> = Vec::new();
        for info in self.candidates(None).filter_map(|v| self.has_all(v)) {
            let find = |base: u64| whole.binary_search_by_key(&base, |info| info.version);
            let is_sound = |base| find(base).is_ok() && may_build_on(self, &info, base);
            if info.base.is_none_or(is_sound) {
                whole.push(info);
            }
        }
        whole
    }
}

/// Returns true if the pieces of a version can be differences against the pieces that now have the number of its base.
fn may_build_on<H: Heads + ?Sized>(heads: &H, info: &VersionInfo, base: u64) -> bool {
    (0..info.ranks).all(|rank| {
        let identity = |version| Some(heads.listed(version, rank)?.info.identity);
        match (identity(info.version), identity(base)) {
            (Some(piece), Some(under)) if piece.base == Some(base) => piece.may_build_on(&under),
            _ => true,
        }
    })
}
