//! A lane's ways to and from tiers that keep copies under their versions' numbers.

use super::kept::{Form, Kept};
use super::lane::{Failed, Lane, STAGING, at_destination, at_source, padded};
use super::media::{Media, Reach, Tier, media, part, whole};
use super::regions::{Sink, Source, cuts};
use super::sync::{AtomicBool, Mutex, Ordering};
use crate::plan::{Piece, Place, TransferFailure};
use crate::{Error, Region, RegionMut, Result, Version};
use std::ops::Range;
use tierflow_device::Stream;
use tierflow_store::Error as StoreError;

/// Carries an error of the engine past the store, which knows only its own.
#[derive(Default)]
struct Stash(Mutex<Option<Error>>);

impl Stash {
    fn take<T>(&self, result: Result<T>) -> tierflow_store::Result<T> {
        result.map_err(|error| {
            let text = error.to_string();
            *self.0.lock() = Some(error);
            StoreError::Region(text)
        })
    }

    /// The engine's own error, if that is what went wrong.
    fn open(self) -> Option<Error> {
        self.0.into_inner()
    }
}

impl Lane {
    /// Keeps the application's regions.
    pub(super) fn keep_regions(
        &mut self,
        source: &Source<'_, '_>,
        kept: &Kept,
        (version, size): (Version, u64),
        stream: Option<&Stream>,
    ) -> Result<()> {
        if let [region] = source.0
            && let Region::Bytes(bytes) = region.plain()
        {
            return Ok(kept.save_bytes(version, bytes, Form::Whole)?);
        }
        let (lane, stash) = (Mutex::new(self), Stash::default());
        let pull = |at: u64, into: &mut [u8]| {
            let mut lane = lane.lock();
            let mut fetch = || -> Result<()> {
                for (start, length) in cuts(into.len() as u64, STAGING) {
                    let staging = lane.staging(length)?;
                    let target = (at + start, staging.lend_mut(length)?);
                    source.copy_to([target], lane.stream_or(stream)?)?;
                    let staged = staging.lend(length)?;
                    let start = start as usize;
                    into[start..start + length as usize].copy_from_slice(staged.bytes()?);
                }
                Ok(())
            };
            stash.take(fetch())
        };
        let saved = kept.save_pulled(version, size, &pull, Form::Whole);
        saved.map_err(|error| stash.open().unwrap_or(Error::Storage(error)))
    }

    /// Brings a version back into the application's regions.
    pub(super) fn bring_regions(
        &mut self,
        sink: &mut Sink<'_, '_>,
        kept: &Kept,
        version: Version,
        stream: Option<&Stream>,
    ) -> Result<()> {
        if let Some([RegionMut::Bytes(bytes)]) = sink.all() {
            return Ok(kept.restore(version, bytes)?);
        }
        if let Some(mut parts) = sink.bytes_mut() {
            return Ok(kept.restore_parts(version, &mut parts)?);
        }
        let stash = Stash::default();
        let wanted = sink.wanted();
        let wants = |range: Range<u64>| {
            let is_in = |wanted: &Range<u64>| wanted.start < range.end && range.start < wanted.end;
            wanted
                .as_ref()
                .is_none_or(|wanted| wanted.iter().any(is_in))
        };
        let read = kept.read_through(version, &wants, &mut |at, bytes| {
            stash.take(self.give(sink, (at, bytes), stream))
        });
        read.map_err(|error| stash.open().unwrap_or(Error::Storage(error)))
    }

    /// The application's regions in memory of their own.
    pub(crate) fn collect(
        &mut self,
        source: &Source<'_, '_>,
        stream: Option<&Stream>,
    ) -> Result<Vec<u8>> {
        let size = source.0.iter().map(Region::len).sum();
        let mut bytes = vec![0; size];
        for (start, length) in cuts(size as u64, STAGING) {
            let staging = self.staging(length)?;
            let target = (start, staging.lend_mut(length)?);
            source.copy_to([target], self.stream_or(stream)?)?;
            let staged = staging.lend(length)?;
            let start = start as usize;
            bytes[start..start + length as usize].copy_from_slice(staged.bytes()?);
        }
        Ok(bytes)
    }

    /// Copies bytes of a checkpoint, from an offset on, into the application's regions.
    pub(crate) fn give(
        &mut self,
        sink: &mut Sink<'_, '_>,
        (at, bytes): (u64, &[u8]),
        stream: Option<&Stream>,
    ) -> Result<()> {
        for (start, length) in cuts(bytes.len() as u64, STAGING) {
            let staging = self.staging(length)?;
            let from = start as usize..(start + length) as usize;
            let mut staged = staging.lend_mut(length)?;
            staged.bytes_mut()?.copy_from_slice(&bytes[from]);
            drop(staged);
            let staged = (at + start, staging.lend(length)?);
            sink.copy_from([staged], self.stream_or(stream)?)?;
        }
        Ok(())
    }

    /// Keeps a version that lies on other tiers, in the form that it has there.
    pub(super) fn keep(
        &mut self,
        (tiers, from): (&[Tier], &[Piece]),
        kept: &Kept,
        (version, form): (Version, Form),
        cancelled: &AtomicBool,
    ) -> std::result::Result<(), Failed> {
        let vault = from.iter().find_map(|piece| media(tiers, piece).kept());
        let single = match from {
            [piece] => Some((media(tiers, piece), piece)),
            _ => None,
        };
        let lent = match single {
            Some((host @ Media::Host(_), piece)) => Some(host.lend(whole(piece))),
            _ => None,
        };
        let lent = lent.transpose().map_err(at_source)?;
        let saved = if let Some(vault) = vault {
            kept.copy(version, vault)
        } else if let Some(Ok(bytes)) = lent.as_ref().map(|loan| loan.bytes()) {
            kept.save_bytes(version, bytes, form)
        } else {
            drop(lent);
            let size = from.iter().map(|piece| piece.place.size).sum();
            let (lane, stash) = (Mutex::new(self), Stash::default());
            let pull = |at: u64, into: &mut [u8]| {
                if cancelled.load(Ordering::Relaxed) {
                    return Err(StoreError::Region("it is not wanted any more".to_owned()));
                }
                stash.take(lane.lock().pull_pieces((tiers, from), at, into))
            };
            let saved = kept.save_pulled(version, size, &pull, form);
            if let (Err(_), Some(error)) = (&saved, stash.open()) {
                return Err(at_source(error));
            }
            saved
        };
        saved.map_err(|error| match error {
            StoreError::Region(_) if cancelled.load(Ordering::Relaxed) => {
                (TransferFailure::Cancelled, None)
            }
            // One before it failed, and said why.
            StoreError::Region(_) => (TransferFailure::Destination, None),
            StoreError::Damaged { .. } | StoreError::Read { .. } | StoreError::NoVersion { .. } => {
                at_source(error.into())
            }
            error => at_destination(error.into()),
        })
    }

    /// Fetches pieces of a kept version to another tier.
    pub(super) fn bring(
        &mut self,
        kept: &Kept,
        version: Version,
        (tiers, to): (&[Tier], &[Piece]),
        cancelled: &AtomicBool,
    ) -> std::result::Result<(), Failed> {
        if let [piece] = to
            && let host @ Media::Host(_) = media(tiers, piece)
            && kept
                .length(version)
                .is_ok_and(|length| length == piece.place.size)
        {
            let lent = host.lend_mut(whole(piece));
            let mut lent = lent.map_err(at_destination)?;
            if let Ok(bytes) = lent.bytes_mut() {
                let restored = kept.restore(version, bytes);
                return restored.map_err(|error| at_source(error.into()));
            }
        }
        let stash = Stash::default();
        let all = |_| true;
        let read = kept.read_through(version, &all, &mut |at, bytes| {
            if cancelled.load(Ordering::Relaxed) {
                return Err(StoreError::Region("it is not wanted any more".to_owned()));
            }
            for (piece, within) in overlaps(to, at, bytes.len()) {
                let target = (media(tiers, piece), &piece.place);
                let first = at + within.start as u64 - piece.start;
                stash.take(self.push(target, first, &bytes[within]))?;
            }
            Ok(())
        });
        read.map_err(|error| match (error, stash.open()) {
            (_, Some(error)) => at_destination(error),
            (StoreError::Region(_), None) => (TransferFailure::Cancelled, None),
            (error, None) => at_source(error.into()),
        })
    }

    /// Fills `into` with the bytes of a version from `at`.
    fn pull_pieces(
        &mut self,
        (tiers, from): (&[Tier], &[Piece]),
        at: u64,
        into: &mut [u8],
    ) -> Result<()> {
        for (piece, within) in overlaps(from, at, into.len()) {
            let first = at + within.start as u64 - piece.start;
            self.pull(
                (media(tiers, piece), &piece.place),
                first,
                &mut into[within],
            )?;
        }
        Ok(())
    }

    /// Fills `into` with the bytes of a copy from `at`.
    pub(super) fn pull(
        &mut self,
        (source, place): (&Media, &Place),
        at: u64,
        into: &mut [u8],
    ) -> Result<()> {
        // Storage is read in whole blocks, from the start of one.
        let before = match source.reach() {
            Reach::Storage(storage) => at % storage.alignment() as u64,
            Reach::Memory(_) | Reach::Kept => 0,
        };
        let (at, end) = (at - before, before + into.len() as u64);
        for (start, length) in cuts(end, STAGING) {
            let staging = self.staging(STAGING)?;
            match source.reach() {
                Reach::Memory(source) => {
                    let from = source.lend(part(place, at + start, length))?;
                    self.copy(from, staging.lend_mut(length)?)?;
                }
                Reach::Storage(storage) => {
                    let mut staged = staging.lend_mut(padded(storage, length))?;
                    storage.read_at(place.offset + at + start, staged.bytes_mut()?)?;
                }
                Reach::Kept => {}
            }
            let staged = staging.lend(length)?;
            let from = start.max(before);
            let to = (from - before) as usize..(start + length - before) as usize;
            into[to].copy_from_slice(&staged.bytes()?[(from - start) as usize..]);
        }
        Ok(())
    }

    /// Writes `bytes` to a copy from `at`, a multiple of every tier's alignment.
    pub(super) fn push(
        &mut self,
        (target, place): (&Media, &Place),
        at: u64,
        bytes: &[u8],
    ) -> Result<()> {
        for (start, length) in cuts(bytes.len() as u64, STAGING) {
            let staging = self.staging(STAGING)?;
            let from = start as usize..(start + length) as usize;
            let mut staged = staging.lend_mut(length)?;
            staged.bytes_mut()?.copy_from_slice(&bytes[from]);
            drop(staged);
            match target.reach() {
                Reach::Memory(target) => {
                    let to = target.lend_mut(part(place, at + start, length))?;
                    self.copy(staging.lend(length)?, to)?;
                }
                Reach::Storage(storage) => {
                    let staged = staging.lend(padded(storage, length))?;
                    storage.write_at(place.offset + at + start, staged.bytes()?)?;
                }
                Reach::Kept => {}
            }
        }
        Ok(())
    }
}

/// The pieces that hold some of `length` bytes of a version from `at` on, and which of these bytes.
fn overlaps(
    pieces: &[Piece],
    at: u64,
    length: usize,
) -> impl Iterator<Item = (&Piece, Range<usize>)> {
    let end = at + length as u64;
    pieces.iter().filter_map(move |piece| {
        let from = piece.start.max(at);
        let to = (piece.start + piece.place.size).min(end);
        (from < to).then(|| (piece, (from - at) as usize..(to - at) as usize))
    })
}
