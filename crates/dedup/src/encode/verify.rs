//! Comparison of bytes where digests match. Keeps all differences, and the place of each chunk of the checkpoint
//! before.

use super::leaves::Block;
use super::{Difference, Pass, State};
use crate::chain::Chain;
use crate::container::Stored;
use crate::error::{Error, Result};
use crate::layout::Layout;
use crate::regions::Place;

#[derive(Debug, Default)]
pub(super) struct VerifyHistory {
    chain: Chain<Vec<u8>>,
    /// The place of the bytes of each chunk of the checkpoint before.
    owners: Vec<Place>,
}

impl State {
    /// Returns true if `chunk` has the bytes of the checkpoint before. Always true without verification.
    pub(super) fn is_as_before(&self, pass: &Pass<'_>, chunk: u32) -> bool {
        self.kept
            .as_ref()
            .and_then(|kept| kept.owners.get(chunk as usize))
            .is_none_or(|&owner| self.is_at(pass, chunk, owner))
    }

    /// Returns true if `chunk` has the bytes at `place`, of an earlier checkpoint. Always true without verification.
    pub(super) fn is_at(&self, pass: &Pass<'_>, chunk: u32, place: Place) -> bool {
        self.kept
            .as_ref()
            .is_none_or(|kept| kept.chain.stored_chunk(place) == Some(pass.chunk(chunk)))
    }
}

impl VerifyHistory {
    /// Copies a stored lineage for verification.
    pub(super) fn of<B: AsRef<[u8]>>(chain: &Chain<B>) -> Result<Self> {
        let (own, owners) = chain.copied()?;
        Ok(Self { chain: own, owners })
    }

    pub(super) fn keep(
        &mut self,
        layout: Layout,
        ordinal: u32,
        blocks: &[Block],
        difference: &Difference,
    ) -> Result<()> {
        let own = |chunk| Place { ordinal, chunk };
        if difference.summary.stored == Stored::Full {
            self.owners = (0..layout.count).map(own).collect();
        } else {
            self.owners.resize(layout.count as usize, own(0));
            for (chunk, source) in blocks.iter().flat_map(Block::sources) {
                self.owners[chunk as usize] = source;
            }
        }
        let version = difference.summary.version;
        self.chain
            .push(difference.bytes.clone())
            .map_err(|_| Error::own(version))
    }
}
