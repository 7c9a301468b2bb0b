//! The stage that compresses checkpoints on the way down, each independently of the others.

use super::coder::{Coder, EncodedInput, Input, runs};
use super::stored;
use super::{Links, Stage, StageInput};
use crate::plan::{Overhead, Stored};
use crate::run::context::{Pieces, TierContext, TransferError};
use crate::run::durable_tier::StoredForm;
use crate::run::encode::at_source;
use crate::run::medium::{Medium, TierState};
use crate::run::placed_piece::PlacedPiece;
use crate::run::regions::TargetRegions;
use crate::{Compression, CompressionMetrics, Result, Version};
use std::slice;
use tierflow_codec::Header;
use tierflow_device::{Device, Stream};
use tierflow_store::container::RegionInfo;

/// The coder of checkpoints, and its worst case.
#[derive(Debug)]
pub(crate) struct Compressed {
    coder: Coder,
    overhead: Overhead,
}

impl Compressed {
    /// # Errors
    /// As for [`Coder::new`].
    pub(crate) fn new(how: Compression, device: &Device, tiers: &[TierState]) -> Result<Self> {
        Ok(Self {
            coder: Coder::new(how, device, tiers)?,
            overhead: runs::overhead()?,
        })
    }

    /// Returns the containers of a checkpoint, or `None` if they would not be smaller.
    fn encode(
        &self,
        context: &mut TierContext,
        from: PlacedPiece<'_>,
        stage_input: &StageInput<'_>,
    ) -> Option<EncodedInput<'_>> {
        let size = from.piece.place.size;
        if !self.coder.is_worth_it(size) {
            return None;
        }
        let layout = (stage_input.layout)();
        let runs = runs::of(self.coder.how(), layout.as_deref(), size, stage_input.error);
        let input = Input::From {
            origin: &from.span(),
            on_device: matches!(from.medium, Medium::Device(_)),
        };
        let version = stage_input.version;
        self.coder
            .encode(context, version, size, &input, &[], &runs)
    }
}

impl Stage for Compressed {
    fn overhead(&self) -> Overhead {
        self.overhead
    }

    fn longest_chain(&self) -> u32 {
        1
    }

    fn metrics(&self) -> Option<CompressionMetrics> {
        Some(self.coder.metrics())
    }

    fn check(&self, version: Version, layout: &[RegionInfo], error: Option<f64>) -> Result<()> {
        self.coder.how().check_regions(version, layout, error)
    }

    fn down(
        &self,
        context: &mut TierContext,
        tiers: &[TierState],
        stage_input: &StageInput<'_>,
        from: PlacedPiece<'_>,
        to: PlacedPiece<'_>,
    ) -> std::result::Result<Option<Stored>, TransferError> {
        let stops = TransferError::CANCELLED;
        let (version, size) = (stage_input.version, from.piece.place.size);
        let below = (stage_input.below)();
        context.stop().look()?;
        let Some(encoded) = self.encode(context, from, stage_input) else {
            let to = (stage_input.encoded)(None).ok_or(stops)?;
            let pieces = slice::from_ref(from.piece);
            let pieces = Pieces { version, pieces };
            let carry = || context.carry(tiers, StoredForm::Whole, pieces, slice::from_ref(&to));
            self.coder.send(size, size, below, carry)?;
            return Ok(None);
        };
        let stored = Stored {
            bytes: encoded.bytes(),
            alone: true,
        };
        let piece = (stage_input.encoded)(Some(stored)).ok_or(stops)?;
        let to = PlacedPiece {
            piece: &piece,
            ..to
        };
        let form = StoredForm::Difference { size, base: None };
        let put = || encoded.put(context, to, version, form);
        self.coder.send(size, stored.bytes, below, put)?;
        Ok(Some(stored))
    }

    fn up(
        &self,
        context: &mut TierContext,
        tiers: &[TierState],
        chain: Links<'_>,
        to: PlacedPiece<'_>,
    ) -> std::result::Result<(), TransferError> {
        // For other targets, the host needs the bytes.
        if matches!(to.medium, Medium::Device(_)) {
            let decoded = self.coder.decode(
                context,
                tiers,
                chain,
                to.piece.place.size,
                &mut to.span(),
                None,
            );
            if decoded? {
                return Ok(());
            }
        }
        let stored = stored::fetch_all(context, tiers, chain).map_err(at_source)?;
        stored::up(context, stored, to)
    }

    fn read(
        &self,
        context: &mut TierContext,
        tiers: &[TierState],
        chain: Links<'_>,
        size: u64,
        to: &mut TargetRegions<'_, '_>,
        stream: Option<&Stream>,
    ) -> Result<()> {
        let decoded = self.coder.decode(context, tiers, chain, size, to, stream);
        if decoded.map_err(TransferError::of_call)? {
            return Ok(());
        }
        let stored = stored::fetch_all(context, tiers, chain)?;
        stored::read(context, stored, size, to, stream)
    }
}

/// Returns true if these bytes are a compressed checkpoint.
pub(super) fn is_compressed(stored: &[u8]) -> bool {
    Header::is_one(stored)
}
