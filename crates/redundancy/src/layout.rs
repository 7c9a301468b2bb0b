//! The places of a set's parts in its rows.
//!
//! A set of n members that tolerates the loss of p of them has rows of n shards of the same length. In row r, the members r, r + 1, …
//! r + p - 1 (modulo n) store the parity shards. The data shards are the next bytes of the parts of the d = n - p other members. So every
//! member reads and writes its part and its parity from their starts to their ends, and stores and computes as much as the others.

use crate::{CHUNK, Set};

/// Unit of the lengths of shards, in bytes: the code takes multiples of it.
const UNIT: u64 = 64;

/// The shard of a row that a member has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// The next bytes of the member's part.
    Data {
        /// The shard's index among the row's data shards.
        shard: usize,
        /// The offset of the shard's first byte in the part.
        offset: u64,
        /// Bytes of the part in the shard. The shard's other bytes are 0.
        bytes: usize,
    },
    /// Parity that the member stores.
    Parity {
        /// The shard's index among the row's parity shards.
        shard: usize,
        /// The offset of the shard's first byte in the member's parity.
        offset: u64,
    },
}

/// The rows of a set whose parts have certain lengths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    lengths: Vec<u64>,
    parity: usize,
    /// Bytes of the longest shard.
    most: u64,
}

/// A shard of each member, all of the same length.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// The row's number. A row without bytes is left out, but counts.
    pub number: u64,
    /// Bytes of each shard.
    pub bytes: usize,
    places: Vec<Place>,
}

impl Row {
    /// Returns the shard that a member has.
    #[must_use]
    pub fn place(&self, member: usize) -> Option<Place> {
        self.places.get(member).copied()
    }
}

impl Layout {
    /// Makes the layout. `lengths` are the bytes of each member's part, in the order of the set. Returns `None` if there are not as many
    /// lengths as members, a length is 2⁵⁶ or more, or the set has no redundancy.
    #[must_use]
    pub fn new(set: &Set, lengths: Vec<u64>) -> Option<Self> {
        let fits = lengths.len() == set.members.len();
        let is_code = (1..set.members.len()).contains(&set.tolerates);
        let is_sane = lengths.iter().all(|bytes| *bytes <= u64::MAX >> 8);
        let longest = lengths.iter().copied().max().unwrap_or_default();
        let data = lengths.len().saturating_sub(set.tolerates).max(1) as u64;
        // Short shards spread the bytes of short parts over all members.
        let even = longest.div_ceil(data).next_multiple_of(UNIT);
        (fits && is_code && is_sane).then_some(Self {
            lengths,
            parity: set.tolerates,
            most: even.clamp(UNIT, CHUNK as u64),
        })
    }

    /// Returns the number of members of the set.
    #[must_use]
    pub fn members(&self) -> usize {
        self.lengths.len()
    }

    /// Returns the number of data shards of a row.
    #[must_use]
    pub fn data(&self) -> usize {
        self.members() - self.parity
    }

    /// Returns the number of parity shards of a row: as many members may be lost.
    #[must_use]
    pub fn parity(&self) -> usize {
        self.parity
    }

    /// Returns the rows that have bytes, in their order.
    #[must_use]
    pub fn rows(&self) -> Rows<'_> {
        Rows {
            layout: self,
            number: 0,
            data: vec![0; self.members()],
            parity: vec![0; self.members()],
        }
    }

    /// Returns the member of a row's shard. Positions count parity shards first, then data shards.
    fn member(&self, row: u64, position: usize) -> usize {
        (self.first(row) + position) % self.members()
    }

    fn first(&self, row: u64) -> usize {
        usize::try_from(row % self.members() as u64).unwrap_or_default()
    }

    /// Returns the member that stores a parity shard of a row.
    #[must_use]
    pub fn parity_member(&self, row: u64, shard: usize) -> usize {
        self.member(row, shard)
    }

    /// Returns the member that has a data shard of a row.
    #[must_use]
    pub fn data_member(&self, row: u64, shard: usize) -> usize {
        self.member(row, self.parity + shard)
    }
}

/// The rows of a [`Layout`].
#[derive(Debug)]
pub struct Rows<'a> {
    layout: &'a Layout,
    number: u64,
    /// Bytes of each member's part in the rows before.
    data: Vec<u64>,
    /// Bytes of each member's parity in the rows before.
    parity: Vec<u64>,
}

impl Rows<'_> {
    fn row(&mut self) -> Row {
        let Layout {
            lengths,
            parity,
            most,
        } = self.layout;
        let (number, members) = (self.number, lengths.len());
        let first = self.layout.first(number);
        let mut longest = 0;
        let positions = (0..members).map(|member| (member + members - first) % members);
        let mut places = Vec::with_capacity(members);
        let offsets = lengths.iter().zip(&mut self.data).zip(&self.parity);
        for (position, ((length, data), parity_offset)) in positions.zip(offsets) {
            places.push(match position.checked_sub(*parity) {
                None => Place::Parity {
                    shard: position,
                    offset: *parity_offset,
                },
                Some(shard) => {
                    let (offset, bytes) = (*data, (*length - *data).min(*most));
                    *data += bytes;
                    longest = longest.max(bytes);
                    // `bytes` is at most `CHUNK`.
                    let bytes = bytes as usize;
                    Place::Data {
                        shard,
                        offset,
                        bytes,
                    }
                }
            });
        }
        let bytes = longest.next_multiple_of(UNIT);
        for (place, offset) in places.iter().zip(&mut self.parity) {
            if matches!(place, Place::Parity { .. }) {
                *offset += bytes;
            }
        }
        self.number += 1;
        Row {
            number,
            bytes: bytes as usize,
            places,
        }
    }
}

impl Iterator for Rows<'_> {
    type Item = Row;

    fn next(&mut self) -> Option<Row> {
        while self.data != self.layout.lengths {
            let row = self.row();
            if row.bytes > 0 {
                return Some(row);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Member;
    use proptest::prelude::*;

    fn set(members: usize, tolerates: usize) -> Set {
        let member = |rank| Member {
            rank,
            node: format!("n{rank}"),
        };
        Set {
            members: (0..members as u32).map(member).collect(),
            tolerates,
        }
    }

    /// Returns the bytes of each member's part and of its parity. Checks that both come from their starts to their ends.
    fn totals(layout: &Layout) -> Vec<(u64, u64)> {
        let mut totals = vec![(0, 0); layout.members()];
        for row in layout.rows() {
            assert!(row.bytes > 0 && row.bytes <= CHUNK && row.bytes.is_multiple_of(64));
            for (member, total) in totals.iter_mut().enumerate() {
                match row.place(member).unwrap() {
                    Place::Data {
                        shard,
                        offset,
                        bytes,
                    } => {
                        assert_eq!(layout.data_member(row.number, shard), member);
                        assert!(bytes <= row.bytes && offset == total.0);
                        total.0 += bytes as u64;
                    }
                    Place::Parity { shard, offset } => {
                        assert_eq!(layout.parity_member(row.number, shard), member);
                        assert_eq!(offset, total.1);
                        total.1 += row.bytes as u64;
                    }
                }
            }
        }
        totals
    }

    proptest! {
        #[test]
        fn every_byte_is_in_one_row_and_parts_go_from_their_starts_to_their_ends(
            lengths in proptest::collection::vec(0_u64..5_000_000, 2..12),
            tolerates in 1_usize..4,
        ) {
            let tolerates = tolerates.min(lengths.len() - 1);
            let layout = Layout::new(&set(lengths.len(), tolerates), lengths.clone()).unwrap();
            let parts = totals(&layout).into_iter().map(|(part, _)| part);
            prop_assert_eq!(parts.collect::<Vec<_>>(), lengths);
        }
    }

    #[test]
    fn parity_costs_what_it_has_to() {
        let costs = |tolerates, lengths: &[u64]| {
            let layout = Layout::new(&set(lengths.len(), tolerates), lengths.to_vec()).unwrap();
            let totals = totals(&layout).into_iter();
            totals.map(|(_, parity)| parity).collect::<Vec<_>>()
        };
        assert_eq!(costs(1, &[6_400, 64]), [64, 6_400]);
        assert_eq!(costs(1, &[300 * 64; 4]), [100 * 64; 4]);
        let whole = CHUNK as u64 * 40;
        assert_eq!(costs(2, &[whole; 10]), [whole / 4; 10]);
        assert!(Layout::new(&set(2, 1), vec![1]).is_none());
        assert!(Layout::new(&set(1, 0), vec![1]).is_none());
    }
}
