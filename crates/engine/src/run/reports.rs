//! Reports of workers to the plan, and their questions to it.

use super::context::TransferError;
use super::core::EngineCore;
use crate::Version;
use crate::plan::{Event, Piece, Stored, TierId, TransferId};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tierflow_device::Access;

/// The least time between two warnings of failed transfers. Storage that fails does so for each version.
const QUIET: Duration = Duration::from_secs(60);

impl EngineCore {
    /// Reports transfers that a worker delivered, none of which it encoded.
    pub(super) fn delivered(&self, ids: impl Iterator<Item = TransferId>) {
        let mut core = self.lock();
        let ids: Vec<TransferId> = ids.collect();
        core.end(&ids);
        let done = |id| Event::TransferDone { id, stored: None };
        self.handle_all(&mut core, self.now_ns(), ids.into_iter().map(done));
        core.calls.ended.clear();
    }

    /// Reports that a worker encoded a version, or, with `None`, that it takes the version down as it is. Returns the place to write to,
    /// once the application's streams are done with it.
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

    /// Reports how a transfer ended. `has_damage`: the transfer met damage of which the plan was told. No warning names such damage: it is
    /// counted, and `Engine::damage` or the restore that fails names it.
    pub(super) fn carried(
        &self,
        id: TransferId,
        outcome: Result<Option<Stored>, TransferError>,
        has_damage: bool,
    ) {
        let mut core = self.lock();
        core.end(&[id]);
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
        core.calls.ended.clear();
        drop(core);
        // A subscriber may be slow, and may call the engine.
        if let Some(error) = warning {
            tracing::warn!(%error, "a copy between tiers failed; the version stays where it is, and the application's next checkpoint has the copy tried again");
        }
    }

    /// Returns the throughput, in bytes/s, of the slowest link down that was used, among those from this tier on.
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
