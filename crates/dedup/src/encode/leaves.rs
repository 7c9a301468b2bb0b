//! The leaf pass: hashes every chunk, compares it with the checkpoint before, and looks up changed chunks in the record.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use rayon::prelude::*;

use super::{Pass, State};
use crate::hash::{Digest, Sum};
use crate::layout::Layout;
use crate::record::SHARDS;
use crate::regions::Place;
use crate::sample::Sample;

/// Approximate bytes of data per task: enough to be worth a task, few enough to share the work evenly.
const BLOCK_BYTES: usize = 1 << 20;

/// The value of a source that is not known yet. No place packs to it.
pub(crate) const UNKNOWN: u64 = u64::MAX;

/// The changed chunks of a block of neighbouring chunks.
#[derive(Debug, Default)]
pub(crate) struct Block {
    /// The changed chunks, in ascending order.
    pub(crate) changed: Vec<u32>,
    /// The packed place of each changed chunk's bytes.
    pub(crate) packed: Vec<AtomicU64>,
    /// The changed chunks that the record did not have, as indices into `changed`, sorted by the record's shard.
    pub(crate) candidates: Vec<u32>,
    /// The end of each shard's candidates.
    pub(crate) ends: [u32; SHARDS],
    ordinal: u32,
    collisions: u64,
    content_added: Sum,
    content_removed: Sum,
}

impl Block {
    /// Returns the changed chunks and the places of their bytes.
    pub(crate) fn sources(&self) -> impl Iterator<Item = (u32, Place)> {
        let places = self
            .packed
            .iter()
            .map(|source| Place::unpack(source.load(Relaxed)));
        self.changed.iter().copied().zip(places)
    }

    /// Returns the chunks whose bytes are stored with this checkpoint.
    pub(crate) fn stored(&self) -> impl Iterator<Item = u32> {
        let own = |&(chunk, source): &(u32, Place)| {
            source.ordinal == self.ordinal && source.chunk == chunk
        };
        self.sources().filter(own).map(|(chunk, _)| chunk)
    }

    pub(crate) fn stored_bytes(&self, layout: Layout) -> u64 {
        self.stored()
            .map(|chunk| layout.bytes(chunk, 1).len() as u64)
            .sum()
    }

    fn push(&mut self, chunk: u32, source: u64) {
        self.changed.push(chunk);
        self.packed.push(AtomicU64::new(source));
    }

    /// Sorts the candidates by shard. Within a shard they keep the order of chunks.
    fn sort(&mut self, candidates: &[(u32, u8)]) {
        let mut ends = [0_u32; SHARDS];
        for &(_, shard) in candidates {
            ends[usize::from(shard)] += 1;
        }
        let mut end = 0;
        for count in &mut ends {
            let start = end;
            end += *count;
            *count = start;
        }
        self.candidates.resize(candidates.len(), 0);
        for &(at, shard) in candidates {
            let next = &mut ends[usize::from(shard)];
            self.candidates[*next as usize] = at;
            *next += 1;
        }
        self.ends = ends;
    }
}

/// Number of chunks in a block: a power of two, so that the regions of a block are nodes of the tree.
pub(crate) fn chunks_per_block(layout: Layout) -> usize {
    (BLOCK_BYTES / layout.chunk_bytes()).max(16)
}

impl State {
    /// Hashes every chunk, updates `digests` and the content's sum, and returns the changed chunks. Looks up their sources in
    /// the record of earlier checkpoints; if `looks_up` is false, every changed chunk is its own source.
    pub(super) fn hash(&mut self, pass: &mut Pass<'_>, looks_up: bool) -> Vec<Block> {
        let is_first = self.digests.is_empty();
        let mut digests = std::mem::take(&mut self.digests);
        digests.resize(pass.layout.count as usize, Digest::default());
        let per_block = chunks_per_block(pass.layout);
        let this = &*self;
        let shared = &*pass;
        let blocks: Vec<Block> = digests
            .par_chunks_mut(per_block)
            .enumerate()
            .map(|(at, digests)| {
                let start = (at * per_block) as u32;
                this.hash_block(shared, start, digests, is_first, looks_up)
            })
            .collect();
        self.digests = digests;
        for block in &blocks {
            pass.content.merge(block.content_added);
            pass.content.subtract(block.content_removed);
            pass.collisions += block.collisions;
        }
        blocks
    }

    fn hash_block(
        &self,
        pass: &Pass<'_>,
        start: u32,
        digests: &mut [Digest],
        is_first: bool,
        looks_up: bool,
    ) -> Block {
        let mut block = Block {
            ordinal: pass.ordinal,
            ..Block::default()
        };
        let mut candidates = Vec::new();
        let bytes = pass.layout.bytes(start, digests.len() as u32);
        let chunks = pass.data[bytes].chunks(pass.layout.chunk_bytes());
        for ((bytes, before), chunk) in chunks.zip(digests).zip(start..) {
            let digest = pass.hasher.digest(bytes);
            if !is_first && *before == digest {
                if self.is_as_before(pass, chunk) {
                    let Some(keep) = &self.keep else {
                        continue;
                    };
                    let owner = self.owners[chunk as usize];
                    if looks_up && keep.contains(&owner.ordinal) {
                        block.push(chunk, owner.pack());
                    } else {
                        self.look_up(pass, chunk, digest, looks_up, &mut block, &mut candidates);
                    }
                    continue;
                }
                // A collision: the bytes changed, but not the digest.
                block.collisions += 1;
                block.push(chunk, pass.place(chunk).pack());
                continue;
            }
            if !is_first {
                block.content_removed.add(*before, chunk.into());
            }
            block.content_added.add(digest, chunk.into());
            *before = digest;
            self.look_up(pass, chunk, digest, looks_up, &mut block, &mut candidates);
        }
        block.sort(&candidates);
        block
    }

    /// Adds a chunk to the block, with the place of its bytes if the record has them.
    fn look_up(
        &self,
        pass: &Pass<'_>,
        chunk: u32,
        digest: Digest,
        looks_up: bool,
        block: &mut Block,
        candidates: &mut Vec<(u32, u8)>,
    ) {
        let found = if looks_up {
            self.record.find(digest)
        } else {
            None
        };
        match found {
            Some(place) if self.is_at(pass, chunk, place) => block.push(chunk, place.pack()),
            Some(_) => {
                block.collisions += 1;
                block.push(chunk, pass.place(chunk).pack());
            }
            None if looks_up => {
                let shard = crate::record::Record::shard_of(digest) as u8;
                candidates.push((block.changed.len() as u32, shard));
                block.push(chunk, UNKNOWN);
            }
            None => block.push(chunk, pass.place(chunk).pack()),
        }
    }

    /// Returns true if nearly all chunks of a [`Sample`] have changed and are not in the record.
    pub(super) fn is_mostly_new(&self, pass: &Pass<'_>) -> bool {
        let is_new = |&chunk: &u32| {
            let digest = pass.hasher.digest(pass.chunk(chunk));
            let stayed = self.digests.get(chunk as usize) == Some(&digest);
            !stayed && self.record.find(digest).is_none()
        };
        // The first checkpoint has nothing to compare with, so it is looked up.
        if self.digests.is_empty() {
            return false;
        }
        let sample = Sample::new(pass.layout.count, pass.hasher.seed(), pass.ordinal);
        let chunks = (0..sample.len()).into_par_iter().map(|n| sample.chunk(n));
        sample.is_mostly_new(chunks.filter(is_new).count() as u64)
    }
}

/// Returns a bit for each chunk, set if the chunk changed.
pub(super) fn bitmap(layout: Layout, blocks: &[Block]) -> Vec<u32> {
    let mut words = vec![0; layout.count.div_ceil(32) as usize];
    for chunk in blocks.iter().flat_map(|block| &block.changed) {
        words[(chunk / 32) as usize] |= 1 << (chunk % 32);
    }
    words
}
