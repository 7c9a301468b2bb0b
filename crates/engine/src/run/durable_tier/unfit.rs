//! Copies that an engine found and that its plan does not hold. A removal follows once a version of this engine is durable.

use super::{DroppedCopy, DurableTier};
use crate::Version;
use tierflow_store::Error;

impl DroppedCopy {
    /// Returns the entry for a copy of which the plan was not told: the version lies below, too, or another has its number.
    fn unfit(bytes: u64) -> Self {
        Self {
            bytes,
            ..Self::default()
        }
    }
}

impl DurableTier {
    /// Notes a found copy of which the plan is not told. The copy is removed once a version of this engine is durable, or before a
    /// version with its number is written.
    pub(crate) fn found_unfit(&self, version: Version, size: u64) {
        self.unfit.lock().insert(version, size);
    }

    /// Gives up the found copy of a version, if there is one of which the plan was not told. Called when the version is given up on another
    /// tier, or before one with its number is written.
    pub(in crate::run) fn drop_unfit(&self, version: Version) {
        let unfit = self.unfit.lock().remove(&version);
        if let Some(bytes) = unfit {
            self.drop_copy(version, DroppedCopy::unfit(bytes));
        }
    }

    pub(super) fn drop_all_unfit(&self) -> bool {
        let unfit = std::mem::take(&mut *self.unfit.lock());
        let is_any = !unfit.is_empty();
        for (version, bytes) in unfit {
            self.drop_copy(version, DroppedCopy::unfit(bytes));
        }
        is_any
    }

    /// Returns the reason why external storage has no mark of this run, if the mark could not be left.
    pub(crate) fn unmarked(&self) -> Option<Error> {
        self.settings.first.unmarked()
    }
}
