//! Copies to and from tiers that keep versions under their numbers.

use super::context::{TierContext, TransferError};
use super::durable_tier::{DurableTier, StoredForm};
use super::medium::TierState;
use super::placed_piece::PlacedPiece;
use super::regions::{SourceRegions, TargetRegions};
use crate::plan::Piece;
use crate::{RegionMut, Result, Version};
use std::ops::Range;
use tierflow_device::Stream;
use tierflow_store::{Piece as StoredPiece, Pull, Result as StoreResult};
use tierflow_transfer::{MediumKind, Source, SourceRecord, Stop, Target, TargetRecord};

/// A version on a durable tier.
#[derive(Clone, Copy)]
pub(super) struct DurableRecord<'k> {
    pub(super) tier: &'k DurableTier,
    pub(super) version: Version,
    pub(super) form: StoredForm,
}

impl<'k> DurableRecord<'k> {
    pub(super) fn whole(tier: &'k DurableTier, version: Version) -> Self {
        Self {
            tier,
            version,
            form: StoredForm::Whole,
        }
    }

    /// Returns the bytes of the record of a version that has these pieces in the plan.
    pub(super) fn bytes(&self, pieces: &[Piece]) -> u64 {
        // The plan counts a byte that the record does not have.
        match self.tier.is_empty(self.version) {
            true => 0,
            false => pieces.iter().map(|piece| piece.place.size).sum(),
        }
    }
}

impl SourceRecord for DurableRecord<'_> {
    fn piece(&self) -> StoreResult<StoredPiece> {
        self.tier.vault().piece(self.version)
    }
}

impl TargetRecord for DurableRecord<'_> {
    fn save(&self, bytes: u64, pull: &Pull<'_>, stop: &Stop) -> StoreResult<()> {
        self.tier.save(self.version, bytes, self.form, pull, stop)
    }

    fn copy(&self, piece: StoredPiece, stop: &Stop) -> StoreResult<()> {
        self.tier.copy(piece, stop)
    }
}

impl Source for DurableRecord<'_> {
    fn kind(&self) -> MediumKind {
        MediumKind::Directory
    }

    fn record(&self) -> Option<&dyn SourceRecord> {
        Some(self)
    }
}

impl Target for DurableRecord<'_> {
    fn kind(&self) -> MediumKind {
        MediumKind::Directory
    }

    fn record(&self) -> Option<&dyn TargetRecord> {
        Some(self)
    }
}

impl TierContext {
    /// Saves the application's regions on a durable tier.
    pub(super) fn keep_regions(
        &mut self,
        source: &SourceRegions<'_, '_>,
        record: &DurableRecord<'_>,
        stream: Option<&Stream>,
    ) -> Result<()> {
        let bytes = source.len() as u64;
        let written = self.write_record(record, bytes, |context, at, into| {
            match source.copy_bytes(at, into) {
                true => Ok(()),
                false => context.fill(source, at, into, stream),
            }
        });
        Ok(written?)
    }

    /// Saves a version that lies on tiers of memory and scratch storage, in the form that it has there.
    pub(super) fn keep_pieces(
        &mut self,
        tiers: &[TierState],
        from: &[Piece],
        record: &DurableRecord<'_>,
    ) -> std::result::Result<(), TransferError> {
        let bytes = from.iter().map(|piece| piece.place.size).sum();
        let written = self.write_record(record, bytes, |context, at, into| {
            for (piece, within) in overlaps(from, at, into.len()) {
                let first = at + within.start as u64;
                let span = PlacedPiece::on(tiers, piece).span();
                context.fill(&span, first, &mut into[within], None)?;
            }
            Ok(())
        });
        Ok(written?)
    }

    /// Reads a version, which has `bytes` bytes, back into the application's regions.
    pub(super) fn bring_regions(
        &mut self,
        sink: &mut TargetRegions<'_, '_>,
        record: &DurableRecord<'_>,
        bytes: u64,
        stream: Option<&Stream>,
    ) -> Result<()> {
        let stop = self.stop();
        if let Some([RegionMut::Bytes(whole)]) = sink.all() {
            return Ok(record.read_whole(whole, &stop)?);
        }
        if let Some(mut parts) = sink.bytes_mut() {
            return Ok(record.read_parts(bytes, &mut parts, &stop)?);
        }
        let wanted = sink.wanted();
        // The wanted ranges ascend and do not overlap.
        let wants = |range: Range<u64>| {
            wanted.as_ref().is_none_or(|wanted| {
                let first = wanted.partition_point(|wanted| wanted.end <= range.start);
                wanted
                    .get(first)
                    .is_some_and(|wanted| wanted.start < range.end)
            })
        };
        let read = self.read_record(record, bytes, &wants, |context, at, bytes| {
            context.give(sink, at, bytes, stream)
        });
        Ok(read?)
    }

    /// Copies a version from a durable tier to pieces on another tier.
    pub(super) fn bring(
        &mut self,
        record: &DurableRecord<'_>,
        tiers: &[TierState],
        to: &[Piece],
    ) -> std::result::Result<(), TransferError> {
        let bytes = record.bytes(to);
        if bytes == 0 {
            return Ok(());
        }
        if let [piece] = to {
            let mut to = PlacedPiece::on(tiers, piece).span();
            let all = to.all();
            return Ok(self.copy(record, &mut to, all, None)?);
        }
        let read = self.read_record(record, bytes, &|_| true, |context, at, bytes| {
            for (piece, within) in overlaps(to, at, bytes.len()) {
                let first = at + within.start as u64;
                let mut to = PlacedPiece::on(tiers, piece).span();
                context.give(&mut to, first, &bytes[within], None)?;
            }
            Ok(())
        });
        Ok(read?)
    }

    /// Returns a copy of the application's regions in new host memory.
    pub(crate) fn collect(
        &mut self,
        source: &SourceRegions<'_, '_>,
        stream: Option<&Stream>,
    ) -> Result<Vec<u8>> {
        let mut bytes = vec![0; source.len()];
        if !source.copy_bytes(0, &mut bytes) {
            self.fill(source, 0, &mut bytes, stream)?;
        }
        Ok(bytes)
    }
}

/// Returns the pieces that hold some of `length` bytes of a version from `at` on, with the bytes that each holds.
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
