//! Checkpoints become differences on the way down. What a caller reads from a lower tier, past a full cache, is put together
//! by the host's cores.
//!
//! The plan says what a difference may build upon. That comes true because it has one made at a time and hears of each
//! failure, after which it says "nothing": a lineage ends with the first failure.

#[cfg(feature = "cuda")]
mod kernels;

use super::stored::{self, Bytes};
use super::{Descent, Links, Stage};
use crate::plan::{Overhead, Stored, TransferFailure};
use crate::run::ends::{Held, Lying, Origin};
use crate::run::kept::Form;
#[cfg(feature = "cuda")]
use crate::run::lane::at_destination;
use crate::run::lane::{Failed, Lane, at_source};
use crate::run::medium::{Medium, Tier};
use crate::run::regions::Sink;
use crate::run::sync::{AtomicBool, Mutex, Ordering};
use crate::{CompressionMetrics, Error, Result, Version};
use tierflow_dedup::{Chain, Config, Lineage, Summary, most_stored_bytes};
#[cfg(not(feature = "cuda"))]
use tierflow_device::ReadLoan;
use tierflow_device::{Device, Memory, Stream};
use tierflow_store::container::RegionInfo;

/// Differences that a version is made of, at most: what a restore from a lower tier reads.
const LONGEST_CHAIN: u32 = 16;

/// How differences are made, and what has made the last ones.
#[derive(Debug)]
pub(crate) struct Differences {
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
    /// Where the device puts differences, in its own memory: its copy engine takes them on from there.
    #[cfg(feature = "cuda")]
    landing: Option<Memory>,
}

#[derive(Debug)]
enum Encodes {
    OnHost(Box<Lineage>),
    #[cfg(feature = "cuda")]
    OnDevice(Box<tierflow_dedup::gpu::Lineage>),
}

/// A difference that was made.
enum Made {
    OnHost(Vec<u8>),
    #[cfg_attr(not(feature = "cuda"), expect(dead_code))]
    OnDevice(Memory),
}

impl Differences {
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

    /// Makes the difference of a checkpoint to `base`, or to nothing, and stores it. Once begun, it is not cancelled.
    fn encode(
        &self,
        lane: &mut Lane,
        (from, to): (Lying<'_>, Lying<'_>),
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
        let (mut summary, mut made) = make(encoder, lane)?;
        // Little was as before, so the way back need not lead past what came before.
        let is_alone = began_anew || summary.stored_bytes > from.piece.place.size / 2;
        if is_alone && !began_anew {
            encoder.lineage = None;
            drop(made);
            (summary, made) = make(encoder, lane)?;
        }
        let form = Form::Difference {
            size: from.piece.place.size,
            base: base.filter(|_| !is_alone),
        };
        let (on_host, on_device);
        let from: &(dyn Origin + Sync) = match &made {
            Made::OnHost(bytes) => {
                on_host = Held {
                    start: 0,
                    bytes: bytes.as_slice(),
                };
                &on_host
            }
            Made::OnDevice(memory) => {
                on_device = Held {
                    start: 0,
                    bytes: memory,
                };
                &on_device
            }
        };
        // Once begun, a difference is not cancelled.
        let never = AtomicBool::new(false);
        let from = (from, summary.stored_bytes);
        lane.put(to, (version, form), from, &never)?;
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
    ) -> Result<(Summary, Made)> {
        let source = from.medium.lend(from.at(from.all()))?;
        let number = encoder.next;
        encoder.next += 1;
        if let Ok(bytes) = source.bytes() {
            let difference = self.on_host(encoder)?.encode(number, bytes)?;
            return Ok((difference.summary(), Made::OnHost(difference.into_bytes())));
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
    ) -> Result<(Summary, Made)> {
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
}

impl Stage for Differences {
    fn overhead(&self) -> Overhead {
        Overhead::fixed(most_stored_bytes(0))
    }

    fn longest_chain(&self) -> u32 {
        LONGEST_CHAIN
    }

    fn check(&self, _: Version, _: &[RegionInfo]) -> Result<()> {
        Ok(())
    }

    fn metrics(&self) -> Option<CompressionMetrics> {
        None
    }

    fn down(
        &self,
        lane: &mut Lane,
        _: &[Tier],
        descent: &Descent,
        ends: (Lying<'_>, Lying<'_>),
        cancelled: &AtomicBool,
    ) -> std::result::Result<Option<Stored>, Failed> {
        let links = (descent.version, descent.base);
        self.encode(lane, ends, links, cancelled).map(Some)
    }

    fn up(
        &self,
        lane: &mut Lane,
        tiers: &[Tier],
        chain: Links<'_>,
        to: Lying<'_>,
    ) -> std::result::Result<(), Failed> {
        #[cfg(feature = "cuda")]
        if let Some(kernels) = &self.kernels {
            let (version, place, bases) = chain;
            let newest = stored::fetch_all(lane, tiers, (version, place, &[]));
            let mut newest = newest.map_err(at_source)?;
            if !stored::is_compressed(&newest)
                && let Some(newest) = newest.pop()
            {
                let room = to.medium.lend_mut(to.at(to.all()));
                let room = room.map_err(at_destination)?;
                let others = |lane: &mut Lane| match bases {
                    [] => Ok(Vec::new()),
                    [(version, place), bases @ ..] => {
                        stored::fetch_all(lane, tiers, (*version, place, bases))
                    }
                };
                let restored = kernels.restore(lane, newest, others, room);
                return restored.map_err(at_source);
            }
        }
        let stored = stored::fetch_all(lane, tiers, chain).map_err(at_source)?;
        stored::up(lane, stored, to)
    }

    /// By the host's cores.
    fn read(
        &self,
        lane: &mut Lane,
        tiers: &[Tier],
        (chain, size): (Links<'_>, u64),
        to: (&mut Sink<'_, '_>, Option<&Stream>),
    ) -> Result<()> {
        let stored = stored::fetch_all(lane, tiers, chain)?;
        stored::read(lane, (stored, size), to)
    }
}

/// The differences that a version is made of, and the number of the last one.
pub(super) fn chain(stored: Vec<Bytes>) -> Result<(Chain<Bytes>, u64)> {
    let mut chain = Chain::new();
    for difference in stored {
        chain.push(difference)?;
    }
    let number = chain.versions().last().ok_or(Error::NoTier)?;
    Ok((chain, number))
}
