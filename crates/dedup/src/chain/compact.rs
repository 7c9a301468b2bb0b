//! Compaction: drops versions of a chain, but keeps those of their chunks that other versions need.

use hashbrown::HashMap;
use rayon::prelude::*;

use super::Chain;
use super::owners::{Owner, Owners};
use crate::container::{Body, HEADER_BYTES, Stored, full_is_smaller, write};
use crate::encode::{CheckpointId, Difference, LastCheckpoint, Summary, header};
use crate::error::{Error, Invalid, Result};
use crate::hash::{Hasher, Sum};
use crate::regions::{Place, Regions};

/// The differences that replace those of a chain. The new differences refer only to each other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Compacted {
    /// A difference for each kept version, oldest first. Each has the version and the ordinal of the old one.
    pub differences: Vec<Difference>,
}

/// The new places of bytes that dropped links own.
struct MovedChunks<'a> {
    is_kept: &'a [bool],
    /// For each owner of moved bytes, the place in the first kept checkpoint that needs these bytes, which stores them.
    places: HashMap<Owner, Place>,
}

impl<B: AsRef<[u8]> + Sync> Chain<B> {
    /// Returns the differences of a chain with the versions `keep` only. If a dropped version stores chunks that kept
    /// versions need, the chunks move to the first kept version that needs them.
    ///
    /// A lineage can be resumed from the result, but with a smaller record: chunks that no version needs any more are
    /// missing.
    ///
    /// # Errors
    ///
    /// [`Invalid::NoSuchVersion`] if the chain lacks a version of `keep`; the errors of [`verify`](Self::verify).
    pub fn compact(&self, keep: &[u64]) -> Result<Compacted> {
        // Copied chunks get new sums, so the old sums are verified first.
        self.verify()?;
        let mut is_kept = vec![false; self.links.len()];
        for &version in keep {
            is_kept[self.position(version)?] = true;
        }
        let mut adopted = MovedChunks {
            is_kept: &is_kept,
            places: HashMap::new(),
        };
        let mut before: Option<(Owners, LastCheckpoint)> = None;
        let mut differences = Vec::new();
        for at in (0..self.links.len()).filter(|&at| is_kept[at]) {
            let owners = self.owners(at)?;
            let difference = self.rewrite(at, &owners, before.as_ref(), &mut adopted)?;
            differences.push(difference);
            let header = &self.links[at].header;
            let last = LastCheckpoint {
                version: header.version,
                ordinal: header.ordinal,
                content: header.content,
            };
            before = Some((owners, last));
        }
        Ok(Compacted { differences })
    }

    /// Makes the difference between version `at` and the kept version before it.
    fn rewrite(
        &self,
        at: usize,
        owners: &Owners,
        before: Option<&(Owners, LastCheckpoint)>,
        adopted: &mut MovedChunks<'_>,
    ) -> Result<Difference> {
        let old = &self.links[at].header;
        let layout = old.layout;
        let was_full = old.stored == Stored::Full;
        let join = old.stored != Stored::List;
        let mut regions = Regions::default();
        let mut stored = Vec::new();
        for (chunk, &owner) in (0..layout.count).zip(&owners.of) {
            let own = Place {
                ordinal: old.ordinal,
                chunk,
            };
            let stayed = before.is_some_and(|(before, _)| before.of[chunk as usize] == owner);
            let source = adopted.source(self, owner, own);
            if was_full || !stayed {
                regions.push(own, source, join);
                if source == own {
                    stored.push(chunk);
                }
            }
        }
        let last_is_stored = stored.last().is_some_and(|&last| layout.is_short(last));
        let missing = u64::from(layout.count) * u64::from(layout.chunk) - layout.len;
        let payload_bytes = stored.len() as u64 * u64::from(layout.chunk)
            - if last_is_stored { missing } else { 0 };
        let mut body = Body::Regions(regions, join);
        let mut payload_bytes = payload_bytes;
        if was_full || full_is_smaller(layout, body.bytes(layout.count), payload_bytes) {
            body = Body::Full;
            payload_bytes = layout.len;
            stored = (0..layout.count).collect();
        }
        let parent = before.map(|(_, last)| *last);
        let id = CheckpointId {
            version: old.version,
            ordinal: old.ordinal,
        };
        let mut new = header(
            layout,
            &body,
            id,
            old.seed,
            parent,
            old.content,
            payload_bytes,
        );
        let (mut bytes, payload_at) = write(&mut new, &body);
        new.payload = self.copy(at, &stored, owners, &mut bytes[payload_at..])?;
        if matches!(body, Body::Full) && new.payload != new.content {
            return Err(Error::corrupt(
                old.version,
                "its chunks are not those that were checkpointed",
            ));
        }
        bytes[..HEADER_BYTES].copy_from_slice(&new.to_bytes());
        Ok(Difference {
            bytes,
            summary: Summary::new(&new, 0),
        })
    }

    /// Copies chunks of a version from the links that own them, and returns the sum of their terms.
    fn copy(&self, at: usize, chunks: &[u32], owners: &Owners, out: &mut [u8]) -> Result<Sum> {
        let header = &self.links[at].header;
        let hasher = Hasher::new(header.seed);
        let size = header.layout.chunk_bytes();
        let places = out.par_chunks_mut(size).zip(chunks).enumerate();
        let sum = places
            .map(|(rank, (out, &chunk))| {
                let owner = owners.of[chunk as usize];
                let start = owner.rank as usize * size;
                let payload = self.links[owner.link as usize].container().payload();
                out.copy_from_slice(payload.get(start..start + out.len())?);
                let mut sum = Sum::default();
                sum.add(hasher.digest(out), rank as u64);
                Some(sum)
            })
            .try_reduce(Sum::default, |mut one, other| {
                one.merge(other);
                Some(one)
            });
        sum.ok_or_else(|| Error::corrupt(header.version, "a chunk is not where it should be"))
    }
}

impl MovedChunks<'_> {
    /// Returns the place of an owner's bytes in the new chain. The place is `own` if the bytes are to be stored there.
    fn source<B: AsRef<[u8]>>(&mut self, chain: &Chain<B>, owner: Owner, own: Place) -> Place {
        if self.is_kept[owner.link as usize] {
            let link = &chain.links[owner.link as usize];
            return Place {
                ordinal: link.header.ordinal,
                chunk: link.chunk(owner.rank),
            };
        }
        *self.places.entry(owner).or_insert(own)
    }
}

impl Compacted {
    /// Returns the difference of a version.
    ///
    /// # Errors
    ///
    /// [`Invalid::NoSuchVersion`] if the version was not kept.
    pub fn get(&self, version: u64) -> Result<&Difference> {
        self.differences
            .iter()
            .find(|difference| difference.summary().version == version)
            .ok_or_else(|| Invalid::NoSuchVersion { version }.into())
    }
}
