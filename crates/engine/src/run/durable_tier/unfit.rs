//! Copies that an engine found and that its plan does not hold: they go once a version of this engine is durable.

use super::{DroppedCopy, DurableTier};
use crate::Version;
use tierflow_store::Error;

impl DroppedCopy {
    /// A copy that the plan did not hear of: the version lies below, too, or another has its number.
    fn unfit(bytes: u64) -> Self {
        Self {
            bytes,
            ..Self::default()
        }
    }
}

impl DurableTier {
    /// A copy was found that the plan does not hear of: it goes once a version of this engine is durable, or in its way.
    pub(crate) fn found_unfit(&self, version: Version, size: u64) {
        self.unfit.lock().insert(version, size);
    }

    /// A version was given up on another tier: what was found of it here and is not known to the plan goes, too.
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

    /// Why external storage has no mark of this run, if the mark could not be left.
    pub(crate) fn unmarked(&self) -> Option<Error> {
        self.settings.first.unmarked()
    }
}
