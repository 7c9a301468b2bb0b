//! Checkpoints, restores, hints and waits.

use std::ffi::{c_char, c_int};
use std::time::Duration;

use tierflow_bind::{CallMemory, CallStream, Until};
use tierflow_engine::{AfterRestore, Cache, Call, Region, RegionMut, Version, read_regions};

use super::parts::open;
use crate::core::OpenEngine;
use crate::failure::{Failure, Outcome, Status, exported};
use crate::ffi::{self, In, Out, RawStream, Text};
use crate::handles::Handle;
use crate::memory::{RawRegion, disjoint, host_memory, spans};

/// `tf_call` of the header.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct RawCall {
    pub(crate) stream: RawStream,
    pub(crate) seconds: f64,
}

/// `tf_named` of the header.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct RawNamed<'a> {
    pub(crate) name: Text<'a>,
    pub(crate) region: RawRegion,
}

/// Reads the names of regions, and the regions.
pub(super) fn named<'a>(
    first: In<'_, RawNamed<'a>>,
    count: usize,
) -> Outcome<(Vec<&'a str>, Vec<RawRegion>)> {
    let all = first.list(count, "regions")?;
    let names = all.iter().map(|one| one.name.read("name"));
    let names = names.collect::<Outcome<_>>()?;
    Ok((names, all.iter().map(|one| one.region).collect()))
}

/// Reads the names of regions, and the host memory to restore them to.
fn named_memory<'a>(
    first: In<'_, RawNamed<'a>>,
    count: usize,
) -> Outcome<Vec<(&'a str, &'a mut [u8])>> {
    let (names, raw) = named(first, count)?;
    Ok(names.into_iter().zip(host_memory(&raw)?).collect())
}

/// Returns the stream to copy on; `None` if the call names no stream and all its memory is the host's.
pub(crate) fn order<'core>(
    core: &'core OpenEngine,
    spans: &[CallMemory],
    stream: RawStream,
) -> Outcome<Option<CallStream<'core>>> {
    match stream.handle() == 0 && !spans.iter().any(CallMemory::is_on_device) {
        true => Ok(None),
        false => core.behind(stream),
    }
}

/// Makes a call of the engine on some regions. 0 seconds are without a limit, too, as a `tf_call` of zeros has them.
fn make<T: Into<Failure>>(
    core: &OpenEngine,
    mut spans: Vec<CallMemory>,
    call: In<'_, RawCall>,
    make: impl FnOnce(Call<'_>, &mut [CallMemory]) -> Result<(), T>,
) -> Outcome {
    let call = call.read();
    let stream = call.map_or(RawStream::NONE, |call| call.stream);
    let stream = order(core, &spans, stream)?;
    let seconds = call.map(|call| call.seconds).filter(|given| *given != 0.0);
    let patience = seconds.map_or(Ok(Duration::MAX), ffi::patience)?;
    let call = core.engine.call().within(patience).on(stream.as_deref());
    make(call, &mut spans).map_err(T::into)
}

fn resize(engine: Handle<OpenEngine>, cache: Cache, bytes: usize, seconds: f64) -> Outcome<u64> {
    let patience = ffi::patience(seconds)?;
    Ok(engine.get()?.engine.resize(cache, bytes, patience)?)
}

exported! {
    fn tf_checkpoint(engine: Handle<OpenEngine>, version: Version, regions: In<'_, RawRegion>, count: usize, call: In<'_, RawCall>) {
        let core = engine.get()?;
        let spans = spans(&core, regions.list(count, "regions")?)?;
        make(&core, spans, call, |call, spans| {
            let regions: Vec<Region<'_>> = spans.iter().map(CallMemory::region).collect();
            call.checkpoint(version, &regions)
        })
    }

    fn tf_restore(engine: Handle<OpenEngine>, version: Version, regions: In<'_, RawRegion>, count: usize, call: In<'_, RawCall>) {
        let core = engine.get()?;
        let spans = spans(&core, disjoint(regions.list(count, "regions")?)?)?;
        make(&core, spans, call, |call, spans| {
            let mut regions: Vec<RegionMut<'_>> = spans.iter_mut().map(CallMemory::region_mut).collect();
            call.restore(version, &mut regions)
        })
    }

    fn tf_checkpoint_named(
        engine: Handle<OpenEngine>, version: Version, regions: In<'_, RawNamed<'_>>, count: usize, call: In<'_, RawCall>
    ) {
        let (core, (names, raw)) = (engine.get()?, named(regions, count)?);
        make(&core, spans(&core, &raw)?, call, |call, spans| {
            let regions = spans.iter().map(CallMemory::region).zip(names);
            let regions: Vec<Region<'_>> = regions.map(|(one, name)| one.named(name)).collect();
            call.checkpoint(version, &regions)
        })
    }

    fn tf_restore_named(
        engine: Handle<OpenEngine>, version: Version, regions: In<'_, RawNamed<'_>>, count: usize, call: In<'_, RawCall>
    ) {
        let (core, (names, raw)) = (engine.get()?, named(regions, count)?);
        make(&core, spans(&core, disjoint(&raw)?)?, call, |call, spans| {
            let regions = spans.iter_mut().map(CallMemory::region_mut);
            let mut regions: Vec<(&str, RegionMut<'_>)> = names.into_iter().zip(regions).collect();
            call.restore_regions(version, &mut regions)
        })
    }

    fn tf_restore_rank(engine: Handle<OpenEngine>, version: Version, rank: u32, regions: In<'_, RawNamed<'_>>, count: usize) {
        let (core, mut regions) = (engine.get()?, named_memory(regions, count)?);
        Ok(read_regions(&core.engine.piece(version, Some(rank))?, &mut regions)?)
    }

    fn tf_restore_named_from(
        directory: Text<'_>, version: Version, rank: u32, regions: In<'_, RawNamed<'_>>, count: usize
    ) {
        let (directory, mut regions) = (directory.read("directory")?, named_memory(regions, count)?);
        Ok(read_regions(&open(directory)?.piece_of(version, rank)?, &mut regions)?)
    }

    fn tf_region_size(engine: Handle<OpenEngine>, version: Version, name: Text<'_>, bytes: Out<u64>) {
        let name = name.read("name")?;
        let all = engine.get()?.engine.regions(version)?;
        let found = all.iter().find(|info| info.name == name);
        let none = || Failure::argument(format!("version {version} has no region {name:?}"));
        bytes.put(found.ok_or_else(none)?.length, "bytes")
    }

    fn tf_region_at(
        engine: Handle<OpenEngine>, version: Version, index: usize, name: Out<c_char>, room: usize, bytes: Out<u64>
    ) {
        let all = engine.get()?.engine.regions(version)?;
        let none = || Failure::new(Status::Unknown, format!("version {version} has {} regions", all.len()));
        let region = all.get(index).ok_or_else(none)?;
        name.put_text(room, &region.name);
        bytes.put_if_asked(region.length);
        Ok(())
    }

    fn tf_hint(engine: Handle<OpenEngine>, versions: In<'_, Version>, count: usize) {
        let (core, versions) = (engine.get()?, versions.list(count, "versions")?);
        core.engine.hint(versions.iter().copied());
        Ok(())
    }

    fn tf_hint_next(engine: Handle<OpenEngine>, versions: In<'_, Version>, count: usize) {
        let (core, versions) = (engine.get()?, versions.list(count, "versions")?);
        core.engine.hints().prepend(versions.iter().copied());
        Ok(())
    }

    fn tf_forget_hints(engine: Handle<OpenEngine>) { engine.get().map(|core| core.engine.hints().clear()) }

    fn tf_forget_hints_of(engine: Handle<OpenEngine>, versions: In<'_, Version>, count: usize) {
        let (core, versions) = (engine.get()?, versions.list(count, "versions")?);
        core.engine.hints().forget(versions);
        Ok(())
    }

    fn tf_reserve(engine: Handle<OpenEngine>, count: u64, first: Out<Version>) {
        first.put(engine.get()?.engine.reserve(count)?.start, "first")
    }

    fn tf_prefetch_start(engine: Handle<OpenEngine>) { engine.get().map(|core| core.engine.hints().prefetch_start()) }

    fn tf_discard(engine: Handle<OpenEngine>, version: Version) { Ok(engine.get()?.engine.discard(version)?) }

    fn tf_wait(engine: Handle<OpenEngine>, seconds: f64) {
        let (core, patience) = (engine.get()?, ffi::patience(seconds)?);
        Ok(core.wait(Until::patience(patience))?)
    }

    fn tf_wait_version(engine: Handle<OpenEngine>, version: Version, seconds: f64) {
        let (core, patience) = (engine.get()?, ffi::patience(seconds)?);
        Ok(core.engine.call().within(patience).wait_version(version)?)
    }

    fn tf_protect(engine: Handle<OpenEngine>) { Ok(engine.get()?.engine.protect()?) }

    fn tf_is_durable(engine: Handle<OpenEngine>, version: Version, durable: Out<c_int>) {
        durable.put(c_int::from(engine.get()?.engine.is_durable(version)), "durable")
    }

    fn tf_keeps_restored(engine: Handle<OpenEngine>, keeps: Out<c_int>) {
        let after = engine.get()?.engine.after_restore();
        keeps.put(c_int::from(after == AfterRestore::Keep), "keeps")
    }

    fn tf_latest(engine: Handle<OpenEngine>, before: Version, version: Out<Version>) {
        let before = Some(before).filter(|before| *before != Version::MAX);
        let none = || Failure::new(Status::Unknown, "no version is held");
        version.put(engine.get()?.engine.latest(before).ok_or_else(none)?, "version")
    }

    fn tf_size(engine: Handle<OpenEngine>, version: Version, bytes: Out<u64>) {
        bytes.put(engine.get()?.engine.restore_size(version)?, "bytes")
    }

    fn tf_versions(engine: Handle<OpenEngine>, versions: Out<Version>, room: usize, count: Out<usize>) {
        let held = engine.get()?.engine.versions();
        versions.put_all(&held, room, "versions")?;
        count.put(held.len(), "count")
    }

    fn tf_resize_device_cache(engine: Handle<OpenEngine>, bytes: usize, seconds: f64, usable: Out<u64>) {
        resize(engine, Cache::Device, bytes, seconds).map(|bytes| usable.put_if_asked(bytes))
    }

    fn tf_resize_host_cache(engine: Handle<OpenEngine>, bytes: usize, seconds: f64, usable: Out<u64>) {
        resize(engine, Cache::Host, bytes, seconds).map(|bytes| usable.put_if_asked(bytes))
    }
}
