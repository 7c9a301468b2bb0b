//! Checkpoints, restores, hints and waits.

use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::time::Duration;

use tierflow_bind::{CallStream, Until};
use tierflow_engine::{Cache, Call, Region, RegionMut, Version};

use crate::core::Core;
use crate::failure::{Failure, Outcome, Status, status};
use crate::memory::{RawRegion, Span, overlap};
use crate::{ffi, handles};

/// `tf_call` of the header.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct RawCall {
    pub(crate) stream: *mut c_void,
    pub(crate) seconds: f64,
}

impl RawCall {
    pub(super) fn stream(call: Option<Self>) -> u64 {
        call.map_or(0, |call| call.stream.addr() as u64)
    }

    /// The call of the engine, for as long as it may wait. 0 is no limit, too: a call that is not filled in has it.
    pub(super) fn of(call: Option<Self>, core: &Core) -> Outcome<Call<'_>> {
        let seconds = call.map(|call| call.seconds).filter(|given| *given != 0.0);
        let patience = seconds.map_or(Ok(Duration::MAX), ffi::patience)?;
        Ok(core.engine.call().within(patience))
    }
}

pub(super) fn engine(handle: u64) -> Outcome<Arc<Core>> {
    handles::get(handle, "tf_engine")
}

/// # Safety
/// The contract of `tf_region` in the header.
pub(super) unsafe fn spans(core: &Core, regions: &[RawRegion]) -> Outcome<Vec<Span>> {
    // SAFETY: the caller's promise.
    let span = |raw: &RawRegion| unsafe { Span::new(core, *raw) };
    regions.iter().map(span).collect()
}

/// Regions to restore to, of which no two may share bytes.
pub(super) fn disjoint(regions: &[RawRegion]) -> Outcome<&[RawRegion]> {
    match overlap(regions) {
        true => Err(Failure::argument("regions to restore to share bytes")),
        false => Ok(regions),
    }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn tf_checkpoint(
    handle: u64,
    version: Version,
    regions: *const RawRegion,
    count: usize,
    call: *const RawCall,
) -> c_int {
    status(|| {
        let core = engine(handle)?;
        // SAFETY: the header's contract.
        let call = unsafe { ffi::read(call) };
        // SAFETY: the header's contract.
        let raw = unsafe { ffi::list(regions, count, "regions") }?;
        // SAFETY: the header's contract.
        let spans = unsafe { spans(&core, raw) }?;
        // SAFETY: the header's contract.
        let stream = unsafe { order(&core, &spans, RawCall::stream(call)) }?;
        let regions: Vec<Region<'_>> = spans.iter().map(Span::region).collect();
        let call = RawCall::of(call, &core)?.on(stream.as_deref());
        Ok(call.checkpoint(version, &regions)?)
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn tf_restore(
    handle: u64,
    version: Version,
    regions: *const RawRegion,
    count: usize,
    call: *const RawCall,
) -> c_int {
    status(|| {
        let core = engine(handle)?;
        // SAFETY: the header's contract.
        let call = unsafe { ffi::read(call) };
        // SAFETY: the header's contract.
        let raw = disjoint(unsafe { ffi::list(regions, count, "regions") }?)?;
        // SAFETY: the header's contract, and no two overlap.
        let mut spans = unsafe { spans(&core, raw) }?;
        // SAFETY: the header's contract.
        let stream = unsafe { order(&core, &spans, RawCall::stream(call)) }?;
        let mut regions: Vec<RegionMut<'_>> = spans.iter_mut().map(Span::region_mut).collect();
        let call = RawCall::of(call, &core)?.on(stream.as_deref());
        Ok(call.restore(version, &mut regions)?)
    })
}

/// The stream to copy on, where it matters which.
///
/// # Safety
/// As [`Core::behind`].
pub(crate) unsafe fn order<'core>(
    core: &'core Core,
    spans: &[Span],
    handle: u64,
) -> Outcome<Option<CallStream<'core>>> {
    match handle == 0 && !spans.iter().any(Span::is_on_device) {
        true => Ok(None),
        // SAFETY: the caller's promise.
        false => unsafe { core.behind(handle) },
    }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn tf_hint(
    handle: u64,
    versions: *const Version,
    count: usize,
) -> c_int {
    status(|| {
        let core = engine(handle)?;
        // SAFETY: the header's contract.
        let versions = unsafe { ffi::list(versions, count, "versions") }?;
        core.engine.hint(versions.iter().copied());
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn tf_forget_hints(handle: u64) -> c_int {
    status(|| engine(handle).map(|core| core.engine.forget_hints(None)))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn tf_forget_hints_of(
    handle: u64,
    versions: *const Version,
    count: usize,
) -> c_int {
    status(|| {
        let core = engine(handle)?;
        // SAFETY: the header's contract.
        let versions = unsafe { ffi::list(versions, count, "versions") }?;
        core.engine.forget_hints(Some(versions));
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn tf_reserve(handle: u64, count: u64, first: *mut Version) -> c_int {
    status(|| {
        let reserved = engine(handle)?.engine.reserve(count)?;
        // SAFETY: the header's contract.
        unsafe { ffi::put(first, reserved.start, "first") }
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn tf_prefetch_start(handle: u64) -> c_int {
    status(|| engine(handle).map(|core| core.engine.prefetch_start()))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn tf_discard(handle: u64, version: Version) -> c_int {
    status(|| Ok(engine(handle)?.engine.discard(version)?))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn tf_wait(handle: u64, seconds: f64) -> c_int {
    status(|| {
        let core = engine(handle)?;
        Ok(core.wait(Until::patience(ffi::patience(seconds)?))?)
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn tf_protect(handle: u64) -> c_int {
    status(|| Ok(engine(handle)?.engine.protect()?))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn tf_wait_version(handle: u64, version: Version, seconds: f64) -> c_int {
    status(|| {
        let (core, patience) = (engine(handle)?, ffi::patience(seconds)?);
        Ok(core.engine.call().within(patience).wait_version(version)?)
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn tf_is_durable(
    handle: u64,
    version: Version,
    durable: *mut c_int,
) -> c_int {
    status(|| {
        let is_durable = engine(handle)?.engine.is_durable(version);
        // SAFETY: the header's contract.
        unsafe { ffi::put(durable, c_int::from(is_durable), "durable") }
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn tf_latest(
    handle: u64,
    before: Version,
    version: *mut Version,
) -> c_int {
    status(|| {
        let before = Some(before).filter(|before| *before != Version::MAX);
        let latest = engine(handle)?.engine.latest(before);
        let latest = latest.ok_or_else(|| Failure::new(Status::Unknown, "no version is held"))?;
        // SAFETY: the header's contract.
        unsafe { ffi::put(version, latest, "version") }
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn tf_size(handle: u64, version: Version, bytes: *mut u64) -> c_int {
    status(|| {
        let size = engine(handle)?.engine.restore_size(version)?;
        // SAFETY: the header's contract.
        unsafe { ffi::put(bytes, size, "bytes") }
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn tf_versions(
    handle: u64,
    versions: *mut Version,
    room: usize,
    count: *mut usize,
) -> c_int {
    status(|| {
        let held = engine(handle)?.engine.versions();
        for (index, version) in held.iter().take(room).enumerate() {
            // SAFETY: the header's contract: there is room for `room` of them.
            let to = unsafe { versions.add(index) };
            // SAFETY: as above.
            unsafe { ffi::put(to, *version, "versions") }?;
        }
        // SAFETY: the header's contract.
        unsafe { ffi::put(count, held.len(), "count") }
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn tf_resize_device_cache(handle: u64, bytes: usize, seconds: f64) -> c_int {
    status(|| {
        let patience = ffi::patience(seconds)?;
        let engine = &engine(handle)?.engine;
        engine.resize(Cache::Device, bytes, patience)?;
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn tf_resize_host_cache(handle: u64, bytes: usize, seconds: f64) -> c_int {
    status(|| {
        let patience = ffi::patience(seconds)?;
        let engine = &engine(handle)?.engine;
        engine.resize(Cache::Host, bytes, patience)?;
        Ok(())
    })
}
