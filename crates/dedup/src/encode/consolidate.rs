//! Consolidation: a lineage goes on with its record of hashes, and restores read fewer of the differences before.
//!
//! A restore follows a version's parents up to a difference without one, and reads the chunks that these name where they are
//! stored. A difference without a parent names the place of every chunk, so that none before it is followed. The chunks of
//! differences that hold little of the newest checkpoint are stored again with it, so that nobody reads those differences for
//! them: the capping of Lillibridge, Eshghi and Bhagwat (Improving Restore Speed for Backup Systems that Use Inline
//! Chunk-Based Deduplication, FAST'13), of differences in place of containers.

use std::collections::{BTreeMap, BTreeSet};

use super::Lineage;
use crate::regions::Place;

/// The differences that store the chunks of a lineage's newest checkpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Origins {
    /// The differences, oldest first.
    pub differences: Vec<StoredBytes>,
    /// Entries that name the places of all chunks, if neighbours with neighbouring places share one.
    pub entries: u64,
}

/// Bytes of a checkpoint that a difference stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoredBytes {
    /// Number of the difference in the lineage.
    pub ordinal: u32,
    /// Bytes of the checkpoint whose place is in the difference: more than the difference has if it stores a chunk that the
    /// checkpoint has several times.
    pub bytes: u64,
}

impl Lineage {
    /// Returns the differences that store the chunks of the newest checkpoint. Empty before the first one.
    pub fn origins(&self) -> Origins {
        let mut origins = Origins::default();
        let Some(state) = &self.state else {
            return origins;
        };
        let mut bytes: BTreeMap<u32, u64> = BTreeMap::new();
        let mut before: Option<Place> = None;
        for (&place, chunk) in state.owners.iter().zip(0..) {
            let length = state.layout.bytes(chunk, 1).len() as u64;
            *bytes.entry(place.ordinal).or_default() += length;
            let follows = before.is_some_and(|before| {
                before.ordinal == place.ordinal && place.chunk.wrapping_sub(before.chunk) <= 1
            });
            origins.entries += u64::from(!follows);
            before = Some(place);
        }
        let stored = |(ordinal, bytes)| StoredBytes { ordinal, bytes };
        origins.differences = bytes.into_iter().map(stored).collect();
        origins
    }

    /// Has the next difference name the place of every chunk. It has no parent, and it and those behind it refer to no
    /// differences before it but these, by their ordinals; chunks that only others store are stored again. Methods without a
    /// record of hashes store it in full. A lineage that is resumed behind it has the chunks of all differences in its record.
    ///
    /// ```
    /// # fn main() -> tierflow_dedup::Result<()> {
    /// use std::collections::BTreeSet;
    /// use tierflow_dedup::{Chain, Config, Lineage, Method};
    /// let mut lineage = Lineage::new(Config::new(Method::Tree))?;
    /// let mut state = vec![0; 100_000];
    /// let mut chain = Chain::new();
    /// for version in 0..4 {
    ///     state[1000 * version as usize] = 1;
    ///     if version == 3 {
    ///         lineage.consolidate(&BTreeSet::from([0]));
    ///     }
    ///     chain.push(lineage.encode(version, &state)?.into_bytes())?;
    /// }
    /// assert_eq!(chain.dependencies(2)?, [0, 1, 2]);
    /// assert_eq!(chain.dependencies(3)?, [0, 3]);
    /// assert_eq!(chain.to_vec(3)?, state);
    /// # Ok(()) }
    /// ```
    pub fn consolidate(&mut self, keep: &BTreeSet<u32>) {
        if let Some(state) = &mut self.state {
            state.record.keep(keep);
            state.keep = Some(keep.clone());
        }
    }
}
