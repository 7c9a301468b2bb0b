//! The state of a repository: the catalogs of its ranks, and the versions that they form.

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
use std::sync::Arc;

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) catalogs: BTreeMap<u32, Catalog>,
    /// The versions that are being saved, each with its base.
    pub(super) saving: BTreeMap<u64, Option<u64>>,
    /// The versions that this process saved: their checksums were computed from the bytes that were passed to the disk.
    pub(super) saved: BTreeSet<u64>,
    /// Refused directories of ranks, with the reasons.
    pub(super) refused: BTreeMap<u32, Damage>,
    /// The state that concerns blobs only.
    pub(super) listing: Listing,
    /// Versions whose save failed although their pieces may be there: a write to a blob may have succeeded, or a later piece of the
    /// same call, or the manifest, may have failed.
    pub(super) unconfirmed: BTreeSet<u64>,
    /// For each removal of blobs that is under way, its versions.
    pub(super) removing: Vec<Arc<BTreeSet<u64>>>,
}

/// A whole version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VersionInfo {
    /// Number of the version.
    pub version: u64,
    /// Number of its pieces.
    pub ranks: u32,
    /// Bytes of the regions of all pieces.
    pub bytes: u64,
    /// Bytes after decoding, if some regions are [`Encoded`](crate::container::Element::Encoded).
    pub decoded: Option<u64>,
    /// Time at which rank 0 wrote its piece, in nanoseconds since 1970 by that rank's clock.
    pub created: u64,
    /// Number of the application's run that wrote the version.
    pub run: u64,
    /// The version that this one is a difference against.
    pub base: Option<u64>,
}

/// The piece of one rank, as described by its head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PieceInfo {
    /// Number of the version.
    pub version: u64,
    /// Number of the version's pieces.
    pub ranks: u32,
    /// The identity of the piece, the same for all copies.
    pub identity: Identity,
    /// Bytes of the regions.
    pub bytes: u64,
    /// Bytes after decoding, if some regions are [`Encoded`](crate::container::Element::Encoded).
    pub decoded: Option<u64>,
}

/// Returns the bytes of all pieces after decoding; `None` if no piece is encoded. For each piece, `pieces` has its bytes, and its
/// bytes after decoding if it is encoded.
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
        // Every version has a piece of rank 0.
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

    /// Returns the error for a version that is not whole. If the version is damaged, the damage says more than [`Error::NoVersion`]
    /// would.
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
