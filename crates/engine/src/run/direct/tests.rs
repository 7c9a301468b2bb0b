use super::super::ends::{Destination, Lying, Origin};
use super::super::lane::{Failed, Lane, WITH_STORAGE};
use super::super::medium::{Level, Medium};
use super::super::sync::AtomicBool;
use super::*;
use crate::kind::Kind;
use crate::plan::{Piece, TierId, TransferFailure};
use std::ops::Range;
use std::sync::Arc;
use tierflow_device::{Choice as Back, open};
use tierflow_store::Scratch;
use tierflow_tier_alloc::{DeviceArena, DeviceOptions};

/// The words of a library that fails.
const WHY: &str = "cuFile refuses the file";

const SIZE: u64 = WITH_STORAGE + STAGED + 12_345;

/// What a [`Fake`] does other than to copy.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Fault {
    None,
    Fails,
    NotReached,
    /// It stops the copy that it is part of.
    Stops,
}

/// Stands for cuFile: copies between host memory and the storage.
#[derive(Debug)]
struct Fake {
    storage: Arc<dyn Storage>,
    fault: Fault,
    stop: Arc<AtomicBool>,
    asked: Arc<AtomicU64>,
}

impl Fake {
    fn asked(&self) -> Result<(), StraightError> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        match self.fault {
            Fault::None => Ok(()),
            Fault::Fails => Err(failed()),
            Fault::NotReached => Err(StraightError::Memory),
            Fault::Stops => {
                self.stop.store(true, Ordering::Relaxed);
                Ok(())
            }
        }
    }
}

fn failed() -> StraightError {
    StraightError::Failed(WHY.to_owned())
}

impl DirectTarget for Fake {
    fn read(&self, offset: u64, memory: &mut WriteLoan) -> Result<(), StraightError> {
        self.asked()?;
        let read = self
            .storage
            .read_at(offset, memory.bytes_mut().map_err(|_| failed())?);
        read.map_err(|_| failed())
    }

    fn write(&self, offset: u64, memory: &ReadLoan) -> Result<(), StraightError> {
        self.asked()?;
        let written = self
            .storage
            .write_at(offset, memory.bytes().map_err(|_| failed())?);
        written.map_err(|_| failed())
    }
}

/// A disk that is always full.
#[derive(Debug)]
struct Full;

impl Storage for Full {
    fn alignment(&self) -> usize {
        4096
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> tierflow_store::Result<()> {
        let bytes = bytes.len();
        Err(tierflow_store::Error::Full {
            place: None,
            offset,
            bytes,
        })
    }

    fn read_at(&self, _: u64, _: &mut [u8]) -> tierflow_store::Result<()> {
        Ok(())
    }
}

/// A device cache, and a file below it that the device reaches by a [`Fake`].
struct Rig {
    tiers: [Level; 2],
    lane: Lane,
    asked: Arc<AtomicU64>,
    _directory: tempfile::TempDir,
}

impl Rig {
    fn new(fault: Fault, is_measured: bool) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let scratch = Scratch::open(directory.path()).unwrap();
        Self::over(Arc::new(scratch), fault, is_measured, directory)
    }

    fn over(
        storage: Arc<dyn Storage>,
        fault: Fault,
        is_measured: bool,
        directory: tempfile::TempDir,
    ) -> Self {
        let device = open(Back::Host).unwrap();
        let room = 2 * (SIZE as usize).next_multiple_of(2 << 20);
        let arena = DeviceArena::start(&device, room, DeviceOptions::default()).unwrap();
        let (stop, asked) = (Arc::default(), Arc::default());
        let fake = Fake {
            storage: Arc::clone(&storage),
            fault,
            stop: Arc::clone(&stop),
            asked: Arc::clone(&asked),
        };
        let direct = Direct {
            file: Some(Box::new(fake)),
            mode: Some("nvidia-fs"),
            is_measured,
            ..Direct::closed(None)
        };
        let device_level = Level {
            kind: Kind::Device,
            medium: Medium::Device(arena),
        };
        let file_level = Level {
            kind: Kind::Storage,
            medium: Medium::Storage(storage, Some(Arc::new(direct))),
        };
        let mut lane = Lane::new(&device);
        lane.stop_by(Some(stop));
        Self {
            tiers: [device_level, file_level],
            lane,
            asked,
            _directory: directory,
        }
    }

    fn copy(&mut self, from: &Piece, to: &Piece, bytes: Range<u64>) -> Result<u64, Failed> {
        let (from, mut to) = (Lying::on(&self.tiers, from), Lying::on(&self.tiers, to));
        self.lane.copy_across(&from, &mut to, bytes, None)
    }

    /// What of this content is in the device cache after a way down and up.
    fn round_trip(&mut self) -> bool {
        let (above, below) = (piece(0, 4096), piece(1, 8192));
        let other = piece(0, 4096 + SIZE.next_multiple_of(4096));
        let content: Vec<u8> = (0..SIZE).map(|at| ((at * 31) >> 7) as u8).collect();
        let mut lent = Lying::on(&self.tiers, &above);
        let mut lent = Destination::lend_mut(&mut lent, 0..SIZE).unwrap().unwrap();
        lent.bytes_mut().unwrap().copy_from_slice(&content);
        drop(lent);
        assert_eq!(self.copy(&above, &below, 0..SIZE).unwrap(), SIZE);
        assert_eq!(self.copy(&below, &other, 0..SIZE).unwrap(), SIZE);
        let back = Lying::on(&self.tiers, &other);
        let back = Origin::lend(&back, 0..SIZE).unwrap().unwrap();
        back.bytes().unwrap() == content
    }

    fn metrics(&self) -> DirectMetrics {
        self.tiers[1].medium.direct().unwrap().metrics()
    }

    fn asked(&self) -> u64 {
        self.asked.load(Ordering::Relaxed)
    }
}

fn piece(tier: usize, offset: u64) -> Piece {
    let place = crate::plan::Place {
        tier: TierId(tier),
        offset,
        size: SIZE,
        reserved: SIZE.next_multiple_of(4096),
    };
    Piece { start: 0, place }
}

fn bytes(staged: u64, direct: u64) -> WayBytes {
    WayBytes { staged, direct }
}

#[test]
fn a_piece_goes_straight_down_and_comes_up_as_it_was() {
    let mut rig = Rig::new(Fault::None, false);
    assert!(rig.round_trip());
    let metrics = rig.metrics();
    assert_eq!((metrics.down, metrics.up), (bytes(0, SIZE), bytes(0, SIZE)));
    assert_eq!((metrics.mode, metrics.failed), (Some("nvidia-fs"), 0));
    assert_eq!(metrics.why_staged, None);
}

#[test]
fn where_it_is_measured_both_ways_come_in_turn() {
    let mut rig = Rig::new(Fault::None, true);
    for _ in 0..4 {
        assert!(rig.round_trip());
    }
    let metrics = rig.metrics();
    let twice = bytes(2 * SIZE, 2 * SIZE);
    assert_eq!((metrics.down, metrics.up), (twice, twice));
}

#[test]
fn what_fails_straight_goes_through_buffers_from_then_on() {
    let mut rig = Rig::new(Fault::Fails, false);
    assert!(rig.round_trip());
    assert!(rig.round_trip());
    let metrics = rig.metrics();
    let twice = bytes(2 * SIZE, 0);
    assert_eq!((metrics.down, metrics.up), (twice, twice));
    assert_eq!(metrics.failed, 1);
    assert_eq!(metrics.why_staged, Some(WHY.to_owned()));
    assert_eq!(rig.asked(), 1);
}

#[test]
fn a_full_disk_is_not_held_against_the_direct_way() {
    let directory = tempfile::tempdir().unwrap();
    let mut rig = Rig::over(Arc::new(Full), Fault::None, false, directory);
    let failed = rig.copy(&piece(0, 0), &piece(1, 0), 0..SIZE).unwrap_err();
    assert!(
        matches!(
            failed,
            (
                TransferFailure::Destination,
                Some(crate::Error::Storage(tierflow_store::Error::Full { .. }))
            )
        ),
        "{failed:?}"
    );
    let metrics = rig.metrics();
    assert_eq!((metrics.failed, metrics.why_staged), (1, None));
}

#[test]
fn memory_that_is_not_the_devices_own_goes_through_buffers() {
    let mut rig = Rig::new(Fault::NotReached, false);
    assert!(rig.round_trip());
    let metrics = rig.metrics();
    assert_eq!((metrics.down, metrics.up), (bytes(SIZE, 0), bytes(SIZE, 0)));
    assert_eq!((metrics.failed, metrics.why_staged), (0, None));
}

#[test]
fn what_begins_within_a_block_goes_through_buffers() {
    let mut rig = Rig::new(Fault::None, false);
    assert!(rig.round_trip());
    let asked = rig.asked();
    rig.copy(&piece(1, 8192), &piece(0, 4096), 5..SIZE).unwrap();
    assert_eq!(
        (rig.asked(), rig.metrics().up),
        (asked, bytes(SIZE - 5, SIZE))
    );
}

#[test]
fn a_cancelled_copy_stops_after_the_part_that_is_under_way() {
    let mut rig = Rig::new(Fault::Stops, false);
    let stopped = rig.copy(&piece(0, 0), &piece(1, 0), 0..SIZE).unwrap_err();
    assert!(matches!(stopped, (TransferFailure::Cancelled, None)));
    assert_eq!((rig.asked(), rig.metrics().failed), (1, 0));
}
