//! Vaults: places that keep versions under their numbers.

use crate::{
    Collective, Damage, Identity, Mark, Piece, PieceInfo, Ready, Repository, Result, Snapshot,
    VersionInfo,
};
use std::collections::BTreeSet;
use std::fmt::Debug;

/// A place that keeps one rank's pieces of versions, each there as a whole or not at all: a directory, an object store.
///
/// A number is given once. [`save`](Self::save) never writes over a whole version, whichever run wrote it: the version is given up
/// first. Only a [copy](Self::copy) of a newer piece replaces an older one of its number, by epoch and sequence. One exception:
/// a place may hide a version for a while, such as a file that cannot be read or an object that lists do not show yet. A run
/// that was not offered the version may use its number, and its own piece, of a higher epoch, counts from then on.
///
/// `conformance::vault` (feature `testing`) checks this.
pub trait Vault: Debug + Send + Sync {
    /// The whole versions, oldest first.
    ///
    /// # Errors
    /// When they cannot be listed.
    fn versions(&self) -> Result<Vec<VersionInfo>>;

    /// Returns this rank's piece of a version, whether or not those of all others are there.
    ///
    /// # Errors
    /// [`Error::NoVersion`](crate::Error::NoVersion), [`Error::Damaged`](crate::Error::Damaged), or when it cannot be
    /// read.
    fn piece(&self, version: u64) -> Result<Piece>;

    /// Returns this rank's pieces, oldest version first, whether or not those of all others are there.
    ///
    /// # Errors
    /// When they cannot be listed. What is known not to be readable is left out, and listed by [`damage`](Self::damage).
    fn pieces(&self) -> Result<Vec<PieceInfo>> {
        let versions = self.versions()?.into_iter();
        let pieces = versions.filter_map(|info| self.piece(info.version).ok());
        Ok(pieces.map(|piece| piece.info()).collect())
    }

    /// The mark of the last run that wrote as this rank, as far as that is known.
    ///
    /// # Errors
    /// When that cannot be found out.
    fn last_run(&self) -> Result<Mark> {
        let pieces = self.pieces()?.into_iter();
        let epoch = pieces.map(|piece| piece.identity.epoch).max().unwrap_or(0);
        Ok(Mark { epoch, run: 0 })
    }

    /// Returns the damage that is known, and the files that cannot be read.
    fn damage(&self) -> Vec<Damage> {
        Vec::new()
    }

    /// Keeps this rank's piece of a version; it is there to stay when this returns. The piece is published no sooner than `ready`
    /// returns, which may wait for other pieces. Unless there is more to win, `ready` comes first.
    ///
    /// # Errors
    /// [`Error::Exists`](crate::Error::Exists) for a number that a whole version has, and the error of `ready`. After an error,
    /// what was there before is still there, and nothing else is.
    fn save(&self, snapshot: &Snapshot<'_>, ready: &Ready<'_>) -> Result<()>;

    /// Keeps a piece as another vault holds it, reading it block by block: a piece that is [cancelled](Piece::unless) meanwhile is
    /// [`Error::Cancelled`](crate::Error::Cancelled). Nothing happens if it is there already, and one of that number that is
    /// [older](crate::Identity::is_newer_than) gives way to it. `ready` is that of [`save`](Self::save).
    ///
    /// # Errors
    /// As [`save`](Self::save), and when it cannot be read.
    fn copy(&self, piece: &Piece, ready: &Ready<'_>) -> Result<()>;

    /// Returns true if pieces are to come from the vault above, by [`copy`](Self::copy), rather than by [`save`](Self::save), which may be
    /// refused.
    fn takes_copies_alone(&self) -> bool {
        false
    }

    /// Gives up the pieces of these versions, as far as they are there.
    ///
    /// # Errors
    /// When some may still be there.
    fn remove(&self, versions: &BTreeSet<u64>) -> Result<()>;

    /// How the ranks that share this place meet, if it can be done there.
    fn collective(&self) -> Option<&dyn Collective> {
        None
    }

    /// Gives up the pieces that earlier runs wrote under higher numbers than `after`, or under any: the group goes on from
    /// there. Nothing was written in this run yet. A place that keeps notes does not list these pieces any more and refuses
    /// copies of them, for good once a piece of this run is begun, and not before. Elsewhere nothing happens: they are listed
    /// still, and the caller [removes](Self::remove) them once a version of this run is durable.
    ///
    /// # Errors
    /// When some may still count.
    fn truncate(&self, _after: Option<u64>) -> Result<()> {
        Ok(())
    }

    /// Returns true if a later run gave this piece up, as far as the [pieces](Self::pieces) were listed: copies of it are refused.
    ///
    /// # Errors
    /// When they were not, and cannot be listed.
    fn refuses(&self, _version: u64, _identity: &Identity) -> Result<bool> {
        Ok(false)
    }

    /// Writes pieces as the run of this number from now on: an earlier run had the number of this one, and pieces of both make
    /// no version. A place that copies pieces, and writes none of its own, need not do anything.
    fn renumber(&self, _run: u64) {}
}

impl Vault for Repository {
    fn versions(&self) -> Result<Vec<VersionInfo>> {
        self.versions()
    }

    fn piece(&self, version: u64) -> Result<Piece> {
        self.own_piece(version)
    }

    fn pieces(&self) -> Result<Vec<PieceInfo>> {
        self.own_pieces()
    }

    fn last_run(&self) -> Result<Mark> {
        self.last_run()
    }

    fn damage(&self) -> Vec<Damage> {
        self.damage()
    }

    fn save(&self, snapshot: &Snapshot<'_>, ready: &Ready<'_>) -> Result<()> {
        self.save_all_when(std::slice::from_ref(snapshot), ready)
    }

    fn copy(&self, piece: &Piece, ready: &Ready<'_>) -> Result<()> {
        self.copy_when(piece, ready)
    }

    fn remove(&self, versions: &BTreeSet<u64>) -> Result<()> {
        self.remove(versions)
    }

    fn collective(&self) -> Option<&dyn Collective> {
        (!self.is_read_only() && !self.is_of_blobs()).then_some(self)
    }

    fn truncate(&self, after: Option<u64>) -> Result<()> {
        self.truncate(after)
    }

    fn refuses(&self, version: u64, identity: &Identity) -> Result<bool> {
        self.refuses(version, identity)
    }

    fn renumber(&self, run: u64) {
        self.renumber(run);
    }
}
