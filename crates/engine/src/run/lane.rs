//! A lane: what one thread needs to move bytes. A stream and, where a copy must pass through ordinary memory on its
//! way between the device and storage, a small pinned buffer.

use super::gather::{BUFFERS, gather};
use super::kept::Form;
use super::media::{End, Media, Reach, part};
use super::regions::{Sink, Source, pieces};
use super::sync::{AtomicBool, Ordering};
use crate::plan::{Place, TransferFailure};
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

    /// Writes the application's regions to `place`, on `stream` if the caller brings its own.
    pub(crate) fn write(
        &mut self,
        source: &Source<'_, '_>,
        media: &Media,
        (version, place): (Version, &Place),
        stream: Option<&Stream>,
    ) -> Result<()> {
        match media.reach() {
            Reach::Kept(kept) => self.keep_regions(source, kept, (version, place.size), stream),
            Reach::Memory(media) => {
                let target = media.lend_mut(part(place, 0, place.size))?;
                source.copy_to(0..place.size, target, self.stream_or(stream)?)
            }
            Reach::Storage(storage) => {
                let staging = self.staging(place.size)?;
                let stream = self.stream_or(stream)?;
                for (start, length) in pieces(place.size, STAGING) {
                    source.copy_to(start..start + length, staging.lend_mut(length)?, stream)?;
                    let bytes = staging.lend(padded(storage, length))?;
                    storage.write_at(place.offset + start, bytes.bytes()?)?;
                }
                Ok(())
            }
        }
    }

    /// Reads `place` into the application's regions, on `stream` if the caller brings its own.
    pub(crate) fn read(
        &mut self,
        sink: &mut Sink<'_, '_>,
        media: &Media,
        (version, place): (Version, &Place),
        stream: Option<&Stream>,
    ) -> Result<()> {
        match media.reach() {
            Reach::Kept(kept) => self.bring_regions(sink, kept, version, stream),
            Reach::Memory(media) => {
                let source = media.lend(part(place, 0, place.size))?;
                sink.copy_from(0..place.size, source, self.stream_or(stream)?)
            }
            Reach::Storage(storage) => {
                let buffers = self.buffers(place.size)?;
                gather(storage, place, sink, self.stream_or(stream)?, buffers)
            }
        }
    }

    /// Carries a part of a copy from one tier to another, piece by piece, until it is done or `cancelled`; all of it
    /// where one end keeps versions under their numbers.
    pub(super) fn carry(
        &mut self,
        (version, form): (Version, Form),
        from: (&Media, &Place),
        to: (&Media, &Place),
        bytes: Range<u64>,
        cancelled: &AtomicBool,
    ) -> std::result::Result<(), Failed> {
        let piece = match (from.0.reach(), to.0.reach()) {
            (Reach::Memory(_), Reach::Memory(_)) => PIECE,
            _ => STAGING.max(PIECE / 2),
        };
        let flushes = matches!(from.0, Media::Device(_) | Media::Peers(_));
        let _under_way = (
            flushes.then(|| {
                to.0.flushed_into(part(to.1, bytes.start, bytes.end - bytes.start))
            }),
            from.0.fetched_from(),
        );
        match (from.0.reach(), to.0.reach()) {
            (_, Reach::Kept(kept)) => return self.keep(from, kept, (version, form), cancelled),
            (Reach::Kept(kept), _) => return self.bring(kept, version, to, cancelled),
            _ => {}
        }
        for (start, length) in pieces(bytes.end - bytes.start, piece) {
            let start = bytes.start + start;
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
                (Reach::Kept(_), _) | (_, Reach::Kept(_)) => {}
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
        for (start, length) in pieces(size, STAGING) {
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
        for (start, length) in pieces(size, STAGING) {
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
        for (start, length) in pieces(length, STAGING) {
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
        let storage = || {
            Media::Storage(std::sync::Arc::new(
                Scratch::open(directory.path()).unwrap(),
            ))
        };
        let (from, to) = (storage(), storage());
        let device = open(Choice::Host).unwrap();
        let mut lane = Lane::new(&device);
        let size = 2 * STAGING + 12_345;
        let place = |offset| Place {
            tier: TierId(0),
            offset,
            size,
            reserved: size.next_multiple_of(4096),
        };
        let content: Vec<u8> = (0..size).map(|i| ((i * 31) >> 7) as u8).collect();
        let regions = [crate::Region::from(content.as_slice())];
        lane.write(&Source(&regions), &from, (0, &place(4096)), None)
            .unwrap();
        lane.carry(
            (0, Form::Whole),
            (&from, &place(4096)),
            (&to, &place(8192)),
            0..size,
            &AtomicBool::new(false),
        )
        .unwrap();
        let mut back = vec![0; content.len()];
        let mut sinks = [crate::RegionMut::from(back.as_mut_slice())];
        lane.read(&mut Sink(&mut sinks), &to, (0, &place(8192)), None)
            .unwrap();
        assert!(back == content);
        let stopped = lane.carry(
            (0, Form::Whole),
            (&from, &place(0)),
            (&to, &place(0)),
            0..size,
            &AtomicBool::new(true),
        );
        assert!(matches!(stopped, Err((TransferFailure::Cancelled, None))));
    }
}
