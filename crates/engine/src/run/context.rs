//! The copies that one thread makes: transfers between tiers, and copies of callers.

use super::core::EngineCore;
use super::durable_record::DurableRecord;
use super::durable_tier::StoredForm;
use super::job::{Direction, Task};
use super::links::{by_link, over_links};
use super::medium::{TierState, medium};
use super::placed_piece::PlacedPiece;
use super::regions::{SourceRegions, TargetRegions, scatter};
use crate::plan::{Piece, TierId, TransferFailure};
use crate::{Error, Result, Version};
use smallvec::SmallVec;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use tierflow_device::{Device, Stream};
use tierflow_tier_alloc::Gate;
use tierflow_transfer::{CopyContext, FailedEnd, Helper, Source, Target};

/// The end of a transfer that failed, and the error. `error` is `None` if the transfer was cancelled, or if its failure was reported
/// before.
#[derive(Debug)]
pub(crate) struct TransferError {
    pub(crate) end: TransferFailure,
    pub(crate) error: Option<Error>,
}

impl TransferError {
    pub(crate) const CANCELLED: Self = Self {
        end: TransferFailure::Cancelled,
        error: None,
    };

    /// Returns the error that a call reports for this failure.
    pub(super) fn of_call(self) -> Error {
        let cancelled = Error::Storage(tierflow_store::Error::Cancelled);
        self.error.unwrap_or(cancelled)
    }
}

impl From<tierflow_transfer::TransferError> for TransferError {
    fn from(error: tierflow_transfer::TransferError) -> Self {
        use tierflow_store::Error as StoreError;
        use tierflow_transfer::Error::Storage;
        match error {
            tierflow_transfer::TransferError::Cancelled => Self::CANCELLED,
            // An earlier version failed, and the failure of that one was reported.
            tierflow_transfer::TransferError::Failed {
                end: FailedEnd::Target,
                error: Storage(StoreError::OutOfTurn { .. }),
            } => Self {
                end: TransferFailure::Destination,
                error: None,
            },
            tierflow_transfer::TransferError::Failed { end, error } => Self {
                end: match end {
                    FailedEnd::Source => TransferFailure::Source,
                    FailedEnd::Target => TransferFailure::Destination,
                },
                error: Some(error.into()),
            },
        }
    }
}

/// Returns the error that a call reports for a failed copy. The end that failed does not matter to it.
impl From<tierflow_transfer::TransferError> for Error {
    fn from(error: tierflow_transfer::TransferError) -> Self {
        TransferError::from(error).of_call()
    }
}

impl From<tierflow_transfer::Error> for Error {
    fn from(error: tierflow_transfer::Error) -> Self {
        use tierflow_transfer::Error as Copy;
        match error {
            Copy::Device(error) => Self::Device(error),
            Copy::Storage(error) => Self::Storage(error),
            Copy::Arena(error) => error.into(),
            Copy::Caller(error) => match error.downcast() {
                Ok(error) => *error,
                Err(_) => WHOLE_ONLY,
            },
            _ => WHOLE_ONLY,
        }
    }
}

impl From<Error> for tierflow_transfer::Error {
    fn from(error: Error) -> Self {
        match error {
            Error::Device(error) => Self::Device(error),
            Error::Storage(error) => Self::Storage(error),
            error => Self::Caller(Box::new(error)),
        }
    }
}

/// The error of a request for a part of a durable tier's copy, which is read and written as a whole.
const WHOLE_ONLY: Error = Error::Internal {
    what: "a part of a copy that goes as a whole",
};

/// The stream and the buffers of one thread, and the damage that it met.
#[derive(Debug)]
pub(crate) struct TierContext {
    copy: CopyContext,
    /// Streams for copies over several links at once, made at first use.
    links: Vec<Stream>,
    /// Copies that could not be read, of which the plan has not heard yet.
    pub(super) damaged: Vec<(Version, TierId)>,
}

impl Deref for TierContext {
    type Target = CopyContext;

    fn deref(&self) -> &CopyContext {
        &self.copy
    }
}

impl DerefMut for TierContext {
    fn deref_mut(&mut self) -> &mut CopyContext {
        &mut self.copy
    }
}

/// The pieces of a version on one tier.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pieces<'a> {
    pub(crate) version: Version,
    pub(crate) pieces: &'a [Piece],
}

impl TierContext {
    pub(crate) fn new(device: &Device) -> Self {
        Self::of(CopyContext::new(device))
    }

    pub(crate) fn with_stream(device: &Device) -> Result<Self> {
        Ok(Self::on(device, Arc::new(device.stream()?)))
    }

    /// Makes a context whose copies run in order with those of all contexts on the same stream.
    pub(crate) fn on(device: &Device, stream: Arc<Stream>) -> Self {
        Self::of(CopyContext::on(device, stream))
    }

    fn of(copy: CopyContext) -> Self {
        Self {
            copy,
            links: Vec::new(),
            damaged: Vec::new(),
        }
    }

    /// Writes the application's regions to these pieces of one tier, on `stream` if the caller brings its own.
    pub(crate) fn write(
        &mut self,
        shared: &EngineCore,
        source: &SourceRegions<'_, '_>,
        to: Pieces<'_>,
        stream: Option<&Stream>,
    ) -> Result<()> {
        let Some(first) = to.pieces.first() else {
            return Ok(());
        };
        if let Some(durable) = medium(&shared.tiers, first).durable() {
            let record = DurableRecord::whole(durable, to.version);
            return self.keep_regions(source, &record, stream);
        }
        let mut on: SmallVec<[_; 1]> = SmallVec::new();
        let mut targets: SmallVec<[_; 1]> = SmallVec::new();
        for (link, piece) in by_link(&shared.tiers, to.pieces) {
            let to = PlacedPiece::on(&shared.tiers, &piece);
            match to.lend_by(|mut span, all| span.lend_mut(all)) {
                Some(lent) => {
                    on.push(link);
                    targets.push((piece.start, lent?));
                }
                None => {
                    let (mut target, workers) =
                        (to.span(), shared.workers_of(Direction::Down, &piece));
                    self.copy_shared(source, &mut target, to.all(), stream, &workers)?;
                }
            }
        }
        let Self { copy, links, .. } = self;
        let mut streams = copy.streams(stream);
        over_links(streams.get()?, links, &on, targets, |targets, stream| {
            source.copy_to(targets, stream)
        })
    }

    /// Reads these pieces into the application's regions, on `stream` if the caller brings its own.
    pub(crate) fn read(
        &mut self,
        shared: &EngineCore,
        sink: &mut TargetRegions<'_, '_>,
        from: Pieces<'_>,
        stream: Option<&Stream>,
    ) -> Result<()> {
        let read = self.read_pieces(shared, sink, from, stream);
        read.inspect_err(|error| self.note_lost(&shared.tiers, from, error))
    }

    fn read_pieces(
        &mut self,
        shared: &EngineCore,
        sink: &mut TargetRegions<'_, '_>,
        from: Pieces<'_>,
        stream: Option<&Stream>,
    ) -> Result<()> {
        let Pieces { version, pieces } = from;
        let mut on_durable = pieces
            .iter()
            .filter_map(|piece| Some((medium(&shared.tiers, piece).durable()?, piece.place.tier)));
        if let Some((durable, tier)) = on_durable.next() {
            let record = DurableRecord::whole(durable, version);
            let brought = self.bring_regions(sink, &record, record.bytes(pieces), stream);
            return brought.inspect_err(|error| self.note(version, tier, error));
        }
        let alignment = |piece: &Piece| medium(&shared.tiers, piece).bytes().block();
        let pieces = sink.cut(pieces, alignment);
        let mut on: SmallVec<[_; 1]> = SmallVec::new();
        let mut sources: SmallVec<[_; 1]> = SmallVec::new();
        for (link, piece) in by_link(&shared.tiers, &pieces) {
            let from = PlacedPiece::on(&shared.tiers, &piece);
            match from.lend_by(|span, all| span.lend(all)) {
                Some(lent) => {
                    on.push(link);
                    sources.push((piece.start, lent?));
                }
                None => {
                    let workers = shared.workers_of(Direction::Up, &piece);
                    let read = self.copy_shared(&from.span(), sink, from.all(), stream, &workers);
                    let read = read.map_err(Error::from);
                    read.inspect_err(|error| self.note(version, piece.place.tier, error))?;
                }
            }
        }
        if on.is_empty() {
            return Ok(());
        }
        let Self { copy, links, .. } = self;
        let mut streams = copy.streams(stream);
        over_links(streams.get()?, links, &on, sink.runs(sources)?, scatter)
    }

    /// Copies pieces of a version to one tier, until all bytes are there or the context is stopped.
    pub(super) fn carry(
        &mut self,
        tiers: &[TierState],
        form: StoredForm,
        from: Pieces<'_>,
        to: &[Piece],
    ) -> std::result::Result<(), TransferError> {
        let carried = self.carry_pieces(tiers, form, from, to);
        carried.inspect_err(|failed| self.note_source(tiers, from, failed))
    }

    fn carry_pieces(
        &mut self,
        tiers: &[TierState],
        form: StoredForm,
        from: Pieces<'_>,
        to: &[Piece],
    ) -> std::result::Result<(), TransferError> {
        let Pieces { version, pieces } = from;
        let durable_of = |pieces: &[Piece]| {
            pieces
                .iter()
                .find_map(|piece| medium(tiers, piece).durable())
        };
        if let Some(durable) = to.first().and_then(|piece| medium(tiers, piece).durable()) {
            let mut record = DurableRecord {
                tier: durable,
                version,
                form,
            };
            return match durable_of(pieces) {
                Some(other) => {
                    let from = DurableRecord::whole(other, version);
                    let bytes = from.bytes(pieces);
                    Ok(self.copy.copy(&from, &mut record, 0..bytes, None)?)
                }
                None => self.keep_pieces(tiers, pieces, &record),
            };
        }
        if let Some(durable) = durable_of(pieces) {
            return self.bring(&DurableRecord::whole(durable, version), tiers, to);
        }
        for (from, to) in pieces.iter().zip(to) {
            let (from, to) = (PlacedPiece::on(tiers, from), PlacedPiece::on(tiers, to));
            let is_flush = from.piece.place.tier < to.piece.place.tier;
            let (source, mut target) = (from.span(), to.span());
            let into = target.offset..target.offset + target.bytes;
            let _under_way = (
                is_flush.then(|| target.medium.flushed_into(into)),
                source.medium.fetched_from(),
            );
            self.copy.copy(&source, &mut target, from.all(), None)?;
        }
        Ok(())
    }
}

impl EngineCore {
    /// Returns a function that asks the workers of the piece's link to help with a copy. The caller copies all parts alone if there are none.
    fn workers_of(&self, direction: Direction, piece: &Piece) -> impl Fn(&Helper, usize) {
        let tier = piece.place.tier;
        move |helper, workers| {
            let Some(queue) = self.link_queue(direction, tier) else {
                return;
            };
            for _ in 0..workers {
                let _ = queue.send(Task::Help(helper.clone()));
            }
        }
    }

    /// Runs `copy` with a context that no other thread uses meanwhile. The pinning of host memory, which stalls every copy, waits until
    /// `copy` has ended.
    pub(crate) fn with_context<T>(
        &self,
        copy: impl FnOnce(&mut TierContext) -> Result<T>,
    ) -> Result<T> {
        let _first: SmallVec<[_; 4]> = self
            .tiers
            .iter()
            .filter_map(|tier| tier.medium.gate())
            .map(Gate::enter)
            .collect();
        self.with_any_context(copy)
    }

    /// Runs `copy` with a context that no other thread uses meanwhile. For copies with storage alone, which hold up nothing else, however
    /// long they take.
    pub(crate) fn with_any_context<T>(
        &self,
        copy: impl FnOnce(&mut TierContext) -> Result<T>,
    ) -> Result<T> {
        let free = self.contexts.lock().pop();
        let mut context = match free {
            Some(context) => context,
            // The stream is made where a copy needs it: storage is read also after the device failed for good.
            None => Box::new(TierContext::new(&self.device)),
        };
        let result = copy(&mut context);
        self.tell_damage(&mut context);
        context.stop_by(None);
        self.contexts.lock().push(context);
        result
    }
}
