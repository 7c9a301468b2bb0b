//! Vaults: places that keep versions under their numbers.

use crate::{
    Collective, Damage, Identity, Mark, Piece, PieceInfo, Ready, Repository, Result, Snapshot,
    VersionInfo,
};
use std::collections::BTreeSet;
use std::fmt::Debug;

/// A place that keeps one rank's pieces of versions, such as a directory or an object store. Each piece exists as a whole or not at
/// all.
///
/// A number is given once. [`save`](Self::save) never replaces a whole version, whichever run wrote it: the version must be given
/// up first. Only a [copy](Self::copy) of a newer piece, by epoch and sequence, replaces an older piece of its number. There is one
/// exception: a place may hide a version for a while, such as a file that cannot be read or an object that listings do not show
/// yet. A run that did not see the version may use its number. The new piece has a higher epoch, and counts from then on.
///
/// `conformance::vault` (feature `testing`) checks this.
pub trait Vault: Debug + Send + Sync {
    /// Returns the whole versions, oldest first.
    ///
    /// # Errors
    /// If they cannot be listed.
    fn versions(&self) -> Result<Vec<VersionInfo>>;

    /// Returns this rank's piece of a version, whether or not the version is whole.
    ///
    /// # Errors
    /// [`Error::NoVersion`](crate::Error::NoVersion) if there is no piece, [`Error::Damaged`](crate::Error::Damaged) if its head is
    /// damaged, and the errors of a failed read.
    fn piece(&self, version: u64) -> Result<Piece>;

    /// Returns this rank's pieces, oldest version first, whether or not their versions are whole.
    ///
    /// # Errors
    /// If they cannot be listed. Pieces that are known to be unreadable are left out, and [`damage`](Self::damage) lists them.
    fn pieces(&self) -> Result<Vec<PieceInfo>> {
        let versions = self.versions()?.into_iter();
        let pieces = versions.filter_map(|info| self.piece(info.version).ok());
        Ok(pieces.map(|piece| piece.info()).collect())
    }

    /// Returns the mark of the last run that wrote as this rank, as far as it is known.
    ///
    /// # Errors
    /// If it cannot be determined.
    fn last_run(&self) -> Result<Mark> {
        let pieces = self.pieces()?.into_iter();
        let epoch = pieces.map(|piece| piece.identity.epoch).max().unwrap_or(0);
        Ok(Mark { epoch, run: 0 })
    }

    /// Returns the known damage, including files that cannot be read.
    fn damage(&self) -> Vec<Damage> {
        Vec::new()
    }

    /// Saves this rank's piece of a version. The piece is durable when this returns. The vault publishes it only after `ready` has
    /// returned; `ready` may wait for other pieces. A vault calls `ready` before it writes, unless a later call is faster.
    ///
    /// # Errors
    /// [`Error::Exists`](crate::Error::Exists) for the number of a whole version, and the error of `ready`. After an error,
    /// everything saved before is still there, and nothing else is.
    fn save(&self, snapshot: &Snapshot<'_>, ready: &Ready<'_>) -> Result<()>;

    /// Saves a piece of another vault unchanged, and reads it block by block. Does nothing if the same piece is here already.
    /// Replaces an [older](crate::Identity::is_newer_than) piece of the same number. `ready` is that of [`save`](Self::save).
    ///
    /// # Errors
    /// As [`save`](Self::save); [`Error::Cancelled`](crate::Error::Cancelled) if the piece is [cancelled](Piece::unless) meanwhile;
    /// the errors of a failed read.
    fn copy(&self, piece: &Piece, ready: &Ready<'_>) -> Result<()>;

    /// Returns true if the vault wants pieces only as [copies](Self::copy) from the vault above. Then [`save`](Self::save) may
    /// fail.
    fn takes_copies_alone(&self) -> bool {
        false
    }

    /// Gives up the pieces of these versions that are there.
    ///
    /// # Errors
    /// If some may still be there.
    fn remove(&self, versions: &BTreeSet<u64>) -> Result<()>;

    /// Returns the means by which the ranks that share this place meet, if the place offers one.
    fn collective(&self) -> Option<&dyn Collective> {
        None
    }

    /// Gives up the pieces that earlier runs wrote under higher numbers than `after`, or all of them if it is `None`: the group
    /// continues from there. The run has written nothing yet. A vault that keeps notes no longer lists these pieces and refuses
    /// copies of them. The truncation becomes permanent once the run starts to write a piece, and not before. Other vaults do nothing: they
    /// still list the pieces, and the caller [removes](Self::remove) them once a version of this run is durable.
    ///
    /// # Errors
    /// If some of the pieces may still count.
    fn truncate(&self, _after: Option<u64>) -> Result<()> {
        Ok(())
    }

    /// Returns true if a later run gave up this piece, so that copies of it are refused. Uses the state of the last listing of the
    /// [pieces](Self::pieces).
    ///
    /// # Errors
    /// If they were never listed and cannot be listed now.
    fn refuses(&self, _version: u64, _identity: &Identity) -> Result<bool> {
        Ok(false)
    }

    /// Writes pieces from now on as the run of this number. An earlier run had the previous number, and the pieces of both runs
    /// must form no version. A vault that only copies pieces need not do anything.
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
