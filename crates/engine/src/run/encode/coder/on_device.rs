//! Compression of memory that only the device reads. The kernels encode and decode in scratch memory, and the device's copy engines
//! move containers down and up meanwhile.

mod nvcomp;

use super::Decoded;
use super::predictors::Predictors;
use super::runs::Run;
use crate::run::context::{TierContext, TransferError};
use crate::run::durable_record::DurableRecord;
use crate::run::encode::{at_destination, at_source, starts_on_device, to_usize};
use crate::run::medium::TierState;
use crate::run::placed_piece::PlacedPiece;
use crate::{Compression, Error, Result, Version};
use nvcomp::{Nvcomp, NvcompScratch};
use std::ops::Range;
use tierflow_codec::{Element, HEADER_BYTES, Header, Method, NvcompCodec, Planes, gpu};
use tierflow_device::{Device, Memory, Place, Stream, WriteLoan};
use tierflow_sync::model::Mutex;
use tierflow_transfer::{MemoryBytes, Source, SourceRecord, Target, whole_blocks};

/// Alignment of the memory that kernels read and write.
const ALIGNMENT: u64 = 16;

/// Scratch memory is allocated in multiples of this many bytes, so that checkpoints of similar size use the same memory.
const UNIT: u64 = 1 << 20;

/// The device, its kernels, and the scratch memory of transfers.
#[derive(Debug)]
pub(super) struct DeviceCodec {
    device: Device,
    kernels: gpu::Kernels,
    decoder: gpu::Decoder,
    nvcomp: Option<Nvcomp>,
    free: Mutex<Vec<CodecScratch>>,
}

/// Scratch memory of one transfer, on the device.
#[derive(Debug, Default)]
struct CodecScratch {
    containers: Option<Memory>,
    /// Memory for a run that is not aligned at its place.
    run: Option<Memory>,
    encoder: Option<(gpu::Encoder, u64)>,
    nvcomp: NvcompScratch,
}

/// Scratch memory of one transfer. Dropping this gives it back to the coder.
struct CodecLease<'d> {
    scratch: CodecScratch,
    of: &'d DeviceCodec,
}

impl Drop for CodecLease<'_> {
    fn drop(&mut self) {
        let scratch = std::mem::take(&mut self.scratch);
        self.of.free.lock().push(scratch);
    }
}

/// The containers of an input, their length in bytes, and the nanoseconds that encoding took.
pub(super) struct DeviceContainers<'d> {
    pub(super) containers: Memory,
    pub(super) bytes: u64,
    pub(super) nanoseconds: u64,
    _lease: CodecLease<'d>,
}

/// Returns at least `bytes` bytes of device memory. Replaces `memory` if it is smaller.
fn at_least(memory: &mut Option<Memory>, device: &Device, bytes: u64) -> Result<Memory> {
    let bytes = to_usize(0..bytes.next_multiple_of(UNIT)).end;
    if let Some(memory) = memory.as_ref().filter(|memory| memory.len() >= bytes) {
        return Ok(memory.clone());
    }
    *memory = None;
    Ok(memory.insert(device.alloc(bytes)?).clone())
}

impl DeviceCodec {
    /// Returns `None` if the processor reads the fastest tier.
    pub(super) fn new(
        how: &Compression,
        device: &Device,
        tiers: &[TierState],
    ) -> Result<Option<Self>> {
        let nvcomp = Nvcomp::load(how, device)?;
        let needs_kernels = starts_on_device(tiers) && device.as_cuda().is_some();
        let load = || -> Result<Self> {
            let kernels = gpu::Kernels::load(device)?;
            Ok(Self {
                device: device.clone(),
                decoder: gpu::Decoder::new(&kernels)?,
                kernels,
                nvcomp,
                free: Mutex::default(),
            })
        };
        needs_kernels.then(load).transpose()
    }

    fn take(&self) -> CodecLease<'_> {
        let free = self.free.lock().pop();
        CodecLease {
            scratch: free.unwrap_or_default(),
            of: self,
        }
    }

    /// Encodes the runs of `from`, which lies in device memory, and puts `front` before their containers. The length of `front`
    /// must be a multiple of [`ALIGNMENT`].
    pub(super) fn encode(
        &self,
        context: &mut TierContext,
        from: &dyn Source,
        front: &[u8],
        runs: &[Run],
        predictors: &Predictors,
    ) -> Result<DeviceContainers<'_>> {
        let mut lease = self.take();
        let before = front.len() as u64;
        let most = before + runs.iter().map(Run::most).sum::<Result<u64>>()?;
        let containers = at_least(&mut lease.scratch.containers, &self.device, most)?;
        let longest = runs.iter().map(|run| run.range.end - run.range.start).max();
        let longest = longest.unwrap_or_default();
        let mut streams = context.streams(None);
        let stream = streams.get()?;
        if !front.is_empty() {
            stream.write(front, &mut containers.lend_mut(0..front.len())?)?;
        }
        let (mut end, mut took) = (before, 0);
        for run in runs {
            let lent = from.lend(run.range.clone());
            let mut source = lent.ok_or(Error::NoMemoryTier)??;
            if !source.address().is_multiple_of(ALIGNMENT) {
                let aligned = at_least(&mut lease.scratch.run, &self.device, longest)?;
                let room = aligned.lend_mut(0..source.len())?;
                stream.copy_all([(source, room)])?;
                source = aligned.lend(0..to_usize(run.range.start..run.range.end).len())?;
            }
            let room = to_usize(end..end + run.most()?);
            if let Some(nvcomp) = self.nvcomp.as_ref().filter(|_| run.bound.is_none()) {
                let out = gpu::OutputBuffer::device(&containers, room)?;
                let scratch = &mut lease.scratch.nvcomp;
                let encode = || nvcomp.encode(scratch, stream, source, run.value, out);
                let (bytes, nanoseconds) = timed(stream, encode)?;
                (end, took) = (end + bytes, took + nanoseconds);
                continue;
            }
            let encoder = self.encoder(&mut lease.scratch, longest)?;
            let mut source = Some(source);
            let mut encode = |method: Method| -> Result<u64> {
                let data = source.take().ok_or(Error::NoMemoryTier)?;
                let out = gpu::OutputBuffer::device(&containers, room.clone())?;
                let encoding = encoder.encode(stream, &method, run.value, data, out);
                let encoded = encoding.wait();
                source = Some(encoded.data);
                Ok(encoded.result?.stored_bytes)
            };
            let method = match run.bounded()? {
                Some(bounded) => bounded.into(),
                None => {
                    let find = || smallest(run.value, &mut encode);
                    predictors.of(run, find)?.into()
                }
            };
            let (bytes, nanoseconds) = timed(stream, || encode(method))?;
            (end, took) = (end + bytes, took + nanoseconds);
        }
        Ok(DeviceContainers {
            containers,
            bytes: end,
            nanoseconds: took,
            _lease: lease,
        })
    }

    fn encoder<'w>(
        &self,
        scratch: &'w mut CodecScratch,
        bytes: u64,
    ) -> Result<&'w mut gpu::Encoder> {
        let encoder = match scratch.encoder.take() {
            Some((encoder, most)) if most >= bytes => (encoder, most),
            _ => {
                let most = bytes.next_multiple_of(UNIT);
                (gpu::Encoder::new(&self.kernels, most)?, most)
            }
        };
        Ok(&mut scratch.encoder.insert(encoder).0)
    }

    /// Decodes a version of `size` bytes to `to`. Returns false if the version is not compressed, or if the host has to decode it.
    pub(super) fn decode(
        &self,
        context: &mut TierContext,
        version: Version,
        size: u64,
        from: PlacedPiece<'_>,
        to: &mut dyn Target,
        theirs: Option<&Stream>,
    ) -> Decoded {
        let mut lease = self.take();
        let bytes = from.piece.place.size;
        // Storage is read in whole blocks.
        let room = whole_blocks(from.medium.bytes().block(), bytes);
        let containers = at_least(&mut lease.scratch.containers, &self.device, room);
        let containers = containers.map_err(at_destination)?;
        let mut held = MemoryBytes {
            start: 0,
            memory: &containers,
        };
        let mut bring = || -> std::result::Result<(), TransferError> {
            let Some(durable) = from.medium.durable() else {
                return Ok(context.copy(&from.span(), &mut held, 0..bytes, theirs)?);
            };
            let record = DurableRecord::whole(durable, version);
            let mut stored = vec![0; to_usize(0..bytes).end];
            let read = record.read_whole(&mut stored, &context.stop());
            read.map_err(at_source)?;
            Ok(context.give(&mut held, 0, &stored, theirs)?)
        };
        let brought = bring();
        if let Err(TransferError {
            error: Some(error), ..
        }) = &brought
        {
            context.note(version, from.piece.place.tier, error);
        }
        brought?;
        self.decode_brought(context, &mut lease.scratch, bytes, 0..size, to, theirs)
    }

    /// Decodes containers in host memory to `range` of `to`. Returns false if the host has to decode them.
    pub(super) fn decode_from_host(
        &self,
        context: &mut TierContext,
        containers: &[u8],
        to: &mut dyn Target,
        range: Range<u64>,
    ) -> Decoded {
        let mut lease = self.take();
        let bytes = containers.len() as u64;
        let room = at_least(&mut lease.scratch.containers, &self.device, bytes);
        let room = room.map_err(at_destination)?;
        let mut held = MemoryBytes {
            start: 0,
            memory: &room,
        };
        context.give(&mut held, 0, containers, None)?;
        self.decode_brought(context, &mut lease.scratch, bytes, range, to, None)
    }

    /// Decodes the first `bytes` bytes of `scratch.containers` to `range` of `to`. Returns false as [`decode`](Self::decode) does.
    fn decode_brought(
        &self,
        context: &mut TierContext,
        scratch: &mut CodecScratch,
        bytes: u64,
        range: Range<u64>,
        to: &mut dyn Target,
        theirs: Option<&Stream>,
    ) -> Decoded {
        let containers = scratch.containers.clone().ok_or(Error::NoMemoryTier);
        let containers = containers.map_err(at_destination)?;
        let held = MemoryBytes {
            start: 0,
            memory: &containers,
        };
        let (mut at, mut start) = (0, range.start);
        while start < range.end {
            let mut front = [0; HEADER_BYTES];
            // `parse` refuses a rest that is shorter than a header.
            let rest = to_usize(0..bytes - at).end.min(HEADER_BYTES);
            let front = &mut front[..rest];
            context.fill(&held, at, front, theirs)?;
            if at == 0 && !Header::is_one(front) {
                return Ok(false);
            }
            let header = Header::parse(front).map_err(at_source)?;
            let of_nvcomp = NvcompCodec::of(header.codec);
            if of_nvcomp.is_some_and(|codec| !codec.is_decoded_on_device() || self.nvcomp.is_none())
            {
                return Ok(false);
            }
            let [stored, raw] = [bytes - at, range.end - start].map(|left| to_usize(0..left).end);
            let (stored, raw) = header.within(stored, raw).map_err(at_source)?;
            let container = to_usize(at..at + stored as u64);
            let container = gpu::Origin::device(&containers, container).map_err(at_source)?;
            let mut streams = context.streams(theirs);
            let stream = streams.get().map_err(at_destination)?;
            let decode = |out| -> std::result::Result<(), TransferError> {
                if let Some((nvcomp, _)) = self.nvcomp.as_ref().zip(of_nvcomp) {
                    let scratch = &mut scratch.nvcomp;
                    let decoded = nvcomp.decode(scratch, stream, &header, container, out);
                    return decoded.map_err(at_source);
                }
                let decoding = self.decoder.decode(stream, &header, container, out);
                decoding.wait().result.map_err(at_source)
            };
            let decoded = start..start + raw as u64;
            match to.lend_mut(decoded).transpose().map_err(at_destination)? {
                Some(out) if self.reaches(&out) => decode(out)?,
                lent => {
                    drop(lent);
                    let run = at_least(&mut scratch.run, &self.device, raw as u64);
                    let run = run.map_err(at_destination)?;
                    decode(run.lend_mut(0..raw).map_err(at_destination)?)?;
                    let run = run.lend(0..raw).map_err(at_destination)?;
                    let written = to.write(start, run, &mut streams);
                    written.map_err(at_destination)?;
                }
            }
            (at, start) = (at + stored as u64, start + raw as u64);
        }
        Ok(true)
    }

    /// Returns true if the kernels can write to `memory`.
    fn reaches(&self, memory: &WriteLoan) -> bool {
        memory.place() == Place::Device
            && memory.device().is_same(&self.device)
            && memory.address().is_multiple_of(ALIGNMENT)
    }
}

/// Returns the result of `work` on the stream, and the nanoseconds that the device measured. Delays of the thread do not count.
fn timed<T>(stream: &Stream, work: impl FnOnce() -> Result<T>) -> Result<(T, u64)> {
    let begun = stream.record_timed()?;
    let done = work()?;
    let ended = stream.record_timed()?;
    ended.synchronize()?;
    Ok((done, ended.elapsed_since(&begun)?.as_nanos() as u64))
}

/// Returns the predictor that makes an input of this type smallest.
fn smallest(value: Element, encode: &mut impl FnMut(Method) -> Result<u64>) -> Result<Planes> {
    let sizes = Planes::all(value).map(|planes| Ok((encode(planes.into())?, planes)));
    let sizes = sizes.collect::<Result<Vec<_>>>()?;
    let smallest = sizes.into_iter().min_by_key(|(bytes, _)| *bytes);
    Ok(smallest.map_or_else(Planes::new, |(_, planes)| planes))
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;
    use crate::plan::TransferFailure;
    use tierflow_codec::Codec as _;
    use tierflow_device::{Choice, ReadLoan, open};
    use tierflow_transfer::{MediumKind, StreamChoice};

    /// A tier whose memory is not there.
    struct Absent;

    impl Target for Absent {
        fn kind(&self) -> MediumKind {
            MediumKind::Pageable
        }

        fn write(
            &mut self,
            _: u64,
            _: ReadLoan,
            _: &mut StreamChoice<'_>,
        ) -> tierflow_transfer::Result<()> {
            Err(tierflow_transfer::Error::NoMemory)
        }
    }

    #[test]
    #[ignore = "needs an NVIDIA GPU"]
    fn a_tier_that_cannot_be_written_is_no_failure_of_the_stored_bytes() {
        let device = open(Choice::Cuda { ordinal: 0 }).unwrap();
        let kernels = gpu::Kernels::load(&device).unwrap();
        let codec = DeviceCodec {
            decoder: gpu::Decoder::new(&kernels).unwrap(),
            device: device.clone(),
            kernels,
            nvcomp: None,
            free: Mutex::default(),
        };
        let mut context = TierContext::new(&device);
        let length = 100_000;
        let stored = Planes::new().encode_to_vec(&vec![7; length], Element::F32);
        let mut stored = stored.unwrap();
        let mut decode = |stored: &[u8]| {
            let all = 0..length as u64;
            let decoded = codec.decode_from_host(&mut context, stored, &mut Absent, all);
            decoded.unwrap_err().end
        };
        assert_eq!(decode(&stored), TransferFailure::Destination);
        stored.truncate(stored.len() / 2);
        assert_eq!(decode(&stored), TransferFailure::Source);
    }
}
