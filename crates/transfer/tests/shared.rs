//! A copy between a caller and storage has the same result with any number of workers, and leaves no buffer in use.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use tierflow_device::{Choice, open};
use tierflow_store::{Error as StoreError, Result as StoreResult, Scratch, Storage};
use tierflow_transfer::{
    BUFFER_BYTES, CopyContext, FailedEnd, Helper, HostBytes, ScratchMedium, Span, TransferError,
};

const BLOCK: u64 = 4096;
const SIZE: u64 = 11 * BUFFER_BYTES + 777;
/// Offset in the version at which the copy begins, so that it copies a piece in the middle.
const START: u64 = 3 * BLOCK;

/// Storage that takes time, counts the requests that it serves at the same time, and fails the request that begins at an offset.
#[derive(Debug)]
struct Slow {
    below: Scratch,
    now: AtomicUsize,
    most: AtomicUsize,
    fails_at: AtomicU64,
    panics: AtomicBool,
}

impl Slow {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            below: Scratch::open(&std::env::temp_dir()).unwrap(),
            now: AtomicUsize::new(0),
            most: AtomicUsize::new(0),
            fails_at: AtomicU64::new(u64::MAX),
            panics: AtomicBool::new(false),
        })
    }

    fn serve(&self, offset: u64, request: impl FnOnce() -> StoreResult<()>) -> StoreResult<()> {
        let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
        std::thread::sleep(Duration::from_millis(2));
        self.now.fetch_sub(1, Ordering::SeqCst);
        if offset == self.fails_at.load(Ordering::SeqCst) {
            assert!(!self.panics.load(Ordering::SeqCst), "asked for");
            return Err(StoreError::Full {
                place: None,
                offset,
                bytes: 1,
            });
        }
        request()
    }
}

impl Storage for Slow {
    fn alignment(&self) -> usize {
        BLOCK as usize
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> StoreResult<()> {
        self.serve(offset, || self.below.write_at(offset, bytes))
    }

    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> StoreResult<()> {
        self.serve(offset, || self.below.read_at(offset, bytes))
    }
}

/// A copy with a number of workers.
struct Copy<'c> {
    slow: &'c Arc<Slow>,
    workers: usize,
}

impl Copy<'_> {
    /// Runs a copy down or up. Returns its end after every worker has ended.
    fn run(
        &self,
        context: &mut CopyContext,
        copy: impl FnOnce(
            &mut CopyContext,
            &mut Span<'_>,
            &dyn Fn(&Helper, usize),
        ) -> Result<(), TransferError>,
    ) -> Result<(), TransferError> {
        let medium = ScratchMedium::new(Arc::clone(self.slow) as _, None);
        let mut span = Span {
            medium: &medium,
            start: START,
            offset: BLOCK,
            bytes: SIZE,
        };
        let copied = std::thread::scope(|scope| {
            let ask = |helper: &Helper, asked: usize| {
                assert!(asked <= 4);
                for _ in 0..asked.min(self.workers) {
                    let helper = helper.clone();
                    scope.spawn(move || {
                        let _ = catch_unwind(AssertUnwindSafe(|| helper.run(|serve| serve())));
                    });
                }
            };
            copy(context, &mut span, &ask)
        });
        assert_eq!(self.slow.now.load(Ordering::SeqCst), 0);
        copied
    }
}

fn content(seed: u64) -> Vec<u8> {
    (0..SIZE).map(|at| ((at * seed) >> 7) as u8).collect()
}

fn down(copy: &Copy<'_>, context: &mut CopyContext, bytes: &[u8]) -> Result<(), TransferError> {
    let from = HostBytes {
        start: START,
        bytes,
    };
    copy.run(context, |context, span, workers| {
        context.copy_shared(&from, span, START..START + SIZE, None, workers)
    })
}

fn up(copy: &Copy<'_>, context: &mut CopyContext, bytes: &mut [u8]) -> Result<(), TransferError> {
    let mut to = HostBytes {
        start: START,
        bytes,
    };
    copy.run(context, |context, span, workers| {
        context.copy_shared(span, &mut to, START..START + SIZE, None, workers)
    })
}

fn context() -> CopyContext {
    CopyContext::new(&open(Choice::Host).unwrap())
}

#[test]
fn the_bytes_are_the_same_with_any_number_of_workers() {
    let (slow, mut context) = (Slow::new(), context());
    for workers in [0, 1, 3, 4] {
        let copy = Copy {
            slow: &slow,
            workers,
        };
        let bytes = content(31 + workers as u64);
        down(&copy, &mut context, &bytes).unwrap();
        let mut back = vec![0; SIZE as usize];
        up(&copy, &mut context, &mut back).unwrap();
        assert!(back == bytes, "{workers} workers");
    }
    let most = slow.most.load(Ordering::SeqCst);
    assert!((2..=5).contains(&most), "{most} requests at once");
}

#[test]
fn a_failed_request_ends_the_copy_with_its_end_and_frees_the_buffers() {
    for workers in [0, 4] {
        let (slow, mut context) = (Slow::new(), context());
        let copy = Copy {
            slow: &slow,
            workers,
        };
        let bytes = content(7);
        down(&copy, &mut context, &bytes).unwrap();
        slow.fails_at
            .store(BLOCK + 5 * BUFFER_BYTES, Ordering::SeqCst);
        let mut back = vec![0; SIZE as usize];
        let failed = up(&copy, &mut context, &mut back);
        let is_source = |failed: &Result<(), TransferError>| {
            matches!(
                failed,
                Err(TransferError::Failed {
                    end: FailedEnd::Source,
                    ..
                })
            )
        };
        assert!(is_source(&failed), "{failed:?}");
        let failed = down(&copy, &mut context, &bytes);
        let is_target = matches!(
            failed,
            Err(TransferError::Failed {
                end: FailedEnd::Target,
                ..
            })
        );
        assert!(is_target, "{failed:?}");
        // A panic of a worker fails the request, too. A panic in the caller's own request leaves the copy.
        slow.panics.store(true, Ordering::SeqCst);
        let panicked = catch_unwind(AssertUnwindSafe(|| up(&copy, &mut context, &mut back)));
        match panicked {
            Ok(failed) => assert!(workers == 4 && is_source(&failed), "{failed:?}"),
            Err(_) => assert_eq!(slow.now.load(Ordering::SeqCst), 0),
        }
        slow.panics.store(false, Ordering::SeqCst);
        slow.fails_at.store(u64::MAX, Ordering::SeqCst);
        up(&copy, &mut context, &mut back).unwrap();
        assert!(back == bytes);
    }
}

#[test]
fn a_stopped_copy_begins_no_part() {
    let (slow, mut context) = (Slow::new(), context());
    let copy = Copy {
        slow: &slow,
        workers: 2,
    };
    context.stop_by(Some(Arc::new(AtomicBool::new(true))));
    let stopped = down(&copy, &mut context, &content(3));
    assert!(
        matches!(stopped, Err(TransferError::Cancelled)),
        "{stopped:?}"
    );
    assert_eq!(slow.most.load(Ordering::SeqCst), 0);
}
