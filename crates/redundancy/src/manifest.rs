//! What the members of a set know of each other's bytes.

use crate::Set;
use std::io::Read;
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

const MAGIC: u64 = u64::from_le_bytes(*b"TFREDUN1");

/// Length and checksum of some bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Digest {
    /// How many there are.
    pub bytes: u64,
    /// XXH3 of them.
    pub hash: u64,
}

impl Digest {
    /// Of all that can be read.
    ///
    /// # Errors
    /// What reading says.
    pub fn of(mut from: impl Read) -> std::io::Result<Self> {
        let (mut hash, mut bytes) = (Xxh3::new(), 0);
        let mut buffer = vec![0; crate::CHUNK];
        loop {
            match from.read(&mut buffer) {
                Ok(0) => break,
                Ok(read) => {
                    hash.update(buffer.get(..read).unwrap_or_default());
                    bytes += read as u64;
                }
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Self {
            bytes,
            hash: hash.digest(),
        })
    }
}

/// What a set protected of a version: every member keeps it, so that each knows what another lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manifest {
    /// The version.
    pub version: u64,
    /// How many members may be lost.
    pub bears: usize,
    /// Each member's rank, its part and the parity that it keeps, in the order of the set.
    pub members: Vec<(u32, Digest, Digest)>,
}

impl Manifest {
    /// Whether it is of these members, in this order.
    #[must_use]
    pub fn is_of(&self, set: &Set) -> bool {
        let ranks = self.members.iter().map(|(rank, ..)| *rank);
        self.bears == set.bears && ranks.eq(set.members.iter().map(|member| member.rank))
    }

    /// As bytes, with their own checksum.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut words = vec![
            MAGIC,
            self.version,
            self.bears as u64,
            self.members.len() as u64,
        ];
        for (rank, part, parity) in &self.members {
            words.extend([
                u64::from(*rank),
                part.bytes,
                part.hash,
                parity.bytes,
                parity.hash,
            ]);
        }
        let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        bytes.extend(xxh3_64(&bytes).to_le_bytes());
        bytes
    }

    /// What [`Manifest::encode`] wrote; `None` for anything else.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (content, hash) = bytes.split_last_chunk::<8>()?;
        if xxh3_64(content) != u64::from_le_bytes(*hash) || content.len() % 8 != 0 {
            return None;
        }
        let words = content
            .chunks_exact(8)
            .filter_map(|word| word.try_into().ok());
        let words: Vec<u64> = words.map(u64::from_le_bytes).collect();
        let ([magic, version, bears, count], members) = words.split_first_chunk()?;
        let fits = members.len() as u64 == count.checked_mul(5)?;
        if *magic != MAGIC || !fits {
            return None;
        }
        let digest = |bytes: u64, hash: u64| Digest { bytes, hash };
        let member = |words: &[u64]| match *words {
            [rank, bytes, hash, kept, kept_hash] => Some((
                u32::try_from(rank).ok()?,
                digest(bytes, hash),
                digest(kept, kept_hash),
            )),
            _ => None,
        };
        Some(Self {
            version: *version,
            bears: usize::try_from(*bears).ok()?,
            members: members.chunks_exact(5).map(member).collect::<Option<_>>()?,
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
            bears: 2,
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
        fn a_byte_that_changed_is_seen(at in 0_usize..280, by in 1_u8..) {
            let mut bytes = manifest().encode();
            let at = at % bytes.len();
            bytes[at] ^= by;
            prop_assert_eq!(Manifest::decode(&bytes), None);
        }
    }
}
