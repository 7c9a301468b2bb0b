//! Any rank's part of a version, for a group of another size than the one that wrote it.

use tierflow_bind::parse;
use tierflow_engine::read_piece;
use tierflow_objects::History;
use tierflow_store::Piece;

use crate::failure::{Failure, Outcome, Status, exported};
use crate::ffi::{In, Out, Text};
use crate::memory::{RawRegion, host_memory};

pub(super) fn open(directory: &str) -> Outcome<History> {
    let wrong = |why| Failure::argument(format!("{directory:?}: {why}"));
    Ok(History::open(
        parse::path(directory.as_ref()).map_err(wrong)?,
    )?)
}

exported! {
    fn tf_find(directory: Text<'_>, before: u64, version: Out<u64>, ranks: Out<u32>) {
        let directory = directory.read("directory")?;
        let whole = open(directory)?.versions()?;
        let is_older = |found: u64| before == u64::MAX || found < before;
        let found = whole.iter().rev().find(|info| is_older(info.version));
        let none = || Failure::new(Status::Unknown, format!("{directory} holds no such version"));
        let found = found.ok_or_else(none)?;
        version.put(found.version, "version")?;
        ranks.put(found.ranks, "ranks")
    }

    fn tf_part_size(directory: Text<'_>, version: u64, rank: u32, bytes: Out<u64>) {
        let piece = open(directory.read("directory")?)?.piece_of(version, rank)?;
        bytes.put(length(&piece), "bytes")
    }

    fn tf_restore_from(directory: Text<'_>, version: u64, rank: u32, regions: In<'_, RawRegion>, count: usize) {
        let directory = directory.read("directory")?;
        let mut targets = host_memory(regions.list(count, "regions")?)?;
        scatter(&open(directory)?.piece_of(version, rank)?, &mut targets)
    }
}

/// Returns the bytes of a rank's checkpoint before compression.
fn length(piece: &Piece) -> u64 {
    let info = piece.info();
    info.decoded.unwrap_or(info.bytes)
}

/// Fills the slices of memory with a piece, one after the other. Decodes the piece if it is compressed.
pub(crate) fn scatter(piece: &Piece, targets: &mut [&mut [u8]]) -> Outcome {
    let given: u64 = targets.iter().map(|target| target.len() as u64).sum();
    if given != length(piece) {
        return Err(Failure::argument(format!(
            "the part of rank {} of version {} holds {} bytes, the regions to restore it to {given}",
            piece.rank().0,
            piece.version(),
            length(piece),
        )));
    }
    if piece.info().decoded.is_some() {
        let mut rest = &*read_piece(piece)?;
        for target in targets {
            let (own, after) = rest.split_at(target.len());
            target.copy_from_slice(own);
            rest = after;
        }
        return Ok(());
    }
    let mut offset = 0;
    let parts = targets.iter_mut().filter(|target| !target.is_empty());
    let parts = parts.map(|target| {
        let part = (offset, &mut **target);
        offset += part.1.len() as u64;
        part
    });
    let mut parts: Vec<(u64, &mut [u8])> = parts.collect();
    match parts.is_empty() {
        true => Ok(()),
        false => Ok(piece.restore_range_parts(&mut parts)?),
    }
}
