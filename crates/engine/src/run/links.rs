//! Copies of a call over several links at once. A version that overflows to peers is there when the busiest link is done, and
//! not only after one link after the other (SC'22 showcase, slide 14: the transfers of a group checkpoint start together).

use super::medium::{Medium, TierState, medium};
use crate::plan::{Piece, Place, TierId};
use crate::{Error, Result};
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::thread::{Builder, scope};
use tierflow_device::Stream;

/// The link that leads to bytes: that of a tier, or, in a tier of peers, that of the peer whose part of the tier ends at `end`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Link {
    pub(super) tier: TierId,
    pub(super) end: u64,
}

/// Returns the pieces, cut where the next byte has another link. Without a tier of peers, all have one link.
pub(super) fn by_link(tiers: &[TierState], pieces: &[Piece]) -> SmallVec<[(Link, Piece); 1]> {
    let mut tiers_of = tiers.iter();
    let has_peers = tiers_of.any(|tier| matches!(tier.medium, Medium::Peers(_)));
    let mut cut = SmallVec::new();
    for piece in pieces {
        let Place { offset, size, .. } = piece.place;
        let tier = match has_peers {
            true => piece.place.tier,
            false => TierId::FASTEST,
        };
        let (mut first, mut behind) = (0, 0);
        while behind < size {
            let end = match medium(tiers, piece) {
                Medium::Peers(memory) => memory.part_end(offset + first),
                _ => u64::MAX,
            };
            behind = size.min(end.saturating_sub(offset));
            let place = Place {
                offset: offset + first,
                size: behind - first,
                ..piece.place
            };
            let start = piece.start + first;
            cut.push((Link { tier, end }, Piece { start, place }));
            first = behind;
        }
    }
    cut
}

/// Makes all copies, over all links at once. `on`: the link of each copy. The copies of the first link run on `own`, and the copies of each
/// other link on a stream of `spare`, behind the work that `own` has. Returns when all have ended.
pub(super) fn over_links<T: Send>(
    own: &Stream,
    spare: &mut Vec<Stream>,
    on: &[Link],
    mut copies: SmallVec<[T; 1]>,
    copy: impl Fn(&mut [T], &Stream) -> Result<()> + Sync,
) -> Result<()> {
    if on.windows(2).all(|pair| pair[0] == pair[1]) {
        return copy(&mut copies, own);
    }
    let mut links: BTreeMap<Link, SmallVec<[T; 1]>> = BTreeMap::new();
    for (link, one) in on.iter().zip(copies) {
        links.entry(*link).or_default().push(one);
    }
    let Some((_, mut first)) = links.pop_first() else {
        return Ok(());
    };
    let behind = &own.record()?;
    while spare.len() < links.len() {
        spare.push(own.device().stream()?);
    }
    let copy = &copy;
    scope(|scope| {
        let mut outcome = Ok(());
        let mut others = Vec::new();
        for (mut copies, stream) in links.into_values().zip(&*spare) {
            let run = move || {
                stream.wait(behind)?;
                copy(&mut copies, stream)
            };
            let thread = Builder::new().name("tierflow-link".to_owned());
            match thread.spawn_scoped(scope, run) {
                Ok(thread) => others.push(thread),
                Err(why) => outcome = Err(Error::Thread(why)),
            }
        }
        outcome = outcome.and_then(|()| copy(&mut first, own));
        for other in others {
            match other.join() {
                Ok(ended) => outcome = outcome.and(ended),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        outcome
    })
}
