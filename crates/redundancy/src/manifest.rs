//! The manifest of a protected version: the checksums of the parts and the parity of a set's members.

use crate::wire::{Wire, Writer};
use crate::{Member, Set};
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

const MAGIC: u64 = u64::from_le_bytes(*b"TFREDUN3");

/// Length and checksum of some bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Digest {
    /// Number of bytes.
    pub bytes: u64,
    /// XXH3 hash of the bytes.
    pub hash: u64,
}

/// The state of a [`Digest`] that is computed of bytes in their order.
#[derive(Default)]
pub(crate) struct Digester {
    bytes: u64,
    hash: Xxh3,
}

impl Digester {
    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        self.hash.update(bytes);
    }

    pub(crate) fn finish(&self) -> Digest {
        Digest {
            bytes: self.bytes,
            hash: self.hash.digest(),
        }
    }
}

/// The lengths and checksums of the parts and the parity of a version. Every member stores the manifest, so that it knows what another
/// member lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manifest {
    /// The version.
    pub version: u64,
    /// The number of the application's start in which the version was protected, from 1. Of two manifests of a version, the one of the
    /// later start counts.
    pub start: u64,
    /// The number of members that may be lost at a time.
    pub tolerates: usize,
    /// The node of each member, in the order of the set.
    pub nodes: Vec<String>,
    /// Each member's rank, its part and the parity that it stores, in the order of the set.
    pub members: Vec<(u32, Digest, Digest)>,
}

impl Manifest {
    /// Returns true if the manifest is of the members of `set`, in this order, with as much parity.
    #[must_use]
    pub fn is_of(&self, set: &Set) -> bool {
        let ranks = self.members.iter().map(|(rank, ..)| *rank);
        self.tolerates == set.tolerates && ranks.eq(set.members.iter().map(|member| member.rank))
    }

    /// Returns the digest of the parity that a rank stores of the version; `None` if the rank is not of the set.
    #[must_use]
    pub fn parity_of(&self, rank: u32) -> Option<Digest> {
        let mut members = self.members.iter();
        let member = members.find(|(member, ..)| *member == rank);
        member.map(|(_, _, parity)| *parity)
    }

    /// Returns the set that protected the version.
    #[must_use]
    pub fn set(&self) -> Set {
        let members = self.members.iter().zip(&self.nodes);
        Set {
            members: members
                .map(|((rank, ..), node)| Member {
                    rank: *rank,
                    node: node.clone(),
                })
                .collect(),
            tolerates: self.tolerates,
        }
    }

    /// Returns the manifest as bytes, which end with their checksum.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let members = self.members.iter().zip(&self.nodes);
        let members = members.map(|((rank, part, parity), node)| {
            let (rank, node) = (*rank, node.clone());
            ((*part, *parity), Member { rank, node })
        });
        let mut to = Writer::default();
        ((MAGIC, self.version), (self.start, self.tolerates)).put(&mut to);
        members.collect::<Vec<_>>().put(&mut to);
        let hash = xxh3_64(&to.0);
        hash.put(&mut to);
        to.0
    }

    /// Decodes the bytes of [`Manifest::encode`]. Returns `None` for other bytes.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (content, hash) = bytes.split_last_chunk::<8>()?;
        if xxh3_64(content) != u64::from_le_bytes(*hash) {
            return None;
        }
        let (head, members) = Wire::decode(content)?;
        let ((MAGIC, version), (start, tolerates)) = head else {
            return None;
        };
        let members: Vec<((Digest, Digest), Member)> = members;
        let members = members.into_iter();
        let members = members.map(|((part, parity), one)| (one.node, (one.rank, part, parity)));
        let (nodes, members) = members.unzip();
        Some(Self {
            version,
            start,
            tolerates,
            nodes,
            members,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn manifest() -> Manifest {
        let digest = |n| Digest {
            bytes: n,
            hash: n * 7,
        };
        let member = |rank: u32| (rank, digest(u64::from(rank) + 1), digest(9));
        Manifest {
            version: 12,
            start: 4,
            tolerates: 2,
            nodes: (3..9).map(|rank| format!("node{rank}")).collect(),
            members: (3..9).map(member).collect(),
        }
    }

    #[test]
    fn what_is_written_is_read_and_nothing_cut_short() {
        let bytes = manifest().encode();
        assert_eq!(Manifest::decode(&bytes), Some(manifest()));
        for end in 0..bytes.len() {
            assert_eq!(Manifest::decode(&bytes[..end]), None);
        }
    }

    proptest! {
        #[test]
        fn a_byte_that_changed_is_seen(at in 0_usize..380, by in 1_u8..) {
            let mut bytes = manifest().encode();
            let at = at % bytes.len();
            bytes[at] ^= by;
            prop_assert_eq!(Manifest::decode(&bytes), None);
        }
    }
}
