//! Copies between a caller and storage that end at a deadline, even if storage hangs.

use super::Call;
use crate::plan::{Event, Ticket};
use crate::run::{Grant, Pieces, Shared, SourceRegions, TargetRegions, TierContext, work_until};
use crate::{Engine, Region, RegionMut, Result, Version};
use std::time::Instant;

impl Call<'_> {
    /// Writes a checkpoint to storage, and reports it. `None` at the deadline: it is reported as not taken in once it is over.
    pub(super) fn write_until(
        self,
        deadline: Instant,
        ticket: Ticket,
        version: Version,
        grant: &Grant,
        regions: &[Region<'_>],
    ) -> Result<Option<()>> {
        let shared = &self.engine.shared;
        let pieces = grant.pieces.clone();
        let places = pieces.clone();
        let report = move |shared: &Shared, ok, is_wanted| {
            shared.end_write(version, &places, is_wanted);
            shared.tell(Event::Written { ticket, ok });
        };
        let too_late = report.clone();
        let collected = shared
            .with_context(|context| context.collect(&SourceRegions::new(regions), self.stream));
        let written = collected.and_then(|bytes| {
            let work = move |shared: &Shared, stop| {
                let regions = [Region::from(bytes.as_slice())];
                shared.with_any_context(|context| {
                    context.stop_by(Some(stop));
                    let pieces = pieces.as_slice();
                    let to = Pieces { version, pieces };
                    shared.copy_in(context, &SourceRegions::new(&regions), to, None)
                })
            };
            let too_late = move |shared: &Shared| too_late(shared, false, false);
            work_until(shared, deadline, work, too_late)
        });
        match written {
            Ok(None) => Ok(None),
            Ok(Some(written)) => {
                report(shared, written.is_ok(), true);
                written.map(Some)
            }
            Err(error) => {
                report(shared, false, true);
                Err(error)
            }
        }
    }

    /// Reads a version of `size` bytes from storage, and reports it. `None` at the deadline: it is reported as not read once it is
    /// over.
    pub(super) fn read_until(
        self,
        deadline: Instant,
        ticket: Ticket,
        version: Version,
        size: u64,
        grant: Grant,
        sink: &mut TargetRegions<'_, '_>,
    ) -> Result<Option<()>> {
        let engine = self.engine;
        let given = match engine.fetch_until(deadline, ticket, version, size, grant) {
            Ok(None) => return Ok(None),
            Ok(Some(bytes)) => {
                let give =
                    |context: &mut TierContext| Ok(context.give(sink, 0, &bytes, self.stream)?);
                engine.shared.with_context(give)
            }
            Err(error) => Err(error),
        };
        let ok = given.is_ok() && sink.is_whole();
        engine.shared.tell(Event::Read { ticket, ok });
        given.map(Some)
    }
}

impl Engine {
    /// Reads a version of `size` bytes from storage. `None` at the deadline: it is reported as not read once it is over.
    pub(crate) fn fetch_until(
        &self,
        deadline: Instant,
        ticket: Ticket,
        version: Version,
        size: u64,
        grant: Grant,
    ) -> Result<Option<Vec<u8>>> {
        let work = move |shared: &Shared, stop| {
            let mut bytes = vec![0; usize::try_from(size).unwrap_or(usize::MAX)];
            let mut whole = [RegionMut::from(bytes.as_mut_slice())];
            let sink = &mut TargetRegions::whole(&mut whole);
            shared.with_any_context(|context| {
                context.stop_by(Some(stop));
                shared.copy_out(context, version, &grant, sink, None)
            })?;
            Ok(bytes)
        };
        let too_late = move |shared: &Shared| shared.tell(Event::Read { ticket, ok: false });
        work_until(&self.shared, deadline, work, too_late)?.transpose()
    }
}
