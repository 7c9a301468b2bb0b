//! Any rank's part of a version, for a group of another size than the one that wrote it.

use tierflow_objects::History;
use tierflow_store::Piece;

use crate::failure::{Failure, Outcome, Status, exported};
use crate::ffi::{In, Out, Text};
use crate::memory::{RawRegion, host_memory};

/// The name under which an engine keeps a checkpoint's bytes.
pub(crate) const NAME: &str = "checkpoint";

pub(super) fn open(directory: &str) -> Outcome<History> {
    Ok(History::open(directory)?)
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
        targets.retain(|target| !target.is_empty());
        scatter(&open(directory)?.piece_of(version, rank)?, &mut targets)
    }
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
