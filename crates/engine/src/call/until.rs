//! Copies between a caller and storage that end at a deadline, even if storage hangs.

use super::Call;
use crate::deadline::Deadline;
use crate::plan::{Event, Ticket};
use crate::run::{
    At, EngineCore, Grant, Pieces, SourceRegions, TargetRegions, TierContext, look_until,
    work_until,
};
use crate::{Engine, Region, RegionMut, Result, Version};
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

impl Call<'_> {
    /// Writes a checkpoint to storage, and reports the end to the plan. Returns `None` at the deadline. The write then goes on in
    /// its thread, and the thread reports at the end that the version was not accepted.
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
        let report = move |shared: &EngineCore, ok, is_wanted| {
            shared.end_write(version, &places, is_wanted);
            shared.tell(Event::Written { ticket, ok });
        };
        let too_late = report.clone();
        let collected = shared
            .with_context(|context| context.collect(&SourceRegions::new(regions), self.stream));
        let written = collected.and_then(|bytes| {
            let work = move |shared: &EngineCore, stop| {
                let regions = [Region::from(bytes.as_slice())];
                shared.with_any_context(|context| {
                    context.stop_by(Some(stop));
                    let pieces = pieces.as_slice();
                    let to = Pieces { version, pieces };
                    context.write(shared, &SourceRegions::new(&regions), to, None)
                })
            };
            let too_late = move |shared: &EngineCore| too_late(shared, false, false);
            work_until(shared, deadline, work, too_late)
        });
        // At the deadline, the thread reports when the write is over.
        if !matches!(written, Ok(None)) {
            report(shared, written.is_ok(), true);
        }
        written
    }

    /// Reads a version of `size` bytes from storage, and reports the end to the plan. Returns `None` at the deadline. The read is
    /// then reported as failed once it is over.
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
        let wanted = sink.wanted();
        let given = match engine.fetch_until(deadline, ticket, version, size, grant, wanted) {
            Ok(None) => return Ok(None),
            Ok(Some(parts)) => {
                let give = |context: &mut TierContext| {
                    let mut parts = parts.iter();
                    parts.try_for_each(|(at, bytes)| {
                        Ok(context.give(sink, *at, bytes, self.stream)?)
                    })
                };
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
    /// Runs `work`, which looks for something on storage, until the deadline at most. Without durable tiers, `work` cannot hang and
    /// runs without a deadline.
    pub(crate) fn look_until<T: Send + 'static>(
        &self,
        deadline: Deadline<'_>,
        work: impl FnOnce(&EngineCore) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let shared = &self.shared;
        let mut tiers = shared.tiers.iter();
        match deadline.at() {
            Some(at) if tiers.any(|tier| tier.medium.durable().is_some()) => {
                let done = look_until(shared, at, work)?;
                done.ok_or_else(|| deadline.passed())
            }
            _ => work(shared),
        }
    }

    /// Lists the versions that a group found on the lowest tier, so that readers of all ranks' pieces see them.
    pub(super) fn list_found(&self, deadline: Deadline<'_>) -> Result<()> {
        let lowest = self.shared.tiers.last();
        let durable = lowest.and_then(|tier| tier.medium.durable());
        let Some(durable) = durable.filter(|durable| durable.first().has_unlisted()) else {
            return Ok(());
        };
        if deadline.is_now() {
            // Listing changes nothing about which versions are durable.
            return Ok(());
        }
        let first = Arc::clone(durable.first());
        self.look_until(deadline, move |_| {
            first.list_found();
            Ok(())
        })
    }

    /// Reads a version of `size` bytes, or its `wanted` bytes, from storage. Returns each run of bytes with its offset, or `None`
    /// at the deadline. The read is then reported as failed once it is over.
    pub(crate) fn fetch_until(
        &self,
        deadline: Instant,
        ticket: Ticket,
        version: Version,
        size: u64,
        grant: Grant,
        wanted: Option<Vec<Range<u64>>>,
    ) -> Result<Option<Vec<At<Vec<u8>>>>> {
        let work = move |shared: &EngineCore, stop| {
            let part = |range: &Range<u64>| {
                let length = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
                (range.start, vec![0; length])
            };
            let mut parts: Vec<At<Vec<u8>>> = match &wanted {
                None => vec![part(&(0..size))],
                Some(ranges) => ranges.iter().map(part).collect(),
            };
            let starts: Vec<u64> = parts.iter().map(|(start, _)| *start).collect();
            let regions = parts.iter_mut();
            let regions = regions.map(|(_, bytes)| RegionMut::from(bytes.as_mut_slice()));
            let mut regions: Vec<RegionMut<'_>> = regions.collect();
            let sink = &mut match wanted {
                None => TargetRegions::whole(&mut regions),
                Some(_) => TargetRegions::parts(&mut regions, &starts),
            };
            shared.with_any_context(|context| {
                context.stop_by(Some(stop));
                shared.copy_out(context, version, &grant, sink, None)
            })?;
            Ok(parts)
        };
        let too_late = move |shared: &EngineCore| shared.tell(Event::Read { ticket, ok: false });
        work_until(&self.shared, deadline, work, too_late)
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

    use super::*;
    use crate::Error;
    use crate::blocked::CallKind;
    use tierflow_device::{Choice, open};

    #[test]
    fn a_version_of_another_size_with_the_same_number_is_not_read() {
        let engine = Engine::builder(&open(Choice::Host).unwrap()).host_cache(1 << 20);
        let engine = engine.build().unwrap();
        engine
            .checkpoint(1, &[Region::from(&[7; 100][..])])
            .unwrap();
        let mut bytes = [0; 200];
        let regions = &mut [RegionMut::from(&mut bytes[..])];
        let mut sink = TargetRegions::whole(regions);
        let mut clock = engine.shared.blocked.begin(CallKind::Restore);
        let deadline = Deadline::default();
        let read = engine
            .call()
            .read_once(None, 1, 200, &mut sink, deadline, &mut clock);
        let Err(Error::SizeMismatch {
            expected, given, ..
        }) = read
        else {
            panic!("{read:?}");
        };
        assert_eq!((expected, given), (100, 200));
    }
}
