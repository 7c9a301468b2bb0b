use super::{Policy, Standing, Usage};
use crate::reuse::Reuse;

/// The default: hinted versions in the order of the hints, then predicted ones, then the others in the [order](Reuse) that cost least lately.
#[derive(Debug, Clone, Copy, Default)]
pub struct Residency;

impl Policy for Residency {
    fn standing(&self, usage: &Usage) -> Standing {
        match (usage.hinted, usage.reuse, usage.read) {
            (Some(sequence), _, _) => Standing::Known(sequence),
            (None, Reuse::Recency, read) => Standing::Recent(read.unwrap_or(usage.written)),
            (None, Reuse::Age, _) => Standing::Recent(usage.written),
            (None, Reuse::Scan, None) => Standing::Waiting(usage.written),
            (None, Reuse::Scan, Some(read)) => Standing::Passed(read),
        }
    }

    fn predicts(&self) -> bool {
        true
    }

    fn name(&self) -> &'static str {
        "residency"
    }
}
