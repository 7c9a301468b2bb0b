use super::*;
use crate::{Error, FailedEnd, MediumKind, ScratchMedium, Source, Span, StreamChoice, Target};
use tierflow_device::{Choice, Memory, open};
use tierflow_store::{Error as StoreError, Scratch};
use tierflow_sync::model::AtomicBool;

const SIZE: u64 = WITH_STORAGE + BUFFER_BYTES + 12_345;

/// The error message of a library that fails.
const WHY: &str = "cuFile refuses the file";

/// The faults of a [`Fake`].
#[derive(Debug, Clone, Copy, PartialEq)]
enum Fault {
    None,
    Fails,
    NotReached,
    /// The library cannot be opened.
    Missing,
    /// The fake sets the flag that stops its own copy.
    Stops,
}

/// A stand-in for cuFile, which copies between host memory and the storage.
#[derive(Debug)]
struct Fake {
    storage: Arc<dyn Storage>,
    fault: Fault,
    stop: Arc<AtomicBool>,
    asked: Arc<AtomicU64>,
}

fn failed() -> StraightError {
    StraightError::Failed(WHY.to_owned())
}

impl Fake {
    fn asked(&self) -> std::result::Result<(), StraightError> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        match self.fault {
            Fault::None | Fault::Missing => Ok(()),
            Fault::Fails => Err(failed()),
            Fault::NotReached => Err(StraightError::Memory),
            Fault::Stops => {
                self.stop.store(true, Ordering::Relaxed);
                Ok(())
            }
        }
    }
}

impl DirectTarget for Fake {
    fn read(&self, offset: u64, memory: &mut WriteLoan) -> std::result::Result<(), StraightError> {
        self.asked()?;
        let bytes = memory.bytes_mut().map_err(|_| failed())?;
        self.storage.read_at(offset, bytes).map_err(|_| failed())
    }

    fn write(&self, offset: u64, memory: &ReadLoan) -> std::result::Result<(), StraightError> {
        self.asked()?;
        let bytes = memory.bytes().map_err(|_| failed())?;
        self.storage.write_at(offset, bytes).map_err(|_| failed())
    }
}

/// Memory of the host's back end that plays the part of a GPU's: a device copies it asynchronously, and storage does not reach it.
struct DeviceSide<'m> {
    memory: &'m Memory,
    offset: u64,
}

impl DeviceSide<'_> {
    fn range(&self, at: u64, bytes: u64) -> Range<usize> {
        let from = (self.offset + at) as usize;
        from..from + bytes as usize
    }
}

impl Source for DeviceSide<'_> {
    fn kind(&self) -> MediumKind {
        MediumKind::Device
    }

    fn lend(&self, bytes: Range<u64>) -> Option<crate::Result<ReadLoan>> {
        let range = self.range(bytes.start, bytes.end - bytes.start);
        Some(self.memory.lend(range).map_err(Into::into))
    }

    fn read(&self, at: u64, into: WriteLoan, stream: &mut StreamChoice<'_>) -> crate::Result<()> {
        let from = self.memory.lend(self.range(at, into.len() as u64))?;
        Ok(stream.get()?.copy_all([(from, into)])?)
    }
}

impl Target for DeviceSide<'_> {
    fn kind(&self) -> MediumKind {
        MediumKind::Device
    }

    fn lend_mut(&mut self, bytes: Range<u64>) -> Option<crate::Result<WriteLoan>> {
        let range = self.range(bytes.start, bytes.end - bytes.start);
        Some(self.memory.lend_mut(range).map_err(Into::into))
    }

    fn write(
        &mut self,
        at: u64,
        from: ReadLoan,
        stream: &mut StreamChoice<'_>,
    ) -> crate::Result<()> {
        let into = self.memory.lend_mut(self.range(at, from.len() as u64))?;
        Ok(stream.get()?.copy_all([(from, into)])?)
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
        Err(StoreError::Full {
            place: None,
            offset,
            bytes,
        })
    }

    fn read_at(&self, _: u64, _: &mut [u8]) -> tierflow_store::Result<()> {
        Ok(())
    }
}

/// Memory of a device, and a file that it reaches by a [`Fake`].
struct Rig {
    memory: Memory,
    straight: Arc<Straight>,
    scratch: ScratchMedium,
    context: CopyContext,
    asked: Arc<AtomicU64>,
    _directory: tempfile::TempDir,
}

/// Offset of the second version, behind the first one.
const OTHER: u64 = 4096 + SIZE.next_multiple_of(4096);

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
        let device = open(Choice::Host).unwrap();
        let memory = device.alloc((2 * OTHER) as usize).unwrap();
        let (stop, asked) = (Arc::default(), Arc::default());
        let fake = Box::new(Fake {
            storage: Arc::clone(&storage),
            fault,
            stop: Arc::clone(&stop),
            asked: Arc::clone(&asked),
        });
        let is_missing = matches!(fault, Fault::Missing);
        let file = OpenFile {
            target: fake,
            storage: Arc::clone(&storage),
            mode: "nvidia-fs",
        };
        let opener = move || match is_missing {
            true => Err(WHY.to_owned()),
            false => Ok(file),
        };
        let straight = Arc::new(match is_measured {
            true => Straight::measured(Box::new(opener)),
            false => Straight::always(opener().unwrap()),
        });
        let scratch = ScratchMedium::new(storage, Some(Arc::clone(&straight)));
        let mut context = CopyContext::new(&device);
        context.stop_by(Some(stop));
        Self {
            memory,
            straight,
            scratch,
            context,
            asked,
            _directory: directory,
        }
    }

    fn down(&mut self, offset: u64) -> Result<()> {
        let memory = &self.memory;
        let above = DeviceSide { memory, offset };
        let mut below = below(&self.scratch);
        self.context.copy(&above, &mut below, 0..SIZE, None)
    }

    fn up(&mut self, offset: u64, bytes: Range<u64>) -> Result<()> {
        let memory = &self.memory;
        let mut above = DeviceSide { memory, offset };
        let below = below(&self.scratch);
        self.context.copy(&below, &mut above, bytes, None)
    }

    /// Copies a version down and up again. Returns true if its bytes are unchanged.
    fn round_trip(&mut self) -> bool {
        let content: Vec<u8> = (0..SIZE).map(|at| ((at * 31) >> 7) as u8).collect();
        let range = |offset: u64| offset as usize..(offset + SIZE) as usize;
        let mut lent = self.memory.lend_mut(range(4096)).unwrap();
        lent.bytes_mut().unwrap().copy_from_slice(&content);
        drop(lent);
        self.down(4096).unwrap();
        self.up(OTHER, 0..SIZE).unwrap();
        let back = self.memory.lend(range(OTHER)).unwrap();
        back.bytes().unwrap() == content
    }

    fn asked(&self) -> u64 {
        self.asked.load(Ordering::Relaxed)
    }
}

fn below(scratch: &ScratchMedium) -> Span<'_> {
    Span {
        medium: scratch,
        start: 0,
        offset: 8192,
        bytes: SIZE,
    }
}

fn bytes(buffered: u64, direct: u64) -> WayBytes {
    WayBytes { buffered, direct }
}

#[test]
fn a_piece_goes_straight_down_and_comes_up_as_it_was() {
    let mut rig = Rig::new(Fault::None, false);
    assert!(rig.round_trip());
    let found = rig.straight.statistics();
    assert_eq!((found.down, found.up), (bytes(0, SIZE), bytes(0, SIZE)));
    assert_eq!((found.mode, found.failed), (Some("nvidia-fs"), 0));
    assert_eq!(found.closed, None);
}

#[test]
fn where_it_is_measured_both_ways_come_in_turn() {
    let mut rig = Rig::new(Fault::None, true);
    for _ in 0..4 {
        assert!(rig.round_trip());
    }
    let found = rig.straight.statistics();
    let twice = bytes(2 * SIZE, 2 * SIZE);
    assert_eq!((found.down, found.up), (twice, twice));
}

#[test]
fn a_library_is_opened_by_the_first_copy_and_a_missing_one_is_named() {
    let mut rig = Rig::new(Fault::Missing, true);
    assert_eq!(rig.straight.statistics().closed, None);
    assert!(rig.round_trip());
    let found = rig.straight.statistics();
    assert_eq!((found.down, found.up), (bytes(SIZE, 0), bytes(SIZE, 0)));
    assert_eq!((found.mode, found.failed), (None, 0));
    assert_eq!(found.closed, Some(WHY.to_owned()));
}

#[test]
fn a_library_that_fails_is_not_used_again() {
    let mut rig = Rig::new(Fault::Fails, false);
    assert!(rig.round_trip());
    assert!(rig.round_trip());
    let found = rig.straight.statistics();
    let twice = bytes(2 * SIZE, 0);
    assert_eq!((found.down, found.up), (twice, twice));
    assert_eq!((found.failed, rig.asked()), (1, 1));
    assert_eq!(found.closed, Some(WHY.to_owned()));
}

#[test]
fn a_full_disk_is_not_held_against_the_direct_way() {
    let directory = tempfile::tempdir().unwrap();
    let mut rig = Rig::over(Arc::new(Full), Fault::Fails, false, directory);
    let failed = rig.down(0).unwrap_err();
    let is_full = matches!(
        &failed,
        TransferError::Failed {
            end: FailedEnd::Target,
            error: Error::Storage(StoreError::Full { .. }),
        }
    );
    assert!(is_full, "{failed:?}");
    let found = rig.straight.statistics();
    assert_eq!((found.failed, found.closed), (1, None));
}

#[test]
fn memory_that_is_not_the_devices_own_goes_through_buffers() {
    let mut rig = Rig::new(Fault::NotReached, false);
    assert!(rig.round_trip());
    let found = rig.straight.statistics();
    assert_eq!((found.down, found.up), (bytes(SIZE, 0), bytes(SIZE, 0)));
    assert_eq!((found.failed, found.closed), (0, None));
}

#[test]
fn a_range_that_begins_within_a_block_goes_through_buffers() {
    let mut rig = Rig::new(Fault::None, false);
    assert!(rig.round_trip());
    let asked = rig.asked();
    rig.up(4096, 5..SIZE).unwrap();
    let found = rig.straight.statistics();
    assert_eq!((rig.asked(), found.up), (asked, bytes(SIZE - 5, SIZE)));
}

#[test]
fn a_cancelled_copy_stops_after_the_part_that_is_under_way() {
    let mut rig = Rig::new(Fault::Stops, false);
    let stopped = rig.down(0).unwrap_err();
    assert!(matches!(stopped, TransferError::Cancelled));
    assert_eq!((rig.asked(), rig.straight.statistics().failed), (1, 0));
}
