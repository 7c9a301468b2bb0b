use alloc::vec::Vec;

use crate::Window;

/// The largest number of bytes that a cache, and so a list of candidates, may span.
///
/// Half of what a `u64` holds, so that an offset plus a size never overflows.
pub const MAX_CAPACITY: u64 = u64::MAX / 2;

/// The longest wait that policies tell apart, in nanoseconds (18 minutes). Longer waits count as this one.
///
/// The sum of the waits of 2^24 fragments then fits a `u64`: totals never wrap in a window.
pub const MAX_WAIT: u64 = (1 << 40) - 1;

/// Distance that a gap adds to an `s_score`: more than any copy, as gaps "have the highest eviction priority" (HPDC'23,
/// §4.1.6).
pub const GAP_DISTANCE: u64 = 1 << 32;

/// Distance that an unhinted copy adds to an `s_score`: more than any hinted copy, less than a gap.
pub const UNHINTED_DISTANCE: u64 = GAP_DISTANCE - 1;

/// The distance of a copy from being restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Distance {
    /// The prefetch distance: the number of hints before this one in the restore order. Distances from 2^32 − 2 on
    /// count as equal.
    At(u64),
    /// No hint names the copy, which counts as farther than every hinted copy.
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
}

/// A policy's view of one fragment of a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Candidate {
    /// Bytes from the start of the cache.
    pub offset: u64,
    /// Bytes.
    pub size: u64,
    /// The copy in the fragment; `None` is a gap.
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
    /// Sum of the distances; gaps have one too.
    pub(crate) distance: u64,
    /// Number of copies that are never evictable. An infinite wait is counted, never summed.
    pub(crate) nevers: u64,
}

impl Border {
    /// Returns the border after a fragment that begins at this border.
    fn after(self, size: u64, occupant: Option<Outlook>) -> Self {
        let (wait, nevers) = match occupant.map(|copy| copy.evictable_in) {
            None => (0, 0),
            Some(None) => (MAX_WAIT, 1),
            Some(Some(wait)) => (wait.min(MAX_WAIT), 0),
        };
        let distance = occupant.map_or(GAP_DISTANCE, |copy| copy.distance.value());
        Self {
            offset: self.offset.saturating_add(size).min(MAX_CAPACITY),
            wait: self.wait.wrapping_add(wait),
            distance: self.distance.wrapping_add(distance),
            nevers: self.nevers.wrapping_add(nevers),
        }
    }
}

/// The fragments of one cache in offset order, laid out for policies to run over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidates {
    /// Borders of the fragments, in offset order: one more than there are fragments.
    pub(crate) borders: Vec<Border>,
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
        }
    }

    /// Appends a fragment right after the last one; `None` is a gap.
    ///
    /// Two gaps must not follow one another: push their sum. Bytes beyond [`MAX_CAPACITY`] are cut
    /// off.
    pub fn push(&mut self, size: u64, occupant: Option<Outlook>) {
        let last = self.borders.last().copied().unwrap_or_default();
        self.borders.push(last.after(size, occupant));
    }

    /// Returns the number of fragments, with gaps.
    #[must_use]
    pub fn len(&self) -> usize {
        self.borders.len() - 1
    }

    /// Returns true if there are no fragments.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the bytes of all fragments together.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.borders.last().map_or(0, |border| border.offset)
    }

    /// Returns the fragment at `index`, with waits and distances as policies count them.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<Candidate> {
        let window = self.window(index, index.checked_add(1)?);
        let &[left, right] = self.borders.get(index..)?.first_chunk()?;
        let distance = match right.distance.wrapping_sub(left.distance) {
            GAP_DISTANCE => None,
            UNHINTED_DISTANCE => Some(Distance::Unhinted),
            hinted => Some(Distance::At(hinted)),
        };
        Some(Candidate {
            offset: left.offset,
            size: right.offset - left.offset,
            occupant: distance.map(|distance| Outlook {
                evictable_in: window.map(|window| window.p_score),
                distance,
            }),
        })
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
        let mut windows = (0..self.len()).filter_map(|index| self.window(index, index + 1));
        windows.find(|one| size > 0 && one.span >= size && one.s_score == GAP_DISTANCE)
    }
}
