//! Chunks of a checkpoint, and the regions of chunks that have names.

use std::ops::Range;

use crate::error::{Invalid, Result};

/// A checkpoint of `len` bytes in chunks of `chunk` bytes. The last chunk may be shorter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) len: u64,
    pub(crate) chunk: u32,
    /// Number of chunks, at most 2^31.
    pub(crate) count: u32,
}

impl Layout {
    pub(crate) fn new(len: u64, chunk: u32) -> Result<Self> {
        if len == 0 {
            return Err(Invalid::Empty.into());
        }
        let count = len.div_ceil(u64::from(chunk));
        match u32::try_from(count) {
            Ok(count) if count <= 1 << 31 => Ok(Self { len, chunk, count }),
            _ => Err(Invalid::TooManyChunks { len, chunk }.into()),
        }
    }

    /// Returns the range of the bytes of chunks `first..first + count`.
    pub(crate) fn bytes(&self, first: u32, count: u32) -> Range<usize> {
        let at = |chunk: u64| (chunk * u64::from(self.chunk)).min(self.len) as usize;
        at(first.into())..at(u64::from(first) + u64::from(count))
    }

    pub(crate) fn chunk_bytes(&self) -> usize {
        self.chunk as usize
    }

    /// Returns true if the chunk is the last one, and shorter than the others.
    pub(crate) fn is_short(&self, chunk: u32) -> bool {
        chunk == self.count - 1 && !self.len.is_multiple_of(u64::from(self.chunk))
    }
}

/// A node of the binary tree over the chunks: `2^level` chunks, starting at a multiple of `2^level`. Only nodes whose
/// chunks all exist have a name, so the number of chunks is arbitrary.
///
/// The name is the node's number in an in-order walk over the tree, in which leaves have the numbers 1, 3, 5 …: twice the
/// first chunk, plus the number of chunks. The lowest set bit of a name gives the level. Names of disjoint nodes have the
/// order of their chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Node(pub(crate) u32);

impl Node {
    pub(crate) fn leaf(chunk: u32) -> Self {
        Self(2 * chunk + 1)
    }

    /// Returns the number of chunks.
    pub(crate) fn count(self) -> u32 {
        self.0 & self.0.wrapping_neg()
    }

    pub(crate) fn first(self) -> u32 {
        (self.0 - self.count()) / 2
    }

    /// Returns the end of the node: the chunk behind its last one.
    pub(crate) fn end(self) -> u32 {
        self.first() + self.count()
    }

    /// Returns the parent, if `right` is this node's right sibling.
    pub(crate) fn joined(self, right: Self) -> Option<Self> {
        let count = self.count();
        let is_left = self.first() & count == 0;
        (is_left && right.0.checked_sub(self.0) == Some(2 * count) && right.count() == count)
            .then(|| Self(self.0 + count))
    }

    /// Returns the node with this name, if all of its chunks exist.
    pub(crate) fn named(name: u32, chunks: u32) -> Option<Self> {
        let node = Self(name);
        let end = u64::from(name.checked_sub(node.count())?) / 2 + u64::from(node.count());
        (name != 0 && end <= u64::from(chunks)).then_some(node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_chunks_end_with_the_checkpoint() {
        let layout = Layout::new(100, 32).unwrap();
        assert_eq!(layout.count, 4);
        assert_eq!(layout.bytes(3, 1), 96..100);
        assert_eq!(layout.bytes(0, 4), 0..100);
        assert!(layout.is_short(3) && !layout.is_short(2));
        assert!(Layout::new(0, 32).is_err());
        assert_eq!(Layout::new(1 << 36, 32).unwrap().count, 1 << 31);
        assert!(Layout::new((1 << 36) + 1, 32).is_err());
    }

    #[test]
    fn nodes_are_named_in_order() {
        let (a, b) = (Node::leaf(2), Node::leaf(3));
        let parent = a.joined(b).unwrap();
        assert_eq!((parent.first(), parent.count(), parent.end()), (2, 2, 4));
        assert_eq!(parent.0, 6);
        assert_eq!(Node::leaf(1).joined(a), None, "no siblings");
        assert_eq!(a.joined(Node::leaf(4)), None);
        assert_eq!(a.joined(parent), None);
        assert_eq!(Node::named(6, 4), Some(parent));
        assert_eq!(Node::named(6, 3), None, "a chunk is missing");
        assert_eq!(Node::named(0, 4), None);
        assert_eq!(
            Node::named(u32::MAX, 1 << 31),
            Some(Node::leaf((1 << 31) - 1))
        );
        assert_eq!(Node::named(1 << 31, 1 << 31).unwrap().count(), 1 << 31);
    }
}
