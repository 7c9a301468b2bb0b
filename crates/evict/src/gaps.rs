use alloc::vec::Vec;
use core::ops::Range;

/// The gaps of a cache in offset order, kept apart from its copies because a full cache has few gaps and many copies.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gaps(Vec<Range<u64>>);

impl Gaps {
    /// Replaces the gaps that begin in `region` by the non-empty ones of `gaps`. No old gap may reach beyond `region`.
    pub(crate) fn replace(
        &mut self,
        region: Range<u64>,
        gaps: impl IntoIterator<Item = Range<u64>>,
    ) {
        let first = self.0.partition_point(|gap| gap.start < region.start);
        let last = self.0.partition_point(|gap| gap.start < region.end);
        let gaps = gaps.into_iter().filter(|gap| !gap.is_empty());
        self.0.splice(first..last, gaps);
    }

    /// Offsets and sizes of the gaps, as far as they lie before `limit`.
    pub(crate) fn before(&self, limit: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        let gaps = self.0.iter().take_while(move |gap| gap.start < limit);
        gaps.map(move |gap| (gap.start, gap.end.min(limit) - gap.start))
    }
}
