//! Checkpoints, restores, hints and waits.

use std::ffi::{c_char, c_int};
use std::time::Duration;

use tierflow_bind::{CallStream, Until};
use tierflow_engine::{Cache, Call, Region, RegionMut, Version, read_regions};

use super::parts::open;
use crate::core::Core;
use crate::failure::{Failure, Outcome, Status, status};
use crate::ffi::{self, In, Out, RawStream, Text};
use crate::handles::Handle;
use crate::memory::{RawRegion, Span, disjoint, host_memory, spans};

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

/// Names and where their bytes lie.
pub(super) fn named<'a>(
    first: In<'_, RawNamed<'a>>,
    count: usize,
) -> Outcome<(Vec<&'a str>, Vec<RawRegion>)> {
    let all = first.list(count, "regions")?;
    let names = all.iter().map(|one| one.name.read("name"));
    let names = names.collect::<Outcome<_>>()?;
    Ok((names, all.iter().map(|one| one.region).collect()))
}

/// The stream to copy on, where it matters which.
pub(crate) fn order<'core>(
    core: &'core Core,
    spans: &[Span],
    stream: RawStream,
) -> Outcome<Option<CallStream<'core>>> {
    match stream.handle() == 0 && !spans.iter().any(Span::is_on_device) {
        true => Ok(None),
        false => core.behind(stream),
    }
}

/// Makes a call of the engine on some regions. 0 seconds are no limit, too: a call that is not filled in has them.
fn make<T: Into<Failure>>(
    core: &Core,
    mut spans: Vec<Span>,
    call: In<'_, RawCall>,
    make: impl FnOnce(Call<'_>, &mut [Span]) -> Result<(), T>,
) -> Outcome {
    let call = call.read();
    let stream = call.map_or(RawStream::NONE, |call| call.stream);
    let stream = order(core, &spans, stream)?;
    let seconds = call.map(|call| call.seconds).filter(|given| *given != 0.0);
    let patience = seconds.map_or(Ok(Duration::MAX), ffi::patience)?;
    let call = core.engine.call().within(patience).on(stream.as_deref());
    make(call, &mut spans).map_err(T::into)
}

#[unsafe(no_mangle)]
extern "C" fn tf_checkpoint(
    engine: Handle<Core>,
    version: Version,
    regions: In<'_, RawRegion>,
    count: usize,
    call: In<'_, RawCall>,
) -> c_int {
    status(|| {
        let core = engine.get()?;
        let spans = spans(&core, regions.list(count, "regions")?)?;
        make(&core, spans, call, |call, spans| {
            let regions: Vec<Region<'_>> = spans.iter().map(Span::region).collect();
            call.checkpoint(version, &regions)
        })
    })
}

#[unsafe(no_mangle)]
extern "C" fn tf_restore(
    engine: Handle<Core>,
    version: Version,
    regions: In<'_, RawRegion>,
    count: usize,
    call: In<'_, RawCall>,
) -> c_int {
    status(|| {
        let core = engine.get()?;
        let spans = spans(&core, disjoint(regions.list(count, "regions")?)?)?;
        make(&core, spans, call, |call, spans| {
            let mut regions: Vec<RegionMut<'_>> = spans.iter_mut().map(Span::region_mut).collect();
            call.restore(version, &mut regions)
        })
    })
}

#[unsafe(no_mangle)]
extern "C" fn tf_checkpoint_named(
    engine: Handle<Core>,
    version: Version,
    regions: In<'_, RawNamed<'_>>,
    count: usize,
    call: In<'_, RawCall>,
) -> c_int {
    status(|| {
        let (core, (names, raw)) = (engine.get()?, named(regions, count)?);
        make(&core, spans(&core, &raw)?, call, |call, spans| {
            let regions = spans.iter().map(Span::region).zip(names);
            let regions: Vec<Region<'_>> = regions.map(|(one, name)| one.named(name)).collect();
            call.checkpoint(version, &regions)
        })
    })
}

#[unsafe(no_mangle)]
extern "C" fn tf_restore_named(
    engine: Handle<Core>,
    version: Version,
    regions: In<'_, RawNamed<'_>>,
    count: usize,
    call: In<'_, RawCall>,
) -> c_int {
    status(|| {
        let (core, (names, raw)) = (engine.get()?, named(regions, count)?);
        make(
            &core,
            spans(&core, disjoint(&raw)?)?,
            call,
            |call, spans| {
                let regions = spans.iter_mut().map(Span::region_mut);
                let mut regions: Vec<(&str, RegionMut<'_>)> =
                    names.into_iter().zip(regions).collect();
                call.restore_regions(version, &mut regions)
            },
        )
    })
}

#[unsafe(no_mangle)]
extern "C" fn tf_region_size(
    engine: Handle<Core>,
    version: Version,
    name: Text<'_>,
    bytes: Out<u64>,
) -> c_int {
    status(|| {
        let name = name.read("name")?;
        let all = engine.get()?.engine.regions(version)?;
        let found = all.iter().find(|info| info.name == name);
        let none = || Failure::argument(format!("version {version} has no region {name:?}"));
        bytes.put(found.ok_or_else(none)?.length, "bytes")
    })
}

#[unsafe(no_mangle)]
extern "C" fn tf_region_at(
    engine: Handle<Core>,
    version: Version,
    index: usize,
    name: Out<c_char>,
    room: usize,
    bytes: Out<u64>,
) -> c_int {
    status(|| {
        let all = engine.get()?.engine.regions(version)?;
        let none = || {
            let text = format!("version {version} has {} regions", all.len());
            Failure::new(Status::Unknown, text)
        };
        let region = all.get(index).ok_or_else(none)?;
        name.put_text(room, &region.name);
        bytes.put_if_asked(region.length);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn tf_restore_rank(
    engine: Handle<Core>,
    version: Version,
    rank: u32,
    regions: In<'_, RawNamed<'_>>,
    count: usize,
) -> c_int {
    status(|| {
        let (core, (names, raw)) = (engine.get()?, named(regions, count)?);
        let mut regions: Vec<(&str, &mut [u8])> =
            names.into_iter().zip(host_memory(&raw)?).collect();
        let piece = core.engine.piece(version, Some(rank))?;
        Ok(read_regions(&piece, &mut regions)?)
    })
}

#[unsafe(no_mangle)]
extern "C" fn tf_restore_named_from(
    directory: Text<'_>,
    version: u64,
    rank: u32,
    regions: In<'_, RawNamed<'_>>,
    count: usize,
) -> c_int {
    status(|| {
        let (directory, (names, raw)) = (directory.read("directory")?, named(regions, count)?);
        let mut regions: Vec<(&str, &mut [u8])> =
            names.into_iter().zip(host_memory(&raw)?).collect();
        let piece = open(directory)?.piece_of(version, rank)?;
        Ok(piece.restore(&mut regions)?)
    })
}

#[unsafe(no_mangle)]
extern "C" fn tf_hint(engine: Handle<Core>, versions: In<'_, Version>, count: usize) -> c_int {
    status(|| {
        let (core, versions) = (engine.get()?, versions.list(count, "versions")?);
        core.engine.hint(versions.iter().copied());
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn tf_forget_hints(engine: Handle<Core>) -> c_int {
    status(|| engine.get().map(|core| core.engine.forget_hints(None)))
}

#[unsafe(no_mangle)]
extern "C" fn tf_forget_hints_of(
    engine: Handle<Core>,
    versions: In<'_, Version>,
    count: usize,
) -> c_int {
    status(|| {
        let (core, versions) = (engine.get()?, versions.list(count, "versions")?);
        core.engine.forget_hints(Some(versions));
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn tf_reserve(engine: Handle<Core>, count: u64, first: Out<Version>) -> c_int {
    status(|| first.put(engine.get()?.engine.reserve(count)?.start, "first"))
}

#[unsafe(no_mangle)]
extern "C" fn tf_prefetch_start(engine: Handle<Core>) -> c_int {
    status(|| engine.get().map(|core| core.engine.prefetch_start()))
}

#[unsafe(no_mangle)]
extern "C" fn tf_discard(engine: Handle<Core>, version: Version) -> c_int {
    status(|| Ok(engine.get()?.engine.discard(version)?))
}

#[unsafe(no_mangle)]
extern "C" fn tf_wait(engine: Handle<Core>, seconds: f64) -> c_int {
    status(|| {
        let (core, patience) = (engine.get()?, ffi::patience(seconds)?);
        Ok(core.wait(Until::patience(patience))?)
    })
}

#[unsafe(no_mangle)]
extern "C" fn tf_protect(engine: Handle<Core>) -> c_int {
    status(|| Ok(engine.get()?.engine.protect()?))
}

#[unsafe(no_mangle)]
extern "C" fn tf_wait_version(engine: Handle<Core>, version: Version, seconds: f64) -> c_int {
    status(|| {
        let (core, patience) = (engine.get()?, ffi::patience(seconds)?);
        Ok(core.engine.call().within(patience).wait_version(version)?)
    })
}

#[unsafe(no_mangle)]
extern "C" fn tf_is_durable(engine: Handle<Core>, version: Version, durable: Out<c_int>) -> c_int {
    status(|| {
        let is_durable = engine.get()?.engine.is_durable(version);
        durable.put(c_int::from(is_durable), "durable")
    })
}

#[unsafe(no_mangle)]
extern "C" fn tf_latest(engine: Handle<Core>, before: Version, version: Out<Version>) -> c_int {
    status(|| {
        let before = Some(before).filter(|before| *before != Version::MAX);
        let latest = engine.get()?.engine.latest(before);
        let none = || Failure::new(Status::Unknown, "no version is held");
        version.put(latest.ok_or_else(none)?, "version")
    })
}

#[unsafe(no_mangle)]
extern "C" fn tf_size(engine: Handle<Core>, version: Version, bytes: Out<u64>) -> c_int {
    status(|| bytes.put(engine.get()?.engine.restore_size(version)?, "bytes"))
}

#[unsafe(no_mangle)]
extern "C" fn tf_versions(
    engine: Handle<Core>,
    versions: Out<Version>,
    room: usize,
    count: Out<usize>,
) -> c_int {
    status(|| {
        let held = engine.get()?.engine.versions();
        versions.put_all(&held, room, "versions")?;
        count.put(held.len(), "count")
    })
}

fn resize(
    engine: Handle<Core>,
    cache: Cache,
    bytes: usize,
    seconds: f64,
    usable: &Out<u64>,
) -> c_int {
    status(|| {
        let (core, patience) = (engine.get()?, ffi::patience(seconds)?);
        usable.put_if_asked(core.engine.resize(cache, bytes, patience)?);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn tf_resize_device_cache(
    engine: Handle<Core>,
    bytes: usize,
    seconds: f64,
    usable: Out<u64>,
) -> c_int {
    resize(engine, Cache::Device, bytes, seconds, &usable)
}

#[unsafe(no_mangle)]
extern "C" fn tf_resize_host_cache(
    engine: Handle<Core>,
    bytes: usize,
    seconds: f64,
    usable: Out<u64>,
) -> c_int {
    resize(engine, Cache::Host, bytes, seconds, &usable)
}
