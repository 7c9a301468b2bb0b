//! Checkpoints become differences on the way down. What a caller reads from a lower tier, past a full cache, is put together
//! by the host's cores.
//!
//! Differences are made in the order in which the plan asks for them, which says what each may build upon. While one goes down,
//! the next is made; on a device it is begun before the one before is made. What cannot build upon what it was to build
//! upon builds upon nothing, and says so.
//!
//! With `compress`, what was made is encoded before the plan hears how long it is.

mod encoded;
mod kernels;
mod needed;
mod reads;

use super::sequencer::Sequencer;
use super::stored::{self, Bytes, StoredBytes};
use super::{Links, Stage, StageInput};
use crate::plan::{Overhead, Piece, Stored};
use crate::run::context::{TierContext, TransferError};
use crate::run::durable_tier::StoredForm;
use crate::run::encode::at_source;
use crate::run::medium::TierState;
use crate::run::placed_piece::PlacedPiece;
use crate::run::regions::TargetRegions;
use crate::{BuildError, CompressionMetrics, Differences, Error, Result, Version};
use encoded::{DifferenceCoder, EncodedInput};
use kernels::{EncodeDone, EncodeStarted, OnDevice, OutputBuffer};
use reads::{Bound, Reads, Start};
use tierflow_dedup::{Chain, Config, Lineage, Summary, most_stored_bytes};
use tierflow_device::{Device, ReadLoan, Stream};
use tierflow_store::container::RegionInfo;
use tierflow_sync::model::Mutex;
use tierflow_sync::rank;
use tierflow_transfer::{HostBytes, MemoryBytes, Source};

/// Differences that a version is made of, at most: the record of hashes names the chunks of so many checkpoints.
const LONGEST_CHAIN: u32 = 4096;

/// How differences are made, and what has made the last ones.
#[derive(Debug)]
pub(crate) struct DifferenceStage {
    config: Config,
    /// The bytes that a restore may read.
    bound: Bound,
    /// For memory that only the device reads.
    kernels: Option<OnDevice>,
    /// The coder of the differences, if the builder has one.
    coder: Option<DifferenceCoder>,
    encoder: Mutex<Encoder, { rank::COPY }>,
    /// The order in which differences begin, and that in which they end.
    beginning: Sequencer,
    ending: Sequencer,
}

#[derive(Debug, Default)]
struct Encoder {
    /// The lineage of the next difference, and the version that it builds upon.
    newest: Option<(Encodes, Option<Version>)>,
    /// The number of the next difference: versions come in any order, those of a lineage do not.
    next: u64,
    /// The bytes that a restore of the newest version reads from a lower tier.
    reads: Reads,
}

#[derive(Debug)]
enum Encodes {
    OnHost(Box<Lineage>),
    OnDevice(kernels::Lineage),
}

/// The bytes of a difference, and where they lie.
enum EncodedBytes<'k> {
    OnHost(Vec<u8>),
    OnDevice(OutputBuffer<'k>),
    Compressed(EncodedInput<'k>),
}

/// The encoded form of a version.
struct Outcome<'k> {
    made: EncodedBytes<'k>,
    summary: Summary,
    /// The version builds upon nothing.
    is_alone: bool,
}

impl Outcome<'_> {
    fn stored(&self) -> Stored {
        let bytes = match &self.made {
            EncodedBytes::Compressed(encoded) => encoded.bytes(),
            _ => self.summary.stored_bytes,
        };
        Stored {
            bytes,
            alone: self.is_alone,
        }
    }
}

impl Encoder {
    /// Returns the lineage that builds upon `base`.
    fn building_upon(&mut self, base: Option<Version>) -> Option<&mut Encodes> {
        let (encodes, newest) = self.newest.as_mut()?;
        (base == *newest).then_some(encodes)
    }

    /// A difference of that version was made, or begun.
    fn made(&mut self, version: Version) {
        if let Some((_, newest)) = &mut self.newest {
            *newest = Some(version);
        }
    }

    /// Nothing more is made by what has failed.
    fn forget_invalid(&mut self) {
        self.newest.take_if(
            |(encodes, _)| matches!(encodes, Encodes::OnDevice(lineage) if !lineage.holds()),
        );
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
}

impl Encodes {
    fn encode<'k>(
        &mut self,
        context: &mut TierContext,
        number: u64,
        source: ReadLoan,
        output: Option<OutputBuffer<'k>>,
    ) -> Result<(Summary, EncodedBytes<'k>)> {
        match (self, output) {
            (Self::OnHost(lineage), _) => {
                let difference = lineage.encode(number, source.bytes()?)?;
                let summary = difference.summary();
                Ok((summary, EncodedBytes::OnHost(difference.into_bytes())))
            }
            (Self::OnDevice(lineage), Some(output)) => {
                let ended = lineage.begin(context, number, source, output)?.wait();
                let (result, _) = ended.made.ok_or(Error::Internal {
                    what: "no memory for a difference",
                })?;
                Ok((result?, EncodedBytes::OnDevice(ended.output)))
            }
            (Self::OnDevice(_), None) => Err(Error::Internal {
                what: "no memory for a difference",
            }),
        }
    }
}

impl DifferenceStage {
    /// # Errors
    /// [`BuildError::Reduction`] for a chunk size that there is not; [`Error::Device`] for kernels that cannot be loaded.
    pub(crate) fn new(how: Differences, device: &Device, tiers: &[TierState]) -> Result<Self> {
        Lineage::new(how.config).map_err(BuildError::reduction)?;
        let kernels = OnDevice::new(device, tiers)?;
        let has_storage = tiers.iter().any(|tier| !tier.medium.is_memory());
        Ok(Self {
            config: how.config,
            bound: Bound {
                checkpoints: how.restore_reads.into(),
                whole: has_storage || kernels.is_some(),
            },
            kernels,
            coder: None,
            encoder: Mutex::default(),
            beginning: Sequencer::default(),
            ending: Sequencer::default(),
        })
    }

    /// Has the differences encoded before they go down.
    ///
    /// # Errors
    /// [`Error::Device`] for kernels that cannot be loaded.
    pub(crate) fn encoded(
        self,
        how: crate::Compression,
        device: &Device,
        tiers: &[TierState],
    ) -> Result<Self> {
        let coder = Some(DifferenceCoder::new(how, device, tiers)?);
        let whole = true;
        let bound = Bound {
            whole,
            ..self.bound
        };
        Ok(Self {
            coder,
            bound,
            ..self
        })
    }

    /// Makes the difference of a checkpoint, to what it is to build upon if that serves. Returns where it is to lie, too.
    fn make(
        &self,
        context: &mut TierContext,
        from: PlacedPiece<'_>,
        stage_input: &StageInput<'_>,
    ) -> std::result::Result<(Outcome<'_>, Piece), TransferError> {
        let stops = || Err(TransferError::CANCELLED);
        let begins = self.beginning.turn(stage_input.turn);
        let ends = self.ending.turn(stage_input.turn);
        if !begins.comes() || context.stop().is_set() {
            return stops();
        }
        let mut begun = None;
        if let Some(kernels) = &self.kernels {
            let output = kernels.output(from.piece.place.size);
            let Some(output) = output.map_err(at_source)? else {
                return stops();
            };
            let making = self.begin(context, from, stage_input, output);
            begun = Some(making.map_err(at_source)?);
        }
        drop(begins);
        let begun = begun.map(EncodeStarted::wait);
        if !ends.comes() {
            return stops();
        }
        let outcome = self.end(context, from, stage_input, begun);
        let mut outcome = outcome.map_err(at_source)?;
        let coder = self.coder.as_ref();
        if let Some(encoded) = coder.and_then(|coder| coder.encode(context, stage_input, &outcome))
        {
            outcome.made = EncodedBytes::Compressed(encoded);
        }
        // In the order in which they were asked for, they lie side by side.
        match (stage_input.encoded)(Some(outcome.stored())) {
            Some(piece) => Ok((outcome, piece)),
            None => stops(),
        }
    }

    /// Has the device begin to make a difference, unless what it was to build upon is not what was made or begun last.
    fn begin<'k>(
        &self,
        context: &mut TierContext,
        from: PlacedPiece<'_>,
        stage_input: &StageInput<'_>,
        output: OutputBuffer<'k>,
    ) -> Result<EncodeStarted<'k>> {
        let mut encoder = self.encoder.lock();
        if stage_input.base.is_none() {
            self.begin_anew(&mut encoder, from)?;
        }
        let number = encoder.number();
        let Some(Encodes::OnDevice(lineage)) = encoder.building_upon(stage_input.base) else {
            return Ok(EncodeStarted::nothing(output));
        };
        let source = from.medium.lend(from.at(from.all()))?;
        let begun = lineage.begin(context, number, source, output)?;
        encoder.made(stage_input.version);
        Ok(begun)
    }

    /// Looks at what was made, and makes it now, or anew, where that serves. All that were asked for before were looked at. After an error
    /// the next difference builds upon nothing.
    fn end<'k>(
        &'k self,
        context: &mut TierContext,
        from: PlacedPiece<'_>,
        stage_input: &StageInput<'_>,
        begun: Option<EncodeDone<'k>>,
    ) -> Result<Outcome<'k>> {
        let mut encoder = self.encoder.lock();
        let mut base = stage_input.base;
        let mut output = None;
        if let Some(ended) = begun {
            let is_alone = base.is_none();
            let start = match is_alone {
                true => Start::Alone,
                false => Start::Difference,
            };
            if let Some((result, validity)) = ended.made.filter(|(_, validity)| validity.holds()) {
                match result {
                    Ok(summary) if encoder.reads.add(self.bound, &summary, &start) => {
                        let made = EncodedBytes::OnDevice(ended.output);
                        return Ok(Outcome {
                            made,
                            summary,
                            is_alone,
                        });
                    }
                    result => {
                        // Nor does anything come of what was begun upon it.
                        validity.end();
                        encoder.forget_invalid();
                        result?;
                        base = None;
                    }
                }
            }
            output = Some(ended.output);
        }
        let outcome = self.make_now(&mut encoder, context, from, base, output);
        match &outcome {
            Ok(_) => encoder.made(stage_input.version),
            Err(_) => encoder.newest = None,
        }
        outcome
    }

    fn make_now<'k>(
        &'k self,
        encoder: &mut Encoder,
        context: &mut TierContext,
        from: PlacedPiece<'_>,
        base: Option<Version>,
        mut output: Option<OutputBuffer<'k>>,
    ) -> Result<Outcome<'k>> {
        let size = from.piece.place.size;
        let mut start = match base.is_none() || encoder.building_upon(base).is_none() {
            true => Start::Alone,
            false => self.next_start(encoder, size),
        };
        loop {
            if start == Start::Alone {
                self.begin_anew(encoder, from)?;
            }
            let number = encoder.number();
            let Some((encodes, _)) = &mut encoder.newest else {
                return Err(Error::Internal {
                    what: "no memory for a difference",
                });
            };
            if let (Encodes::OnHost(lineage), Start::Consolidated(keep)) = (&mut *encodes, &start) {
                lineage.consolidate(keep);
            }
            let source = from.medium.lend(from.at(from.all()))?;
            let (summary, made) = encodes.encode(context, number, source, output.take())?;
            if encoder.reads.add(self.bound, &summary, &start) {
                return Ok(Outcome {
                    made,
                    summary,
                    is_alone: start == Start::Alone,
                });
            }
            start = Start::Alone;
            if let EncodedBytes::OnDevice(again) = made {
                output = Some(again);
            }
        }
    }

    /// Returns how the next difference of a lineage begins. The device's kernels only make differences to the one before.
    fn next_start(&self, encoder: &Encoder, size: u64) -> Start {
        let lineage = match &encoder.newest {
            Some((Encodes::OnHost(lineage), _))
                if encoder.reads.are_exhausted(self.bound, size) =>
            {
                lineage
            }
            _ => return Start::Difference,
        };
        let keep = encoder
            .reads
            .consolidation(self.bound, &lineage.origins(), size);
        keep.map_or(Start::Difference, Start::Consolidated)
    }

    /// Starts a lineage that builds upon nothing.
    fn begin_anew(&self, encoder: &mut Encoder, from: PlacedPiece<'_>) -> Result<()> {
        // The old lineage has much memory.
        encoder.newest = None;
        let encodes = match &self.kernels {
            Some(kernels) => {
                Encodes::OnDevice(kernels.lineage(self.config, from.piece.place.size)?)
            }
            None => Encodes::OnHost(Box::new(Lineage::new(self.config)?)),
        };
        encoder.newest = Some((encodes, None));
        Ok(())
    }
}

impl Stage for DifferenceStage {
    fn overhead(&self) -> Overhead {
        Overhead::fixed(most_stored_bytes(0))
    }

    fn longest_chain(&self) -> u32 {
        LONGEST_CHAIN
    }

    fn check(&self, _: Version, _: &[RegionInfo], _: Option<f64>) -> Result<()> {
        Ok(())
    }

    fn metrics(&self) -> Option<CompressionMetrics> {
        self.coder.as_ref().map(DifferenceCoder::metrics)
    }

    fn close(&self) {
        self.beginning.close();
        self.ending.close();
        if let Some(kernels) = &self.kernels {
            kernels.close();
        }
    }

    fn down(
        &self,
        context: &mut TierContext,
        _: &[TierState],
        stage_input: &StageInput<'_>,
        from: PlacedPiece<'_>,
        to: PlacedPiece<'_>,
    ) -> std::result::Result<Option<Stored>, TransferError> {
        let (outcome, piece) = self.make(context, from, stage_input)?;
        let stored = outcome.stored();
        let to = PlacedPiece {
            piece: &piece,
            ..to
        };
        let form = StoredForm::Difference {
            size: from.piece.place.size,
            base: stage_input.base.filter(|_| !stored.alone),
        };
        let mut put = || {
            let version = stage_input.version;
            let mut put = |from: &dyn Source| {
                let length = stored.bytes;
                let stored = StoredBytes {
                    version,
                    form,
                    from,
                    length,
                };
                context.put(to, stored)
            };
            match &outcome.made {
                EncodedBytes::OnHost(bytes) => put(&HostBytes {
                    start: 0,
                    bytes: bytes.as_slice(),
                }),
                EncodedBytes::OnDevice(output) => put(&MemoryBytes {
                    start: 0,
                    memory: output.memory(),
                }),
                EncodedBytes::Compressed(encoded) => encoded.put(context, to, version, form),
            }
        };
        match &self.coder {
            Some(coder) => {
                let raw = outcome.summary.stored_bytes;
                coder.send(raw, stored.bytes, stage_input, put)
            }
            None => put(),
        }?;
        Ok(Some(stored))
    }

    fn up(
        &self,
        context: &mut TierContext,
        tiers: &[TierState],
        chain: Links<'_>,
        to: PlacedPiece<'_>,
    ) -> std::result::Result<(), TransferError> {
        if let Some(kernels) = &self.kernels
            && kernels.up(context, tiers, chain, to, self.coder.as_ref())?
        {
            return Ok(());
        }
        let size = to.piece.place.size;
        let stored = needed::fetch(context, tiers, chain, size).map_err(at_source)?;
        stored::up(context, stored, to)
    }

    /// By the host's cores.
    fn read(
        &self,
        context: &mut TierContext,
        tiers: &[TierState],
        chain: Links<'_>,
        size: u64,
        to: &mut TargetRegions<'_, '_>,
        stream: Option<&Stream>,
    ) -> Result<()> {
        let stored = needed::fetch(context, tiers, chain, size)?;
        stored::read(context, stored, size, to, stream)
    }
}

/// The differences that a version of `size` bytes is made of, and the number of the last one.
pub(super) fn chain(stored: Vec<Bytes>, size: u64) -> Result<(Chain<Bytes>, u64)> {
    let stored = stored.into_iter().map(|one| encoded::decoded(one, size));
    let chain = Chain::of(stored.collect::<Result<_>>()?)?;
    let number = chain.versions().last().ok_or(Error::Internal {
        what: "a chain without versions",
    })?;
    Ok((chain, number))
}
