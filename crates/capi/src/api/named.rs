//! Regions by their names: of this rank, of others, and of groups of another size.

use std::ffi::{c_char, c_int};

use tierflow_engine::{Region, RegionMut, Version, read_regions};

use super::engine::{RawCall, disjoint, engine, order, spans};
use super::parts::open;
use crate::failure::{Failure, Outcome, status};
use crate::ffi;
use crate::memory::{RawRegion, Span};

/// `tf_named` of the header.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct RawNamed {
    pub(crate) name: *const c_char,
    pub(crate) region: RawRegion,
}

/// Names and where their bytes lie.
///
/// # Safety
/// The contract of `tf_named` in the header.
unsafe fn named<'a>(
    first: *const RawNamed,
    count: usize,
) -> Outcome<(Vec<&'a str>, Vec<RawRegion>)> {
    // SAFETY: the caller's promise.
    let all = unsafe { ffi::list(first, count, "regions") }?;
    // SAFETY: the caller's promise.
    let names = all.iter().map(|one| unsafe { ffi::text(one.name, "name") });
    let names = names.collect::<Outcome<_>>()?;
    Ok((names, all.iter().map(|one| one.region).collect()))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn tf_checkpoint_named(
    handle: u64,
    version: Version,
    regions: *const RawNamed,
    count: usize,
    call: *const RawCall,
) -> c_int {
    status(|| {
        let core = engine(handle)?;
        // SAFETY: the header's contract.
        let call = unsafe { ffi::read(call) };
        // SAFETY: the header's contract.
        let (names, raw) = unsafe { named(regions, count) }?;
        // SAFETY: the header's contract.
        let spans = unsafe { spans(&core, &raw) }?;
        // SAFETY: the header's contract.
        let stream = unsafe { order(&core, &spans, RawCall::stream(call)) }?;
        let regions = spans.iter().map(Span::region).zip(names);
        let regions: Vec<Region<'_>> = regions.map(|(one, name)| one.named(name)).collect();
        let call = RawCall::of(call, &core)?.on(stream.as_deref());
        Ok(call.checkpoint(version, &regions)?)
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn tf_restore_named(
    handle: u64,
    version: Version,
    regions: *const RawNamed,
    count: usize,
    call: *const RawCall,
) -> c_int {
    status(|| {
        let core = engine(handle)?;
        // SAFETY: the header's contract.
        let call = unsafe { ffi::read(call) };
        // SAFETY: the header's contract.
        let (names, raw) = unsafe { named(regions, count) }?;
        disjoint(&raw)?;
        // SAFETY: the header's contract, and no two overlap.
        let mut spans = unsafe { spans(&core, &raw) }?;
        // SAFETY: the header's contract.
        let stream = unsafe { order(&core, &spans, RawCall::stream(call)) }?;
        let regions = spans.iter_mut().map(Span::region_mut);
        let mut regions: Vec<(&str, RegionMut<'_>)> = names.into_iter().zip(regions).collect();
        let call = RawCall::of(call, &core)?.on(stream.as_deref());
        Ok(call.restore_regions(version, &mut regions)?)
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn tf_region_size(
    handle: u64,
    version: Version,
    name: *const c_char,
    bytes: *mut u64,
) -> c_int {
    status(|| {
        // SAFETY: the header's contract.
        let name = unsafe { ffi::text(name, "name") }?;
        let all = engine(handle)?.engine.regions(version)?;
        let found = all.iter().find(|info| info.name == name);
        let none = || Failure::argument(format!("version {version} has no region {name:?}"));
        // SAFETY: the header's contract.
        unsafe { ffi::put(bytes, found.ok_or_else(none)?.length, "bytes") }
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn tf_restore_rank(
    handle: u64,
    version: Version,
    rank: u32,
    regions: *const RawNamed,
    count: usize,
) -> c_int {
    status(|| {
        let core = engine(handle)?;
        // SAFETY: the header's contract.
        let mut regions = unsafe { in_memory(regions, count) }?;
        let piece = core.engine.piece(version, Some(rank))?;
        Ok(read_regions(&piece, &mut regions)?)
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn tf_restore_named_from(
    directory: *const c_char,
    version: u64,
    rank: u32,
    regions: *const RawNamed,
    count: usize,
) -> c_int {
    status(|| {
        // SAFETY: the header's contract.
        let directory = unsafe { ffi::text(directory, "directory") }?;
        // SAFETY: the header's contract.
        let mut regions = unsafe { in_memory(regions, count) }?;
        let piece = open(directory)?.piece_of(version, rank)?;
        Ok(piece.restore(&mut regions)?)
    })
}

/// Host memory by names.
///
/// # Safety
/// The contract of `tf_named` in the header, of host memory.
unsafe fn in_memory<'a>(
    regions: *const RawNamed,
    count: usize,
) -> Outcome<Vec<(&'a str, &'a mut [u8])>> {
    // SAFETY: the caller's promise.
    let (names, raw) = unsafe { named(regions, count) }?;
    disjoint(&raw)?;
    let mut all: Vec<(&str, &mut [u8])> = Vec::with_capacity(names.len());
    for (name, region) in names.into_iter().zip(raw) {
        let bytes = usize::try_from(region.bytes).ok();
        let bytes = bytes.filter(|bytes| isize::try_from(*bytes).is_ok());
        match bytes {
            Some(0) => all.push((name, &mut [])),
            Some(bytes) if !region.address.is_null() => {
                // SAFETY: the caller's promise, and no two share bytes.
                let memory =
                    unsafe { std::slice::from_raw_parts_mut(region.address.cast(), bytes) };
                all.push((name, memory));
            }
            _ => {
                let text = format!("region {name:?} of {} bytes is none", region.bytes);
                return Err(Failure::argument(text));
            }
        }
    }
    Ok(all)
}
