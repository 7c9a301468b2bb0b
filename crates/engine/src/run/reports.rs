//! What workers report to the plan.

use super::core::Shared;
use crate::Error;
use crate::plan::{Event, Stored, TransferFailure, TransferId};
use std::sync::Arc;

impl Shared {
    /// A worker reports transfers that delivered, as they are.
    pub(super) fn delivered(&self, ids: impl Iterator<Item = TransferId>) {
        let mut core = self.core.lock();
        let ids: Vec<TransferId> = ids.collect();
        for id in &ids {
            core.desk.carried.remove(id);
        }
        let done = |id| Event::TransferDone { id, stored: None };
        self.handle_all(&mut core, ids.into_iter().map(done), None, true);
    }

    /// A worker reports how a transfer ended.
    pub(super) fn carried(
        &self,
        id: TransferId,
        outcome: Result<Option<Stored>, (TransferFailure, Option<Error>)>,
    ) {
        let mut core = self.core.lock();
        core.desk.carried.remove(&id);
        let event = match outcome {
            Ok(stored) => Event::TransferDone { id, stored },
            Err((why, error)) => {
                if let Some(error) = error {
                    core.desk.last_failure = Some(Arc::new(error));
                }
                Event::TransferFailed { id, why }
            }
        };
        self.handle(&mut core, event, None);
    }
}
