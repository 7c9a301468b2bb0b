//! Reports of workers to the plan, and their questions to it.

use super::context::TransferError;
use super::core::EngineCore;
use crate::Version;
use crate::plan::{Event, Piece, Stored, TierId, TransferId};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tierflow_device::Access;

/// The least time between two warnings of failed transfers: storage that fails does so for each version.
const QUIET: Duration = Duration::from_secs(60);

impl EngineCore {
    /// A worker reports transfers that delivered, as they are.
    pub(super) fn delivered(&self, ids: impl Iterator<Item = TransferId>) {
        let mut core = self.lock();
        let ids: Vec<TransferId> = ids.collect();
        for id in &ids {
            core.calls.ended = core.calls.carried.remove(id);
        }
        let done = |id| Event::TransferDone { id, stored: None };
        self.handle_all(&mut core, self.now_ns(), ids.into_iter().map(done));
        core.calls.ended = None;
    }

    /// A worker made something of a version, or takes it down as it is. Returns where it is to lie.
    pub(super) fn encoded(
        &self,
        id: TransferId,
        version: Version,
        tier: TierId,
        stored: Option<Stored>,
    ) -> Option<Piece> {
        let mut core = self.lock();
        self.handle(&mut core, Event::Encoded { id, stored });
        let piece = core.plan().pieces(version, tier).into_iter().next();
        drop(core);
        if let Some(piece) = &piece {
            self.pending.settle(&piece.place, Access::Write);
        }
        piece
    }

    /// A worker reports how a transfer ended. `has_damage`: the plan was told of damage that it met, which is counted, and has a name in
    /// `Engine::damage` or the restore that fails.
    pub(super) fn carried(
        &self,
        id: TransferId,
        outcome: Result<Option<Stored>, TransferError>,
        has_damage: bool,
    ) {
        let mut core = self.lock();
        core.calls.ended = core.calls.carried.remove(&id);
        let mut warning = None;
        let event = match outcome {
            Ok(stored) => Event::TransferDone { id, stored },
            Err(TransferError { end: why, error }) => {
                if let Some(error) = error.map(Arc::new) {
                    core.calls.last_failure = Some(Arc::clone(&error));
                    let is_due = core.calls.warned.is_none_or(|at| at.elapsed() > QUIET);
                    warning = (is_due && !has_damage).then_some(error);
                }
                Event::TransferFailed { id, why }
            }
        };
        if warning.is_some() {
            core.calls.warned = Some(Instant::now());
        }
        self.handle(&mut core, event);
        core.calls.ended = None;
        drop(core);
        // A subscriber may be slow, and may call the engine.
        if let Some(error) = warning {
            tracing::warn!(%error, "a copy between tiers failed; the version stays where it is, and the application's next checkpoint has the copy tried again");
        }
    }

    /// Bytes/s of the slowest way down between tiers from this one on, of those that were used.
    pub(super) fn slowest_below(&self, tier: TierId) -> Option<f64> {
        let hops = self.lock().plan().statistics().hops;
        let down = hops
            .iter()
            .filter(|hop| tier <= hop.from && hop.from < hop.to);
        let used = down.filter(|hop| hop.bytes > 0 && hop.busy_ns > 0);
        used.map(|hop| hop.bytes as f64 / hop.busy_ns as f64 * 1e9)
            .min_by(f64::total_cmp)
    }
}
