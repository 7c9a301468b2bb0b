use super::{Policy, Standing, Usage};

/// The default: hinted versions in the order of the hints, then those read lately, then the others, newest first.
///
/// A version that was read in a scan and is kept is expected again when the scan comes round, not before.
#[derive(Debug, Clone, Copy, Default)]
pub struct Residency;

impl Policy for Residency {
    fn standing(&self, usage: &Usage) -> Standing {
        match (usage.hinted, usage.read) {
            (Some(sequence), _) => Standing::Known(sequence),
            (None, None) => Standing::Waiting(usage.written),
            (None, Some(read)) if usage.scanned => Standing::Passed(read),
            (None, Some(read)) => Standing::Recent(read),
        }
    }

    fn name(&self) -> &'static str {
        "residency"
    }
}
