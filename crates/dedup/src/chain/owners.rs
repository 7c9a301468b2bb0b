//! Owners: the link that stores the bytes of each chunk of a version, found from metadata alone.

use super::{Chain, Link};
use crate::container::Run;
use crate::error::{Error, Result};
use crate::regions::Place;

/// A chunk in the payload of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Owner {
    /// Index of the link in the chain.
    pub(crate) link: u32,
    /// Position of the chunk in the link's payload.
    pub(crate) rank: u32,
}

impl Owner {
    /// The owner of a chunk that has none. No link has so many chunks.
    const NONE: Self = Self {
        link: u32::MAX,
        rank: u32::MAX,
    };
}

/// The owner of each chunk of a version.
#[derive(Debug)]
pub(crate) struct Owners {
    pub(crate) of: Vec<Owner>,
    unowned: usize,
}

impl Owners {
    pub(crate) fn none(chunks: u32) -> Self {
        let unowned = chunks as usize;
        Self {
            of: vec![Owner::NONE; unowned],
            unowned,
        }
    }

    pub(crate) fn are_complete(&self) -> bool {
        self.unowned == 0
    }

    /// Sets the owner of a chunk. Replaces an earlier owner only if `over` is true.
    fn set(&mut self, chunk: u32, owner: Owner, over: bool) {
        let slot = &mut self.of[chunk as usize];
        if *slot == Owner::NONE {
            self.unowned -= 1;
            *slot = owner;
        } else if over {
            *slot = owner;
        }
    }

    /// Enters the owners that a link lists. If `over` is true, they replace earlier entries, and the caller applies the
    /// oldest link first; otherwise the newest first.
    pub(crate) fn apply<B: AsRef<[u8]>>(
        &mut self,
        chain: &Chain<B>,
        at: usize,
        over: bool,
    ) -> Result<()> {
        let own = &chain.links[at];
        let link = at as u32;
        for run in own.runs() {
            for n in 0..run.count {
                let rank = run.rank + n;
                self.set(run.first + n, Owner { link, rank }, over);
            }
        }
        for shift in own.container().shifts() {
            let source_at = chain.find(shift.source.ordinal, at)?;
            let source: &Link<B> = &chain.links[source_at];
            let mut run: Option<Run> = None;
            for n in 0..shift.node.count() {
                let chunk = shift.source_of(n).chunk;
                if run.is_none_or(|run| chunk.wrapping_sub(run.first) >= run.count) {
                    run = source.run_of(chunk);
                }
                let Some(run) = run else {
                    let what = "an entry has a source that is not stored where it says";
                    return Err(Error::corrupt(own.header.version, what));
                };
                let owner = Owner {
                    link: source_at as u32,
                    rank: run.rank + (chunk - run.first),
                };
                self.set(shift.node.first() + n, owner, over);
            }
        }
        Ok(())
    }
}

impl<B: AsRef<[u8]>> Chain<B> {
    /// Returns the owners of a version's chunks. Reads links from its own difference back until every chunk has an
    /// owner.
    pub(crate) fn owners(&self, target: usize) -> Result<Owners> {
        let header = &self.links[target].header;
        self.check_coverage(target)?;
        let mut owners = Owners::none(header.layout.count);
        for at in self.path(target) {
            owners.apply(self, at?, false)?;
            if owners.are_complete() {
                return Ok(owners);
            }
        }
        let what = "some of its chunks are stored in no difference";
        Err(Error::corrupt(header.version, what))
    }

    /// Returns a copy of the chain.
    pub(crate) fn copied(&self) -> Result<Chain<Vec<u8>>> {
        let mut copy = Chain::new();
        for link in &self.links {
            copy.push(link.bytes.as_ref().to_vec())?;
        }
        Ok(copy)
    }

    /// Returns the places of the newest version's chunks.
    pub(crate) fn places(&self) -> Result<Vec<Place>> {
        let Some(newest) = self.links.len().checked_sub(1) else {
            return Ok(Vec::new());
        };
        let places = self.owners(newest)?.of.into_iter().map(|owner| {
            let link = &self.links[owner.link as usize];
            Place {
                ordinal: link.header.ordinal,
                chunk: link.chunk(owner.rank),
            }
        });
        Ok(places.collect())
    }

    /// Checks that a version's links mention at least as many chunks as the version has. Call this before allocating memory
    /// for the length that a file claims.
    pub(super) fn check_coverage(&self, target: usize) -> Result<()> {
        let header = &self.links[target].header;
        let chunks = u64::from(header.layout.count);
        let mut mentioned = 0;
        for at in self.path(target) {
            let container = self.links[at?].container();
            mentioned += container
                .payload_bytes()
                .div_ceil(u64::from(container.chunk_bytes()));
            mentioned += container
                .shifts()
                .map(|shift| u64::from(shift.node.count()))
                .sum::<u64>();
            if mentioned >= chunks {
                return Ok(());
            }
        }
        let what = "some of its chunks are stored in no difference";
        Err(Error::corrupt(header.version, what))
    }
}
