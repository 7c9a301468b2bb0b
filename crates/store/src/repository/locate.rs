//! Finds the place of a piece, and opens the piece.

use super::blob_names::BlobName;
use super::directory::Directory;
use super::listing::AHEAD;
use super::record::Record;
use super::{Heads, Piece, Repository, State, rank_name};
use crate::{Error, Result};

/// The place of a piece.
pub(super) enum PiecePlace {
    Directory(Directory),
    /// A blob, with its name, and its size in bytes.
    Blob(String, u64),
}

/// A function that finds the place of a piece. The second parameter is true for a repeated search, which looks at the place again.
pub(super) type Find<'a> = dyn Fn(&mut State, bool) -> Result<(PiecePlace, Record)> + 'a;

impl Repository {
    /// Opens the piece that `find` finds. If the piece is not there any more, searches again: the writer moves the remaining
    /// records when versions are removed.
    pub(super) fn open_piece(&self, version: u64, find: &Find<'_>) -> Result<Piece> {
        match self.look_for_piece(version, find) {
            Err(Error::Damaged {
                path,
                offset,
                what,
                older: None,
            }) if self.options.ranks > 1 => {
                let mut state = self.state();
                // The pieces of other ranks are needed to tell which older version is whole.
                let _as_far_as_it_goes = self.refresh(&mut state);
                Err(Error::Damaged {
                    path,
                    offset,
                    what,
                    older: state.older(Some(version)),
                })
            }
            opened => opened,
        }
    }

    fn look_for_piece(&self, version: u64, find: &Find<'_>) -> Result<Piece> {
        const LOOKS: usize = 8;
        let mut state = self.state();
        let (mut place, mut record) = find(&mut state, false)?;
        for _ in 1..LOOKS {
            let older = state.older(Some(version));
            drop(state);
            let opened = self.open_record(&place, &record, older);
            if !matches!(
                opened,
                Err(Error::Damaged { .. } | Error::NoVersion { .. } | Error::Read { .. })
            ) {
                return opened;
            }
            state = self.state();
            let found = find(&mut state, true)?;
            if found.1.is_at(&record) {
                return opened;
            }
            (place, record) = found;
        }
        let older = state.older(Some(version));
        drop(state);
        self.open_record(&place, &record, older)
    }

    /// Opens the piece of a record.
    pub(super) fn open_record(
        &self,
        place: &PiecePlace,
        record: &Record,
        older: Option<u64>,
    ) -> Result<Piece> {
        let (name, size) = match place {
            PiecePlace::Directory(directory) => {
                return Piece::open(directory, record, self.options.threads, older);
            }
            PiecePlace::Blob(name, size) => (name, *size),
        };
        let missing = Error::NoVersion {
            version: record.version,
            older,
        };
        let Some(blobs) = self.blobs() else {
            return Err(missing);
        };
        let source = blobs.open(name, size, AHEAD)?.ok_or(missing)?;
        let path = blobs.shown(name);
        let piece = Piece::elsewhere(source, path.clone(), self.options.threads, older)?;
        match piece.info().identity == record.identity {
            true => Ok(piece),
            false => Err(Error::Damaged {
                path,
                offset: 0,
                what: "another record lies in the place of this one",
                older,
            }),
        }
    }

    /// Returns the place and the record of a piece.
    pub(super) fn found(
        &self,
        state: &State,
        rank: u32,
        version: u64,
    ) -> Result<Option<(PiecePlace, Record)>> {
        let Some(catalog) = state.catalogs.get(&rank) else {
            return Ok(None);
        };
        let Some(record) = catalog.piece(version).cloned() else {
            return Ok(None);
        };
        let place = match (catalog.directory(), self.directories()) {
            (Ok(directory), _) => PiecePlace::Directory(directory.clone()),
            (Err(_), Some(top)) => PiecePlace::Directory(top.sub(&rank_name(rank), false)?),
            (Err(_), None) => {
                let name = record.file;
                let file = catalog.files.get(&name);
                let blob = file.and_then(|file| file.blob);
                let size = blob.map_or(record.record_length, |blob| blob.stamp().size);
                PiecePlace::Blob(BlobName { rank, name }.text(), size)
            }
        };
        Ok(Some((place, record)))
    }
}
