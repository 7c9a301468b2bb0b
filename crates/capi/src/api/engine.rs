//! Checkpoints, restores, hints and waits.

use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::time::Duration;

use tierflow_engine::{Region, RegionMut, Version};

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

    /// 0 is for ever, too: it is what a call that is not filled in has.
    pub(super) fn patience(call: Option<Self>) -> Outcome<Option<Duration>> {
        let seconds = call.map(|call| call.seconds).filter(|given| *given != 0.0);
        seconds.map_or(Ok(None), ffi::patience)
    }
}

pub(super) fn engine(handle: u64) -> Outcome<Arc<Core>> {
    handles::get(handle, "tf_engine")
}

/// # Safety
/// The contract of `tf_region` in the header.
unsafe fn spans(core: &Core, regions: *const RawRegion, count: usize) -> Outcome<Vec<Span>> {
    // SAFETY: the caller's promise.
    let raw = unsafe { ffi::list(regions, count, "regions") }?;
    // SAFETY: the caller's promise.
    let span = |raw: &RawRegion| unsafe { Span::new(core, *raw) };
    raw.iter().map(span).collect()
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
        let spans = unsafe { spans(&core, regions, count) }?;
        // SAFETY: the header's contract.
        let stream = unsafe { order(&core, &spans, RawCall::stream(call)) }?;
        let regions: Vec<Region<'_>> = spans.iter().map(Span::region).collect();
        let done = match (RawCall::patience(call)?, stream.as_deref()) {
            (None, None) => core.engine.checkpoint(version, &regions),
            (None, Some(stream)) => core.engine.checkpoint_on(stream, version, &regions),
            (Some(patience), None) => core.engine.within(patience).checkpoint(version, &regions),
            (Some(patience), Some(stream)) => {
                let within = core.engine.within(patience);
                within.checkpoint_on(stream, version, &regions)
            }
        };
        Ok(done?)
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
        if overlap(unsafe { ffi::list(regions, count, "regions") }?) {
            return Err(Failure::argument("regions to restore to share bytes"));
        }
        // SAFETY: the header's contract, and no two overlap.
        let mut spans = unsafe { spans(&core, regions, count) }?;
        // SAFETY: the header's contract.
        let stream = unsafe { order(&core, &spans, RawCall::stream(call)) }?;
        let mut regions: Vec<RegionMut<'_>> = spans.iter_mut().map(Span::region_mut).collect();
        let done = match (RawCall::patience(call)?, stream.as_deref()) {
            (None, None) => core.engine.restore(version, &mut regions),
            (None, Some(stream)) => core.engine.restore_on(stream, version, &mut regions),
            (Some(patience), None) => core.engine.within(patience).restore(version, &mut regions),
            (Some(patience), Some(stream)) => {
                let within = core.engine.within(patience);
                within.restore_on(stream, version, &mut regions)
            }
        };
        Ok(done?)
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
) -> Outcome<Option<crate::core::Ordered<'core>>> {
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
    status(|| engine(handle).map(|core| core.engine.forget_hints()))
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
        let waited = match ffi::patience(seconds)? {
            None => core.engine.wait(),
            Some(patience) => core.engine.wait_for(patience),
        };
        core.protect_after(waited.map_err(Failure::from))
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn tf_protect(handle: u64) -> c_int {
    status(|| Ok(engine(handle)?.engine.protect()?))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn tf_wait_version(handle: u64, version: Version, seconds: f64) -> c_int {
    status(|| {
        let core = engine(handle)?;
        let waited = match ffi::patience(seconds)? {
            None => core.engine.wait_version(version),
            Some(patience) => core.engine.within(patience).wait_version(version),
        };
        Ok(waited?)
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
        let patience = ffi::patience(seconds)?.unwrap_or(Duration::MAX);
        Ok(engine(handle)?
            .engine
            .resize_device_cache(bytes, patience)?)
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn tf_resize_host_cache(handle: u64, bytes: usize, seconds: f64) -> c_int {
    status(|| {
        let patience = ffi::patience(seconds)?.unwrap_or(Duration::MAX);
        Ok(engine(handle)?.engine.resize_host_cache(bytes, patience)?)
    })
}
