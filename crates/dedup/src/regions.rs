//! Regions of labelled chunks: the metadata of a difference.
//!
//! # The tree without digests of inner nodes
//!
//! ICPP'23, Algorithm 1, hashes the inner nodes whose leaves are all first-time occurrences, records them, and looks up
//! the inner nodes whose leaves are all shifted duplicates. A node is in that record only if its leaves were all
//! first-time occurrences, side by side, in one checkpoint. The record of chunks has exactly this place for each of
//! these leaves, as it has one place per digest. So a node that Algorithm 1 would find has leaves whose sources are
//! neighbours. The converse does not hold: sources may be neighbours without forming a node. Therefore this module
//! compares the sources of neighbouring chunks. The comparison finds all regions that Algorithm 1 finds, and also regions
//! that moved by a distance that is no multiple of their size. Only chunks are hashed, recorded and looked up. Regions that
//! repeat one chunk (zeros) are found the same way.
//!
//! A difference has the largest regions: a region is in the metadata unless its parent is. So for the checkpoints A, B and A
//! again, the third difference has only the root, as every node is a shifted duplicate.

use crate::layout::Node;

/// The place of a chunk's bytes: the ordinal of a checkpoint, and a chunk that is a first-time occurrence in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) ordinal: u32,
    pub(crate) chunk: u32,
}

impl Place {
    pub(crate) fn pack(self) -> u64 {
        u64::from(self.ordinal) << 32 | u64::from(self.chunk)
    }

    pub(crate) fn unpack(packed: u64) -> Self {
        Self {
            ordinal: (packed >> 32) as u32,
            chunk: packed as u32,
        }
    }
}

/// A region of shifted duplicates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shift {
    pub(crate) node: Node,
    /// The place of the first chunk's bytes.
    pub(crate) source: Place,
    /// True if all chunks of the region have the bytes at `source`. Otherwise the sources of the other chunks follow `source`.
    pub(crate) repeats: bool,
}

impl Shift {
    /// Returns the region that joins this one and its right sibling, if their sources allow that.
    fn joined(self, right: Self) -> Option<Self> {
        let node = self.node.joined(right.node)?;
        let is_leaf = node.count() == 2;
        let behind = Place {
            chunk: self.source.chunk.checked_add(self.node.count())?,
            ..self.source
        };
        if right.source == behind && !self.repeats && !right.repeats {
            return Some(Self { node, ..self });
        }
        let same = right.source == self.source;
        let repeats = is_leaf || (self.repeats && right.repeats);
        (same && repeats).then_some(Self {
            node,
            repeats: true,
            ..self
        })
    }
}

/// The regions of a difference. Each list is in the order of the chunks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Regions {
    pub(crate) first: Vec<Node>,
    pub(crate) shifted: Vec<Shift>,
}

impl Regions {
    /// Adds first-time occurrences behind all chunks so far. Joins neighbours to regions if `join` is true.
    pub(crate) fn push_first(&mut self, node: Node, join: bool) {
        let mut node = node;
        if join {
            while let Some(parent) = self.first.last().and_then(|left| left.joined(node)) {
                self.first.pop();
                node = parent;
            }
        }
        self.first.push(node);
    }

    /// Adds shifted duplicates behind all chunks so far.
    pub(crate) fn push_shift(&mut self, shift: Shift, join: bool) {
        let mut shift = shift;
        if join {
            while let Some(parent) = self.shifted.last().and_then(|left| left.joined(shift)) {
                self.shifted.pop();
                shift = parent;
            }
        }
        self.shifted.push(shift);
    }

    /// Adds a chunk behind all chunks so far. A first-time occurrence has its own place as `source`.
    pub(crate) fn push(&mut self, own: Place, source: Place, join: bool) {
        let node = Node::leaf(own.chunk);
        if own == source {
            return self.push_first(node, join);
        }
        let repeats = false;
        self.push_shift(
            Shift {
                node,
                source,
                repeats,
            },
            join,
        );
    }

    /// Adds regions that follow all chunks so far.
    pub(crate) fn append(&mut self, other: Self, join: bool) {
        if !join {
            self.first.extend(other.first);
            self.shifted.extend(other.shifted);
            return;
        }
        for node in other.first {
            self.push_first(node, join);
        }
        for shift in other.shifted {
            self.push_shift(shift, join);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ordinal: u32, chunk: u32) -> Place {
        Place { ordinal, chunk }
    }

    fn regions(sources: &[Place]) -> Regions {
        let mut regions = Regions::default();
        for (source, chunk) in sources.iter().zip(0..) {
            regions.push(at(9, chunk), *source, true);
        }
        regions
    }

    #[test]
    fn figure_2_of_the_paper_has_three_regions() {
        // The leaves 7 … 14 in the paper are the chunks 0 … 7 here; leaf 11 is a fixed duplicate.
        let mut found = Regions::default();
        for chunk in 0..4 {
            found.push(at(1, chunk), at(1, chunk), true);
        }
        found.push(at(1, 5), at(0, 0), true);
        found.push(at(1, 6), at(1, 0), true);
        found.push(at(1, 7), at(1, 1), true);
        assert_eq!(found.first, [Node::named(4, 8).unwrap()]);
        let shifted: Vec<_> = found
            .shifted
            .iter()
            .map(|s| (s.node.first(), s.node.count()))
            .collect();
        assert_eq!(shifted, [(5, 1), (6, 2)]);
    }

    #[test]
    fn a_whole_checkpoint_that_comes_back_is_its_root() {
        let sources: Vec<_> = (0..8).map(|chunk| at(0, chunk)).collect();
        let found = regions(&sources);
        assert_eq!(found.shifted.len(), 1);
        assert_eq!(found.shifted[0].node.count(), 8);
    }

    #[test]
    fn a_repeated_chunk_is_a_region_and_does_not_mix_with_a_run() {
        let found = regions(&[at(0, 5); 4]);
        assert_eq!(found.shifted.len(), 1);
        assert!(found.shifted[0].repeats);
        let mixed = regions(&[at(0, 5), at(0, 5), at(0, 5), at(0, 6)]);
        let counts: Vec<_> = mixed
            .shifted
            .iter()
            .map(|s| (s.node.count(), s.repeats))
            .collect();
        assert_eq!(counts, [(2, true), (2, false)]);
    }
}
