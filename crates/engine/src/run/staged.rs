//! Copies between memory of a device and storage: through two pinned buffers, so that the device empties or fills one while
//! the disk has the other.

use super::ends::{Destination, Origin, Streams};
use super::lane::{Failed, Lane, at_destination, at_source};
use super::staging::{STAGED, Staging};
use crate::Result;
use std::ops::Range;
use tierflow_device::{Stream, Transfer};

/// One buffer that is filled while another is emptied.
const BUFFERS: u64 = 2;

/// Bytes of a version that go through a buffer at once.
struct Part {
    at: u64,
    length: u64,
    /// Bytes before them that are read with them.
    before: u64,
}

impl Part {
    /// The first of these bytes, as many as a buffer holds.
    fn first(from: &dyn Origin, to: &dyn Destination, bytes: &Range<u64>) -> Self {
        let before = from.before(bytes.start);
        let room = STAGED - to.whole(before);
        Self {
            at: bytes.start,
            length: room.min(bytes.end - bytes.start),
            before,
        }
    }

    /// Begins to fill a buffer with it.
    fn fill(
        &self,
        from: &dyn Origin,
        buffer: &Staging,
        streams: &mut Streams<'_>,
    ) -> Result<Option<Transfer>> {
        let staged = buffer.lend_mut(0..from.whole(self.before + self.length))?;
        from.begin_fill(self.at - self.before, staged, streams)
    }

    /// Begins to empty the buffer.
    fn take(
        &self,
        to: &mut dyn Destination,
        buffer: &Staging,
        streams: &mut Streams<'_>,
    ) -> Result<Option<Transfer>> {
        let staged = buffer.lend(self.before..self.before + to.whole(self.length))?;
        to.begin_take(self.at, staged, streams)
    }
}

/// Waits for what a device does, if it does anything.
fn settle(transfer: Option<Transfer>) -> Result<()> {
    transfer.map_or(Ok(()), |transfer| Ok(transfer.wait().result?))
}

impl Lane {
    /// Copies the first of these bytes through pinned buffers: all of them if one end is on the device, else as many as a buffer
    /// holds. Returns how many. Whatever happens, the buffers are not in use any more then.
    pub(super) fn copy_staged(
        &mut self,
        from: &dyn Origin,
        to: &mut dyn Destination,
        bytes: Range<u64>,
        theirs: Option<&Stream>,
    ) -> std::result::Result<u64, Failed> {
        let mut part = Part::first(from, to, &bytes);
        let end = match from.is_on_device() || to.is_on_device() {
            true => bytes.end,
            false => part.at + part.length,
        };
        let size = part.before + to.whole(end - part.at).max(from.whole(end - part.at));
        let buffers = self.staging.at_most(BUFFERS, size).map_err(at_source)?;
        let stop = self.stop();
        let mut streams = self.streams(theirs);
        let mut emptied: Vec<Option<Transfer>> = buffers.iter().map(|_| None).collect();
        let mut filled = part
            .fill(from, &buffers[0], &mut streams)
            .map_err(at_source)?;
        let mut turn = 0;
        loop {
            let next = (turn + 1) % buffers.len();
            settle(filled.take()).map_err(at_source)?;
            let rest = part.at + part.length..end;
            let following = (!rest.is_empty()).then(|| Part::first(from, to, &rest));
            let fill_next =
                |following: &Part, emptied: &mut [Option<Transfer>], streams: &mut _| {
                    settle(emptied[next].take()).map_err(at_destination)?;
                    following
                        .fill(from, &buffers[next], streams)
                        .map_err(at_source)
                };
            if let Some(following) = following.as_ref().filter(|_| from.is_on_device()) {
                // While the device fills the next buffer, this one is written.
                filled = fill_next(following, &mut emptied, &mut streams)?;
            }
            emptied[turn] = part
                .take(to, &buffers[turn], &mut streams)
                .map_err(at_destination)?;
            let Some(following) = following else { break };
            stop.look()?;
            if !from.is_on_device() {
                // While the device empties this buffer, the next one is read.
                filled = fill_next(&following, &mut emptied, &mut streams)?;
            }
            (part, turn) = (following, next);
        }
        for transfer in emptied {
            settle(transfer).map_err(at_destination)?;
        }
        Ok(end - bytes.start)
    }
}

#[cfg(test)]
mod tests {
    use super::super::ends::Lying;
    use super::super::medium::{Level, Medium};
    use super::*;
    use crate::kind::Kind;
    use crate::plan::{Piece, Place, TierId, TransferFailure};
    use crate::run::sync::{AtomicBool, Ordering};
    use std::sync::Arc;
    use tierflow_device::{Choice, Device, open};
    use tierflow_store::{Scratch, Storage};
    use tierflow_tier_alloc::{DeviceArena, DeviceOptions};

    const SIZE: u64 = 5 * STAGED + 12_345;

    /// A device cache and a file below it.
    fn tiers(device: &Device, storage: Arc<dyn Storage>) -> [Level; 2] {
        let room = 2 * (SIZE as usize).next_multiple_of(2 << 20);
        let arena = DeviceArena::start(device, room, DeviceOptions::default()).unwrap();
        [
            Level {
                kind: Kind::Device,
                medium: Medium::Device(arena),
            },
            Level {
                kind: Kind::Storage,
                medium: Medium::Storage(storage, None),
            },
        ]
    }

    fn piece(tier: usize, offset: u64) -> Piece {
        let place = Place {
            tier: TierId(tier),
            offset,
            size: SIZE,
            reserved: SIZE.next_multiple_of(4096),
        };
        Piece { start: 0, place }
    }

    fn put(tiers: &[Level], at: &Piece, bytes: &[u8]) {
        let mut lent = Lying::on(tiers, at);
        let mut lent = Destination::lend_mut(&mut lent, 0..SIZE).unwrap().unwrap();
        lent.bytes_mut().unwrap().copy_from_slice(bytes);
    }

    fn content() -> Vec<u8> {
        (0..SIZE).map(|at| ((at * 31) >> 7) as u8).collect()
    }

    type Copied = std::result::Result<u64, Failed>;

    fn copy(tiers: &[Level], from: &Piece, to: &Piece, stop: Option<Arc<AtomicBool>>) -> Copied {
        let device = open(Choice::Host).unwrap();
        let mut lane = Lane::new(&device);
        let (from, mut to) = (Lying::on(tiers, from), Lying::on(tiers, to));
        lane.stop_by(stop);
        lane.copy_staged(&from, &mut to, 0..SIZE, None)
    }

    #[test]
    fn a_piece_goes_down_and_comes_up_as_it_was() {
        let directory = tempfile::tempdir().unwrap();
        let device = open(Choice::Host).unwrap();
        let tiers = tiers(&device, Arc::new(Scratch::open(directory.path()).unwrap()));
        let (above, below) = (piece(0, 4096), piece(1, 8192));
        let other = piece(0, 4096 + SIZE.next_multiple_of(4096));
        let content = content();
        put(&tiers, &above, &content);
        assert_eq!(copy(&tiers, &above, &below, None).unwrap(), SIZE);
        assert_eq!(copy(&tiers, &below, &other, None).unwrap(), SIZE);
        let back = Lying::on(&tiers, &other);
        let back = Origin::lend(&back, 0..SIZE).unwrap().unwrap();
        assert!(back.bytes().unwrap() == content);
    }

    /// A disk that says "stop" when it is asked for the second time, or fails then.
    #[derive(Debug)]
    struct Second {
        stop: Arc<AtomicBool>,
        fails: bool,
        asked: std::sync::atomic::AtomicU64,
    }

    impl Second {
        fn asked(&self, failure: tierflow_store::Error) -> tierflow_store::Result<()> {
            if self.asked.fetch_add(1, Ordering::Relaxed) == 0 {
                return Ok(());
            }
            self.stop.store(true, Ordering::Relaxed);
            match self.fails {
                true => Err(failure),
                false => Ok(()),
            }
        }
    }

    impl Storage for Second {
        fn alignment(&self) -> usize {
            4096
        }

        fn write_at(&self, offset: u64, bytes: &[u8]) -> tierflow_store::Result<()> {
            let bytes = bytes.len();
            self.asked(tierflow_store::Error::Full {
                place: None,
                offset,
                bytes,
            })
        }

        fn read_at(&self, offset: u64, bytes: &mut [u8]) -> tierflow_store::Result<()> {
            let source = rustix::io::Errno::IO;
            let bytes = bytes.len();
            self.asked(tierflow_store::Error::Read {
                offset,
                bytes,
                source,
            })
        }
    }

    /// Down or up over such a disk: what comes of it, and how often the disk was asked. The buffers, and the bytes in the cache,
    /// are free again.
    fn over_second(is_down: bool, fails: bool) -> (Copied, u64) {
        let stop = Arc::new(AtomicBool::new(false));
        let disk = Arc::new(Second {
            stop: Arc::clone(&stop),
            fails,
            asked: 0.into(),
        });
        let device = open(Choice::Host).unwrap();
        let tiers = tiers(&device, Arc::clone(&disk) as Arc<dyn Storage>);
        let (above, below) = (piece(0, 0), piece(1, 0));
        put(&tiers, &above, &content());
        let (from, to) = match is_down {
            true => (&above, &below),
            false => (&below, &above),
        };
        let copied = copy(&tiers, from, to, Some(stop));
        put(&tiers, &above, &content());
        (copied, disk.asked.load(Ordering::Relaxed))
    }

    #[test]
    fn a_cancelled_copy_stops_after_the_part_that_is_under_way() {
        for is_down in [true, false] {
            let (copied, asked) = over_second(is_down, false);
            let failed = copied.unwrap_err();
            assert!(matches!(failed, (TransferFailure::Cancelled, None)));
            assert!(asked <= 3, "{asked} requests, of 6");
        }
    }

    #[test]
    fn the_end_that_failed_is_named() {
        let (copied, asked) = over_second(true, true);
        assert!(matches!(
            copied.unwrap_err(),
            (TransferFailure::Destination, Some(_))
        ));
        assert_eq!(asked, 2);
        let (copied, asked) = over_second(false, true);
        assert!(matches!(
            copied.unwrap_err(),
            (TransferFailure::Source, Some(_))
        ));
        assert_eq!(asked, 2);
    }
}
