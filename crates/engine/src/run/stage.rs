//! The stage between the fastest tier and those below it: checkpoints become differences on the way down, and checkpoints
//! again on the way up.
//!
//! Differences are made where the bytes are: those in device memory by the device, those in host memory by the host's
//! cores; and so are checkpoints that come up again. What a caller reads from a lower tier, past a full cache, is put
//! together by the host's cores.
//!
//! The plan says what a difference may build upon. That comes true because it has one made at a time and hears of each
//! failure, after which it says "nothing": a lineage ends with the first failure.

#[cfg(feature = "cuda")]
mod kernels;

use super::durable::told;
use super::ends::{Held, Lying, Origin};
use super::kept::Form;
use super::lane::{Failed, Lane, at_destination, at_source};
use super::medium::{Medium, Tier};
use super::regions::Sink;
use super::sync::{AtomicBool, Mutex, Ordering};
use crate::plan::{Piece, Place, Stored, TransferFailure};
use crate::{Error, Result, Version};
use tierflow_dedup::{Chain, Config, Lineage, Summary, most_stored_bytes};
#[cfg(not(feature = "cuda"))]
use tierflow_device::WriteLoan;
use tierflow_device::{Device, ReadLoan, Stream};

/// A version that lies as a difference, where, and what it builds upon, nearest first.
type Links<'a> = (Version, &'a Place, &'a [(Version, Place)]);

/// How differences are made, and what has made the last ones.
#[derive(Debug)]
pub(crate) struct Stage {
    config: Config,
    /// For memory that only the device reads.
    #[cfg(feature = "cuda")]
    kernels: Option<kernels::OnDevice>,
    encoder: Mutex<Encoder>,
}

#[derive(Debug, Default)]
struct Encoder {
    /// What made the last difference, if the next one may build upon it.
    lineage: Option<Encodes>,
    /// The number of the next difference: versions come in any order, those of a lineage do not.
    next: u64,
    /// Where the device puts differences.
    #[cfg(feature = "cuda")]
    landing: Option<tierflow_device::HostReservation>,
}

#[derive(Debug)]
enum Encodes {
    OnHost(Box<Lineage>),
    #[cfg(feature = "cuda")]
    OnDevice(Box<tierflow_dedup::gpu::Lineage>),
}

/// The stored bytes of a difference.
enum Bytes {
    Lent(ReadLoan),
    Owned(Vec<u8>),
}

impl AsRef<[u8]> for Bytes {
    fn as_ref(&self) -> &[u8] {
        match self {
            // Of host memory alone. Bytes that could not be read would be found to be no difference.
            Self::Lent(loan) => loan.bytes().unwrap_or_default(),
            Self::Owned(bytes) => bytes,
        }
    }
}

impl Stage {
    /// # Errors
    /// [`Error::Dedup`] for a chunk size that there is not, or kernels that cannot be loaded.
    #[cfg_attr(not(feature = "cuda"), allow(unused_variables))]
    pub(crate) fn new(config: Config, device: &Device, fastest: &Medium) -> Result<Self> {
        Lineage::new(config)?;
        Ok(Self {
            config,
            #[cfg(feature = "cuda")]
            kernels: kernels::OnDevice::new(device, fastest)?,
            encoder: Mutex::default(),
        })
    }

    /// The most bytes by which a difference is larger than its checkpoint.
    pub(crate) fn overhead() -> u64 {
        most_stored_bytes(0)
    }

    /// Makes the difference of a checkpoint to `base`, or to nothing, and stores it. Once begun, it is not cancelled.
    pub(super) fn down(
        &self,
        lane: &mut Lane,
        from: Lying<'_>,
        to: Lying<'_>,
        (version, base): (Version, Option<Version>),
        cancelled: &AtomicBool,
    ) -> std::result::Result<Stored, Failed> {
        let mut encoder = self.encoder.lock();
        if base.is_none() {
            encoder.lineage = None;
        }
        // Without a lineage there is nothing left to build upon: the plan starts anew.
        if cancelled.load(Ordering::Relaxed) || encoder.lineage.is_some() != base.is_some() {
            encoder.lineage = None;
            return Err((TransferFailure::Cancelled, None));
        }
        let stored = self.store(&mut encoder, lane, from, (version, base), to);
        if stored.is_err() {
            encoder.lineage = None;
        }
        stored
    }

    fn store(
        &self,
        encoder: &mut Encoder,
        lane: &mut Lane,
        from: Lying<'_>,
        (version, base): (Version, Option<Version>),
        to: Lying<'_>,
    ) -> std::result::Result<Stored, Failed> {
        let began_anew = encoder.lineage.is_none();
        let make = |encoder: &mut Encoder, lane: &mut Lane| {
            self.make(encoder, lane, from).map_err(at_source)
        };
        let (mut summary, mut bytes) = make(encoder, lane)?;
        // Little was as before, so the way back need not lead past what came before.
        let is_alone = began_anew || summary.stored_bytes > from.piece.place.size / 2;
        if is_alone && !began_anew {
            encoder.lineage = None;
            drop(bytes);
            (summary, bytes) = make(encoder, lane)?;
        }
        let form = Form::Difference {
            size: from.piece.place.size,
            base: base.filter(|_| !is_alone),
        };
        lane.put(to, version, bytes.as_ref(), form)?;
        Ok(Stored {
            bytes: summary.stored_bytes,
            alone: is_alone,
        })
    }

    /// The difference of the checkpoint that lies there.
    fn make(
        &self,
        encoder: &mut Encoder,
        lane: &mut Lane,
        from: Lying<'_>,
    ) -> Result<(Summary, Bytes)> {
        let source = from.medium.lend(from.at(from.all()))?;
        let number = encoder.next;
        encoder.next += 1;
        if let Ok(bytes) = source.bytes() {
            let difference = self.on_host(encoder)?.encode(number, bytes)?;
            return Ok((difference.summary(), Bytes::Owned(difference.into_bytes())));
        }
        self.on_device(encoder, lane, number, source)
    }

    /// Memory that only a device reads.
    #[cfg(not(feature = "cuda"))]
    fn on_device(
        &self,
        _: &mut Encoder,
        _: &mut Lane,
        _: u64,
        _: ReadLoan,
    ) -> Result<(Summary, Bytes)> {
        Err(Error::NoMemoryTier)
    }

    fn on_host<'e>(&self, encoder: &'e mut Encoder) -> Result<&'e mut Lineage> {
        if !matches!(encoder.lineage, Some(Encodes::OnHost(_))) {
            let lineage = Lineage::new(self.config)?;
            encoder.lineage = Some(Encodes::OnHost(Box::new(lineage)));
        }
        match &mut encoder.lineage {
            Some(Encodes::OnHost(lineage)) => Ok(lineage),
            _ => Err(Error::NoMemoryTier),
        }
    }

    /// Makes a checkpoint of its difference and of those that it builds upon.
    pub(super) fn up(
        &self,
        lane: &mut Lane,
        tiers: &[Tier],
        chain: Links<'_>,
        to: Lying<'_>,
    ) -> std::result::Result<(), Failed> {
        let (chain, number) = gather(lane, tiers, chain).map_err(at_source)?;
        let lent = to.medium.lend_mut(to.at(to.all()));
        let mut whole = lent.map_err(at_destination)?;
        if let Ok(bytes) = whole.bytes_mut() {
            let restored = chain.restore(number, bytes);
            return restored.map_err(|error| at_source(error.into()));
        }
        self.restore_on_device(lane, (&chain, number), whole)
            .map_err(at_source)
    }

    #[cfg(not(feature = "cuda"))]
    fn restore_on_device(&self, _: &mut Lane, _: (&Chain<Bytes>, u64), _: WriteLoan) -> Result<()> {
        Err(Error::NoMemoryTier)
    }
}

impl Lane {
    /// Stores the difference of a version where its copy is to lie.
    fn put(
        &mut self,
        mut to: Lying<'_>,
        version: Version,
        bytes: &[u8],
        form: Form,
    ) -> std::result::Result<(), Failed> {
        let (held, length) = (Held { start: 0, bytes }, bytes.len() as u64);
        match to.medium.kept() {
            None => self.copy(&held, &mut to, 0..length, (None, None)),
            Some(kept) => {
                let pull =
                    |lane: &mut Self, at, into: &mut [u8]| lane.fill(&held, (at, into), None);
                // Once begun, a difference is not cancelled.
                let never = AtomicBool::new(false);
                self.save(kept, (version, length, form), pull, &never)
            }
        }
    }

    /// Reads a version that lies as a difference into the application's regions.
    pub(crate) fn read_decoded(
        &mut self,
        sink: &mut Sink<'_, '_>,
        tiers: &[Tier],
        chain: Links<'_>,
        stream: Option<&Stream>,
    ) -> Result<()> {
        let (chain, number) = gather(self, tiers, chain)?;
        if let Some([crate::RegionMut::Bytes(bytes)]) = sink.all() {
            return Ok(chain.restore(number, bytes)?);
        }
        let whole = chain.to_vec(number)?;
        self.give(sink, (0, &whole), stream)
    }
}

/// The differences that a version is made of, and the number of the last one.
fn gather(
    lane: &mut Lane,
    tiers: &[Tier],
    (version, from, bases): Links<'_>,
) -> Result<(Chain<Bytes>, u64)> {
    let mut chain = Chain::new();
    let oldest_first = bases.iter().rev().map(|(version, place)| (*version, place));
    for (version, place) in oldest_first.chain([(version, from)]) {
        let piece = Piece {
            start: 0,
            place: *place,
        };
        chain.push(fetch(lane, version, Lying::on(tiers, &piece))?)?;
    }
    let number = chain.versions().last().ok_or(Error::NoTier)?;
    Ok((chain, number))
}

fn fetch(lane: &mut Lane, version: Version, from: Lying<'_>) -> Result<Bytes> {
    if let Some(lent) = from.lend(from.all()) {
        let lent = lent?;
        if lent.bytes().is_ok() {
            return Ok(Bytes::Lent(lent));
        }
    }
    let size = from.piece.place.size;
    let mut bytes = vec![0; usize::try_from(size).unwrap_or(usize::MAX)];
    match from.medium.kept() {
        Some(kept) => kept.restore(version, &mut bytes)?,
        None => lane.fill(&from, (0, &mut bytes), None).map_err(told)?,
    }
    Ok(Bytes::Owned(bytes))
}
