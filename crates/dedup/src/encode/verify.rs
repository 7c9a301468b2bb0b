//! Verification: comparison of bytes where digests match, which needs all differences of the lineage.

use super::{Difference, Pass, State};
use crate::chain::Chain;
use crate::error::{Error, Result};
use crate::regions::Place;

#[derive(Debug, Default)]
pub(super) struct VerifyHistory {
    chain: Chain<Vec<u8>>,
}

impl State {
    /// Returns true if `chunk` has the bytes that it had in the checkpoint before. Always true without verification.
    pub(super) fn is_as_before(&self, pass: &Pass<'_>, chunk: u32) -> bool {
        self.owners
            .get(chunk as usize)
            .is_none_or(|&owner| self.is_at(pass, chunk, owner))
    }

    /// Returns true if `chunk` has the bytes stored at `place`, of an earlier checkpoint. Always true without verification.
    pub(super) fn is_at(&self, pass: &Pass<'_>, chunk: u32, place: Place) -> bool {
        self.kept
            .as_ref()
            .is_none_or(|kept| kept.chain.stored_chunk(place) == Some(pass.chunk(chunk)))
    }
}

impl VerifyHistory {
    /// Copies a stored lineage for verification.
    pub(super) fn of<B: AsRef<[u8]>>(chain: &Chain<B>) -> Result<Self> {
        Ok(Self {
            chain: chain.copied()?,
        })
    }

    pub(super) fn keep(&mut self, difference: &Difference) -> Result<()> {
        let version = difference.summary.version;
        self.chain
            .push(difference.bytes.clone())
            .map_err(|_| Error::own(version))
    }
}
