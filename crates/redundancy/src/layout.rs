//! Where the bytes of a set's parts lie in its stripes.
//!
//! A set of n members that bears the loss of p of them has n stripes. Of stripe s, members s, s + 1, … s + p - 1 (modulo n) keep
//! the parity, and the d = n - p others a segment of their part each: part i is cut into d segments of the same length, one for
//! each stripe whose parity member i does not keep. So every member keeps as much, and is in every stripe once.

use crate::Set;

/// Lengths of shards are multiples of this: the code's own unit.
const UNIT: u64 = 64;

/// What a member contributes to a stripe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// A segment of its part.
    Data {
        /// Its index among the stripe's data shards.
        shard: usize,
        /// Where the segment begins in the part.
        offset: u64,
        /// Its length; the shard's other bytes are 0.
        bytes: u64,
    },
    /// Parity that it keeps.
    Parity {
        /// Its index among the stripe's parity shards.
        shard: usize,
        /// Where it begins in the member's parity.
        offset: u64,
    },
}

/// The stripes of a set whose parts have certain lengths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    lengths: Vec<u64>,
    parity: usize,
}

impl Layout {
    /// `lengths`: bytes of each member's part, in the order of the set. `None` if they are not as many as the set has members, or if
    /// the set has no redundancy.
    #[must_use]
    pub fn new(set: &Set, lengths: Vec<u64>) -> Option<Self> {
        let fits = lengths.len() == set.members.len();
        let is_code = (1..set.members.len()).contains(&set.bears);
        let is_sane = lengths.iter().all(|bytes| *bytes <= u64::MAX >> 8);
        (fits && is_code && is_sane).then_some(Self {
            lengths,
            parity: set.bears,
        })
    }

    /// Members of the set, and its stripes.
    #[must_use]
    pub fn members(&self) -> usize {
        self.lengths.len()
    }

    /// Data shards of a stripe.
    #[must_use]
    pub fn data(&self) -> usize {
        self.members() - self.parity
    }

    /// Parity shards of a stripe, and how many members may be lost.
    #[must_use]
    pub fn parity(&self) -> usize {
        self.parity
    }

    fn segment(&self, member: usize) -> u64 {
        let bytes = self.lengths.get(member).copied().unwrap_or_default();
        bytes.div_ceil(self.data() as u64)
    }

    /// The member whose place in a stripe is this: parity shards first.
    fn member(&self, stripe: usize, position: usize) -> usize {
        (stripe + position) % self.members()
    }

    /// The member that keeps a parity shard of a stripe.
    #[must_use]
    pub fn parity_member(&self, stripe: usize, shard: usize) -> usize {
        self.member(stripe, shard)
    }

    /// The member that has a data shard of a stripe.
    #[must_use]
    pub fn data_member(&self, stripe: usize, shard: usize) -> usize {
        self.member(stripe, self.parity + shard)
    }

    /// Bytes of each shard of a stripe.
    #[must_use]
    pub fn shard_bytes(&self, stripe: usize) -> u64 {
        let shards = (0..self.data()).map(|shard| self.data_member(stripe, shard));
        let longest = shards.map(|member| self.segment(member)).max();
        longest.unwrap_or_default().next_multiple_of(UNIT)
    }

    /// What a member contributes to a stripe.
    #[must_use]
    pub fn place(&self, stripe: usize, member: usize) -> Place {
        let members = self.members();
        let position = (member + members - stripe % members) % members;
        match position.checked_sub(self.parity) {
            None => {
                // Stripes in which the member keeps an earlier parity shard.
                let before = (0..position).map(|shard| (member + members - shard) % members);
                Place::Parity {
                    shard: position,
                    offset: before.map(|stripe| self.shard_bytes(stripe)).sum(),
                }
            }
            Some(shard) => {
                let total = self.lengths.get(member).copied().unwrap_or_default();
                let length = self.segment(member);
                let offset = (shard as u64 * length).min(total);
                Place::Data {
                    shard,
                    offset,
                    bytes: length.min(total - offset),
                }
            }
        }
    }

    /// Bytes of parity that a member keeps.
    #[must_use]
    pub fn parity_bytes(&self, member: usize) -> u64 {
        let members = self.members();
        let stripes = (0..self.parity).map(|shard| (member + members - shard) % members);
        stripes.map(|stripe| self.shard_bytes(stripe)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Member;
    use proptest::prelude::*;

    fn set(members: usize, bears: usize) -> Set {
        let member = |rank| Member {
            rank,
            node: format!("n{rank}"),
        };
        Set {
            members: (0..members as u32).map(member).collect(),
            bears,
        }
    }

    proptest! {
        #[test]
        fn every_byte_is_in_one_stripe_and_every_member_in_each(
            lengths in proptest::collection::vec(0_u64..5_000, 2..12),
            bears in 1_usize..4,
        ) {
            let bears = bears.min(lengths.len() - 1);
            let set = set(lengths.len(), bears);
            let layout = Layout::new(&set, lengths.clone()).unwrap();
            for (member, &length) in lengths.iter().enumerate() {
                let (mut covered, mut parity) = (Vec::new(), Vec::new());
                for stripe in 0..lengths.len() {
                    let shard_bytes = layout.shard_bytes(stripe);
                    match layout.place(stripe, member) {
                        Place::Data { shard, offset, bytes } => {
                            prop_assert_eq!(layout.data_member(stripe, shard), member);
                            prop_assert!(bytes <= shard_bytes);
                            covered.push((offset, bytes));
                        }
                        Place::Parity { shard, offset } => {
                            prop_assert_eq!(layout.parity_member(stripe, shard), member);
                            parity.push((offset, shard_bytes));
                        }
                    }
                }
                for (mut pieces, total) in [(covered, length), (parity, layout.parity_bytes(member))] {
                    pieces.sort_unstable();
                    let end = pieces.iter().fold(0, |end, (offset, bytes)| {
                        assert_eq!(*offset, end);
                        end + bytes
                    });
                    prop_assert_eq!(end, total);
                }
            }
        }
    }

    #[test]
    fn a_copy_costs_what_it_copies() {
        let layout = Layout::new(&set(2, 1), vec![6_400, 64]).unwrap();
        assert_eq!(
            (layout.parity_bytes(0), layout.parity_bytes(1)),
            (64, 6_400)
        );
        assert!(Layout::new(&set(2, 1), vec![1]).is_none());
        assert!(Layout::new(&set(1, 0), vec![1]).is_none());
    }
}
