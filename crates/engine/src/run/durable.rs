//! A lane's ways to and from tiers that keep copies under their versions' numbers.

use super::ends::{Held, Lying, Origin};
use super::kept::{DurableTier, Form};
use super::lane::{Failed, Lane, at_destination, at_source};
use super::medium::{Level, Medium, medium};
use super::regions::{Sink, Source};
use super::sync::Mutex;
use crate::plan::{Piece, TransferFailure};
use crate::{Error, RegionMut, Result, Version};
use std::ops::Range;
use tierflow_device::Stream;
use tierflow_store::Error as StoreError;

/// Carries what stopped a save or a restore past the store, which knows only its own errors.
#[derive(Default)]
struct Stash(Mutex<Option<Failed>>);

impl Stash {
    fn take(&self, result: std::result::Result<(), Failed>) -> tierflow_store::Result<()> {
        result.map_err(|failed| {
            *self.0.lock() = Some(failed);
            StoreError::Cancelled
        })
    }

    /// Returns the error that stopped the call, unless that was the store's.
    fn open(self, error: StoreError, of_store: fn(Error) -> Failed) -> Failed {
        match (self.0.into_inner(), error) {
            (Some(failed), _) => failed,
            (None, StoreError::Cancelled) => (TransferFailure::Cancelled, None),
            (None, error) => of_store(error.into()),
        }
    }
}

/// Returns the error for a call.
pub(super) fn told((_, error): Failed) -> Error {
    error.unwrap_or(Error::Storage(StoreError::Cancelled))
}

impl Lane {
    /// Keeps the application's regions.
    pub(super) fn keep_regions(
        &mut self,
        source: &Source<'_, '_>,
        kept: &DurableTier,
        (version, size): (Version, u64),
        stream: Option<&Stream>,
    ) -> Result<()> {
        let pull = |lane: &mut Self, at, into: &mut [u8]| match source.copy_bytes(at, into) {
            true => Ok(()),
            false => lane.fill(source, (at, into), stream),
        };
        self.save(kept, (version, size, Form::Whole), pull)
            .map_err(told)
    }

    /// Keeps a version that lies on other tiers, in the form that it has there.
    pub(super) fn keep(
        &mut self,
        (tiers, from): (&[Level], &[Piece]),
        kept: &DurableTier,
        (version, form): (Version, Form),
    ) -> std::result::Result<(), Failed> {
        if let Some(vault) = from.iter().find_map(|piece| medium(tiers, piece).kept()) {
            let copied = kept.copy(version, vault, &self.stop());
            return copied.map_err(|error| match error {
                StoreError::Damaged { .. }
                | StoreError::Read { .. }
                | StoreError::NoVersion { .. } => at_source(error.into()),
                error => Stash::default().open(error, of_tier),
            });
        }
        let size = from.iter().map(|piece| piece.place.size).sum();
        let pull = |lane: &mut Self, at: u64, into: &mut [u8]| {
            for (piece, within) in overlaps(from, at, into.len()) {
                let first = at + within.start as u64;
                lane.fill(&Lying::on(tiers, piece), (first, &mut into[within]), None)?;
            }
            Ok(())
        };
        self.save(kept, (version, size, form), pull)
    }

    /// Saves a version of which `pull` fetches the bytes from an offset on.
    pub(super) fn save(
        &mut self,
        kept: &DurableTier,
        (version, size, form): (Version, u64, Form),
        pull: impl Fn(&mut Self, u64, &mut [u8]) -> std::result::Result<(), Failed> + Sync,
    ) -> std::result::Result<(), Failed> {
        let stop = self.stop();
        let (lane, stash) = (Mutex::new(self), Stash::default());
        let pull = |at: u64, into: &mut [u8]| {
            stash.take(stop.look())?;
            stash.take(pull(&mut lane.lock(), at, into))
        };
        let saved = kept.save((version, size, form), &pull, &stop);
        saved.map_err(|error| stash.open(error, of_tier))
    }

    #[cfg(any(feature = "dedup", feature = "compress"))]
    /// Stores `length` bytes of a version where its copy is to lie, in another form than its own.
    pub(super) fn put(
        &mut self,
        mut to: Lying<'_>,
        (version, form): (Version, Form),
        (from, length): (&(dyn Origin + Sync), u64),
    ) -> std::result::Result<(), Failed> {
        match to.medium.kept() {
            None => self.copy(from, &mut to, 0..length, None),
            Some(kept) => {
                let pull = |lane: &mut Self, at, into: &mut [u8]| lane.fill(from, (at, into), None);
                self.save(kept, (version, length, form), pull)
            }
        }
    }

    /// Brings a version back into the application's regions.
    pub(super) fn bring_regions(
        &mut self,
        sink: &mut Sink<'_, '_>,
        kept: &DurableTier,
        version: Version,
        stream: Option<&Stream>,
    ) -> Result<()> {
        if let Some([RegionMut::Bytes(bytes)]) = sink.all() {
            return Ok(kept.restore(version, bytes, &self.stop())?);
        }
        if let Some(mut parts) = sink.bytes_mut() {
            return Ok(kept.restore_parts(version, &mut parts, &self.stop())?);
        }
        let stash = Stash::default();
        let wanted = sink.wanted();
        // The ranges ascend and do not overlap.
        let wants = |range: Range<u64>| {
            wanted.as_ref().is_none_or(|wanted| {
                let first = wanted.partition_point(|wanted| wanted.end <= range.start);
                wanted
                    .get(first)
                    .is_some_and(|wanted| wanted.start < range.end)
            })
        };
        let read = kept.read_through(version, &self.stop(), &wants, &mut |at, bytes| {
            let given = self.give(sink, (at, bytes), stream);
            stash.take(given.map_err(at_destination))
        });
        read.map_err(|error| told(stash.open(error, at_source)))
    }

    /// Fetches pieces of a kept version to another tier.
    pub(super) fn bring(
        &mut self,
        kept: &DurableTier,
        version: Version,
        (tiers, to): (&[Level], &[Piece]),
    ) -> std::result::Result<(), Failed> {
        if let [piece] = to
            && let host @ Medium::Host(_) = medium(tiers, piece)
            && kept
                .length(version)
                .is_ok_and(|length| length == piece.place.size)
        {
            let to = Lying {
                medium: host,
                piece,
            };
            let lent = host.lend_mut(to.at(to.all()));
            let mut lent = lent.map_err(at_destination)?;
            if let Ok(bytes) = lent.bytes_mut() {
                let restored = kept.restore(version, bytes, &self.stop());
                return restored.map_err(|error| at_source(error.into()));
            }
        }
        let stash = Stash::default();
        let all = |_| true;
        let read = kept.read_through(version, &self.stop(), &all, &mut |at, bytes| {
            for (piece, within) in overlaps(to, at, bytes.len()) {
                let (first, length) = (at + within.start as u64, within.len() as u64);
                let held = Held {
                    start: first,
                    bytes: &bytes[within],
                };
                let mut to = Lying::on(tiers, piece);
                let range = first..first + length;
                stash.take(self.copy(&held, &mut to, range, None))?;
            }
            Ok(())
        });
        read.map_err(|error| stash.open(error, at_source))
    }

    /// The application's regions in memory of their own.
    pub(crate) fn collect(
        &mut self,
        source: &Source<'_, '_>,
        stream: Option<&Stream>,
    ) -> Result<Vec<u8>> {
        let size = source.len();
        let mut bytes = vec![0; size];
        if !source.copy_bytes(0, &mut bytes) {
            self.fill(source, (0, &mut bytes), stream).map_err(told)?;
        }
        Ok(bytes)
    }

    /// Copies bytes of a checkpoint, from an offset on, into the application's regions.
    pub(crate) fn give(
        &mut self,
        sink: &mut Sink<'_, '_>,
        (start, bytes): (u64, &[u8]),
        stream: Option<&Stream>,
    ) -> Result<()> {
        let held = Held { start, bytes };
        let range = start..start + bytes.len() as u64;
        self.copy(&held, sink, range, stream).map_err(told)
    }

    /// Fills `into` with the bytes from `start` on.
    pub(super) fn fill(
        &mut self,
        from: &dyn Origin,
        (start, into): (u64, &mut [u8]),
        stream: Option<&Stream>,
    ) -> std::result::Result<(), Failed> {
        let range = start..start + into.len() as u64;
        let mut held = Held { start, bytes: into };
        self.copy(from, &mut held, range, stream)
    }
}

/// A version could not be kept: by this tier, or because one before it could not, which said why.
fn of_tier(error: Error) -> Failed {
    match error {
        Error::Storage(StoreError::OutOfTurn { .. }) => (TransferFailure::Destination, None),
        error => at_destination(error),
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
