//! The end of a copy that panics has failed.

#![allow(clippy::unwrap_used, clippy::panic)]

use tierflow_device::{Choice, ReadLoan, Transfer, WriteLoan, open};
use tierflow_store::{
    Error as StoreError, Options, Piece, Pull, Region, Repository, Result as StoreResult, Snapshot,
};
use tierflow_transfer::{
    CopyContext, Error, FailedEnd, HostBytes, MediumKind, Result, Source, SourceRecord, Stop,
    StreamChoice, Target, TargetRecord, TransferError,
};

const LENGTH: usize = 10_000;

/// An end without memory to lend, whose reads and writes panic.
struct Panicking(MediumKind);

impl Source for Panicking {
    fn kind(&self) -> MediumKind {
        self.0
    }

    fn begin_read(
        &self,
        _: u64,
        _: WriteLoan,
        _: &mut StreamChoice<'_>,
    ) -> Result<Option<Transfer>> {
        panic!("on purpose")
    }
}

impl Target for Panicking {
    fn kind(&self) -> MediumKind {
        self.0
    }

    fn begin_write(
        &mut self,
        _: u64,
        _: ReadLoan,
        _: &mut StreamChoice<'_>,
    ) -> Result<Option<Transfer>> {
        panic!("on purpose")
    }
}

/// A version in a directory. Without one, every call panics.
struct Record<'r>(Option<&'r Repository>);

impl Record<'_> {
    fn repository(&self) -> &Repository {
        self.0.unwrap_or_else(|| panic!("on purpose"))
    }
}

impl SourceRecord for Record<'_> {
    fn piece(&self) -> StoreResult<Piece> {
        self.repository().own_piece(1)
    }
}

impl TargetRecord for Record<'_> {
    fn save(&self, bytes: u64, pull: &Pull<'_>, _: &Stop) -> StoreResult<()> {
        let regions = [Region::pulled("version", bytes, pull)];
        self.repository().save(&Snapshot::new(1, &regions))
    }

    fn copy(&self, piece: Piece, _: &Stop) -> StoreResult<()> {
        self.repository().copy(&piece)
    }
}

impl Source for Record<'_> {
    fn kind(&self) -> MediumKind {
        MediumKind::Directory
    }

    fn record(&self) -> Option<&dyn SourceRecord> {
        Some(self)
    }
}

impl Target for Record<'_> {
    fn kind(&self) -> MediumKind {
        MediumKind::Directory
    }

    fn record(&self) -> Option<&dyn TargetRecord> {
        Some(self)
    }
}

#[test]
fn the_end_that_panicked_is_named() {
    let device = open(Choice::Host).unwrap();
    let mut context = CopyContext::new(&device);
    let homes = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let repository = |at: usize| Repository::open(homes[at].path(), Options::default()).unwrap();
    let (full, empty) = (repository(0), repository(1));
    let bytes = vec![7; LENGTH];
    let regions = [Region::new("version", &bytes)];
    full.save(&Snapshot::new(1, &regions)).unwrap();
    let mut copy = |from: &dyn Source, to: &mut dyn Target, expected| {
        let copied = context.copy(from, to, 0..LENGTH as u64, None);
        let Err(TransferError::Failed { end, error }) = copied else {
            panic!("it panicked")
        };
        assert!(matches!(error, Error::Storage(StoreError::Panicked { .. })));
        assert_eq!(end, expected);
    };
    for kind in [MediumKind::Pageable, MediumKind::Scratch] {
        let mut host = vec![0; LENGTH];
        let mut into = HostBytes {
            start: 0,
            bytes: host.as_mut_slice(),
        };
        copy(&Panicking(kind), &mut into, FailedEnd::Source);
        copy(
            &Panicking(kind),
            &mut Record(Some(&empty)),
            FailedEnd::Source,
        );
        copy(&Record(None), &mut into, FailedEnd::Source);
        let from = HostBytes {
            start: 0,
            bytes: bytes.as_slice(),
        };
        copy(&from, &mut Panicking(kind), FailedEnd::Target);
        copy(
            &Record(Some(&full)),
            &mut Panicking(kind),
            FailedEnd::Target,
        );
        copy(&from, &mut Record(None), FailedEnd::Target);
    }
    copy(&Record(None), &mut Record(Some(&empty)), FailedEnd::Source);
    copy(&Record(Some(&full)), &mut Record(None), FailedEnd::Target);
}
