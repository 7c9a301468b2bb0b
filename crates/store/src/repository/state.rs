//! The state of a repository: the catalogs of its ranks, and which versions they make.

use super::catalog::Catalog;
use super::damage::Damage;
use super::heads::{Heads, PieceEntry};
use super::identity::Identity;
use super::listing::Listing;
use super::record::{Record, sum_of};
use crate::Error;
use crate::container::ManifestRow;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) catalogs: BTreeMap<u32, Catalog>,
    /// The versions that are being saved, each with the version that it is a difference against.
    pub(super) saving: BTreeMap<u64, Option<u64>>,
    /// The versions that this process saved: their checksums were made of the bytes that were handed to the disk.
    pub(super) saved: BTreeSet<u64>,
    /// Entries that have the name of a rank's directory and are none.
    pub(super) refused: BTreeMap<u32, Damage>,
    /// The list of blobs.
    pub(super) listing: Listing,
    /// Versions whose saving failed, though their pieces may be there: a write to a blob may have been executed, a later piece of the
    /// same call or the list of the version may have failed.
    pub(super) unconfirmed: BTreeSet<u64>,
    /// Versions that are being removed from blobs.
    pub(super) removing: BTreeSet<u64>,
}

/// A whole version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VersionInfo {
    /// The number of the version.
    pub version: u64,
    /// How many pieces it consists of.
    pub ranks: u32,
    /// The bytes of the regions of all its pieces.
    pub bytes: u64,
    /// The bytes once they are decoded, if some are [`Encoded`](crate::container::Element::Encoded).
    pub decoded: Option<u64>,
    /// When its first rank wrote it, in nanoseconds since 1970 by that one's clock.
    pub created: u64,
    /// The run of the application that wrote it.
    pub run: u64,
    /// The version that it is a difference against.
    pub base: Option<u64>,
}

/// The piece of one rank, as far as its head tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PieceInfo {
    /// The version.
    pub version: u64,
    /// How many pieces it consists of.
    pub ranks: u32,
    /// The identity of the piece, wherever it is copied.
    pub identity: Identity,
    /// The bytes of its regions.
    pub bytes: u64,
    /// The bytes once they are decoded, if some are [`Encoded`](crate::container::Element::Encoded).
    pub decoded: Option<u64>,
}

/// Returns the decoded bytes of pieces of so many bytes, and so many once they are decoded.
pub(crate) fn decoded(pieces: impl Iterator<Item = (u64, Option<u64>)>) -> Option<u64> {
    let (mut sum, mut is_any) = (0_u64, false);
    for (bytes, decoded) in pieces {
        sum = sum.saturating_add(decoded.unwrap_or(bytes));
        is_any |= decoded.is_some();
    }
    is_any.then_some(sum)
}

impl Heads for State {
    fn listed(&self, version: u64, rank: u32) -> Option<PieceEntry> {
        Some(self.piece(rank, version)?.listed())
    }

    fn has_manifest(&self, version: u64, rows: &[ManifestRow]) -> bool {
        let sum = sum_of(rows.iter().copied());
        let mut catalogs = self.catalogs.values();
        catalogs.any(|catalog| {
            let manifest = catalog.manifest(version);
            manifest.and_then(Record::manifest) == Some(sum)
        })
    }

    fn candidates(&self, before: Option<u64>) -> Box<dyn DoubleEndedIterator<Item = u64> + '_> {
        let below = before.map_or(Bound::Unbounded, Bound::Excluded);
        // Every version has a rank 0.
        let first = self.catalogs.get(&0).into_iter();
        let versions =
            first.flat_map(move |catalog| catalog.pieces.range((Bound::Unbounded, below)));
        Box::new(versions.map(|(version, _)| *version))
    }
}

impl State {
    pub(super) fn piece(&self, rank: u32, version: u64) -> Option<&Record> {
        self.catalogs.get(&rank)?.piece(version)
    }

    /// Why a version is not there. A head that was damaged since it was published tells more than that there is none.
    pub(super) fn missing(&self, version: u64) -> Error {
        let older = self.older(Some(version));
        match self.damage_of(version) {
            Some(damage) => Error::Damaged {
                path: damage.path,
                offset: damage.offset,
                what: damage.what,
                older,
            },
            None => Error::NoVersion { version, older },
        }
    }

    fn damage_of(&self, version: u64) -> Option<Damage> {
        let mut damage = self.catalogs.values().flat_map(Catalog::damage);
        damage.find(|damage| damage.version == Some(version))
    }
}
