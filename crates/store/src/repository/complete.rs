//! The last step of a save: the manifest of a version whose pieces are all there. After a failure, the caller tries the same save
//! again.

use super::batch::Batch;
use super::blobs::has_same_bytes;
use super::encoded::RecordBytes;
use super::identity::Identity;
use super::snapshot::{Layout, Region, Snapshot};
use super::{Heads, Owned, Repository};
use crate::container::{Kind, encode_rows};
use crate::{Error, Result};

impl Repository {
    /// Completes a version after its piece was written. After an error, the same piece may be saved again.
    pub(super) fn finish(&self, version: u64) -> Result<()> {
        let finished = match self.blobs() {
            Some(blobs) => self.finish_blob(blobs, version),
            None => self.complete(version),
        };
        let unconfirmed = &mut self.state().unconfirmed;
        match finished {
            Ok(()) => unconfirmed.remove(&version),
            Err(_) => unconfirmed.insert(version),
        };
        finished
    }

    /// Returns true if a failed call left this very piece in the rank's directory. For blobs, the next put finds it.
    pub(super) fn is_saved(&self, owned: &Owned, snapshot: &Snapshot<'_>) -> Result<bool> {
        let there = {
            let state = self.state();
            let is_left = self.blobs().is_none() && state.unconfirmed.contains(&snapshot.version);
            let there = state.piece(self.options.rank, snapshot.version);
            there.filter(|_| is_left).map(|record| record.identity)
        };
        let Some(there) = there else {
            return Ok(false);
        };
        let layout = self.layout(snapshot, self.label(owned, Kind::Piece)?)?;
        let again = RecordBytes::of(layout)?;
        Ok(has_same_bytes(&there, &Identity::of(again.head())))
    }

    /// Writes the manifest of a version if all of its pieces are there and no manifest is.
    pub(super) fn complete(&self, version: u64) -> Result<()> {
        let (rank, ranks) = (self.options.rank, self.options.ranks);
        let Some(owned) = self.owned.get(&rank).filter(|_| ranks > 1) else {
            return Ok(());
        };
        let mut state = self.state();
        let (others, before) = match self.blobs() {
            // A single listing contains the pieces of all ranks.
            Some(blobs) => {
                state.list(blobs)?;
                (0..0, 0..0)
            }
            None => (rank + 1..ranks, 0..rank),
        };
        // The search begins with the next rank, so that ranks that wait for many missing ones do not all ask for the same one.
        for other in others.chain(before) {
            // Looks twice: a read of the directory may show neither name of a file that is being renamed, and no later call looks
            // for this version again.
            let mut there = false;
            for _ in 0..2 {
                if !there && self.refresh_rank(&mut state, other)? {
                    there = state.piece(other, version).is_some();
                }
            }
            if !there {
                return Ok(());
            }
        }
        if state.has_all(version).is_some() {
            return Ok(());
        }
        let Some(rows) = state.rows(version) else {
            return Ok(());
        };
        drop(state);
        if let Some(blobs) = self.blobs() {
            return self.put_manifest(owned, blobs, version, &rows);
        }
        let list = encode_rows(rows.iter().copied());
        let snapshot = Snapshot {
            version,
            base: None,
            regions: &[Region::new("pieces", &list)],
        };
        let mut batch = Batch::default();
        let label = self.label(owned, Kind::Manifest)?;
        batch.encode(&mut Layout::new(&snapshot, label, false)?)?;
        self.pack(owned, batch, Some(&rows))
    }

    /// Completes versions whose last rank crashed after it wrote its piece and before it wrote the manifest.
    pub(super) fn complete_all(&self) -> Result<()> {
        if self.options.ranks == 1 || !self.owned.contains_key(&self.options.rank) {
            return Ok(());
        }
        let mut state = self.state();
        self.refresh(&mut state)?;
        let own = state.catalogs.get(&self.options.rank);
        let pieces = own.map(|catalog| catalog.pieces.keys());
        let versions = pieces.into_iter().flatten().copied();
        let incomplete: Vec<u64> = versions
            .filter(|version| {
                state.has_all(*version).is_none() && state.all_pieces(*version).is_some()
            })
            .collect();
        drop(state);
        let mut incomplete = incomplete.into_iter();
        match incomplete.try_for_each(|version| self.complete(version)) {
            // Opening the history must succeed on a full disk: the version is completed once there is space.
            Err(Error::Full { .. }) => Ok(()),
            completed => completed,
        }
    }
}
