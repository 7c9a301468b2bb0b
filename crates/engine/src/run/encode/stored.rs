//! The bytes that tiers below the stage store. The bytes name their format. The host's cores restore checkpoints from them here.

use super::Links;
use crate::plan::Piece;
use crate::run::context::{TierContext, TransferError};
use crate::run::durable_record::DurableRecord;
use crate::run::durable_tier::StoredForm;
use crate::run::encode::at_source;
use crate::run::medium::TierState;
use crate::run::placed_piece::PlacedPiece;
use crate::run::regions::TargetRegions;
use crate::{RegionMut, Result, Version};
use tierflow_device::{ReadLoan, Stream};
use tierflow_transfer::{Source, SourceRecord, Target as _};

/// Stored bytes of a version, in host memory.
pub(super) enum Bytes {
    Lent(ReadLoan),
    Owned(Vec<u8>),
}

impl AsRef<[u8]> for Bytes {
    fn as_ref(&self) -> &[u8] {
        match self {
            // Only host memory is lent here. If it could not be read, the empty bytes would be refused as no stored form.
            Self::Lent(loan) => loan.bytes().unwrap_or_default(),
            Self::Owned(bytes) => bytes,
        }
    }
}

/// Returns the stored bytes of a version and its bases, the oldest first.
pub(super) fn fetch_all(
    context: &mut TierContext,
    tiers: &[TierState],
    (version, from, bases): Links<'_>,
) -> Result<Vec<Bytes>> {
    let oldest_first = bases.iter().rev().map(|(version, place)| (*version, place));
    let all = oldest_first.chain([(version, from)]);
    all.map(|(version, place)| {
        let piece = Piece {
            start: 0,
            place: *place,
        };
        fetch(context, version, PlacedPiece::on(tiers, &piece))
    })
    .collect()
}

/// Returns the stored bytes of one version: a loan if the host can read the place, else a copy.
pub(super) fn fetch(
    context: &mut TierContext,
    version: Version,
    from: PlacedPiece<'_>,
) -> Result<Bytes> {
    let fetched = fetch_from(context, version, from);
    fetched.inspect_err(|error| context.note(version, from.piece.place.tier, error))
}

fn fetch_from(context: &mut TierContext, version: Version, from: PlacedPiece<'_>) -> Result<Bytes> {
    context.stop().look()?;
    if let Some(lent) = from.span().lend(from.all()) {
        let lent = lent?;
        if lent.bytes().is_ok() {
            return Ok(Bytes::Lent(lent));
        }
    }
    let size = from.piece.place.size;
    let mut bytes = vec![0; usize::try_from(size).unwrap_or(usize::MAX)];
    match from.medium.durable() {
        Some(durable) => {
            DurableRecord::whole(durable, version).read_whole(&mut bytes, &context.stop())?
        }
        None => context.fill(&from.span(), 0, &mut bytes, None)?,
    }
    Ok(Bytes::Owned(bytes))
}

/// Returns true if `stored` is a compressed version, false if it holds differences.
pub(super) fn is_compressed(stored: &[Bytes]) -> bool {
    matches!(stored, [one] if super::compressed::is_compressed(one.as_ref()))
}

/// Restores a checkpoint from its stored bytes.
fn decode(stored: Vec<Bytes>, whole: &mut [u8]) -> Result<()> {
    if let [one] = stored.as_slice()
        && is_compressed(&stored)
    {
        return Ok(tierflow_codec::decode_all(one.as_ref(), whole)?);
    }
    let (chain, number) = super::difference_stage::chain(stored, whole.len() as u64)?;
    Ok(chain.restore(number, whole)?)
}

/// Restores a version to the tier above, with the host's cores.
pub(super) fn up(
    context: &mut TierContext,
    stored: Vec<Bytes>,
    to: PlacedPiece<'_>,
) -> std::result::Result<(), TransferError> {
    context.stop().look()?;
    let mut span = to.span();
    if let Some(lent) = span.lend_mut(to.all()) {
        let lent = lent.map_err(tierflow_transfer::TransferError::target);
        let mut room = lent?;
        if let Ok(bytes) = room.bytes_mut() {
            return decode(stored, bytes).map_err(at_source);
        }
    }
    let whole = decoded(stored, to.piece.place.size).map_err(at_source)?;
    Ok(context.give(&mut span, 0, &whole, None)?)
}

/// Restores a version of `size` bytes to the application's regions, with the host's cores.
pub(super) fn read(
    context: &mut TierContext,
    stored: Vec<Bytes>,
    size: u64,
    sink: &mut TargetRegions<'_, '_>,
    stream: Option<&Stream>,
) -> Result<()> {
    if let Some([RegionMut::Bytes(bytes)]) = sink.all() {
        return decode(stored, bytes);
    }
    let whole = decoded(stored, size)?;
    Ok(context.give(sink, 0, &whole, stream)?)
}

fn decoded(stored: Vec<Bytes>, size: u64) -> Result<Vec<u8>> {
    let mut whole = vec![0; usize::try_from(size).unwrap_or(usize::MAX)];
    decode(stored, &mut whole)?;
    Ok(whole)
}

/// Encoded bytes of a version, and their form.
#[derive(Clone, Copy)]
pub(super) struct StoredBytes<'b> {
    pub(super) version: Version,
    pub(super) form: StoredForm,
    pub(super) from: &'b dyn Source,
    pub(super) length: u64,
}

impl TierContext {
    /// Stores encoded bytes at the place of the version's copy.
    pub(super) fn put(
        &mut self,
        to: PlacedPiece<'_>,
        stored: StoredBytes<'_>,
    ) -> std::result::Result<(), TransferError> {
        let StoredBytes {
            version,
            form,
            from,
            length,
        } = stored;
        let all = 0..length;
        let put = match to.medium.durable() {
            None => self.copy(from, &mut to.span(), all, None),
            Some(durable) => {
                let mut record = DurableRecord {
                    tier: durable,
                    version,
                    form,
                };
                self.copy(from, &mut record, all, None)
            }
        };
        Ok(put?)
    }
}
