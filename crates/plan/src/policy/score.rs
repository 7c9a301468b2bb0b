use super::{Policy, Residency, Standing, Usage};

/// HPDC'23's gap-aware window scorer on contiguous caches (§4.2): the baseline that residency is measured against.
///
/// Every version lies in one run of each tier. Room is made by evicting the window of neighbours that waits least until
/// it can be evicted and is read farthest ahead ([`tierflow_evict::Score`]). A copy can be evicted once it is flushed, or, if
/// it was fetched for a hint, once it is read; the waits are foreseen from the bytes that are flushed and read before
/// (`predict_evictable`). A window that was chosen is waited for. Only a caller that waits for room itself does not wait for
/// reads, as it cannot read meanwhile. Every version is written down as soon as possible, and fetched into the fastest tier as soon as
/// a window is free there. A choice is O(N) in the copies of the tier, and a sort of those that are still to be flushed.
///
/// Kinder than the paper: without hints, versions are fetched ahead as [`Residency`] foresees their order.
#[derive(Debug, Clone, Copy, Default)]
pub struct Score;

impl Policy for Score {
    fn standing(&self, usage: &Usage) -> Standing {
        Residency.standing(usage)
    }

    fn windows(&self) -> Option<Box<dyn tierflow_evict::Policy + Send>> {
        Some(Box::new(tierflow_evict::Score))
    }

    fn name(&self) -> &'static str {
        "score"
    }
}
