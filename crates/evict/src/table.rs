mod view;

use alloc::vec::Vec;
use core::hash::Hash;
use core::ops::Range;

use hashbrown::HashMap;
use hashbrown::hash_map::Entry;

use crate::gaps::Gaps;
use crate::{MAX_CAPACITY, TableError};

/// The place of a copy in a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Slot {
    /// Bytes from the start of the cache; a multiple of the alignment.
    pub offset: u64,
    /// Bytes of the copy.
    pub size: u64,
    /// Bytes that the copy occupies: `size` rounded up to a multiple of the alignment.
    pub reserved: u64,
}

/// A stretch of a cache: one copy, or one gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fragment<K> {
    /// Bytes from the start of the cache; a multiple of the alignment.
    pub offset: u64,
    /// Bytes; a multiple of the alignment, and never 0.
    pub size: u64,
    /// The copy that lies there; `None` is a gap.
    pub occupant: Option<K>,
    /// Number of the copy's seat: an index for arrays in which the owner keeps facts about copies. Seats are the
    /// smallest numbers; each belongs to one copy for as long as the copy stays. 0 in gaps.
    pub seat: u32,
}

/// The occupied bytes of one contiguous cache, and the copy in each of them (the allocation table *A* of HPDC'23,
/// §4.2).
///
/// Fragments tile the capacity in offset order, and two gaps are never neighbours. The table records and decides
/// nothing: a [`Policy`](crate::Policy) chooses a window; the owner of the cache removes its copies one by one as they
/// may be evicted, and then inserts the new copy where the window began.
///
/// A cache may be limited to its first bytes ([`set_limit`](Self::set_limit)). Nothing is inserted beyond the limit and
/// no policy sees the copies there. Once the owner has removed them, the memory can be given away.
///
/// `N` is the number of fragments: [`get`](Self::get) takes O(1); [`insert`](Self::insert) and
/// [`remove`](Self::remove) take O(log N) and a move of the fragments behind, which for some 10 000
/// is a few µs. Memory is in proportion to `N`, whatever the capacity.
#[derive(Clone, Debug)]
pub struct AllocationTable<K> {
    /// In offset order. Not empty.
    fragments: Vec<Fragment<K>>,
    /// Slots by key. Offsets never change, so an insertion needs no repair here; binary search finds a fragment by its
    /// offset.
    slots: HashMap<K, Slot>,
    capacity: u64,
    alignment: u64,
    used: u64,
    /// Bytes from the start that copies may be put into; a multiple of the alignment.
    limit: u64,
    /// Bytes of `used` within the limit.
    used_within: u64,
    gaps: Gaps,
    /// Seats of removed copies, to be used again.
    free_seats: Vec<u32>,
    /// Range outside which every fragment is as it was at the last call of `take_changed`.
    changed: Range<u64>,
}

impl<K: Copy + Eq + Hash> AllocationTable<K> {
    /// Makes an empty cache of `capacity` bytes, rounded down to a multiple of `alignment` (bytes; any number but 0).
    ///
    /// # Errors
    ///
    /// [`TableError::BadCapacity`] if the alignment is 0, or if the capacity is smaller than the
    /// alignment or above [`MAX_CAPACITY`].
    pub fn new(capacity: u64, alignment: u64) -> Result<Self, TableError> {
        if alignment == 0 || capacity < alignment || capacity > MAX_CAPACITY {
            return Err(TableError::BadCapacity {
                capacity,
                alignment,
            });
        }
        let capacity = capacity - capacity % alignment;
        let whole = Fragment {
            offset: 0,
            size: capacity,
            occupant: None,
            seat: 0,
        };
        let mut gaps = Gaps::default();
        gaps.replace(0..capacity, core::iter::once(0..capacity));
        Ok(Self {
            fragments: alloc::vec![whole],
            slots: HashMap::new(),
            capacity,
            alignment,
            used: 0,
            limit: capacity,
            used_within: 0,
            gaps,
            free_seats: Vec::new(),
            changed: 0..capacity,
        })
    }

    /// Returns the bytes that a copy of `size` bytes occupies: `size` rounded up to a multiple of the alignment, or
    /// `u64::MAX` if that does not fit. Ask a policy for this size.
    #[must_use]
    pub fn reserved(&self, size: u64) -> u64 {
        size.div_ceil(self.alignment).saturating_mul(self.alignment)
    }

    /// Puts a copy of `size` bytes at `offset`, into a gap.
    ///
    /// # Errors
    ///
    /// Nothing changes on any of them:
    /// - [`TableError::ZeroSize`], [`TableError::TooLarge`]: the copy can never be inserted;
    /// - [`TableError::Duplicate`]: `key` is in the table already;
    /// - [`TableError::Misaligned`], [`TableError::NotAGap`], [`TableError::BeyondLimit`]: the copy cannot be inserted
    ///   there.
    pub fn insert(&mut self, offset: u64, key: K, size: u64) -> Result<Slot, TableError> {
        let reserved = self.reserved(size);
        if size == 0 {
            return Err(TableError::ZeroSize);
        }
        if reserved > self.capacity {
            return Err(TableError::TooLarge {
                size,
                capacity: self.capacity,
            });
        }
        if !offset.is_multiple_of(self.alignment) {
            return Err(TableError::Misaligned {
                offset,
                alignment: self.alignment,
            });
        }
        // Without a free seat, all seats below the number of copies are taken.
        let copies = u32::try_from(self.slots.len()).unwrap_or(u32::MAX);
        let Entry::Vacant(vacancy) = self.slots.entry(key) else {
            return Err(TableError::Duplicate);
        };

        let index = index_of(&self.fragments, offset);
        let gap = self.fragments[index];
        let before = offset - gap.offset;
        let Some(after) = gap
            .size
            .checked_sub(before)
            .and_then(|room| room.checked_sub(reserved))
        else {
            return Err(TableError::NotAGap { offset, reserved });
        };
        if gap.occupant.is_some() {
            return Err(TableError::NotAGap { offset, reserved });
        }
        if offset + reserved > self.limit {
            let limit = self.limit;
            return Err(TableError::BeyondLimit {
                offset,
                reserved,
                limit,
            });
        }

        let pieces = [
            Fragment {
                offset: gap.offset,
                size: before,
                occupant: None,
                seat: 0,
            },
            Fragment {
                offset,
                size: reserved,
                occupant: Some(key),
                seat: self.free_seats.pop().unwrap_or(copies),
            },
            Fragment {
                offset: offset + reserved,
                size: after,
                occupant: None,
                seat: 0,
            },
        ];
        self.fragments.splice(
            index..=index,
            pieces.into_iter().filter(|piece| piece.size > 0),
        );
        let gap = gap.offset..gap.offset + gap.size;
        let left = [gap.start..offset, offset + reserved..gap.end];
        self.gaps.replace(gap.clone(), left);
        self.used += reserved;
        self.used_within += reserved;
        let slot = *vacancy.insert(Slot {
            offset,
            size,
            reserved,
        });
        self.change(gap);
        Ok(slot)
    }

    /// Removes the copy of `key`. Its bytes become one gap with the gaps beside them.
    ///
    /// # Errors
    ///
    /// [`TableError::Unknown`] if `key` is not in the table.
    pub fn remove(&mut self, key: &K) -> Result<Slot, TableError> {
        let slot = self.slots.remove(key).ok_or(TableError::Unknown)?;
        let index = index_of(&self.fragments, slot.offset);
        let is_gap = |index: usize| {
            self.fragments
                .get(index)
                .is_some_and(|f| f.occupant.is_none())
        };
        let first = if index > 0 && is_gap(index - 1) {
            index - 1
        } else {
            index
        };
        let last = if is_gap(index + 1) { index + 1 } else { index };

        let end = self.fragments[last].offset + self.fragments[last].size;
        self.free_seats.push(self.fragments[index].seat);
        let gap = &mut self.fragments[first];
        gap.occupant = None;
        gap.seat = 0;
        gap.size = end - gap.offset;
        let gap = gap.offset..end;
        self.gaps.replace(gap.clone(), [gap.clone()]);
        self.change(gap);
        self.fragments.drain(first + 1..=last);
        self.used -= slot.reserved;
        self.used_within -= within(slot.offset, slot.reserved, self.limit);
        Ok(slot)
    }

    /// Cuts the copy of `key` down to its first `size` bytes; the bytes behind become a gap. A copy of at most `size`
    /// bytes stays as it is.
    ///
    /// # Errors
    ///
    /// [`TableError::Unknown`] if `key` is not in the table; [`TableError::ZeroSize`].
    pub fn shrink(&mut self, key: &K, size: u64) -> Result<Slot, TableError> {
        if size == 0 {
            return Err(TableError::ZeroSize);
        }
        let reserved = self.reserved(size);
        let slot = self.slots.get_mut(key).ok_or(TableError::Unknown)?;
        if size >= slot.size {
            return Ok(*slot);
        }
        let freed = slot.reserved - reserved;
        slot.size = size;
        slot.reserved = reserved;
        let slot = *slot;
        if freed > 0 {
            let end = slot.offset + reserved;
            let index = index_of(&self.fragments, slot.offset);
            self.fragments[index].size = reserved;
            let mut gap = end..end + freed;
            match self.fragments.get_mut(index + 1) {
                Some(next) if next.occupant.is_none() => {
                    next.offset = end;
                    next.size += freed;
                    gap.end = end + next.size;
                }
                _ => self.fragments.insert(
                    index + 1,
                    Fragment {
                        offset: end,
                        size: freed,
                        occupant: None,
                        seat: 0,
                    },
                ),
            }
            self.gaps.replace(gap.clone(), [gap.clone()]);
            self.change(slot.offset..gap.end);
            self.used -= freed;
            self.used_within -= within(end, freed, self.limit);
        }
        Ok(slot)
    }

    /// Returns the place of the copy of `key`.
    #[must_use]
    pub fn get(&self, key: &K) -> Option<Slot> {
        self.slots.get(key).copied()
    }

    /// The fragments in offset order; they tile `0..capacity()`.
    #[must_use]
    pub fn fragments(&self) -> &[Fragment<K>] {
        &self.fragments
    }

    /// Limits insertions to the first `bytes`, rounded down to the alignment and at most the capacity. Copies beyond
    /// the limit stay until the owner removes them ([`beyond_limit`](Self::beyond_limit)). O(N).
    pub fn set_limit(&mut self, bytes: u64) {
        let limit = bytes.min(self.capacity);
        self.limit = limit - limit % self.alignment;
        self.change(0..self.capacity);
        let occupied = self.fragments.iter().filter(|f| f.occupant.is_some());
        self.used_within = occupied.map(|f| within(f.offset, f.size, self.limit)).sum();
    }

    /// Bytes from the start that copies may be put into, a multiple of the alignment.
    #[must_use]
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Returns the copies that have bytes beyond the limit, in offset order.
    pub fn beyond_limit(&self) -> impl Iterator<Item = K> + '_ {
        // The fragment that begins last before the limit may reach across it.
        let first = self.fragments.partition_point(|f| f.offset < self.limit);
        let from = first.saturating_sub(1);
        let fragments = self.fragments[from..].iter();
        fragments
            .filter(|f| f.offset + f.size > self.limit)
            .filter_map(|f| f.occupant)
    }

    /// The index of the fragment in which the copy of `key` lies. O(log N).
    #[must_use]
    pub fn index_of(&self, key: &K) -> Option<usize> {
        let slot = self.slots.get(key)?;
        Some(index_of(&self.fragments, slot.offset))
    }

    /// Adds `bytes`, which begin and end between two fragments, to the changed range.
    fn change(&mut self, bytes: Range<u64>) {
        self.changed = if self.changed.is_empty() {
            bytes
        } else {
            self.changed.start.min(bytes.start)..self.changed.end.max(bytes.end)
        };
    }

    /// Bytes in all, a multiple of the alignment.
    #[must_use]
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Bytes of which every offset and every reserved size is a multiple.
    #[must_use]
    pub fn alignment(&self) -> u64 {
        self.alignment
    }

    /// Number of copies.
    #[must_use]
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Returns true if there are no copies.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Bytes that copies occupy, rounding to the alignment included.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.used
    }

    /// Bytes in gaps, within the limit.
    #[must_use]
    pub fn free(&self) -> u64 {
        self.limit - self.used_within
    }

    /// Returns the offset of the lowest gap that holds `reserved` bytes within the limit. Every policy chooses this gap
    /// if there is one, whatever is known of the copies. O(G) for G gaps.
    #[must_use]
    pub fn first_gap(&self, reserved: u64) -> Option<u64> {
        self.gaps
            .before(self.limit)
            .find(|&(_, size)| size >= reserved)
            .map(|(offset, _)| offset)
    }

    /// Bytes of the largest gap within the limit; 0 in a full cache. O(G) for G gaps.
    #[must_use]
    pub fn largest_gap(&self) -> u64 {
        let sizes = self.gaps.before(self.limit).map(|(_, size)| size);
        sizes.max().unwrap_or(0)
    }
}

/// Returns how many of the `size` bytes from `offset` on lie before `limit`.
fn within(offset: u64, size: u64, limit: u64) -> u64 {
    limit.saturating_sub(offset).min(size)
}

/// Returns the index of the fragment that holds `offset`, or of the last one if `offset` is beyond the capacity.
fn index_of<K>(fragments: &[Fragment<K>], offset: u64) -> usize {
    // The first fragment begins at 0, so at least one begins at or before any offset.
    fragments.partition_point(|fragment| fragment.offset <= offset) - 1
}
