//! Any rank's part of a version, for a group of another size than the one that wrote it.

use std::ffi::{c_char, c_int};

use tierflow_objects::History;
use tierflow_store::Piece;

use crate::failure::{Failure, Outcome, Status, status};
use crate::ffi;
use crate::memory::{RawRegion, overlap};

/// The name under which an engine keeps a checkpoint's bytes.
pub(crate) const NAME: &str = "checkpoint";

pub(super) fn open(directory: &str) -> Outcome<History> {
    Ok(History::open(directory)?)
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn tf_find(
    directory: *const c_char,
    before: u64,
    version: *mut u64,
    ranks: *mut u32,
) -> c_int {
    status(|| {
        // SAFETY: the header's contract.
        let directory = unsafe { ffi::text(directory, "directory") }?;
        let whole = open(directory)?.versions()?;
        let older = whole
            .iter()
            .rev()
            .find(|info| before == u64::MAX || info.version < before);
        let none = || {
            Failure::new(
                Status::Unknown,
                format!("{directory} holds no such version"),
            )
        };
        let found = older.ok_or_else(none)?;
        // SAFETY: the header's contract.
        unsafe { ffi::put(version, found.version, "version") }?;
        // SAFETY: the header's contract.
        unsafe { ffi::put(ranks, found.ranks, "ranks") }
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn tf_part_size(
    directory: *const c_char,
    version: u64,
    rank: u32,
    bytes: *mut u64,
) -> c_int {
    status(|| {
        // SAFETY: the header's contract.
        let directory = unsafe { ffi::text(directory, "directory") }?;
        let piece = open(directory)?.piece_of(version, rank)?;
        // SAFETY: the header's contract.
        unsafe { ffi::put(bytes, length(&piece), "bytes") }
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn tf_restore_from(
    directory: *const c_char,
    version: u64,
    rank: u32,
    regions: *const RawRegion,
    count: usize,
) -> c_int {
    status(|| {
        // SAFETY: the header's contract.
        let directory = unsafe { ffi::text(directory, "directory") }?;
        // SAFETY: the header's contract.
        let regions = unsafe { ffi::list(regions, count, "regions") }?;
        if overlap(regions) {
            return Err(Failure::argument("regions to restore to share bytes"));
        }
        let mut targets = Vec::new();
        for region in regions.iter().filter(|region| region.bytes > 0) {
            if region.address.is_null() {
                return Err(Failure::argument("a region that has bytes is null"));
            }
            let bytes = usize::try_from(region.bytes).unwrap_or(usize::MAX);
            // SAFETY: the header's contract: host memory, of which no two regions share bytes.
            targets.push(unsafe { std::slice::from_raw_parts_mut(region.address.cast(), bytes) });
        }
        let piece = open(directory)?.piece_of(version, rank)?;
        scatter(&piece, &mut targets)
    })
}

/// Bytes of a checkpoint, as its rank gave them.
fn length(piece: &Piece) -> u64 {
    let info = piece.info();
    info.decoded.unwrap_or(info.bytes)
}

/// Fills memory with a piece, one slice after the other.
pub(crate) fn scatter(piece: &Piece, targets: &mut [&mut [u8]]) -> Outcome {
    let given: u64 = targets.iter().map(|target| target.len() as u64).sum();
    if given != length(piece) || piece.info().decoded.is_some() {
        return Err(Failure::argument(format!(
            "the part of rank {} of version {} holds {} bytes{}, the regions to restore it to {given}",
            piece.rank().0,
            piece.version(),
            length(piece),
            match piece.info().decoded {
                Some(_) => " as a difference, which only its own engine reads",
                None => "",
            }
        )));
    }
    if given == 0 {
        return Ok(());
    }
    let mut offset = 0;
    let parts = targets.iter_mut().map(|target| {
        let part = (offset, &mut **target);
        offset += part.1.len() as u64;
        part
    });
    let mut parts: Vec<(u64, &mut [u8])> = parts.collect();
    Ok(piece.restore_range_parts(&mut parts)?)
}
