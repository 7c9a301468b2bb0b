use alloc::vec::Vec;
use core::ops::Range;

use crate::Window;

/// The largest number of bytes that a cache, and so a list of candidates, may span.
///
/// Half of what a `u64` holds, so that an offset plus a size never overflows.
pub const MAX_CAPACITY: u64 = u64::MAX / 2;

/// The longest wait that policies tell apart, in nanoseconds (18 minutes); longer ones count as this.
///
/// The sum of the waits of 2^24 fragments then fits a `u64`: totals never wrap in a window.
pub const MAX_WAIT: u64 = (1 << 40) - 1;

/// Distance that a gap adds to an `s_score`: more than any copy, as gaps "have the highest eviction priority" (HPDC'23,
/// §4.1.6).
pub const GAP_DISTANCE: u64 = 1 << 32;

/// Distance that an unhinted copy adds to an `s_score`: more than any hinted copy, less than a gap.
pub const UNHINTED_DISTANCE: u64 = GAP_DISTANCE - 1;

/// How far a copy is from being restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Distance {
    /// The prefetch distance: the number of hints before this one in the restore order. Distances from 2^32 − 2 on
    /// count as equal.
    At(u64),
    /// No hint names it: farther than every hinted copy.
    Unhinted,
}

impl Distance {
    /// Returns the amount that the copy adds to an `s_score`.
    #[must_use]
    pub const fn value(self) -> u64 {
        match self {
            Self::At(distance) if distance < UNHINTED_DISTANCE => distance,
            Self::At(_) => UNHINTED_DISTANCE - 1,
            Self::Unhinted => UNHINTED_DISTANCE,
        }
    }
}

/// The forecast of a cached copy: all that a policy may know about the copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Outlook {
    /// Nanoseconds until the copy is evictable, at most [`MAX_WAIT`]: `Some(0)` is now. `None` if no end is in sight
    /// (pinned, or being filled); a window never holds such a copy.
    pub evictable_in: Option<u64>,
    /// Distance of the copy from being restored.
    pub distance: Distance,
    /// Logical time at which the copy came into this cache; FIFO evicts the smallest.
    pub written: u64,
    /// Logical time of the copy's last use; LRU evicts the smallest.
    pub used: u64,
}

/// A policy's view of one fragment of a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Candidate {
    /// Bytes from the start of the cache.
    pub offset: u64,
    /// Bytes.
    pub size: u64,
    /// The copy that lies there; `None` is a gap.
    pub occupant: Option<Outlook>,
}

/// The border between two fragments, with the totals of everything to the left of it.
///
/// A window's sums are the differences between its two borders. Nothing is added and subtracted again while a window
/// slides, so nothing drifts. The totals may wrap; the differences do not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Border {
    pub(crate) offset: u64,
    /// Sum of the waits; a copy that is never evictable counts [`MAX_WAIT`] here.
    pub(crate) wait: u64,
    /// Sum of the distances.
    pub(crate) distance: u64,
    /// Number of copies that are never evictable. An infinite wait is counted, never summed.
    pub(crate) nevers: u64,
}

impl Border {
    /// The border behind a fragment that begins at this one.
    #[inline(always)]
    fn after(self, size: u64, occupant: &Option<Outlook>, traits: &Traits) -> Self {
        let (wait, nevers) = match occupant {
            None => (0, 0),
            Some(copy) => match copy.evictable_in {
                None => (MAX_WAIT, 1),
                Some(wait) => (wait.min(MAX_WAIT), 0),
            },
        };
        Self {
            offset: self.offset.saturating_add(size).min(MAX_CAPACITY),
            wait: self.wait.wrapping_add(wait),
            distance: self.distance.wrapping_add(traits.distance),
            nevers: self.nevers.wrapping_add(nevers),
        }
    }
}

/// Facts about one fragment besides its borders, for policies; 0 in gaps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Traits {
    pub(crate) written: u64,
    pub(crate) used: u64,
    /// Distance that the fragment adds to an `s_score`; gaps have one too.
    pub(crate) distance: u64,
}

impl Traits {
    #[inline(always)]
    fn of(occupant: &Option<Outlook>) -> Self {
        match occupant {
            None => Self {
                distance: GAP_DISTANCE,
                ..Self::default()
            },
            Some(copy) => Self {
                written: copy.written,
                used: copy.used,
                distance: copy.distance.value(),
            },
        }
    }
}

/// The fragments of one cache in offset order, laid out for policies to run over.
///
/// Cleared candidates keep their memory, so one value serves any number of choices. If few fragments change between two
/// choices, update those alone ([`replace`](Self::replace)).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidates {
    /// Borders of the fragments, in offset order: one more than there are fragments.
    pub(crate) borders: Vec<Border>,
    /// Facts about each fragment, in offset order.
    pub(crate) traits: Vec<Traits>,
}

impl Default for Candidates {
    fn default() -> Self {
        Self::new()
    }
}

impl Candidates {
    /// Makes a list without fragments.
    #[must_use]
    pub fn new() -> Self {
        Self {
            borders: alloc::vec![Border::default()],
            traits: Vec::new(),
        }
    }

    /// Forgets every fragment and keeps the memory.
    pub fn clear(&mut self) {
        self.borders.truncate(1);
        self.traits.clear();
    }

    /// Appends the fragment that lies right after the last one; `None` is a gap.
    ///
    /// Two gaps must not follow one another: push their sum. Bytes beyond [`MAX_CAPACITY`] are cut
    /// off.
    pub fn push(&mut self, size: u64, occupant: Option<Outlook>) {
        self.extend(core::iter::once((size, occupant)));
    }

    /// [Appends](Self::push) many fragments, given as sizes and occupants. Much faster than many calls of `push`.
    pub fn extend<I>(&mut self, fragments: I)
    where
        I: IntoIterator<Item = (u64, Option<Outlook>), IntoIter: ExactSizeIterator>,
    {
        let fragments = fragments.into_iter();
        let (before, count) = (self.len(), fragments.len());
        // A total read back from memory would be waited for, so the loop carries it along.
        let mut border = self.borders.last().copied().unwrap_or_default();
        self.borders.resize(1 + before + count, border);
        self.traits.resize(before + count, Traits::default());
        let places = self.borders[1 + before..].iter_mut();
        let places = places.zip(&mut self.traits[before..]);
        for ((size, occupant), (end, traits)) in fragments.zip(places) {
            *traits = Traits::of(&occupant);
            border = border.after(size, &occupant, traits);
            *end = border;
        }
    }

    /// Replaces the fragments `others` by `fragments`. If fragments lie behind, they keep their offsets, so the new
    /// fragments must have as many bytes as the old ones.
    ///
    /// # Panics
    /// If `others` reaches beyond the last fragment.
    pub fn replace<I>(&mut self, others: Range<usize>, fragments: I)
    where
        I: IntoIterator<Item = (u64, Option<Outlook>), IntoIter: ExactSizeIterator + Clone>,
    {
        let fragments = fragments.into_iter();
        if others.end == self.len() {
            self.borders.truncate(others.start + 1);
            self.traits.truncate(others.start);
            return self.extend(fragments);
        }
        let count = fragments.len();
        let was = self.borders[others.end];
        let mut border = self.borders[others.start];
        let borders = fragments.clone().map(|(size, occupant)| {
            border = border.after(size, &occupant, &Traits::of(&occupant));
            border
        });
        self.borders.splice(others.start + 1..=others.end, borders);
        let traits = fragments.map(|(_, occupant)| Traits::of(&occupant));
        self.traits.splice(others.clone(), traits);

        let now = border;
        debug_assert_eq!(now.offset, was.offset, "those behind would have to move");
        let (wait, distance, nevers) = (
            now.wait.wrapping_sub(was.wait),
            now.distance.wrapping_sub(was.distance),
            now.nevers.wrapping_sub(was.nevers),
        );
        for behind in &mut self.borders[others.start + count + 1..] {
            behind.wait = behind.wait.wrapping_add(wait);
            behind.distance = behind.distance.wrapping_add(distance);
            behind.nevers = behind.nevers.wrapping_add(nevers);
        }
    }

    /// Returns the number of fragments that begin before `offset`.
    #[must_use]
    pub fn before(&self, offset: u64) -> usize {
        let borders = &self.borders[..self.len()];
        borders.partition_point(|border| border.offset < offset)
    }

    /// Number of fragments, gaps included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.traits.len()
    }

    /// Returns true if there are no fragments.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.traits.is_empty()
    }

    /// The bytes of all fragments together.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.borders.last().map_or(0, |border| border.offset)
    }

    /// The bytes of the largest gap; 0 where there is none. O(N).
    #[must_use]
    pub fn largest_gap(&self) -> u64 {
        let sizes = self.gaps().map(|(_, size)| size);
        sizes.max().unwrap_or(0)
    }

    /// Returns the fragment at `index`, with waits and distances as policies count them.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<Candidate> {
        let &Traits {
            written,
            used,
            distance,
        } = self.traits.get(index)?;
        let &[left, right] = self.borders.get(index..)?.first_chunk()?;
        let occupant = match distance {
            GAP_DISTANCE => None,
            distance => Some(Outlook {
                evictable_in: (left.nevers == right.nevers)
                    .then(|| right.wait.wrapping_sub(left.wait)),
                distance: match distance {
                    UNHINTED_DISTANCE => Distance::Unhinted,
                    hinted => Distance::At(hinted),
                },
                written,
                used,
            }),
        };
        Some(Candidate {
            offset: left.offset,
            size: right.offset - left.offset,
            occupant,
        })
    }

    /// The fragments in offset order.
    pub fn iter(&self) -> impl Iterator<Item = Candidate> + '_ {
        (0..self.len()).filter_map(|index| self.get(index))
    }

    /// Returns the window of the fragments `first..last` with its scores. `None` if it is empty, reaches beyond the
    /// last fragment, or holds a copy that is never evictable.
    #[must_use]
    pub fn window(&self, first: usize, last: usize) -> Option<Window> {
        let (left, right) = (self.borders.get(first)?, self.borders.get(last)?);
        if first >= last || left.nevers != right.nevers {
            return None;
        }
        Some(Window {
            first,
            last,
            offset: left.offset,
            span: right.offset - left.offset,
            p_score: right.wait.wrapping_sub(left.wait),
            s_score: right.distance.wrapping_sub(left.distance),
        })
    }

    /// Returns the gap of lowest offset that holds `size` bytes. O(N).
    #[must_use]
    pub fn first_gap(&self, size: u64) -> Option<Window> {
        if size == 0 {
            return None;
        }
        let (index, _) = self.gaps().find(|&(_, bytes)| bytes >= size)?;
        self.window(index, index + 1)
    }

    /// Indices and sizes of the gaps.
    fn gaps(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        let traits = self.traits.iter().enumerate();
        let gaps = traits.filter(|(_, traits)| traits.distance == GAP_DISTANCE);
        gaps.map(|(index, _)| {
            let size = self.borders[index + 1].offset - self.borders[index].offset;
            (index, size)
        })
    }
}
