use super::{Policy, Residency, Standing, Usage};

/// HPDC'23's gap-aware window scorer on contiguous caches (§4.2): the baseline that residency is measured against.
///
/// Every version lies in one run of each tier. Room is made by evicting the window of neighbours that waits least until
/// it is written down and is read farthest ahead ([`tierflow_evict::Score`]). A prefetch evicts no version that is read
/// before its own. Every version is written down as soon as possible. Prefetches are chosen as for [`Residency`].
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
