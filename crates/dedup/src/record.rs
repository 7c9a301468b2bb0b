//! The record of hashes: the place of each stored chunk, by digest.
//!
//! The record has at most `capacity` chunks. If the chunks of a new checkpoint do not fit, the record drops the chunks of
//! the oldest checkpoint, then of the next, until they fit. The record also drops chunks more than [`GENERATIONS`]
//! checkpoints old, where only checkpoints with new chunks count. The new chunks are counted before the first of them is
//! entered, as the chunks that were not found, with duplicates among them. So the result does not depend on the order of
//! entering, and the GPU's record, which has another layout, drops the same chunks.

use std::collections::{BTreeSet, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};

use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use rayon::prelude::*;

use crate::hash::Digest;
use crate::regions::Place;

/// Number of shards, which threads fill independently.
pub(crate) const SHARDS: usize = 32;

/// Largest number of checkpoints with chunks in the record.
pub(crate) const GENERATIONS: usize = 4096;

#[derive(Debug)]
pub(crate) struct Record {
    capacity: u64,
    shards: Vec<Shard>,
    /// `(ordinal, chunks)` of the checkpoints with entries, oldest first.
    generations: VecDeque<(u32, u64)>,
    live: u64,
}

/// The chunks whose digests have the same upper five bits.
#[derive(Debug, Default)]
pub(crate) struct Shard {
    places: HashMap<(u64, u64), Place, BuildHasherDefault<DigestHasher>>,
}

impl Record {
    pub(crate) fn new(capacity: u64) -> Self {
        Self {
            capacity,
            shards: (0..SHARDS).map(|_| Shard::default()).collect(),
            generations: VecDeque::new(),
            live: 0,
        }
    }

    pub(crate) fn shard_of(digest: Digest) -> usize {
        (digest.high >> 59) as usize
    }

    pub(crate) fn find(&self, digest: Digest) -> Option<Place> {
        self.shards[Self::shard_of(digest)].find(digest)
    }

    /// Drops the oldest checkpoints until `chunks` more chunks fit, or the record is empty.
    pub(crate) fn make_room(&mut self, chunks: u64) {
        let mut oldest_kept = 0;
        while (self.live + chunks > self.capacity || self.generations.len() >= GENERATIONS)
            && let Some((ordinal, count)) = self.generations.pop_front()
        {
            self.live -= count;
            oldest_kept = ordinal + 1;
        }
        if oldest_kept > 0 {
            self.shards
                .par_iter_mut()
                .for_each(|shard| shard.places.retain(|_, place| place.ordinal >= oldest_kept));
        }
    }

    /// Drops the chunks of all checkpoints but `ordinals`.
    pub(crate) fn keep(&mut self, ordinals: &BTreeSet<u32>) {
        self.generations
            .retain(|(ordinal, _)| ordinals.contains(ordinal));
        self.live = self.generations.iter().map(|(_, chunks)| chunks).sum();
        self.shards.par_iter_mut().for_each(|shard| {
            shard
                .places
                .retain(|_, place| ordinals.contains(&place.ordinal));
        });
    }

    /// Returns the shards, for entering the chunks of a checkpoint. The caller then reports the number of entered chunks by
    /// `entered`.
    pub(crate) fn shards_mut(&mut self) -> &mut [Shard] {
        &mut self.shards
    }

    /// Returns the entries, in any order.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (Digest, Place)> {
        let entries = self.shards.iter().flat_map(|shard| &shard.places);
        entries.map(|(&(low, high), &place)| (Digest { low, high }, place))
    }

    /// Returns `(ordinal, chunks)` of the checkpoints with entries, oldest first.
    pub(crate) fn generations(&self) -> impl ExactSizeIterator<Item = (u32, u64)> {
        self.generations.iter().copied()
    }

    pub(crate) fn entered(&mut self, ordinal: u32, chunks: u64) {
        if chunks > 0 {
            self.generations.push_back((ordinal, chunks));
            self.live += chunks;
        }
    }
}

impl Shard {
    fn find(&self, digest: Digest) -> Option<Place> {
        // The zero digest is never entered, as it marks a free slot in the GPU's record.
        self.places.get(&(digest.low, digest.high)).copied()
    }

    /// Enters the digest with `place`, or returns the place with which the record already has it.
    ///
    /// The zero digest is not entered, so all chunks with this digest are stored.
    pub(crate) fn enter(&mut self, digest: Digest, place: Place) -> Option<Place> {
        if digest == Digest::default() {
            return None;
        }
        match self.places.entry((digest.low, digest.high)) {
            Entry::Occupied(entry) => Some(*entry.get()),
            Entry::Vacant(entry) => {
                entry.insert(place);
                None
            }
        }
    }
}

/// A hasher for digests, which need no hashing.
#[derive(Debug, Default)]
struct DigestHasher(u64);

impl Hasher for DigestHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {}

    fn write_u64(&mut self, word: u64) {
        // The upper bits of `high` choose the shard, all bits the bucket.
        self.0 = self.0.rotate_left(32) ^ word;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(n: u64) -> Digest {
        Digest {
            low: n.wrapping_mul(crate::hash::PRIME_1),
            high: n.wrapping_mul(crate::hash::PRIME_2),
        }
    }

    fn enter(record: &mut Record, ordinal: u32, digests: std::ops::Range<u64>) {
        record.make_room(digests.end - digests.start);
        let mut entered = 0;
        for n in digests {
            let chunk = n as u32;
            let shard = &mut record.shards_mut()[Record::shard_of(digest(n))];
            entered += u64::from(shard.enter(digest(n), Place { ordinal, chunk }).is_none());
        }
        record.entered(ordinal, entered);
    }

    #[test]
    fn the_oldest_checkpoint_leaves_when_there_is_no_room() {
        let mut record = Record::new(100);
        enter(&mut record, 0, 0..40);
        enter(&mut record, 1, 40..90);
        assert!(record.find(digest(39)).is_some());
        enter(&mut record, 2, 90..110);
        assert_eq!(record.find(digest(39)), None);
        assert_eq!(
            record.find(digest(89)),
            Some(Place {
                ordinal: 1,
                chunk: 89
            })
        );
        enter(&mut record, 3, 200..300);
        assert_eq!(record.find(digest(100)), None);
        assert_eq!(record.live, 100);
    }
}
