//! Replay of a lineage from its first checkpoint on, with digests in place of bytes. Each stored byte is hashed once, and
//! none is copied. A replay verifies a chain, and rebuilds the record.

use rayon::prelude::*;

use super::Chain;
use crate::container::Stored;
use crate::error::{Error, Result};
use crate::hash::{Digest, Hasher, Sum};

#[derive(Debug)]
pub(crate) struct Replay {
    hasher: Hasher,
    /// Digests of the stored chunks of each replayed link.
    stored: Vec<Vec<Digest>>,
    /// Digests of the chunks of the version replayed last.
    pub(crate) digests: Vec<Digest>,
}

impl Replay {
    fn new(seed: u64, chunks: u32) -> Self {
        Self {
            hasher: Hasher::new(seed),
            stored: Vec::new(),
            digests: vec![Digest::default(); chunks as usize],
        }
    }

    /// Replays the next link.
    pub(crate) fn step<B: AsRef<[u8]>>(&mut self, chain: &Chain<B>) -> Result<()> {
        let at = self.stored.len();
        let link = &chain.links[at];
        let (header, layout) = (&link.header, link.header.layout);
        let corrupt = |what| Err(Error::corrupt(header.version, what));
        // A full checkpoint needs no parent, so its parent may be missing. A consolidated checkpoint has no parent.
        let is_full = header.stored == Stored::Full;
        let parent = match is_full && chain.at_ordinal(header.parent).is_none() {
            true => None,
            false => chain.parent(at)?,
        };
        if !is_full && parent.is_some() && parent != at.checked_sub(1) {
            return Err(Error::Foreign {
                version: header.version,
                what: "parent",
            });
        }

        let chunks = link.payload_chunks();
        let hasher = &self.hasher;
        let digests: Vec<Digest> = chunks.map(|chunk| hasher.digest(chunk)).collect();
        let mut sum = Sum::default();
        digests
            .iter()
            .zip(0..)
            .for_each(|(digest, rank)| sum.add(*digest, rank));
        if sum != header.payload {
            return corrupt("the sum of its payload does not fit");
        }
        self.stored.push(digests);

        let mut mentioned = 0;
        for run in link.runs() {
            let (first, rank, count) = (run.first as usize, run.rank as usize, run.count as usize);
            let from = &self.stored[at][rank..rank + count];
            self.digests[first..first + count].copy_from_slice(from);
            mentioned += count;
        }
        for shift in link.container().shifts() {
            let source_at = chain.find(shift.source.ordinal, at)?;
            for n in 0..shift.node.count() {
                let Some(rank) = chain.links[source_at].rank(shift.source_of(n).chunk) else {
                    return corrupt("an entry has a source that is not stored where it says");
                };
                let digest = self.stored[source_at][rank as usize];
                self.digests[(shift.node.first() + n) as usize] = digest;
            }
            mentioned += shift.node.count() as usize;
        }
        if (at == 0 || parent.is_none()) && mentioned != layout.count as usize {
            return corrupt("some of its chunks are stored in no difference");
        }
        let mut content = Sum::default();
        self.digests
            .iter()
            .zip(0..)
            .for_each(|(digest, place)| content.add(*digest, place));
        if content != header.content {
            return corrupt("its chunks are not those that were checkpointed");
        }
        Ok(())
    }
}

impl<B: AsRef<[u8]>> super::Link<B> {
    fn payload_chunks(&self) -> impl IndexedParallelIterator<Item = &[u8]> {
        let container = self.container();
        container
            .payload()
            .par_chunks(container.layout().chunk_bytes())
    }
}

impl<B: AsRef<[u8]>> Chain<B> {
    /// Checks every stored byte, and that every version can be restored from this chain, without restoring one.
    ///
    /// # Errors
    ///
    /// For the oldest version with a defect: [`Error::Corrupt`] if its bytes are damaged; [`Error::Missing`] if the chain
    /// lacks a difference that it needs; [`Error::Foreign`] if that difference belongs to another lineage.
    pub fn verify(&self) -> Result<()> {
        let mut replay = self.replay()?;
        self.links.iter().try_for_each(|_| replay.step(self))
    }

    /// Returns a replay before its first step.
    pub(crate) fn replay(&self) -> Result<Replay> {
        let Some(first) = self.links.first() else {
            return Ok(Replay::new(0, 0));
        };
        self.check_coverage(0)?;
        Ok(Replay::new(first.header.seed, first.header.layout.count))
    }
}
