use super::{Policy, Standing, Usage};

/// The default: hinted versions in the order of the hints, then those written or read while versions return soon, the last used
/// first, then the others, newest first.
///
/// A version that was read and is kept is expected again after all others, unless versions were lately read again soon.
#[derive(Debug, Clone, Copy, Default)]
pub struct Residency;

impl Policy for Residency {
    fn standing(&self, usage: &Usage) -> Standing {
        match (usage.hinted, usage.read) {
            (Some(sequence), _) => Standing::Known(sequence),
            (None, None) if usage.returns_soon => Standing::Recent(usage.written),
            (None, None) => Standing::Waiting(usage.written),
            (None, Some(read)) if usage.returns_soon => Standing::Recent(read),
            (None, Some(read)) => Standing::Passed(read),
        }
    }

    fn name(&self) -> &'static str {
        "residency"
    }
}
