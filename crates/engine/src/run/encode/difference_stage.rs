//! The stage that makes differences of checkpoints on the way down. If the cache is full, a caller reads a version from a lower
//! tier, and the host's cores restore it.
//!
//! The stage makes differences in the order in which the plan asks for them. The plan names the base of each. While one difference
//! goes down, the stage makes the next one. A device begins a difference before the previous one is finished. If a version cannot
//! build upon the base that the plan names, the stage makes a difference without a base and reports that.
//!
//! With `compress`, the stage compresses a difference before it reports the length to the plan.

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

/// Largest number of differences in a chain: the record of hashes names the chunks of as many checkpoints.
const LONGEST_CHAIN: u32 = 4096;

/// The configuration of the differences, and the lineage that made the last ones.
#[derive(Debug)]
pub(crate) struct DifferenceStage {
    config: Config,
    /// Limit of the bytes that a restore reads.
    bound: Bound,
    /// Kernels for a fastest tier that only the device reads.
    kernels: Option<OnDevice>,
    /// The coder of the differences, if the builder has one.
    coder: Option<DifferenceCoder>,
    encoder: Mutex<Encoder, { rank::COPY }>,
    /// The order in which differences begin, and the order in which they end.
    beginning: Sequencer,
    ending: Sequencer,
}

#[derive(Debug, Default)]
struct Encoder {
    /// The lineage of the next difference, and the version that it builds upon.
    newest: Option<(Encodes, Option<Version>)>,
    /// The number of the next difference. Versions come in any order, but a lineage needs rising numbers.
    next: u64,
    /// The bytes that a restore of the newest version reads from a lower tier.
    reads: Reads,
}

#[derive(Debug)]
enum Encodes {
    OnHost(Box<Lineage>),
    OnDevice(kernels::Lineage),
}

/// The bytes of a difference, and the memory that holds them.
enum EncodedBytes<'k> {
    OnHost(Vec<u8>),
    OnDevice(OutputBuffer<'k>),
    Compressed(EncodedInput<'k>),
}

/// The encoded form of a version.
struct Outcome<'k> {
    made: EncodedBytes<'k>,
    summary: Summary,
    /// True if the version builds upon nothing.
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

    /// Records that the difference of `version` was made or begun.
    fn made(&mut self, version: Version) {
        if let Some((_, newest)) = &mut self.newest {
            *newest = Some(version);
        }
    }

    /// Drops the device's lineage if one of its differences failed.
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
    /// [`BuildError::Reduction`] if the chunk size is invalid; [`Error::Device`] if the kernels cannot be loaded.
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

    /// Lets the stage compress differences before they go down.
    ///
    /// # Errors
    /// [`Error::Device`] if the kernels cannot be loaded; [`BuildError::Reduction`] if a bound is invalid or nvCOMP is missing.
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

    /// Makes the difference of a checkpoint to its base, or stores it whole if that serves better. Returns the target place, too.
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
        // Places are asked for in the order of the versions, so that neighbouring versions lie side by side.
        match (stage_input.encoded)(Some(outcome.stored())) {
            Some(piece) => Ok((outcome, piece)),
            None => stops(),
        }
    }

    /// Lets the device begin a difference. Begins none if the base is not the version of the last difference, made or begun.
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

    /// Checks the difference that the device made, and makes it now, or anew, if it cannot be used. Calls come in the order in
    /// which the plan asked. After an error the next difference builds upon nothing.
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
                        // The differences that the device began upon this one are invalid, too.
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

    /// Returns how the next difference of a lineage starts. The device's kernels only make differences to the previous version.
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
        // Dropped first, as a lineage needs much memory.
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

    /// The host's cores restore the version.
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

/// Returns the chain of the differences of a version of `size` bytes, and the number of the newest one.
pub(super) fn chain(stored: Vec<Bytes>, size: u64) -> Result<(Chain<Bytes>, u64)> {
    let stored = stored.into_iter().map(|one| encoded::decoded(one, size));
    let chain = Chain::of(stored.collect::<Result<_>>()?)?;
    let number = chain.versions().last().ok_or(Error::Internal {
        what: "a chain without versions",
    })?;
    Ok((chain, number))
}
