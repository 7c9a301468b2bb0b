//! A lane: what one thread needs to move bytes. A stream and, where a copy must pass through ordinary memory on its
//! way between the device and storage, a small pinned buffer.

use super::bypass::{BUFFERS, Crews, bypass};
use super::ends::{Destination, Lying, Origin, Streams};
use super::job::Direction;
use super::kept::Form;
use super::medium::{Level, medium};
use super::regions::{Sink, Source};
use super::staging::Pinned;
use super::sync::{AtomicBool, Ordering};
use crate::plan::{Piece, TierId, TransferFailure};
use crate::{Error, Result, Version};
use std::ops::Range;
use std::sync::Arc;
use tierflow_device::{Device, Stream};

/// How much moves at a time between memories that one copy reaches, and so between two looks at the flag that stops it.
const BETWEEN_MEMORIES: u64 = 64 << 20;

/// The same between memory and storage.
pub(super) const WITH_STORAGE: u64 = 32 << 20;

/// A failed transfer: which end failed, and how.
pub(crate) type Failed = (TransferFailure, Option<Error>);

/// What is not there is made when it is first needed: most lanes between memory and storage need neither.
pub(crate) struct Lane {
    device: Device,
    stream: Option<Arc<Stream>>,
    pub(super) staging: Pinned,
    /// Copies that could not be read, of which the plan has not heard yet.
    pub(super) damaged: Vec<(Version, TierId)>,
    /// Ends every copy of the lane, between two blocks and whichever way it goes, once it is set.
    stop: Option<Arc<AtomicBool>>,
}

impl Lane {
    pub(crate) fn new(device: &Device) -> Self {
        Self {
            device: device.clone(),
            stream: None,
            staging: Pinned::new(device),
            damaged: Vec::new(),
            stop: None,
        }
    }

    pub(crate) fn with_stream(device: &Device) -> Result<Self> {
        Ok(Self::on(device, Arc::new(device.stream()?)))
    }

    /// A lane whose copies run in order with those of all lanes on the same stream.
    pub(crate) fn on(device: &Device, stream: Arc<Stream>) -> Self {
        Self {
            stream: Some(stream),
            ..Self::new(device)
        }
    }

    /// Has the flag of a transfer end its copies, until the next one begins.
    pub(crate) fn stop_by(&mut self, stop: Option<Arc<AtomicBool>>) {
        self.stop = stop;
    }

    /// What ends the copies of this lane.
    pub(super) fn stop(&self) -> Stop {
        Stop(self.stop.clone())
    }

    /// The caller's stream, or this lane's own.
    pub(super) fn streams<'s>(&'s mut self, theirs: Option<&'s Stream>) -> Streams<'s> {
        Streams {
            device: &self.device,
            own: &mut self.stream,
            theirs,
        }
    }

    /// Writes the application's regions to these pieces of one tier, on `stream` if the caller brings its own.
    pub(crate) fn write(
        &mut self,
        source: &Source<'_, '_>,
        (tiers, crews): (&[Level], Crews<'_>),
        (version, pieces): (Version, &[Piece]),
        stream: Option<&Stream>,
    ) -> Result<()> {
        let Some(first) = pieces.first() else {
            return Ok(());
        };
        if let Some(kept) = medium(tiers, first).kept() {
            let size = pieces.iter().map(|piece| piece.place.size).sum();
            return self.keep_regions(source, kept, (version, size), stream);
        }
        let mut targets = Vec::new();
        for piece in pieces {
            let mut to = Lying::on(tiers, piece);
            match to.lend_mut(to.all()) {
                Some(lent) => targets.push((piece.start, lent?)),
                None => {
                    let fill =
                        |at, memory, streams: &mut Streams<'_>| source.fill(at, memory, streams);
                    let buffers = self.staging.at_most(BUFFERS, to.piece.place.size)?;
                    let stop = self.stop();
                    bypass(
                        (buffers, self.streams(stream), &stop),
                        to,
                        (Direction::Down, crews),
                        (fill, |_, _, _: &mut _| Ok(())),
                    )?;
                }
            }
        }
        source.copy_to(targets, self.streams(stream).get()?)
    }

    /// Reads these pieces into the application's regions, on `stream` if the caller brings its own.
    pub(crate) fn read(
        &mut self,
        sink: &mut Sink<'_, '_>,
        (tiers, crews): (&[Level], Crews<'_>),
        (version, pieces): (Version, &[Piece]),
        stream: Option<&Stream>,
    ) -> Result<()> {
        let mut kept = pieces
            .iter()
            .filter_map(|piece| Some((medium(tiers, piece).kept()?, piece.place.tier)));
        if let Some((kept, tier)) = kept.next() {
            let brought = self.bring_regions(sink, kept, version, stream);
            return brought.inspect_err(|error| self.note((version, tier), error));
        }
        let alignment = |piece: &Piece| {
            let storage = medium(tiers, piece).storage();
            storage.map_or(1, |storage| storage.alignment() as u64)
        };
        let pieces = sink.cut(pieces, alignment);
        let mut sources = Vec::new();
        for piece in &*pieces {
            let from = Lying::on(tiers, piece);
            match from.lend(from.all()) {
                Some(lent) => sources.push((piece.start, lent?)),
                None => {
                    let take =
                        |at, memory, streams: &mut Streams<'_>| sink.take(at, memory, streams);
                    let buffers = self.staging.at_most(BUFFERS, from.piece.place.size)?;
                    let stop = self.stop();
                    let read = bypass(
                        (buffers, self.streams(stream), &stop),
                        from,
                        (Direction::Up, crews),
                        (|_, _, _: &mut _| Ok(()), take),
                    );
                    let place = (version, piece.place.tier);
                    read.inspect_err(|error| self.note(place, error))?;
                }
            }
        }
        sink.copy_from(sources, self.streams(stream).get()?)
    }

    /// Carries pieces of a version from tiers to one other, until all is there or the lane is stopped.
    pub(super) fn carry(
        &mut self,
        tiers: &[Level],
        (version, form): (Version, Form),
        (from, to): (&[Piece], &[Piece]),
    ) -> std::result::Result<(), Failed> {
        let carried = self.carry_pieces(tiers, (version, form), (from, to));
        carried.inspect_err(|failed| self.note_source(tiers, (version, from), failed))
    }

    fn carry_pieces(
        &mut self,
        tiers: &[Level],
        (version, form): (Version, Form),
        (from, to): (&[Piece], &[Piece]),
    ) -> std::result::Result<(), Failed> {
        if let Some(kept) = to.first().and_then(|piece| medium(tiers, piece).kept()) {
            return self.keep((tiers, from), kept, (version, form));
        }
        let mut sources = from.iter().filter_map(|piece| medium(tiers, piece).kept());
        if let Some(kept) = sources.next() {
            return self.bring(kept, version, (tiers, to));
        }
        for (from, to) in from.iter().zip(to) {
            let (from, mut to) = (Lying::on(tiers, from), Lying::on(tiers, to));
            let is_flush = from.piece.place.tier < to.piece.place.tier;
            let _under_way = (
                is_flush.then(|| to.medium.flushed_into(to.at(to.all()))),
                from.medium.fetched_from(),
            );
            self.copy(&from, &mut to, from.all(), None)?;
        }
        Ok(())
    }

    /// Copies bytes of a version from one end to the other, until they are there or the lane is stopped.
    ///
    /// Where one end lies in memory that the other reaches, that is one copy; else the bytes go through pinned buffers, or
    /// straight between a device and a file.
    pub(super) fn copy(
        &mut self,
        from: &dyn Origin,
        to: &mut dyn Destination,
        bytes: Range<u64>,
        theirs: Option<&Stream>,
    ) -> std::result::Result<(), Failed> {
        let mut at = bytes.start;
        while at < bytes.end {
            self.stop().look()?;
            let rest = at..bytes.end;
            at += match self.copy_in_place(from, to, rest.clone(), theirs)? {
                0 => self.copy_across(from, to, rest, theirs)?,
                copied => copied,
            };
        }
        Ok(())
    }

    /// Copies the first of these bytes where one end reaches the memory of the other. Returns how many: 0 where it does not.
    fn copy_in_place(
        &mut self,
        from: &dyn Origin,
        to: &mut dyn Destination,
        bytes: Range<u64>,
        theirs: Option<&Stream>,
    ) -> std::result::Result<u64, Failed> {
        if from.before(bytes.start) > 0 {
            return Ok(0);
        }
        let has_blocks = from.whole(1).max(to.whole(1)) > 1;
        let most = if has_blocks {
            WITH_STORAGE
        } else {
            BETWEEN_MEMORIES
        };
        let length = most.min(bytes.end - bytes.start);
        let (at, mut streams) = (bytes.start, self.streams(theirs));
        if let Some(lent) = from.lend(at..at + to.whole(length)) {
            let lent = lent.map_err(at_source)?;
            if to.takes(&lent) {
                to.take(at, lent, &mut streams).map_err(at_destination)?;
                return Ok(length);
            }
        }
        if let Some(lent) = to.lend_mut(at..at + from.whole(length)) {
            let lent = lent.map_err(at_destination)?;
            if from.fills(&lent) {
                from.fill(at, lent, &mut streams).map_err(at_source)?;
                return Ok(length);
            }
        }
        Ok(0)
    }
}

/// What ends the copies of a lane, if anything does.
#[derive(Debug, Clone, Default)]
pub(super) struct Stop(Option<Arc<AtomicBool>>);

impl Stop {
    pub(super) fn is_set(&self) -> bool {
        let stop = self.0.as_ref();
        stop.is_some_and(|stop| stop.load(Ordering::Relaxed))
    }

    /// What a stopped copy ends with.
    pub(super) fn look(&self) -> std::result::Result<(), Failed> {
        match self.is_set() {
            true => Err((TransferFailure::Cancelled, None)),
            false => Ok(()),
        }
    }
}

/// No end has failed if the copy was stopped.
fn failed(end: TransferFailure, error: Error) -> Failed {
    match error {
        Error::Storage(tierflow_store::Error::Cancelled) => (TransferFailure::Cancelled, None),
        error => (end, Some(error)),
    }
}

pub(super) fn at_source(error: Error) -> Failed {
    failed(TransferFailure::Source, error)
}

pub(super) fn at_destination(error: Error) -> Failed {
    failed(TransferFailure::Destination, error)
}

#[cfg(test)]
mod tests {
    use super::super::medium::Medium;
    use super::super::staging::STAGED;
    use super::*;
    use crate::kind::Kind;
    use crate::plan::{Place, TierId};
    use tierflow_device::{Choice, open};
    use tierflow_store::Scratch;

    #[test]
    fn a_copy_between_two_storages_goes_through_the_lane() {
        let directory = tempfile::tempdir().unwrap();
        let storage = || Level {
            kind: Kind::Storage,
            medium: Medium::Storage(Arc::new(Scratch::open(directory.path()).unwrap()), None),
        };
        let tiers = [storage(), storage()];
        let device = open(Choice::Host).unwrap();
        let mut lane = Lane::new(&device);
        let size = 2 * STAGED + 12_345;
        // In two pieces that lie the other way round.
        let cut = STAGED + 4096;
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
        lane.write(
            &Source::new(&regions),
            (&tiers, &|_, _| None),
            (0, &from),
            None,
        )
        .unwrap();
        lane.carry(&tiers, (0, Form::Whole), (&from, &to)).unwrap();
        let mut back = vec![0; content.len()];
        let mut sinks = [crate::RegionMut::from(back.as_mut_slice())];
        lane.read(
            &mut Sink::whole(&mut sinks),
            (&tiers, &|_, _| None),
            (0, &to),
            None,
        )
        .unwrap();
        assert!(back == content);
        lane.stop_by(Some(Arc::new(AtomicBool::new(true))));
        let stopped = lane.carry(&tiers, (0, Form::Whole), (&from, &to));
        assert!(matches!(stopped, Err((TransferFailure::Cancelled, None))));
    }
}
