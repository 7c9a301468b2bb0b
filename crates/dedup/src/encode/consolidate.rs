//! Consolidation: a lineage goes on with its record of hashes, but restores read fewer of the differences before.
//!
//! A restore follows a version's parents up to a difference without a parent, and reads chunks from the places that these
//! differences name. A difference without a parent names the place of every chunk, so a restore follows no difference before
//! it. If a difference holds few chunks of the newest checkpoint, these chunks are stored again with the consolidated
//! difference, so that no restore reads the old difference for them. The method is the capping of Lillibridge, Eshghi and
//! Bhagwat (Improving Restore Speed for Backup Systems that Use Inline Chunk-Based Deduplication, FAST'13), with differences
//! in place of containers.

use std::collections::{BTreeMap, BTreeSet};

use super::Lineage;
use crate::regions::Place;

/// The differences that store the chunks of a lineage's newest checkpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Origins {
    /// The differences, oldest first.
    pub differences: Vec<StoredBytes>,
    /// Number of entries that name the places of all chunks, if neighbouring chunks with neighbouring places share an entry.
    pub entries: u64,
}

/// Bytes of a checkpoint that a difference stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoredBytes {
    /// Number of the difference in the lineage.
    pub ordinal: u32,
    /// Bytes of the checkpoint whose place is in the difference. A chunk that the checkpoint has several times counts each time,
    /// so the number may exceed the bytes that the difference stores.
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

    /// Makes the next difference name the place of every chunk. The difference has no parent. Of the differences before, it and
    /// later differences refer only to the ordinals in `keep`; chunks that only others store are stored again. Methods
    /// without a record of hashes store the difference in full. If the lineage is resumed behind the difference, its record
    /// has the chunks of all differences again.
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
