//! Compresses bytes on their way down. The device compresses its own memory. The host's cores compress host memory, and bytes that
//! they have to read first from storage or from other devices.
//!
//! Bytes are encoded in runs: neighbouring values of one type, or a region with a bound. The containers of the runs follow each
//! other. Each container names its length and the length of its input.
//!
//! A checkpoint that does not become smaller is stored as it is. The governor turns compression off while it does not make the copy
//! faster.

mod measured;
mod on_device;
mod predictors;
pub(super) mod runs;

pub(super) use runs::Run;

use super::Links;
use super::stored::StoredBytes;
use crate::plan::Piece;
use crate::run::context::{TierContext, TransferError};
use crate::run::durable_tier::StoredForm;
use crate::run::encode::to_usize;
use crate::run::medium::TierState;
use crate::run::placed_piece::PlacedPiece;
use crate::{Compression, CompressionMetrics, Error, Result, Version};
use measured::Measured;
use on_device::DeviceCodec;
use predictors::Predictors;
use std::ops::Range;
use tierflow_codec::{Codec, Decision, Method, Planes};
use tierflow_device::Error as DeviceError;
use tierflow_device::{Device, Stream};
use tierflow_sync::model::Mutex;
use tierflow_transfer::{HostBytes, MemoryBytes, Source, Target};

/// Returns true if the device decoded a version, false if the host has to.
type Decoded = std::result::Result<bool, TransferError>;

/// Smallest input that is compressed. Tiers store whole pages, so compressing one page or less saves nothing.
const LEAST: u64 = 4097;

/// Bytes that the host's cores read and encode at a time, if the input is not in host memory. Each part has its own container.
const PART: u64 = 8 << 20;

/// The compression options, the measured rates, and the memory for encoding.
#[derive(Debug)]
pub(super) struct Coder {
    how: Compression,
    measured: Measured,
    predictors: Predictors,
    /// The device's kernels, if only the device reads the fastest tier.
    kernels: Option<DeviceCodec>,
    /// Buffers of the host's containers that are not in use.
    buffers: Mutex<Vec<Vec<u8>>>,
}

/// The bytes to encode.
pub(super) enum Input<'a> {
    Bytes(&'a [u8]),
    /// The bytes of `origin`. `on_device` is true if they lie in memory of the engine's device.
    From {
        origin: &'a dyn Source,
        on_device: bool,
    },
}

/// The bytes that the host's cores encode.
enum Values<'a> {
    Here(&'a [u8]),
    Read {
        context: &'a mut TierContext,
        from: &'a dyn Source,
        part: Vec<u8>,
    },
}

impl Values<'_> {
    /// Returns the number of bytes that can be read at a time.
    fn part(&self) -> u64 {
        match self {
            Self::Here(_) => u64::MAX,
            Self::Read { .. } => PART,
        }
    }

    fn of(&mut self, range: Range<u64>) -> Result<&[u8]> {
        match self {
            Self::Here(all) => Ok(all.get(to_usize(range)).unwrap_or_default()),
            Self::Read {
                context,
                from,
                part,
            } => {
                part.resize(to_usize(0..range.end - range.start).end, 0);
                context.fill(*from, range.start, part, None)?;
                Ok(part)
            }
        }
    }
}

/// The encoded form of an input: its containers.
pub(super) struct EncodedInput<'s>(EncodedParts<'s>);

/// The containers, and the memory that holds them.
enum EncodedParts<'s> {
    OnHost(HostContainers<'s>),
    OnDevice(on_device::DeviceContainers<'s>),
}

/// Containers in a buffer of the coder. Dropping this gives the buffer back.
struct HostContainers<'s> {
    buffer: Vec<u8>,
    bytes: usize,
    nanoseconds: u64,
    of: &'s Mutex<Vec<Vec<u8>>>,
}

impl HostContainers<'_> {
    /// Makes room for at least `bytes` bytes.
    fn grow(&mut self, bytes: usize) {
        self.buffer.resize(self.buffer.len().max(bytes), 0);
    }
}

impl Drop for HostContainers<'_> {
    fn drop(&mut self) {
        let buffer = std::mem::take(&mut self.buffer);
        self.of.lock().push(buffer);
    }
}

impl Coder {
    /// # Errors
    /// [`BuildError::Reduction`](crate::BuildError::Reduction) if a bound is invalid or nvCOMP cannot be loaded; [`Error::Device`]
    /// if the kernels cannot be loaded.
    pub(super) fn new(how: Compression, device: &Device, tiers: &[TierState]) -> Result<Self> {
        how.check()?;
        Ok(Self {
            measured: Measured::default(),
            predictors: Predictors::default(),
            kernels: DeviceCodec::new(&how, device, tiers)?,
            buffers: Mutex::default(),
            how,
        })
    }

    pub(super) fn how(&self) -> &Compression {
        &self.how
    }

    /// Returns true if `size` bytes are worth compressing.
    pub(super) fn is_worth_it(&self, size: u64) -> bool {
        let decide = || self.measured.decide(size) != Decision::Bypass;
        size >= LEAST && (self.how.is_always() || decide())
    }

    /// Encodes the runs of an input of `size` bytes, and puts `front` before their containers. Returns `None` if the result is not
    /// smaller, or if encoding fails. The log reports a failure, and the version goes down as it is.
    pub(super) fn encode(
        &self,
        context: &mut TierContext,
        version: Version,
        size: u64,
        input: &Input<'_>,
        front: &[u8],
        runs: &[Run],
    ) -> Option<EncodedInput<'_>> {
        let encoded = match *input {
            Input::Bytes(bytes) => self.encode_on_host(Values::Here(bytes), front, runs),
            Input::From { origin, on_device } => {
                self.encode_from(context, origin, on_device, size, front, runs)
            }
        };
        let encoded = match encoded {
            Ok(encoded) => encoded,
            // Device memory is short, or the input is longer than a container can be.
            Err(error) => {
                tracing::warn!(version, %error, "a version goes down as it is: it could not be compressed");
                return None;
            }
        };
        let (bytes, nanoseconds) = encoded.came_to();
        self.measured.encoded(size, bytes, nanoseconds);
        (bytes < size).then_some(encoded)
    }

    fn encode_from(
        &self,
        context: &mut TierContext,
        from: &dyn Source,
        on_device: bool,
        size: u64,
        front: &[u8],
        runs: &[Run],
    ) -> Result<EncodedInput<'_>> {
        if let Some(kernels) = self.kernels.as_ref().filter(|_| on_device) {
            let made = kernels.encode(context, from, front, runs, &self.predictors)?;
            return Ok(EncodedInput(EncodedParts::OnDevice(made)));
        }
        let lent = from.lend(0..size).transpose()?;
        let values = match lent.as_ref().and_then(|lent| lent.bytes().ok()) {
            Some(bytes) => Values::Here(bytes),
            None => Values::Read {
                context,
                from,
                part: Vec::new(),
            },
        };
        self.encode_on_host(values, front, runs)
    }

    fn encode_on_host(
        &self,
        mut values: Values<'_>,
        front: &[u8],
        runs: &[Run],
    ) -> Result<EncodedInput<'_>> {
        let mut made = HostContainers {
            buffer: self.buffers.lock().pop().unwrap_or_default(),
            bytes: front.len(),
            nanoseconds: 0,
            of: &self.buffers,
        };
        made.grow(front.len());
        made.buffer[..front.len()].copy_from_slice(front);
        let part = values.part();
        for run in runs.iter().flat_map(|run| run.cut(part)) {
            let encoding = &self.measured.encoding;
            // The time to read the values counts, too.
            let (values, reading) = encoding.time(|| values.of(run.range.clone()));
            let values = values?;
            let method = match run.bounded()? {
                Some(bounded) => Method::from(bounded),
                None => Method::from(self.predictors.of(&run, || {
                    Ok::<_, Error>(Planes::chosen_for(values, run.value))
                })?),
            };
            made.grow(made.bytes + to_usize(0..run.most()?).end);
            let room = made.buffer.get_mut(made.bytes..).unwrap_or_default();
            let (encoded, nanoseconds) = encoding.time(|| method.encode(values, run.value, room));
            made.bytes += encoded?;
            made.nanoseconds += reading + nanoseconds;
        }
        Ok(EncodedInput(EncodedParts::OnHost(made)))
    }

    /// Makes the device decode a version of `size` bytes to `to`. Returns false if the host has to decode: if the processor reads
    /// the fastest tier, if the version is not compressed, or if the device refuses or has no memory.
    pub(super) fn decode(
        &self,
        context: &mut TierContext,
        tiers: &[TierState],
        (version, place, bases): Links<'_>,
        size: u64,
        to: &mut dyn Target,
        stream: Option<&Stream>,
    ) -> Decoded {
        let kernels = self.kernels.as_ref().filter(|_| bases.is_empty());
        let Some(kernels) = kernels else {
            return Ok(false);
        };
        let piece = Piece {
            start: 0,
            place: *place,
        };
        let from = PlacedPiece::on(tiers, &piece);
        or_by_host(kernels.decode(context, version, size, from, to, stream))
    }

    /// Makes the device decode containers in host memory to `range` of `to`. Returns false if the host has to decode.
    pub(super) fn decode_from_host(
        &self,
        context: &mut TierContext,
        containers: &[u8],
        to: &mut dyn Target,
        range: Range<u64>,
    ) -> Decoded {
        match &self.kernels {
            Some(kernels) => or_by_host(kernels.decode_from_host(context, containers, to, range)),
            None => Ok(false),
        }
    }

    /// Sends `bytes` bytes, the compressed or plain form of `raw` bytes, by calling `work`. The tier below passes them on at
    /// `below` bytes/s, if that was measured.
    pub(super) fn send<T, E>(
        &self,
        raw: u64,
        bytes: u64,
        below: Option<f64>,
        work: impl FnOnce() -> std::result::Result<T, E>,
    ) -> std::result::Result<T, E> {
        self.measured.send(raw, bytes, below, work)
    }

    pub(super) fn metrics(&self) -> CompressionMetrics {
        self.measured.metrics()
    }
}

/// Replaces an error by false, for the host to decode, if the device refused or had no memory.
pub(super) fn or_by_host(decoded: Decoded) -> Decoded {
    use DeviceError::{Driver, OutOfMemory};
    match decoded {
        Err(TransferError {
            error: Some(error @ Error::Device(OutOfMemory { .. } | Driver { .. })),
            ..
        }) => {
            tracing::warn!(%error, "stored bytes are decompressed by the host");
            Ok(false)
        }
        decoded => decoded,
    }
}

impl EncodedInput<'_> {
    pub(super) fn bytes(&self) -> u64 {
        self.came_to().0
    }

    /// Returns the length in bytes, and the nanoseconds that encoding took.
    fn came_to(&self) -> (u64, u64) {
        match &self.0 {
            EncodedParts::OnHost(made) => (made.bytes as u64, made.nanoseconds),
            EncodedParts::OnDevice(made) => (made.bytes, made.nanoseconds),
        }
    }

    /// Stores the containers at the place of the version's copy.
    pub(super) fn put(
        &self,
        context: &mut TierContext,
        to: PlacedPiece<'_>,
        version: Version,
        form: StoredForm,
    ) -> std::result::Result<(), TransferError> {
        let mut put = |from: &dyn Source| {
            let length = self.bytes();
            let stored = StoredBytes {
                version,
                form,
                from,
                length,
            };
            context.put(to, stored)
        };
        match &self.0 {
            EncodedParts::OnHost(made) => put(&HostBytes {
                start: 0,
                bytes: made.buffer.as_slice(),
            }),
            EncodedParts::OnDevice(made) => put(&MemoryBytes {
                start: 0,
                memory: &made.containers,
            }),
        }
    }
}
