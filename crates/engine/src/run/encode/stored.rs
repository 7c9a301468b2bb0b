//! What lies below the stage: bytes that say themselves what they are, and the host's way to make checkpoints of them.

use super::Links;
use crate::plan::Piece;
use crate::run::durable::told;
use crate::run::ends::{Destination, Held, Lying, Origin};
use crate::run::kept::Form;
use crate::run::lane::{Failed, Lane, at_destination, at_source};
use crate::run::medium::Level;
use crate::run::regions::Sink;
use crate::{RegionMut, Result, Version};
use tierflow_device::{ReadLoan, Stream};

/// The stored bytes of a version, in host memory.
pub(super) enum Bytes {
    Lent(ReadLoan),
    Owned(Vec<u8>),
}

impl AsRef<[u8]> for Bytes {
    fn as_ref(&self) -> &[u8] {
        match self {
            // Of host memory alone. Bytes that could not be read would be found to be nothing that was stored.
            Self::Lent(loan) => loan.bytes().unwrap_or_default(),
            Self::Owned(bytes) => bytes,
        }
    }
}

/// What a version is made of, the oldest first.
pub(super) fn fetch_all(
    lane: &mut Lane,
    tiers: &[Level],
    (version, from, bases): Links<'_>,
) -> Result<Vec<Bytes>> {
    let oldest_first = bases.iter().rev().map(|(version, place)| (*version, place));
    let all = oldest_first.chain([(version, from)]);
    all.map(|(version, place)| {
        let piece = Piece {
            start: 0,
            place: *place,
        };
        fetch(lane, version, Lying::on(tiers, &piece))
    })
    .collect()
}

/// One version's: where they lie, if the host reads that, else a copy.
pub(super) fn fetch(lane: &mut Lane, version: Version, from: Lying<'_>) -> Result<Bytes> {
    let fetched = fetch_from(lane, version, from);
    fetched.inspect_err(|error| lane.note((version, from.piece.place.tier), error))
}

fn fetch_from(lane: &mut Lane, version: Version, from: Lying<'_>) -> Result<Bytes> {
    lane.stop().look().map_err(told)?;
    if let Some(lent) = from.lend(from.all()) {
        let lent = lent?;
        if lent.bytes().is_ok() {
            return Ok(Bytes::Lent(lent));
        }
    }
    let size = from.piece.place.size;
    let mut bytes = vec![0; usize::try_from(size).unwrap_or(usize::MAX)];
    match from.medium.kept() {
        Some(kept) => kept.restore(version, &mut bytes, &lane.stop())?,
        None => lane.fill(&from, (0, &mut bytes), None).map_err(told)?,
    }
    Ok(Bytes::Owned(bytes))
}

/// Whether it is a compressed version, and not differences.
pub(super) fn is_compressed(stored: &[Bytes]) -> bool {
    matches!(stored, [one] if super::compressed::is_compressed(one.as_ref()))
}

/// Makes the checkpoint of what it is made of.
fn decode(stored: Vec<Bytes>, whole: &mut [u8]) -> Result<()> {
    if let [one] = stored.as_slice()
        && is_compressed(&stored)
    {
        return Ok(tierflow_codec::decode_all(one.as_ref(), whole)?);
    }
    let (chain, number) = super::differences::chain(stored, whole.len() as u64)?;
    Ok(chain.restore(number, whole)?)
}

/// Brings a version up by the host's cores.
pub(super) fn up(
    lane: &mut Lane,
    stored: Vec<Bytes>,
    mut to: Lying<'_>,
) -> std::result::Result<(), Failed> {
    lane.stop().look()?;
    if let Some(lent) = to.lend_mut(to.all()) {
        let mut room = lent.map_err(at_destination)?;
        if let Ok(bytes) = room.bytes_mut() {
            return decode(stored, bytes).map_err(at_source);
        }
    }
    let whole = decoded(stored, to.piece.place.size).map_err(at_source)?;
    let held = Held {
        start: 0,
        bytes: whole.as_slice(),
    };
    lane.copy(&held, &mut to, 0..whole.len() as u64, None)
}

/// Reads a version of `size` bytes into the application's regions by the host's cores.
pub(super) fn read(
    lane: &mut Lane,
    (stored, size): (Vec<Bytes>, u64),
    (sink, stream): (&mut Sink<'_, '_>, Option<&Stream>),
) -> Result<()> {
    if let Some([RegionMut::Bytes(bytes)]) = sink.all() {
        return decode(stored, bytes);
    }
    let whole = decoded(stored, size)?;
    lane.give(sink, (0, &whole), stream)
}

fn decoded(stored: Vec<Bytes>, size: u64) -> Result<Vec<u8>> {
    if let [one] = stored.as_slice()
        && is_compressed(&stored)
        && tierflow_codec::decoded_len(one.as_ref())? != size
    {
        let what = "it is another length than the version's";
        return Err(tierflow_codec::Error::Corrupt { what }.into());
    }
    let mut whole = vec![0; usize::try_from(size).unwrap_or(usize::MAX)];
    decode(stored, &mut whole)?;
    Ok(whole)
}

impl Lane {
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
}
