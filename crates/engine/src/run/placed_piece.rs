//! The ends of the engine's copies: a piece on a tier, and the application's regions. Offsets are those in the version.

use super::medium::{Medium, TierState, medium};
use super::regions::{SourceRegions, TargetRegions};
use crate::plan::Piece;
use std::ops::Range;
use tierflow_device::{ReadLoan, WriteLoan};
use tierflow_transfer::{MediumKind, Result, Source, Span, StreamChoice, Target};

/// A piece of a version and the medium where it lies, or is to lie.
#[derive(Clone, Copy)]
pub(crate) struct PlacedPiece<'a> {
    pub(super) medium: &'a Medium,
    pub(super) piece: &'a Piece,
}

impl<'a> PlacedPiece<'a> {
    pub(super) fn on(tiers: &'a [TierState], piece: &'a Piece) -> Self {
        let medium = medium(tiers, piece);
        Self { medium, piece }
    }

    /// Returns all bytes of the piece, by their offsets in the version.
    pub(super) fn all(&self) -> Range<u64> {
        self.piece.start..self.piece.start + self.piece.place.size
    }

    /// Returns the offsets on the medium of these bytes of the version.
    pub(super) fn at(&self, bytes: Range<u64>) -> Range<u64> {
        let (start, offset) = (self.piece.start, self.piece.place.offset);
        bytes.start - start + offset..bytes.end - start + offset
    }

    /// Lends the piece by `lend`. The time until its memory is mapped counts as `Cause::Growth`.
    pub(super) fn lend_by<T>(&self, lend: impl FnOnce(Span<'a>, Range<u64>) -> T) -> T {
        let end = self.at(self.all()).end;
        self.medium
            .once_mapped(end, || lend(self.span(), self.all()))
    }

    /// Returns the piece as an end of a copy.
    pub(super) fn span(&self) -> Span<'a> {
        Span {
            medium: self.medium.bytes(),
            start: self.piece.start,
            offset: self.piece.place.offset,
            bytes: self.piece.place.size,
        }
    }
}

/// The device gathers regions, wherever they lie.
impl Source for SourceRegions<'_, '_> {
    fn kind(&self) -> MediumKind {
        MediumKind::Pageable
    }

    fn reaches_device(&self) -> bool {
        true
    }

    fn read(&self, at: u64, into: WriteLoan, stream: &mut StreamChoice<'_>) -> Result<()> {
        Ok(self.copy_to(&mut [(at, into)], stream.get()?)?)
    }
}

/// The device scatters to regions, wherever they lie.
impl Target for TargetRegions<'_, '_> {
    fn kind(&self) -> MediumKind {
        MediumKind::Pageable
    }

    fn reaches_device(&self) -> bool {
        true
    }

    fn lend_mut(&mut self, bytes: Range<u64>) -> Option<Result<WriteLoan>> {
        Some(self.lend(bytes)?.map_err(Into::into))
    }

    fn write(&mut self, at: u64, from: ReadLoan, stream: &mut StreamChoice<'_>) -> Result<()> {
        Ok(self.copy_from([(at, from)], stream.get()?)?)
    }
}
