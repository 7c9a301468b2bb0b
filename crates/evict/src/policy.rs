mod score;
mod windows;

pub use score::Score;

use crate::Candidates;

/// A run of neighbouring fragments that make room once their copies are evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Window {
    /// Index of the first fragment.
    pub first: usize,
    /// Index after the last fragment.
    pub last: usize,
    /// Bytes from the start of the cache, where the new copy goes.
    pub offset: u64,
    /// Bytes of all its fragments together.
    pub span: u64,
    /// Sum of the nanoseconds until each of its copies is evictable (HPDC'23, §4.2).
    pub p_score: u64,
    /// Sum of the prefetch distances of its copies (HPDC'23, §4.2). An unhinted copy counts
    /// [`UNHINTED_DISTANCE`](crate::UNHINTED_DISTANCE), a gap [`GAP_DISTANCE`](crate::GAP_DISTANCE).
    pub s_score: u64,
}

/// A rule that decides which window of a cache is given up.
///
/// A policy is pure: all its knowledge arrives as arguments, and the same arguments give the same window. `&mut self`
/// is for scratch memory alone.
pub trait Policy: core::fmt::Debug {
    /// Returns the window that makes room for `size` bytes, or `None` if there is none at present or `size` is 0.
    ///
    /// `size` is the number of bytes that the new copy will occupy, rounded up to the alignment of the cache.
    ///
    /// A gap that is large enough wins under every policy, as no copy has to be evicted. The gap of lowest offset is taken,
    /// even if another fits better: a device arena becomes usable from low addresses upwards, so low gaps are ready first.
    fn choose(&mut self, candidates: &Candidates, size: u64) -> Option<Window> {
        if size == 0 || size > candidates.bytes() {
            return None;
        }
        candidates
            .first_gap(size)
            .or_else(|| self.choose_victims(candidates, size))
    }

    /// Returns the window to evict if no gap holds `size` bytes. The window holds no copy that is never evictable.
    /// [`Policy::choose`] calls this method with `0 < size <= candidates.bytes()`.
    fn choose_victims(&mut self, candidates: &Candidates, size: u64) -> Option<Window>;
}
