//! Saves pieces: alone or packed. The last piece of a version is followed by the manifest.

use super::alone;
use super::alone::ReplacedFile;
use super::batch::Batch;
use super::directory::Directory;
use super::encoded::RecordLabel;
use super::identity::{Identity, MARKS, Mark, Order};
use super::quota::segment_bytes;
use super::record::{Detail, Name, Record, mark_name, sum_of};
use super::snapshot::{Layout, Snapshot};
use super::{Heads, Owned, OwnedFiles, Piece, Repository, State, Top};
use crate::container::{BLOCK_BYTES, Kind, ManifestRow};
use crate::file::BLOCK;
use crate::panics::guarded;
use crate::{Error, Ready, Result};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::{SystemTime, UNIX_EPOCH};

/// Bytes of a batch after which a call that saves many pieces writes it.
const BATCH_BYTES: usize = 8 << 20;

/// Returns nanoseconds since 1970.
pub(super) fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
    })
}

impl Repository {
    /// Saves this rank's piece of a version. The piece is durable when this returns. If the group has several ranks, the version is
    /// complete once all of them have saved their pieces.
    ///
    /// Threads may save different versions at the same time. Small pieces then share one synchronisation of the file.
    ///
    /// # Errors
    /// [`Error::Exists`] for a version that is whole or being saved; [`Error::Argument`] for an invalid name, shape or base;
    /// [`Error::Full`], [`Error::Write`] and [`Error::File`]; [`Error::Vanished`] if the directory was removed. After an error,
    /// everything saved before is still there, and the caller may try again.
    pub fn save(&self, snapshot: &Snapshot<'_>) -> Result<()> {
        self.save_all(std::slice::from_ref(snapshot))
    }

    /// Saves many pieces, in their order. Small pieces share writes and synchronisations.
    ///
    /// # Errors
    /// As [`save`](Self::save). Pieces before the one that failed may have been saved.
    pub fn save_all(&self, snapshots: &[Snapshot<'_>]) -> Result<()> {
        self.save_all_when(snapshots, &|| Ok(()))
    }

    pub(crate) fn save_all_when(
        &self,
        snapshots: &[Snapshot<'_>],
        ready: &Ready<'_>,
    ) -> Result<()> {
        let ready: &Ready<'_> = &|| guarded("waiting to publish", ready);
        let owned = self.writer()?;
        self.list_own()?;
        if let [snapshot] = snapshots
            && self.is_saved(owned, snapshot)?
        {
            self.check_place(owned)?;
            return self.finish(snapshot.version);
        }
        for (at, snapshot) in snapshots.iter().enumerate() {
            if let Err(error) = self.reserve(snapshot.version, snapshot.base, None) {
                let reserved = snapshots[..at].iter();
                self.release(reserved.map(|snapshot| snapshot.version));
                return Err(error);
            }
        }
        let mut left: BTreeSet<u64> = snapshots.iter().map(|one| one.version).collect();
        let mut saved = self.save_reserved(owned, snapshots, ready, &mut left);
        let is_full = matches!(saved, Err(Error::Full { .. })) && left.len() == snapshots.len();
        if is_full && self.remove_given_up(&left) {
            saved = self.save_reserved(owned, snapshots, ready, &mut left);
        }
        if saved.is_err() {
            // Saved pieces have been removed from `saving`.
            let State {
                saving,
                unconfirmed,
                ..
            } = &mut *self.state();
            let versions = snapshots.iter().map(|snapshot| snapshot.version);
            unconfirmed.extend(versions.filter(|version| !saving.contains_key(version)));
        }
        if !left.is_empty() {
            self.release(left);
        }
        saved?;
        self.remove_given_up(&BTreeSet::new());
        let mut versions = snapshots.iter().map(|snapshot| snapshot.version);
        versions.try_for_each(|version| self.finish(version))
    }

    /// Saves a piece of another repository unchanged, with its identity, regions and checksums, and verifies the checksums. Does
    /// nothing if the same piece is here already. Replaces an older piece of the same number.
    ///
    /// # Errors
    /// As [`save`](Self::save) and [`Piece::restore`]; [`Error::Exists`] if a newer piece has the number; [`Error::GivenUp`] if the
    /// version was [given up](Self::truncate); [`Error::Argument`] for a piece of another rank or group.
    pub fn copy(&self, piece: &Piece) -> Result<()> {
        self.copy_when(piece, &|| Ok(()))
    }

    pub(crate) fn copy_when(&self, piece: &Piece, ready: &Ready<'_>) -> Result<()> {
        let ready: &Ready<'_> = &|| guarded("waiting to publish", ready);
        let owned = self.writer()?;
        let (rank, head) = (self.options.rank, piece.head());
        if piece.rank() != (rank, self.options.ranks) {
            let (theirs, of) = piece.rank();
            return Err(Error::Argument(format!(
                "a piece of rank {theirs} of {of} cannot be copied as rank {rank} of {}",
                self.options.ranks
            )));
        }
        if let Some(blobs) = self.blobs() {
            return self.copy_blob(blobs, piece, ready);
        }
        let (version, identity) = (head.version, Identity::of(head));
        let there = {
            let state = self.state();
            if state.gave_up(rank, version, &identity) {
                return Err(Error::GivenUp { version });
            }
            state.piece(rank, version).map(|record| record.identity)
        };
        if !there.is_some_and(|there| there.is_same(&identity)) {
            self.reserve(version, head.base, Some(identity))?;
            let mut saved = self.copy_reserved(owned, piece, ready);
            let own = BTreeSet::from([version]);
            if matches!(saved, Err(Error::Full { .. })) && self.remove_given_up(&own) {
                saved = self.copy_reserved(owned, piece, ready);
            }
            self.state().saving.remove(&version);
            saved?;
            self.remove_given_up(&BTreeSet::new());
        }
        self.complete(version)
    }

    fn copy_reserved(&self, owned: &Owned, piece: &Piece, ready: &Ready<'_>) -> Result<()> {
        let head = piece.head();
        let sequence = match head.epoch {
            0 => self.next(owned)?.1,
            _ => head.sequence,
        };
        let (epoch, run) = (head.epoch, 0);
        if epoch >= owned.order.epoch() {
            self.note_truncations()?;
        }
        let mark = self.options.order.as_ref().map(Order::mark);
        self.mark_as(owned, mark.unwrap_or(Mark { epoch, run }))?;
        self.check_place(owned)?;
        let alone = head.payload_length >= self.options.packed_below
            && head.payload_length.is_multiple_of(BLOCK as u64)
            && head.block_bytes == BLOCK_BYTES;
        let mut layout = Layout::copy(piece, sequence, alone)?;
        if let (true, Some(directory)) = (alone, self.directory(self.options.rank)) {
            return self.write_alone(owned, &directory, &mut layout, ready);
        }
        let mut batch = Batch::default();
        batch.encode(&mut layout)?;
        ready()?;
        self.pack(owned, batch, None)
    }

    /// Returns the state with which this process writes as this rank.
    pub(super) fn writer(&self) -> Result<&Owned> {
        self.owned.get(&self.options.rank).ok_or_else(|| {
            Error::Argument(format!(
                "{} was opened for reading alone: open it as a rank, once it can be written",
                self.place().display()
            ))
        })
    }

    /// Returns the path of the directory, or a description for blobs.
    fn place(&self) -> PathBuf {
        match &self.top {
            Top::Directory(directory) => directory.path().to_path_buf(),
            Top::Blobs(_) => PathBuf::from("the repository"),
        }
    }

    /// Writes the pieces of all snapshots. Removes each version from `left` and from those being saved once its piece is written.
    fn save_reserved(
        &self,
        owned: &Owned,
        snapshots: &[Snapshot<'_>],
        ready: &Ready<'_>,
        left: &mut BTreeSet<u64>,
    ) -> Result<()> {
        let rank = self.options.rank;
        let pack = |batch: &mut Batch, left: &mut BTreeSet<u64>| -> Result<()> {
            let records = batch.records.iter();
            let versions: Vec<u64> = records.map(|(_, _, record)| record.version).collect();
            ready()?;
            self.pack(owned, std::mem::take(batch), None)?;
            for version in versions {
                left.remove(&version);
            }
            Ok(())
        };
        let half = |limit| segment_bytes(limit) as usize / 2;
        let most = self.options.limit.map_or(BATCH_BYTES, half);
        let mut batch = Batch::default();
        for snapshot in snapshots {
            if let Some(blobs) = self.blobs() {
                self.save_blob(owned, blobs, snapshot, ready)?;
                left.remove(&snapshot.version);
                self.release([snapshot.version]);
                continue;
            }
            let label = self.label(owned, Kind::Piece)?;
            let mut layout = self.layout(snapshot, label)?;
            if layout.head.payload_length >= self.options.packed_below {
                let directory = self.directory(rank).ok_or_else(|| Error::Vanished {
                    directory: self.place(),
                })?;
                self.write_alone(owned, &directory, &mut layout, ready)?;
                left.remove(&snapshot.version);
                continue;
            }
            batch.encode(&mut layout)?;
            if batch.bytes.len() >= most.min(BATCH_BYTES) {
                pack(&mut batch, left)?;
            }
        }
        if !batch.records.is_empty() {
            pack(&mut batch, left)?;
        }
        Ok(())
    }

    /// Lays out a piece for a directory. A large piece is laid out for its own file.
    pub(super) fn layout<'s>(
        &self,
        snapshot: &Snapshot<'s>,
        label: RecordLabel,
    ) -> Result<Layout<'s>> {
        let packed = Layout::new(snapshot, label, false)?;
        match packed.head.payload_length >= self.options.packed_below {
            true => Layout::new(snapshot, label, true),
            false => Ok(packed),
        }
    }

    pub(super) fn directory(&self, rank: u32) -> Option<Directory> {
        let state = self.state();
        state
            .catalogs
            .get(&rank)
            .and_then(|catalog| catalog.directory().ok().cloned())
    }

    /// Returns the label of the next record. Before the run's first own piece, notes the versions that the run gives up.
    pub(super) fn label(&self, owned: &Owned, kind: Kind) -> Result<RecordLabel> {
        if kind == Kind::Piece {
            self.note_truncations()?;
        }
        let (epoch, sequence) = self.next(owned)?;
        Ok(RecordLabel {
            kind,
            sequence,
            epoch,
            created: now(),
            run: self.run.load(Ordering::Relaxed),
            rank: self.options.rank,
            ranks: self.options.ranks,
        })
    }

    /// Returns epoch and sequence of the next record. Marks the run before it writes anything, so that no later run uses its epoch,
    /// even if the write fails.
    fn next(&self, owned: &Owned) -> Result<(u32, u64)> {
        if self.blobs().is_some() {
            let state = self.state();
            if let Some(own) = state.catalogs.get(&self.options.rank) {
                let (epoch, sequence, _) = own.highest();
                owned.order.see(epoch, sequence);
            }
            return Ok(owned.order.next());
        }
        let (epoch, sequence) = owned.order.next();
        if owned.marked.load(Ordering::Acquire) < epoch {
            self.mark_as(owned, owned.order.mark())?;
        }
        Ok((epoch, sequence))
    }

    /// Leaves the mark of a run that continues from here as this rank.
    ///
    /// # Errors
    /// As [`save`](Self::save).
    pub fn mark(&self, mark: Mark) -> Result<()> {
        self.mark_as(self.writer()?, mark)
    }

    /// Takes note of a piece that was copied here after the repository was opened. The pieces that this run writes later count
    /// instead of copied pieces of the same numbers, and [`truncate`](Self::truncate) gives the copies up. The caller makes this
    /// call before the run's first write, and [marks](Self::mark) the run again afterwards.
    ///
    /// # Errors
    /// [`Error::Argument`] if the repository was opened for reading.
    pub fn follow(&self, brought: &Identity) -> Result<()> {
        let order = &self.writer()?.order;
        order.follow(brought.epoch, brought.sequence);
        Ok(())
    }

    fn mark_as(&self, owned: &Owned, mark: Mark) -> Result<()> {
        self.settle(self.options.rank, owned)?;
        let Some(directory) = self.directory(self.options.rank) else {
            return Ok(());
        };
        let is_new = {
            let state = self.state();
            let own = state.catalogs.get(&self.options.rank);
            let last = own.and_then(|catalog| catalog.marks.last().copied());
            mark.epoch > 0 && last < Some(mark)
        };
        if is_new {
            directory.mark(&mark_name(mark))?;
            let mut state = self.state();
            if let Some(catalog) = state.catalogs.get_mut(&self.options.rank) {
                catalog.marks.insert(mark);
                while catalog.marks.len() > MARKS {
                    let first = catalog.marks.pop_first();
                    let _of_no_use = first.map(|first| directory.remove(&mark_name(first)));
                }
            }
        }
        owned.marked.fetch_max(mark.epoch, Ordering::AcqRel);
        Ok(())
    }

    /// Checks that files written here are found under the directory's path.
    fn check_place(&self, owned: &Owned) -> Result<()> {
        match self.directory(self.options.rank) {
            Some(directory) => directory.check_place(&owned.files()?.lock),
            None => Ok(()),
        }
    }

    /// Writes a piece to its own file, which replaces a file that does not count any more.
    fn write_alone(
        &self,
        owned: &Owned,
        directory: &Directory,
        layout: &mut Layout<'_>,
        ready: &Ready<'_>,
    ) -> Result<()> {
        let (rank, name) = (self.options.rank, Name::Alone(layout.head.version));
        let old = {
            let state = self.state();
            let files = state.catalogs.get(&rank).map(|catalog| &catalog.files);
            match files.and_then(|files| files.get(&name)) {
                None => ReplacedFile::Nothing,
                Some(seen) if seen.details().damage.is_empty() => ReplacedFile::Known,
                Some(_) => ReplacedFile::Unknown,
            }
        };
        let OwnedFiles {
            buffers, spares, ..
        } = owned.files()?;
        let record =
            alone::write(directory, old, layout, buffers, spares, ready).inspect_err(|_| {
                // The new piece may have replaced the old one without being durable.
                if old == ReplacedFile::Known
                    && let Some(catalog) = self.state().catalogs.get_mut(&rank)
                {
                    catalog.look_anew(name);
                }
            })?;
        self.keep(rank, [record]);
        self.check_place(owned)
    }

    /// Writes a batch of pieces to a segment, or a manifest of the rows `rows`.
    pub(super) fn pack(
        &self,
        owned: &Owned,
        mut batch: Batch,
        rows: Option<&Vec<ManifestRow>>,
    ) -> Result<()> {
        let _no_rewriting = self.gate.read();
        for (_, _, record) in &mut batch.records {
            if let Some(rows) = rows {
                record.detail = Detail::Manifest(sum_of(rows.iter().copied()));
            }
        }
        // Runs once for all callers that save at the same time: their records are on the disk now, and are listed if the directory
        // is still at its path.
        owned.files()?.packer.save(batch, |records| {
            self.keep(self.options.rank, records);
            self.check_place(owned)
        })
    }

    /// Enters records that are on the disk, and ends the saves of their pieces. In a group of callers, one does this for all.
    fn keep(&self, rank: u32, records: impl IntoIterator<Item = Record>) {
        let mut state = self.state();
        let State {
            catalogs,
            saved,
            saving,
            ..
        } = &mut *state;
        if let Some(catalog) = catalogs.get_mut(&rank) {
            for record in records {
                if record.manifest().is_none() {
                    saved.insert(record.version);
                    saving.remove(&record.version);
                }
                catalog.insert(record);
            }
        }
    }

    /// Keeps other threads from saving this version and from pruning its base. The base may be saved later: if a crash prevents
    /// that, readers ignore this version. With `copy`, the identity of the new piece, an older piece may be replaced.
    pub(super) fn reserve(
        &self,
        version: u64,
        base: Option<u64>,
        copy: Option<Identity>,
    ) -> Result<()> {
        let mut state = self.state();
        let is_removed =
            |state: &mut State| state.removing.iter().any(|set| set.contains(&version));
        self.removed.wait_while(&mut state, is_removed);
        if self.blobs().is_some() {
            // A piece that already has the number is compared later, when the identity of the new piece is known.
            return match state.saving.contains_key(&version) {
                true => Err(Error::Exists { version }),
                false => {
                    state.saving.insert(version, base);
                    Ok(())
                }
            };
        }
        let own = |state: &State, version| state.piece(self.options.rank, version).is_some();
        if own(&state, version) && self.options.ranks > 1 {
            self.refresh(&mut state)?;
        }
        let there = state.piece(self.options.rank, version);
        let is_older = |copy: Identity| there.is_some_and(|old| copy.is_newer_than(&old.identity));
        let is_taken = there.is_some() && state.is_whole(version) && !copy.is_some_and(is_older);
        if state.saving.contains_key(&version) || is_taken {
            return Err(Error::Exists { version });
        }
        state.saving.insert(version, base);
        Ok(())
    }

    pub(super) fn release(&self, versions: impl IntoIterator<Item = u64>) {
        let mut state = self.state();
        for version in versions {
            state.saving.remove(&version);
        }
    }
}
