//! A lane: what one thread needs to move bytes. A stream and, where a copy must pass through ordinary memory on its
//! way between the device and storage, a small pinned buffer.

use super::gather::{BUFFERS, gather};
use super::kept::Form;
use super::media::{End, Media, Reach, Tier, media, part, whole};
use super::regions::{Sink, Source, cuts};
use super::sync::{AtomicBool, Ordering};
use crate::plan::{Piece, Place, TransferFailure};
use crate::{Error, Result, Version};
use std::ops::Range;
use tierflow_device::{Device, HostReservation, Memory, ReadLoan, Stream, WriteLoan};
use tierflow_store::Storage;

/// How much moves between two looks at the cancel flag.
const PIECE: u64 = 64 << 20;

/// Size of the pinned buffer between the device and storage.
pub(super) const STAGING: u64 = if cfg!(shuttle) { 4096 } else { 4 << 20 };

/// A failed transfer: which end failed, and how.
pub(super) type Failed = (TransferFailure, Option<Error>);

/// What is not there is made when it is first needed: most lanes between memory and storage need neither.
pub(crate) struct Lane {
    device: Device,
    stream: Option<Stream>,
    staging: Option<HostReservation>,
}

impl Lane {
    pub(crate) fn new(device: &Device) -> Self {
        Self {
            device: device.clone(),
            stream: None,
            staging: None,
        }
    }

    pub(crate) fn with_stream(device: &Device) -> Result<Self> {
        Ok(Self {
            stream: Some(device.stream()?),
            ..Self::new(device)
        })
    }

    /// The caller's stream, or this lane's own.
    pub(super) fn stream_or<'s>(&'s mut self, theirs: Option<&'s Stream>) -> Result<&'s Stream> {
        match (theirs, &mut self.stream) {
            (Some(theirs), _) => Ok(theirs),
            (None, Some(own)) => Ok(own),
            (None, empty) => Ok(empty.insert(self.device.stream()?)),
        }
    }

    /// Writes the application's regions to these pieces of one tier, on `stream` if the caller brings its own.
    pub(crate) fn write(
        &mut self,
        source: &Source<'_, '_>,
        tiers: &[Tier],
        (version, pieces): (Version, &[Piece]),
        stream: Option<&Stream>,
    ) -> Result<()> {
        let Some(first) = pieces.first() else {
            return Ok(());
        };
        if let Some(kept) = media(tiers, first).kept() {
            let size = pieces.iter().map(|piece| piece.place.size).sum();
            return self.keep_regions(source, kept, (version, size), stream);
        }
        let mut targets = Vec::new();
        for piece in pieces {
            match media(tiers, piece).reach() {
                Reach::Memory(media) => targets.push((piece.start, media.lend_mut(whole(piece))?)),
                Reach::Storage(storage) => self.write_piece(source, piece, storage, stream)?,
                // Whole versions only: see above.
                Reach::Kept => {}
            }
        }
        source.copy_to(targets, self.stream_or(stream)?)
    }

    /// Writes the application's regions to one piece of storage.
    fn write_piece(
        &mut self,
        source: &Source<'_, '_>,
        Piece { start, place }: &Piece,
        storage: &dyn Storage,
        stream: Option<&Stream>,
    ) -> Result<()> {
        let staging = self.staging(place.size)?;
        let stream = self.stream_or(stream)?;
        for (at, length) in cuts(place.size, STAGING) {
            source.copy_to([(start + at, staging.lend_mut(length)?)], stream)?;
            let bytes = staging.lend(padded(storage, length))?;
            storage.write_at(place.offset + at, bytes.bytes()?)?;
        }
        Ok(())
    }

    /// Reads these pieces into the application's regions, on `stream` if the caller brings its own.
    pub(crate) fn read(
        &mut self,
        sink: &mut Sink<'_, '_>,
        tiers: &[Tier],
        (version, pieces): (Version, &[Piece]),
        stream: Option<&Stream>,
    ) -> Result<()> {
        let mut kept = pieces.iter().filter_map(|piece| media(tiers, piece).kept());
        if let Some(kept) = kept.next() {
            return self.bring_regions(sink, kept, version, stream);
        }
        let alignment = |piece: &Piece| match media(tiers, piece).reach() {
            Reach::Storage(storage) => storage.alignment() as u64,
            Reach::Memory(_) | Reach::Kept => 1,
        };
        let pieces = sink.cut(pieces, alignment);
        let mut sources = Vec::new();
        for piece in &*pieces {
            match media(tiers, piece).reach() {
                Reach::Memory(media) => sources.push((piece.start, media.lend(whole(piece))?)),
                Reach::Storage(storage) => {
                    let buffers = self.buffers(piece.place.size)?;
                    gather(storage, piece, sink, self.stream_or(stream)?, buffers)?;
                }
                // Looked for above.
                Reach::Kept => {}
            }
        }
        sink.copy_from(sources, self.stream_or(stream)?)
    }

    /// Carries pieces of a version from tiers to one other, until all is there or `cancelled`.
    pub(super) fn carry(
        &mut self,
        tiers: &[Tier],
        (version, form): (Version, Form),
        (from, to): (&[Piece], &[Piece]),
        cancelled: &AtomicBool,
    ) -> std::result::Result<(), Failed> {
        if let Some(kept) = to.first().and_then(|piece| media(tiers, piece).kept()) {
            return self.keep((tiers, from), kept, (version, form), cancelled);
        }
        let mut sources = from.iter().filter_map(|piece| media(tiers, piece).kept());
        if let Some(kept) = sources.next() {
            return self.bring(kept, version, (tiers, to), cancelled);
        }
        for (from, to) in from.iter().zip(to) {
            let ends = (media(tiers, from), &from.place);
            self.carry_piece(ends, (media(tiers, to), &to.place), cancelled)?;
        }
        Ok(())
    }

    /// Carries one piece.
    fn carry_piece(
        &mut self,
        from: (&Media, &Place),
        to: (&Media, &Place),
        cancelled: &AtomicBool,
    ) -> std::result::Result<(), Failed> {
        let piece = match (from.0.reach(), to.0.reach()) {
            (Reach::Memory(_), Reach::Memory(_)) => PIECE,
            _ => STAGING.max(PIECE / 2),
        };
        let flushes = matches!(from.0, Media::Device(_) | Media::Peers(_));
        let _under_way = (
            flushes.then(|| to.0.flushed_into(part(to.1, 0, to.1.size))),
            from.0.fetched_from(),
        );
        for (start, length) in cuts(from.1.size, piece) {
            if cancelled.load(Ordering::Relaxed) {
                return Err((TransferFailure::Cancelled, None));
            }
            match (from.0.reach(), to.0.reach()) {
                (Reach::Memory(source), Reach::Memory(target)) => {
                    let (from, to) = (part(from.1, start, length), part(to.1, start, length));
                    let stream = self.stream_or(None).map_err(at_source)?;
                    let copied = Media::copy(stream, (source, from), (target, to));
                    copied.map_err(|(end, error)| match end {
                        End::Source => at_source(error),
                        End::Target => at_destination(error),
                    })?;
                }
                (Reach::Memory(source), Reach::Storage(storage)) => {
                    let length = padded(storage, length);
                    let source = source
                        .lend(part(from.1, start, length))
                        .map_err(at_source)?;
                    self.store(source, storage, to.1.offset + start)?;
                }
                (Reach::Storage(storage), Reach::Memory(target)) => {
                    let length = padded(storage, length);
                    let target = target
                        .lend_mut(part(to.1, start, length))
                        .map_err(at_destination)?;
                    self.fetch(storage, from.1.offset + start, target)?;
                }
                (Reach::Storage(source), Reach::Storage(target)) => {
                    self.relay(
                        source,
                        from.1.offset + start,
                        target,
                        to.1.offset + start,
                        length,
                    )?;
                }
                // Not in pieces: see above.
                (Reach::Kept, _) | (_, Reach::Kept) => {}
            }
        }
        Ok(())
    }

    fn store(
        &mut self,
        source: ReadLoan,
        storage: &dyn Storage,
        offset: u64,
    ) -> std::result::Result<(), Failed> {
        if let Ok(bytes) = source.bytes() {
            return storage
                .write_at(offset, bytes)
                .map_err(|e| at_destination(e.into()));
        }
        let mut rest = source;
        let size = rest.len() as u64;
        for (start, length) in cuts(size, STAGING) {
            let (source, behind) = rest.split_at(length as usize);
            rest = behind;
            let staging = self.staging(size).map_err(at_source)?;
            let target = staging.lend_mut(length).map_err(at_source)?;
            self.copy(source, target).map_err(at_source)?;
            let staged = staging.lend(length).map_err(at_source)?;
            let bytes = staged.bytes().map_err(|e| at_source(e.into()))?;
            storage
                .write_at(offset + start, bytes)
                .map_err(|e| at_destination(e.into()))?;
        }
        Ok(())
    }

    fn fetch(
        &mut self,
        storage: &dyn Storage,
        offset: u64,
        mut target: WriteLoan,
    ) -> std::result::Result<(), Failed> {
        if let Ok(bytes) = target.bytes_mut() {
            return storage
                .read_at(offset, bytes)
                .map_err(|e| at_source(e.into()));
        }
        let mut rest = target;
        let size = rest.len() as u64;
        for (start, length) in cuts(size, STAGING) {
            let (target, behind) = rest.split_at(length as usize);
            rest = behind;
            let staging = self.staging(size).map_err(at_destination)?;
            let mut staged = staging.lend_mut(length).map_err(at_destination)?;
            let bytes = staged.bytes_mut().map_err(|e| at_destination(e.into()))?;
            storage
                .read_at(offset + start, bytes)
                .map_err(|e| at_source(e.into()))?;
            drop(staged);
            let source = staging.lend(length).map_err(at_destination)?;
            self.copy(source, target).map_err(at_destination)?;
        }
        Ok(())
    }

    fn relay(
        &mut self,
        source: &dyn Storage,
        from: u64,
        target: &dyn Storage,
        to: u64,
        length: u64,
    ) -> std::result::Result<(), Failed> {
        for (start, length) in cuts(length, STAGING) {
            let length = padded(source, padded(target, length));
            let staging = self.staging(STAGING).map_err(at_source)?;
            let mut staged = staging.lend_mut(length).map_err(at_source)?;
            let bytes = staged.bytes_mut().map_err(|e| at_source(e.into()))?;
            source
                .read_at(from + start, bytes)
                .map_err(|e| at_source(e.into()))?;
            target
                .write_at(to + start, bytes)
                .map_err(|e| at_destination(e.into()))?;
        }
        Ok(())
    }

    pub(super) fn copy(&mut self, source: ReadLoan, target: WriteLoan) -> Result<()> {
        Ok(self.stream_or(None)?.copy_all([(source, target)])?)
    }

    /// The pinned buffer, for pieces of a checkpoint of `size` bytes. Most runs never need one.
    pub(super) fn staging(&mut self, size: u64) -> Result<Staging> {
        let memory = self.pinned(size.min(STAGING))?;
        Ok(Staging { memory, at: 0 })
    }

    /// As many buffers as there are pieces of a checkpoint of `size` bytes, [`BUFFERS`] at most and one at least.
    fn buffers(&mut self, size: u64) -> Result<Vec<Staging>> {
        let count = size.div_ceil(STAGING).clamp(1, BUFFERS);
        let memory = self.pinned((count * STAGING).min(size))?;
        let buffer = |index| Staging {
            memory: memory.clone(),
            at: index * STAGING,
        };
        Ok((0..count).map(buffer).collect())
    }

    /// Pinned memory of `size` bytes at least.
    fn pinned(&mut self, size: u64) -> Result<Memory> {
        let needed = size.next_multiple_of(HostReservation::GRANULARITY as u64) as usize;
        let buffer = match self.staging.take() {
            Some(buffer) if buffer.memory().len() >= needed => buffer,
            _ => {
                let buffer = self.device.reserve_host(needed)?;
                // Unpinned, it is slower and as right. Its pages come as they are used, or with pinning.
                let _ = buffer.pin(0..needed)?;
                buffer
            }
        };
        Ok(self.staging.insert(buffer).memory().clone())
    }
}

/// A piece's room in a lane's pinned memory.
pub(super) struct Staging {
    memory: Memory,
    at: u64,
}

impl Staging {
    pub(super) fn lend(&self, length: u64) -> Result<ReadLoan> {
        Ok(self.memory.lend(self.of(length))?)
    }

    pub(super) fn lend_mut(&self, length: u64) -> Result<WriteLoan> {
        Ok(self.memory.lend_mut(self.of(length))?)
    }

    fn of(&self, length: u64) -> Range<usize> {
        self.at as usize..(self.at + length) as usize
    }
}

/// `length` rounded up to whole blocks. Places are reserved in whole blocks, so the bytes behind are the copy's own.
pub(super) fn padded(storage: &dyn Storage, length: u64) -> u64 {
    length.next_multiple_of(storage.alignment() as u64)
}

pub(super) fn at_source(error: Error) -> Failed {
    (TransferFailure::Source, Some(error))
}

pub(super) fn at_destination(error: Error) -> Failed {
    (TransferFailure::Destination, Some(error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::TierId;
    use tierflow_device::{Choice, open};
    use tierflow_store::Scratch;

    #[test]
    fn a_copy_between_two_storages_goes_through_the_lane() {
        let directory = tempfile::tempdir().unwrap();
        let storage = || Tier {
            name: "file",
            media: Media::Storage(std::sync::Arc::new(
                Scratch::open(directory.path()).unwrap(),
            )),
        };
        let tiers = [storage(), storage()];
        let device = open(Choice::Host).unwrap();
        let mut lane = Lane::new(&device);
        let size = 2 * STAGING + 12_345;
        // In two pieces that lie the other way round.
        let cut = STAGING + 4096;
        let pieces = |tier, offset| {
            let piece = |start, size: u64, offset| Piece {
                start,
                place: Place {
                    tier: TierId(tier),
                    offset,
                    size,
                    reserved: size.next_multiple_of(4096),
                },
            };
            let behind = offset + (size - cut).next_multiple_of(4096);
            [piece(0, cut, behind), piece(cut, size - cut, offset)]
        };
        let (from, to) = (pieces(0, 4096), pieces(1, 8192));
        let content: Vec<u8> = (0..size).map(|i| ((i * 31) >> 7) as u8).collect();
        let regions = [crate::Region::from(content.as_slice())];
        lane.write(&Source(&regions), &tiers, (0, &from), None)
            .unwrap();
        let flag = AtomicBool::new(false);
        lane.carry(&tiers, (0, Form::Whole), (&from, &to), &flag)
            .unwrap();
        let mut back = vec![0; content.len()];
        let mut sinks = [crate::RegionMut::from(back.as_mut_slice())];
        lane.read(&mut Sink::whole(&mut sinks), &tiers, (0, &to), None)
            .unwrap();
        assert!(back == content);
        let flag = AtomicBool::new(true);
        let stopped = lane.carry(&tiers, (0, Form::Whole), (&from, &to), &flag);
        assert!(matches!(stopped, Err((TransferFailure::Cancelled, None))));
    }
}
