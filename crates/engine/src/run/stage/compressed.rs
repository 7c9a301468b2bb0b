//! Checkpoints are compressed on the way down, each by itself.
//!
//! A checkpoint is encoded in runs: values of one type that lie side by side, or a region with a bound. Their containers lie
//! one behind the other, and say themselves how many bytes they are, and of how many they were made.
//!
//! What does not become smaller goes as it is; where compressing does not shorten the way, the governor has it left out.

mod measured;
#[cfg(feature = "cuda")]
mod on_device;
mod predictors;
mod runs;

use super::stored;
use super::{Descent, Links, Stage};
#[cfg(feature = "cuda")]
use crate::plan::Piece;
use crate::plan::{Overhead, Stored, TransferFailure};
use crate::run::ends::{Held, Lying, Origin};
use crate::run::kept::Form;
use crate::run::lane::{Failed, Lane, at_source};
use crate::run::medium::{Level, Medium, to_usize};
use crate::run::regions::Sink;
use crate::run::sync::{AtomicBool, Mutex, Ordering};
use crate::{Compression, CompressionMetrics, Error, Result, Version};
use measured::Measured;
use predictors::Predictors;
use runs::Run;
use std::slice;
use tierflow_codec::{Codec, Decision, Header, Method, Planes};
use tierflow_device::{Device, Stream};
use tierflow_store::container::RegionInfo;

/// Tiers have whole pages: of one page or less, nothing is gained.
const LEAST: u64 = 4097;

/// How checkpoints are compressed, and what came of it.
#[derive(Debug)]
pub(crate) struct Compressed {
    how: Compression,
    overhead: Overhead,
    measured: Measured,
    predictors: Predictors,
    /// For memory that only the device reads.
    #[cfg(feature = "cuda")]
    kernels: Option<on_device::DeviceCodec>,
    /// What the host encodes to.
    buffers: Mutex<Vec<Vec<u8>>>,
}

/// What was made of a checkpoint.
enum Made<'s> {
    OnHost(HostContainers<'s>),
    #[cfg(feature = "cuda")]
    OnDevice(on_device::DeviceContainers<'s>),
}

/// Containers in a buffer that goes back where it came from.
struct HostContainers<'s> {
    buffer: Vec<u8>,
    bytes: usize,
    nanoseconds: u64,
    of: &'s Mutex<Vec<Vec<u8>>>,
}

impl Drop for HostContainers<'_> {
    fn drop(&mut self) {
        let buffer = std::mem::take(&mut self.buffer);
        self.of.lock().push(buffer);
    }
}

impl Compressed {
    /// # Errors
    /// [`Error::Codec`] for a bound that cannot be, or kernels that cannot be loaded.
    #[cfg_attr(not(feature = "cuda"), allow(unused_variables))]
    pub(crate) fn new(how: Compression, device: &Device, fastest: &Medium) -> Result<Self> {
        how.check()?;
        Ok(Self {
            how,
            overhead: runs::overhead()?,
            measured: Measured::default(),
            predictors: Predictors::default(),
            #[cfg(feature = "cuda")]
            kernels: on_device::DeviceCodec::new(device, fastest)?,
            buffers: Mutex::default(),
        })
    }

    #[cfg_attr(not(feature = "cuda"), expect(unused_variables))]
    fn encode(&self, lane: &mut Lane, from: Lying<'_>, runs: &[Run]) -> Result<Made<'_>> {
        #[cfg(feature = "cuda")]
        if let Some(kernels) = &self.kernels {
            let made = kernels.encode(lane, from, runs, &self.predictors)?;
            return Ok(Made::OnDevice(made));
        }
        let source = from.medium.lend(from.at(from.all()))?;
        let whole = source.bytes()?;
        let most = runs.iter().map(Run::most).sum::<Result<u64>>()?;
        let mut made = HostContainers {
            buffer: self.buffers.lock().pop().unwrap_or_default(),
            bytes: 0,
            nanoseconds: 0,
            of: &self.buffers,
        };
        let most = to_usize(0..most).end;
        made.buffer.resize(made.buffer.len().max(most), 0);
        for (number, run) in runs.iter().enumerate() {
            let range = run.range.start as usize..run.range.end as usize;
            let values = whole.get(range).unwrap_or_default();
            let method = match run.bounded()? {
                Some(bounded) => Method::from(bounded),
                None => Method::from(self.predictors.of(number, run.value, || {
                    Ok::<_, Error>(Planes::chosen_for(values, run.value))
                })?),
            };
            let room = made.buffer.get_mut(made.bytes..).unwrap_or_default();
            let encode = || method.encode(values, run.value, room);
            let (encoded, nanoseconds) = self.measured.encoding.time(encode);
            made.bytes += encoded?;
            made.nanoseconds += nanoseconds;
        }
        Ok(Made::OnHost(made))
    }
}

impl Stage for Compressed {
    fn overhead(&self) -> Overhead {
        self.overhead
    }

    fn longest_chain(&self) -> u32 {
        1
    }

    fn metrics(&self) -> Option<CompressionMetrics> {
        Some(self.measured.metrics())
    }

    fn check(&self, version: Version, layout: &[RegionInfo]) -> Result<()> {
        self.how.check_regions(version, layout)
    }

    fn down(
        &self,
        lane: &mut Lane,
        tiers: &[Level],
        descent: &Descent<'_>,
        (from, to): (Lying<'_>, Lying<'_>),
        cancelled: &AtomicBool,
    ) -> std::result::Result<Option<Stored>, Failed> {
        let (version, size) = (descent.version, from.piece.place.size);
        let below = (descent.below)();
        let as_it_is = |lane: &mut Lane| {
            let to = (descent.encoded)(None).ok_or((TransferFailure::Cancelled, None))?;
            let (from, to) = (slice::from_ref(from.piece), slice::from_ref(&to));
            let carry = || lane.carry(tiers, (version, Form::Whole), (from, to), cancelled);
            let sent = self.measured.send((size, size), below, carry);
            sent.map(|()| None)
        };
        if cancelled.load(Ordering::Relaxed) {
            return Err((TransferFailure::Cancelled, None));
        }
        let is_worth_it = || self.how.is_always() || self.measured.decide(size) != Decision::Bypass;
        if size < LEAST || !is_worth_it() {
            return as_it_is(lane);
        }
        let runs = runs::of(&self.how, (descent.layout)().as_deref(), size);
        let made = match self.encode(lane, from, &runs) {
            Ok(made) => made,
            // There is no device memory to do it in, or it is longer than containers are: that keeps no version from going down.
            Err(error) => {
                tracing::warn!(version, %error, "a version goes down as it is: it could not be compressed");
                return as_it_is(lane);
            }
        };
        let (bytes, nanoseconds) = made.came_to();
        self.measured.encoded(size, bytes, nanoseconds);
        if bytes >= size {
            drop(made);
            return as_it_is(lane);
        }
        let form = Form::Difference { size, base: None };
        let stored = Stored { bytes, alone: true };
        let Some(piece) = (descent.encoded)(Some(stored)) else {
            return Err((TransferFailure::Cancelled, None));
        };
        let to = Lying {
            piece: &piece,
            ..to
        };
        let mut put = |from: &(dyn Origin + Sync)| {
            let put = || lane.put(to, (version, form), (from, bytes), cancelled);
            self.measured.send((size, bytes), below, put)
        };
        match &made {
            Made::OnHost(made) => put(&Held {
                start: 0,
                bytes: made.buffer.as_slice(),
            }),
            #[cfg(feature = "cuda")]
            Made::OnDevice(made) => put(&Held {
                start: 0,
                bytes: &made.containers,
            }),
        }?;
        Ok(Some(stored))
    }

    fn up(
        &self,
        lane: &mut Lane,
        tiers: &[Level],
        chain: Links<'_>,
        #[cfg_attr(not(feature = "cuda"), allow(unused_mut))] mut to: Lying<'_>,
    ) -> std::result::Result<(), Failed> {
        #[cfg(feature = "cuda")]
        if let (Some(kernels), (version, place, [])) = (&self.kernels, chain) {
            let piece = whole(*place);
            let from = Lying::on(tiers, &piece);
            let of = (version, to.piece.place.size);
            let decoded = kernels.decode(lane, of, from, &mut to, None);
            if decoded.or_else(by_the_host).map_err(at_source)? {
                return Ok(());
            }
        }
        let stored = stored::fetch_all(lane, tiers, chain).map_err(at_source)?;
        stored::up(lane, stored, to)
    }

    fn read(
        &self,
        lane: &mut Lane,
        tiers: &[Level],
        (chain, size): (Links<'_>, u64),
        (sink, stream): (&mut Sink<'_, '_>, Option<&Stream>),
    ) -> Result<()> {
        #[cfg(feature = "cuda")]
        if let (Some(kernels), (version, place, [])) = (&self.kernels, chain) {
            let piece = whole(*place);
            let from = Lying::on(tiers, &piece);
            let decoded = kernels.decode(lane, (version, size), from, sink, stream);
            if decoded.or_else(by_the_host)? {
                return Ok(());
            }
        }
        let stored = stored::fetch_all(lane, tiers, chain)?;
        stored::read(lane, (stored, size), (sink, stream))
    }
}

/// The piece that a version is where it does not lie as it is.
#[cfg(feature = "cuda")]
fn whole(place: crate::plan::Place) -> Piece {
    Piece { start: 0, place }
}

/// What the device has no memory for, the host does.
#[cfg(feature = "cuda")]
fn by_the_host(error: Error) -> Result<bool> {
    use tierflow_device::Error as DeviceError;
    match error {
        Error::Device(DeviceError::OutOfMemory { .. })
        | Error::Codec(tierflow_codec::Error::Device(DeviceError::OutOfMemory { .. })) => {
            tracing::warn!(%error, "a version is decompressed by the host");
            Ok(false)
        }
        error => Err(error),
    }
}

impl Made<'_> {
    /// How many bytes it is, and the nanoseconds that encoding took.
    fn came_to(&self) -> (u64, u64) {
        match self {
            Self::OnHost(made) => (made.bytes as u64, made.nanoseconds),
            #[cfg(feature = "cuda")]
            Self::OnDevice(made) => (made.bytes, made.nanoseconds),
        }
    }
}

/// Whether these bytes are a compressed checkpoint.
pub(super) fn is_compressed(stored: &[u8]) -> bool {
    Header::is_one(stored)
}
