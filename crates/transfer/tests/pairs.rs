//! A copy between each pair of kinds gives the same bytes, and stops when its flag is set.
//!
//! `cargo test -p tierflow-transfer --test pairs -- --ignored` tests the pairs with a device, on an NVIDIA GPU.

#![allow(clippy::unwrap_used, clippy::panic, clippy::expect_used)]

use std::ops::Range;
use std::sync::Arc;
use tierflow_device::{Choice, Device, Memory, open};
use tierflow_store::{
    Error as StoreError, Piece, Pull, Region, Repository, Result as StoreResult, Scratch, Snapshot,
};
use tierflow_sync::model::{AtomicBool, Ordering};
use tierflow_tier_alloc::{DeviceArena, DeviceOptions, HostArena, HostOptions};
use tierflow_transfer::{
    BUFFER_BYTES, CopyContext, Error as CopyError, FailedEnd, Medium, MediumKind, MemoryMedium,
    ScratchMedium, Source, SourceRecord, Span, Stop, Target, TargetRecord, TransferError,
};

const SIZE: u64 = 2 * BUFFER_BYTES + 12_345;

/// Bytes that copies of whole blocks may write behind a version.
const ROOM: usize = (SIZE as usize).next_multiple_of(2 << 20) + (2 << 20);

fn content(seed: u64) -> Vec<u8> {
    (0..SIZE).map(|at| ((at * seed) >> 7) as u8).collect()
}

/// A version in a directory.
struct Record<'r> {
    repository: &'r Repository,
    version: u64,
    kind: MediumKind,
}

impl Source for Record<'_> {
    fn kind(&self) -> MediumKind {
        self.kind
    }

    fn record(&self) -> Option<&dyn SourceRecord> {
        Some(self)
    }
}

impl Target for Record<'_> {
    fn kind(&self) -> MediumKind {
        self.kind
    }

    fn record(&self) -> Option<&dyn TargetRecord> {
        Some(self)
    }
}

impl SourceRecord for Record<'_> {
    fn piece(&self) -> StoreResult<Piece> {
        self.repository.own_piece(self.version)
    }
}

impl TargetRecord for Record<'_> {
    fn save(&self, bytes: u64, pull: &Pull<'_>, _: &Stop) -> StoreResult<()> {
        let regions = [Region::pulled("version", bytes, pull)];
        self.repository.save(&Snapshot::new(self.version, &regions))
    }

    fn copy(&self, piece: Piece, stop: &Stop) -> StoreResult<()> {
        let stop = stop.clone();
        self.repository.copy(&piece.unless(move || stop.is_set()))
    }
}

/// The place of a version, as a source or a target.
enum Place {
    Medium(Box<dyn Medium>),
    /// Records of this kind. A directory serves for an object store, too, as copies treat both alike.
    Records(Box<Repository>, MediumKind),
}

/// An end of the copy of a version.
enum End<'p> {
    Span(Span<'p>),
    Record(Record<'p>),
}

impl Place {
    fn end(&self, version: u64) -> End<'_> {
        match self {
            Self::Medium(medium) => End::Span(Span {
                medium: &**medium,
                start: 0,
                offset: 4096,
                bytes: SIZE,
            }),
            Self::Records(repository, kind) => End::Record(Record {
                repository,
                version,
                kind: *kind,
            }),
        }
    }
}

impl End<'_> {
    fn source(&self) -> &dyn Source {
        match self {
            Self::Span(span) => span,
            Self::Record(record) => record,
        }
    }

    fn target(&mut self) -> &mut dyn Target {
        match self {
            Self::Span(span) => span,
            Self::Record(record) => record,
        }
    }
}

/// Makes a place of this kind. Returns `None` if the device has none.
fn place(device: &Device, kind: MediumKind, home: &std::path::Path) -> Option<Place> {
    let directory = tempfile::Builder::new().tempdir_in(home).unwrap().keep();
    let is_host = device.as_cuda().is_none();
    let medium: Box<dyn Medium> = match kind {
        MediumKind::Device if !is_host => {
            Box::new(DeviceArena::start(device, ROOM, DeviceOptions::default()).unwrap())
        }
        // Memory of the device takes the part of a peer's memory, as the stream can access both.
        MediumKind::Peer if !is_host => {
            let memory: Memory = device.alloc(ROOM).unwrap();
            Box::new(MemoryMedium::of_peers(memory))
        }
        MediumKind::Device | MediumKind::Peer => return None,
        MediumKind::Pinned => {
            Box::new(HostArena::start(device, ROOM, HostOptions::default()).unwrap())
        }
        MediumKind::Pageable if is_host => {
            Box::new(DeviceArena::start(device, ROOM, DeviceOptions::default()).unwrap())
        }
        MediumKind::Pageable => {
            let reservation = device.reserve_host(ROOM).unwrap();
            let memory = reservation.memory().clone();
            // The memory stays until the test ends.
            std::mem::forget(reservation);
            Box::new(MemoryMedium::of_peers(memory))
        }
        MediumKind::Scratch => {
            let scratch = Scratch::open(&directory).unwrap();
            Box::new(ScratchMedium::new(Arc::new(scratch), None))
        }
        MediumKind::Directory | MediumKind::Objects => {
            let repository = Repository::open(&directory, Default::default()).unwrap();
            return Some(Place::Records(Box::new(repository), kind));
        }
    };
    Some(Place::Medium(medium))
}

fn put(context: &mut CopyContext, place: &Place, version: u64, bytes: &[u8]) {
    let mut end = place.end(version);
    context.give(end.target(), 0, bytes, None).unwrap();
}

fn get(context: &mut CopyContext, place: &Place, version: u64) -> Vec<u8> {
    let mut bytes = vec![0; SIZE as usize];
    let end = place.end(version);
    context.fill(end.source(), 0, &mut bytes, None).unwrap();
    bytes
}

/// Copies between all pairs that the device has. Returns their number.
fn copy_all_pairs(device: &Device) -> usize {
    let home = tempfile::tempdir().unwrap();
    let mut pairs = 0;
    for from in MediumKind::ALL {
        for to in MediumKind::ALL {
            let places = place(device, from, home.path()).zip(place(device, to, home.path()));
            let Some((source, target)) = places else {
                continue;
            };
            pairs += 1;
            let mut context = CopyContext::new(device);
            let bytes = content(31 + pairs as u64);
            put(&mut context, &source, 1, &bytes);
            let all: Range<u64> = 0..SIZE;

            // A stopped copy returns an error, and publishes nothing.
            context.stop_by(Some(Arc::new(AtomicBool::new(true))));
            let (from_end, mut to_end) = (source.end(1), target.end(1));
            let stopped = context.copy(from_end.source(), to_end.target(), all.clone(), None);
            let is_stopped = matches!(stopped, Err(TransferError::Cancelled));
            assert!(is_stopped, "{from:?} to {to:?}: {stopped:?}");
            if let Place::Records(repository, _) = &target {
                assert!(repository.own_piece(1).is_err(), "{from:?} to {to:?}");
            }

            // The same copy without a stop gives the bytes, and both ends are free again.
            context.stop_by(Some(Arc::new(AtomicBool::new(false))));
            let copied = context.copy(from_end.source(), to_end.target(), all, None);
            copied.unwrap_or_else(|error| panic!("{from:?} to {to:?}: {error}"));
            assert!(get(&mut context, &target, 1) == bytes, "{from:?} to {to:?}");
            put(&mut context, &source, 2, &content(7));
            put(&mut context, &target, 2, &content(7));
        }
    }
    pairs
}

#[test]
fn each_pair_of_a_host_gives_the_same_bytes() {
    let device = open(Choice::Host).unwrap();
    // Pinned, pageable, scratch, directory and objects.
    assert_eq!(copy_all_pairs(&device), 25);
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn each_pair_with_a_device_gives_the_same_bytes() {
    let device = open(Choice::Cuda { ordinal: 0 }).unwrap();
    assert_eq!(copy_all_pairs(&device), 49);
}

#[test]
fn a_range_within_blocks_is_read_with_its_blocks() {
    let device = open(Choice::Host).unwrap();
    let home = tempfile::tempdir().unwrap();
    let mut context = CopyContext::new(&device);
    let bytes = content(31);
    for kind in [
        MediumKind::Pinned,
        MediumKind::Pageable,
        MediumKind::Scratch,
    ] {
        let below = place(&device, MediumKind::Scratch, home.path()).unwrap();
        let above = place(&device, kind, home.path()).unwrap();
        put(&mut context, &below, 1, &bytes);
        put(&mut context, &above, 1, &vec![0; SIZE as usize]);
        let range = 4096 + 5..SIZE - 3;
        let (from, mut to) = (below.end(1), above.end(1));
        if kind == MediumKind::Scratch {
            // Storage is written in whole blocks.
            context
                .copy(from.source(), to.target(), 4096..SIZE, None)
                .unwrap();
        } else {
            context
                .copy(from.source(), to.target(), range.clone(), None)
                .unwrap();
        }
        let found = get(&mut context, &above, 1);
        let at = range.start as usize..range.end as usize;
        assert!(found[at.clone()] == bytes[at], "{kind:?}");
        assert!(found[..4096].iter().all(|byte| *byte == 0), "{kind:?}");
    }
}

/// A disk that sets the stop flag, or fails, at its second request.
#[derive(Debug)]
struct Second {
    stop: Arc<AtomicBool>,
    fails: bool,
    asked: std::sync::atomic::AtomicU64,
}

impl Second {
    fn asked(&self, failure: tierflow_store::Error) -> StoreResult<()> {
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

impl tierflow_store::Storage for Second {
    fn alignment(&self) -> usize {
        4096
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> StoreResult<()> {
        let bytes = bytes.len();
        self.asked(tierflow_store::Error::Full {
            place: None,
            offset,
            bytes,
        })
    }

    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> StoreResult<()> {
        let bytes = bytes.len();
        self.asked(tierflow_store::Error::Full {
            place: None,
            offset,
            bytes,
        })
    }
}

/// Copies over such a disk through buffers. Returns the outcome and the number of requests. Asserts that the buffers are free again.
fn over_second(is_down: bool, fails: bool) -> (Result<(), TransferError>, u64) {
    let stop = Arc::new(AtomicBool::new(false));
    let disk = Arc::new(Second {
        stop: Arc::clone(&stop),
        fails,
        asked: 0.into(),
    });
    let device = open(Choice::Host).unwrap();
    let storage = ScratchMedium::new(Arc::clone(&disk) as Arc<dyn tierflow_store::Storage>, None);
    let home = tempfile::tempdir().unwrap();
    let other = place(&device, MediumKind::Scratch, home.path()).unwrap();
    let mut context = CopyContext::new(&device);
    put(&mut context, &other, 1, &content(31));
    context.stop_by(Some(stop));
    let span = |medium| Span {
        medium,
        start: 0,
        offset: 4096,
        bytes: SIZE,
    };
    let mut disk_end = span(&storage);
    let mut end = other.end(1);
    let copied = match is_down {
        true => context.copy(end.source(), &mut disk_end, 0..SIZE, None),
        false => context.copy(&disk_end, end.target(), 0..SIZE, None),
    };
    context.stop_by(None);
    put(&mut context, &other, 1, &content(7));
    (copied, disk.asked.load(Ordering::Relaxed))
}

#[test]
fn a_cancelled_copy_stops_after_the_part_that_is_under_way() {
    for is_down in [true, false] {
        let (copied, asked) = over_second(is_down, false);
        assert!(matches!(copied, Err(TransferError::Cancelled)));
        assert_eq!(asked, 2, "of 3 requests");
    }
}

#[test]
fn the_end_that_failed_is_named() {
    for (is_down, expected) in [(true, FailedEnd::Target), (false, FailedEnd::Source)] {
        let (copied, asked) = over_second(is_down, true);
        let named = matches!(&copied, Err(TransferError::Failed { end, .. }) if *end == expected);
        assert!(named, "{copied:?}");
        assert_eq!(asked, 2);
    }
}

#[test]
fn a_record_of_another_length_is_refused_and_overwrites_nothing() {
    let device = open(Choice::Host).unwrap();
    let home = tempfile::tempdir().unwrap();
    let mut context = CopyContext::new(&device);
    let below = place(&device, MediumKind::Directory, home.path()).unwrap();
    put(&mut context, &below, 1, &content(31));
    let kinds = [
        MediumKind::Pinned,
        MediumKind::Pageable,
        MediumKind::Scratch,
    ];
    for kind in kinds {
        let above = place(&device, kind, home.path()).unwrap();
        for bytes in [SIZE - 4096, SIZE + 4096] {
            put(&mut context, &above, 1, &content(7));
            let (from, mut to) = (below.end(1), above.end(1));
            let copied = context.copy(from.source(), to.target(), 0..bytes, None);
            let is_refused = matches!(
                copied,
                Err(TransferError::Failed {
                    end: FailedEnd::Source,
                    ..
                })
            );
            assert!(is_refused, "{kind:?}: {copied:?}");
            assert!(get(&mut context, &above, 1) == content(7), "{kind:?}");
        }
    }
    let Place::Records(repository, kind) = &below else {
        panic!("it is a directory")
    };
    let record = Record {
        repository,
        version: 1,
        kind: *kind,
    };
    let other = place(&device, MediumKind::Directory, home.path()).unwrap();
    let mut to = other.end(1);
    for bytes in [SIZE - 1, SIZE + 1] {
        let is_damage = |error: &StoreError| matches!(error, StoreError::Damaged { .. });
        let whole = record.read_whole(&mut vec![0; bytes as usize], &Stop::default());
        assert!(whole.is_err_and(|error| is_damage(&error)));
        let parts = &mut [(0, &mut [0; 5][..])];
        let parts = record.read_parts(bytes, parts, &Stop::default());
        assert!(parts.is_err_and(|error| is_damage(&error)));
        let give = |_: &mut CopyContext, _, _: &[u8]| panic!("bytes of another version");
        let read = context.read_record(&record, bytes, &|_| true, give);
        let copied = context.copy(&record, to.target(), 0..bytes, None);
        for failed in [read, copied] {
            let Err(TransferError::Failed { end, error }) = failed else {
                panic!("it is refused")
            };
            assert_eq!(end, FailedEnd::Source);
            assert!(matches!(error, CopyError::Storage(error) if is_damage(&error)));
        }
    }
}

/// A record whose bytes behind the head cannot be read.
#[derive(Debug)]
struct Unreadable {
    bytes: Vec<u8>,
    head: u64,
    panics: bool,
}

impl tierflow_store::container::Source for Unreadable {
    type Error = StoreError;

    fn size(&self) -> StoreResult<u64> {
        Ok(self.bytes.len() as u64)
    }

    fn read(&self, offset: u64, bytes: &mut [u8]) -> StoreResult<()> {
        let end = offset + bytes.len() as u64;
        if end > self.head {
            assert!(!self.panics, "on purpose");
            return Err(StoreError::Remote("no answer".to_owned()));
        }
        bytes.copy_from_slice(&self.bytes[offset as usize..end as usize]);
        Ok(())
    }
}

/// A record in an object store that does not answer.
struct Silent(bool, std::path::PathBuf);

impl Source for Silent {
    fn kind(&self) -> MediumKind {
        MediumKind::Objects
    }

    fn record(&self) -> Option<&dyn SourceRecord> {
        Some(self)
    }
}

impl SourceRecord for Silent {
    fn piece(&self) -> StoreResult<Piece> {
        let repository = Repository::read_only(&self.1, Default::default())?;
        let piece = repository.own_piece(1)?;
        let head = u64::from(piece.head().length);
        let source = Unreadable {
            bytes: std::fs::read(piece.path()).unwrap(),
            head,
            panics: self.0,
        };
        Piece::elsewhere(source, "silent", 1, None)
    }
}

#[test]
fn a_silent_source_is_not_blamed_on_the_target() {
    let device = open(Choice::Host).unwrap();
    let home = tempfile::tempdir().unwrap();
    let mut context = CopyContext::new(&device);
    let directory = home.path().join("below");
    std::fs::create_dir(&directory).unwrap();
    let below = Repository::open(&directory, Default::default()).unwrap();
    let bytes = content(31);
    let snapshot = [Region::new("version", &bytes)];
    below.save(&Snapshot::new(1, &snapshot)).unwrap();
    for panics in [false, true] {
        let above = place(&device, MediumKind::Directory, home.path()).unwrap();
        let mut to = above.end(1);
        let from = Silent(panics, directory.clone());
        let copied = context.copy(&from, to.target(), 0..SIZE, None);
        let is_source = matches!(
            copied,
            Err(TransferError::Failed {
                end: FailedEnd::Source,
                ..
            })
        );
        assert!(is_source, "{copied:?}");
    }
}
