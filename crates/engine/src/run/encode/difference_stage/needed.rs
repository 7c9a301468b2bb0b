//! The differences of a chain that a restore reads: from the version back to a difference that names the places of all chunks, and
//! the differences that store those chunks.

use super::super::stored::{self, Bytes};
use super::{Links, PlacedPiece, TierContext, encoded};
use crate::Result;
use crate::plan::Piece;
use crate::run::medium::TierState;
use std::collections::BTreeSet;
use tierflow_dedup::Container;

/// The differences that a restore needs, as far as the differences read so far tell. Reading starts at the newest one.
struct Needed {
    /// Ordinal of the base of the difference read last, if the restore needs that base.
    parent: Option<u32>,
    /// Ordinals of the differences that store chunks.
    sources: BTreeSet<u32>,
}

impl Needed {
    fn by(difference: Container<'_>) -> Self {
        Self {
            parent: difference.parent(),
            sources: difference.sources(),
        }
    }

    fn has(&self, ordinal: u32) -> bool {
        self.parent == Some(ordinal) || self.sources.contains(&ordinal)
    }

    fn add(&mut self, difference: Container<'_>) {
        if self.parent == Some(difference.ordinal()) {
            self.parent = difference.parent();
            self.sources.extend(difference.sources());
        }
    }
}

/// Returns the stored bytes that a restore of a version of `size` bytes reads, the oldest first. Decompresses them if there are
/// several.
pub(super) fn fetch(
    context: &mut TierContext,
    tiers: &[TierState],
    links: Links<'_>,
    size: u64,
) -> Result<Vec<Bytes>> {
    let (version, place, bases) = links;
    let mut fetch = |version, place| {
        let piece = Piece { start: 0, place };
        stored::fetch(context, version, PlacedPiece::on(tiers, &piece))
    };
    let newest = fetch(version, *place)?;
    if bases.is_empty() {
        return Ok(vec![newest]);
    }
    let newest = encoded::decoded(newest, size)?;
    let difference = Container::parse(newest.as_ref())?;
    let (mut needed, mut ordinal) = (Needed::by(difference), difference.ordinal());
    let mut fetched = vec![newest];
    for (version, place) in bases {
        // A chain's differences have consecutive ordinals.
        ordinal = ordinal.saturating_sub(1);
        if !needed.has(ordinal) {
            continue;
        }
        let base = encoded::decoded(fetch(*version, *place)?, size)?;
        let difference = Container::parse(base.as_ref())?;
        if difference.ordinal() != ordinal {
            return stored::fetch_all(context, tiers, links);
        }
        needed.add(difference);
        fetched.push(base);
    }
    fetched.reverse();
    Ok(fetched)
}
