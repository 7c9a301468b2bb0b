use alloc::vec::Vec;
use core::ops::Range;

/// The gaps of a cache in offset order. A full cache has few, whatever the number of its copies, so they are kept apart
/// from them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gaps(Vec<Range<u64>>);

impl Gaps {
    /// Of the bytes in `region`, in which no gap begins that ends beyond it, these are gaps now; empty ones are none.
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
