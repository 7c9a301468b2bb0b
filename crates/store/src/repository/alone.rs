//! Large pieces: each lies in its own file, which several threads write.

use super::aligned::{Aligned, WriteBuffers};
use super::directory::{Directory, Readers};
use super::quota::Purpose;
use super::record::{Name, Record};
use super::snapshot::{Layout, Ready, encoded};
use super::spare::SpareFiles;
use super::threads::{WRITE_BYTES, side_by_side};
use crate::container::checksum;
use crate::file::{BLOCK, File};
use crate::{Error, Result, Storage};
use tierflow_sync::Mutex;

/// The kind of the file that already has the name of a new piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReplacedFile {
    Nothing,
    /// A piece that does not count any more.
    Known,
    /// A file that is damaged or cannot be read.
    Unknown,
}

/// Gives a piece its name. An unknown file is put aside, not removed, and only a known piece is written over.
fn publish(directory: &Directory, unpublished: &str, name: Name, old: ReplacedFile) -> Result<()> {
    let published = name.published();
    if old == ReplacedFile::Unknown {
        directory.put_aside(&published, &name.aside())?;
    }
    if old == ReplacedFile::Known {
        return directory.publish_over(unpublished, &published);
    }
    let stamp = |name: &str| directory.stamp(name).ok().flatten();
    let own = stamp(unpublished);
    directory.publish(unpublished, &published).inspect_err(|_| {
        // The piece has its name but may not be durable. The save failed, so the file is removed. A file that another process wrote
        // stays.
        if own.is_some() && stamp(&published) == own {
            let _already_failed = directory.remove(&published);
        }
    })
}

/// Writes a piece under a temporary name, synchronises it, and only then renames it.
pub(crate) fn write(
    directory: &Directory,
    old: ReplacedFile,
    layout: &mut Layout<'_>,
    buffers: &WriteBuffers,
    spares: &SpareFiles,
    ready: &Ready<'_>,
) -> Result<Record> {
    let name = Name::Alone(layout.head.version);
    let unpublished = name.unpublished();
    // A failed call may have left this file; no other call writes this version now.
    directory.remove(&unpublished)?;
    let written = write_file(directory, &unpublished, layout, buffers, spares)
        .and_then(|()| ready())
        .and_then(|()| publish(directory, &unpublished, name, old));
    if let Err(error) = written {
        let _already_failed = directory.remove(&unpublished);
        return Err(error);
    }
    Ok(Record::new(name, 0, &layout.head))
}

fn write_file(
    directory: &Directory,
    name: &str,
    layout: &mut Layout<'_>,
    buffers: &WriteBuffers,
    spares: &SpareFiles,
) -> Result<()> {
    let length = layout.head.record_length();
    let file = match spares.take(name, length) {
        Some(file) => file,
        None => match directory.create(name, length, Readers::Later, Purpose::Piece) {
            Err(Error::Full { .. }) => {
                spares.clear();
                directory.create(name, length, Readers::Later, Purpose::Piece)?
            }
            file => file?,
        },
    };
    layout.head.blocks = write_payload(&file, layout, buffers)?;
    let head = encoded(&layout.head)?;
    let mut memory = Aligned::default();
    let buffer = memory.get_mut(head.len());
    buffer.copy_from_slice(&head);
    file.write_at(0, buffer)?;
    directory.truncate(name, &file, length)?;
    directory.sync_file(name, &file)?;
    directory.unlock(name, &file)
}

/// Writes the payload. Returns its checksums, computed from the very bytes that are passed to the disk.
fn write_payload(file: &File, layout: &Layout<'_>, buffers: &WriteBuffers) -> Result<Vec<u64>> {
    let (start, length) = (u64::from(layout.head.length), layout.head.payload_length);
    debug_assert!(length.is_multiple_of(BLOCK as u64));
    let parts = (0..length).step_by(WRITE_BYTES as usize);
    let threads = buffers.most().min(length.div_ceil(WRITE_BYTES) as usize);
    let sums: Mutex<_> = Mutex::new(vec![0; layout.head.block_count() as usize]);
    let write = |(): &mut (), at: u64| {
        let mut memory = buffers.take();
        let buffer = memory.get_mut((length - at).min(WRITE_BYTES) as usize);
        layout.fill(at, buffer)?;
        let blocks = buffer.chunks(layout.head.block_bytes as usize);
        let found: Vec<u64> = blocks.map(checksum).collect();
        let first = (at / u64::from(layout.head.block_bytes)) as usize;
        sums.lock()[first..first + found.len()].copy_from_slice(&found);
        file.write_at(start + at, buffer)
    };
    side_by_side(threads, parts, || (), write)?;
    Ok(sums.into_inner())
}
