//! The history of a resumed lineage, in the kernels' layout.

use super::plan::{Array, Plan};
use crate::encode::Rebuilt;
use crate::hash::Digest;
use crate::regions::Place;

/// Number of slots of the record that are probed together.
pub(super) const BUCKET: u64 = 4;

/// The history that a resumed lineage continues.
pub(super) struct History<'a> {
    pub(super) rebuilt: &'a Rebuilt,
    /// The bytes of the newest checkpoint, for comparing; empty without verification.
    pub(super) previous: &'a [u8],
    /// Returns the bytes of a stored chunk, for comparing.
    pub(super) stored: &'a dyn Fn(Place) -> Option<&'a [u8]>,
}

/// The record in the kernels' layout.
pub(super) struct Table {
    pub(super) keys: Vec<Digest>,
    pub(super) owners: Vec<u64>,
    pub(super) generations: Vec<u64>,
    /// The bytes of each slot's chunk, if verification is on.
    pub(super) pool: Vec<u8>,
}

impl Table {
    pub(super) fn new(plan: &Plan, past: &History<'_>) -> Self {
        let slots = plan.slots() as usize;
        let chunk = plan.layout.chunk_bytes();
        let mut keys = vec![Digest::default(); slots];
        let mut owners = vec![u64::MAX; slots];
        let mut pool = vec![0; plan.bytes(Array::Pool) as usize];
        let record = &past.rebuilt.record;
        let ordinals: Vec<u32> = record.generations().map(|(ordinal, _)| ordinal).collect();
        // A record has at most as many entries as its capacity, which leaves a fifth of the slots free.
        for (digest, place) in record.entries() {
            // The record lists the generation of every entry.
            let Ok(generation) = ordinals.binary_search(&place.ordinal) else {
                continue;
            };
            let buckets = slots as u128 / u128::from(BUCKET);
            let bucket = ((u128::from(digest.low) * buckets) >> 64) as usize;
            let mut at = bucket * BUCKET as usize;
            while owners[at] != u64::MAX {
                at = if at + 1 == slots { 0 } else { at + 1 };
            }
            keys[at] = digest;
            owners[at] =
                (generation as u64) << 52 | digest.high >> 44 << 32 | u64::from(place.chunk);
            if let (Some(to), Some(bytes)) = (pool.get_mut(at * chunk..), (past.stored)(place))
                && let Some(to) = to.get_mut(..bytes.len())
            {
                to.copy_from_slice(bytes);
            }
        }
        let generations = record
            .generations()
            .map(|(ordinal, chunks)| chunks << 32 | u64::from(ordinal));
        Self {
            keys,
            owners,
            generations: generations.collect(),
            pool,
        }
    }
}

/// Returns the fields `content` to `generation_count` of a `State`.
pub(super) fn history_bytes(past: &Rebuilt) -> Vec<u8> {
    let content = past.last.content;
    let generations = past.record.generations();
    let count = generations.len() as u64;
    let live = generations.map(|(_, chunks)| chunks).sum();
    let words = [
        content.low,
        content.high,
        content.low,
        content.high,
        live,
        count << 32,
    ];
    words.into_iter().flat_map(u64::to_le_bytes).collect()
}
